//! Input of a job.

use std::io::Read;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::failure::Failure;

/// Reads JSON from the argument, from @FILE, or from standard input (`-`). The default is an empty object.
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
                let text = std::fs::read_to_string(path).with_context(|| Failure::cannot_read(path))?;
                parse(&text, path)
            }
            None => parse(given, "--input"),
        },
    }
}

fn parse(text: &str, from: &str) -> Result<Value> {
    serde_json::from_str(text).with_context(|| {
        Failure::usage(format!("{from} is not valid JSON; strings need double quotes, e.g. '{{\"text\": \"hi\"}}'"))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::exit::{Report, USAGE};

    #[test]
    fn a_wrong_input_is_a_wrong_command() {
        assert_eq!(read(Some("-5")).unwrap(), json!(-5));
        assert_eq!(read(None).unwrap(), json!({}));
        for wrong in ["{name: 1}", "@/no/such"] {
            assert_eq!(Report::of(&read(Some(wrong)).unwrap_err()).exit_code, USAGE, "{wrong}");
        }
    }
}
