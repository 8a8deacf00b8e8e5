//! `stoke endpoint diff`: differences between two versions of an endpoint.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Map, Value, json};

use super::traffic;
use crate::client::{Client, segment};
use crate::failure::{Failure, require, usage};
use crate::submit::options::endpoint;
use crate::{Global, completions, output};

/// Members that differ between any two versions.
const ALWAYS: [&str; 3] = ["name", "version", "created_at"];

/// Show the differences between two versions of an endpoint
#[derive(Args)]
#[command(after_help = "Examples:
  stoke endpoint diff greet               the current version with the one before
  stoke endpoint diff greet@3             version 3 with the current one
  stoke endpoint diff greet@3 greet@5")]
pub(super) struct DiffArgs {
    /// Endpoint, or its older version [default: the one before NEW]
    #[arg(value_name = "NAME[@VERSION]", add = completions::endpoints())]
    old: String,
    /// Newer version [default: the current one]
    #[arg(value_name = "NEW")]
    new: Option<String>,
}

pub(super) async fn run(global: &Global, client: &Client, args: &DiffArgs) -> Result<()> {
    let (name, old) = endpoint(&args.old)?;
    let new = args.new.as_deref().map(endpoint).transpose()?;
    if let Some((other, _)) = new.as_ref().filter(|(other, _)| *other != name) {
        usage!("{name} and {other} are two endpoints; compare versions of one");
    }
    let found = client.get(&format!("/v1/endpoints/{}/versions", segment(&name))).await?;
    let versions = found["versions"].as_array().context("the API's response has no versions")?;
    let current = traffic::of(client, &name).await?.versions.first().map_or(1, |part| part.version);
    let new = new.and_then(|(_, version)| version).unwrap_or(current);
    let old = old.unwrap_or(new.saturating_sub(1));
    require!(old > 0, "{name}@1 is the first version; there is no earlier one to compare with");
    let version = |number: u32| {
        let found = versions.iter().find(|version| version["version"] == number).and_then(Value::as_object);
        found.with_context(|| Failure::usage(format!("{name} has no version {number}")))
    };
    let changes = changes(version(old)?, version(new)?);
    if global.json {
        return output::json(&json!({"name": name, "old": old, "new": new, "changes": changes}));
    }
    if changes.is_empty() {
        return output::line(format_args!("{name}@{old} and @{new} are the same"));
    }
    output::line(output::bold(format_args!("{name}@{old} -> @{new}")))?;
    for (member, change) in &changes {
        output::line(member)?;
        for (sign, side) in [("-", "old"), ("+", "new")] {
            for line in lines(&change[side], &change[if side == "old" { "new" } else { "old" }]) {
                output::line(format_args!("  {sign} {line}"))?;
            }
        }
    }
    Ok(())
}

/// Every member that differs, with both values; a missing member is null.
fn changes(old: &Map<String, Value>, new: &Map<String, Value>) -> Map<String, Value> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differs = |name: &&String| !ALWAYS.contains(&name.as_str()) && old.get(*name) != new.get(*name);
    let both = |name: &String| (name.clone(), json!({"old": old.get(name), "new": new.get(name)}));
    names.into_iter().filter(differs).map(both).collect()
}

/// The lines of a value that are not in the other value.
fn lines(value: &Value, other: &Value) -> Vec<String> {
    let text = match value {
        Value::Null => return Vec::new(),
        Value::String(text) => text.clone(),
        value => serde_json::to_string_pretty(value).unwrap_or_default(),
    };
    let other = match other {
        Value::String(text) => text.clone(),
        value => serde_json::to_string_pretty(value).unwrap_or_default(),
    };
    let theirs: BTreeSet<&str> = other.lines().collect();
    // Hashes of a lock file are noise to a reader.
    let says = |line: &&str| !theirs.contains(line) && !line.trim_start().starts_with("--hash=");
    text.lines().filter(says).map(|line| line.trim_end_matches(" \\").to_owned()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn only_what_differs_is_shown() {
        let version = |value: Value| value.as_object().unwrap().clone();
        let old = version(
            json!({"version": 1, "created_at": "a", "vram_gib": 4, "lock": "a==1 \\\n    --hash=sha256:x\nb==1\n"}),
        );
        let new = version(
            json!({"version": 2, "created_at": "b", "vram_gib": 4, "lock": "a==2 \\\n    --hash=sha256:y\nb==1\n", "gpus": 2}),
        );
        let changes = changes(&old, &new);
        assert_eq!(changes.keys().collect::<Vec<_>>(), ["gpus", "lock"]);
        assert_eq!(lines(&changes["lock"]["old"], &changes["lock"]["new"]), ["a==1"]);
        assert_eq!(lines(&changes["lock"]["new"], &changes["lock"]["old"]), ["a==2"]);
        assert!(lines(&changes["gpus"]["old"], &changes["gpus"]["new"]).is_empty());
    }
}
