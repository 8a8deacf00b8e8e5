//! Where a job's input comes from.

use std::io::Read;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// JSON as it stands, from @FILE, or from standard input as `-`; nothing is an empty object.
pub(crate) fn read(given: Option<&str>) -> Result<Value> {
    match given {
        None => Ok(json!({})),
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            parse(&text, "standard input")
        }
        Some(given) => match given.strip_prefix('@') {
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
                parse(&text, path)
            }
            None => parse(given, "--input"),
        },
    }
}

fn parse(text: &str, from: &str) -> Result<Value> {
    serde_json::from_str(text)
        .with_context(|| format!("{from} is not JSON; strings want double quotes, as in '{{\"text\": \"hi\"}}'"))
}
