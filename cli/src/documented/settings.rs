//! Blocks of TOML: `stoke.toml`, `autoscaler.toml` and `api.toml`, as their titles name them.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use stokehold_package::{Overlay, Package};
use stokehold_tests::documented::Fence;

use super::{fences, report};

/// Parses a block as the file of its title. Returns why it is refused.
fn fault(fence: &Fence) -> Option<String> {
    let text = fence.text.as_str();
    match fence.title() {
        Some("stoke.toml") => manifest_fault(text),
        Some("autoscaler.toml") => {
            stokehold_autoscaler::config::Config::load(Some(text), |_| None).err().map(|error| error.to_string())
        }
        Some("api.toml") => {
            let key = |name: &str| (name == "STOKE_TOKEN_KEY").then(|| "0".repeat(64));
            stokehold_api::Config::load(Some(text), key).err().map(|error| error.to_string())
        }
        other => Some(format!("the title is {other:?}: add title=\"stoke.toml\", \"autoscaler.toml\" or \"api.toml\"")),
    }
}

/// Opens a package with this `stoke.toml` and stand-ins for the files that it names.
fn manifest_fault(text: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("stoke.toml", text);
    write("main.py", "def handler(): ...\n");
    let schema = json!({"type": "object"}).to_string();
    write("input.schema.json", &schema);
    write("output.schema.json", &schema);
    // A part of a file that shows only options has no program: it gets the handler above.
    let table: toml::Table = match text.parse() {
        Ok(table) => table,
        Err(error) => return Some(error.to_string()),
    };
    let has_program = table.contains_key("kind") || table.contains_key("command") || table.contains_key("handler");
    let options: Value = if has_program { json!({}) } else { json!({"handler": "main.py:handler"}) };
    let overlay = Overlay::parse(options).unwrap();
    open(folder.path(), overlay).err()
}

fn open(folder: &Path, overlay: Overlay) -> Result<(), String> {
    Package::open(&folder.to_string_lossy(), overlay).map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn every_block_of_toml_is_accepted_by_its_program() {
    let faults: Vec<String> =
        fences("toml").iter().filter_map(|fence| fault(fence).map(|why| format!("{}: {why}", fence.place()))).collect();
    report(&faults);
}

#[test]
fn a_setting_below_the_wrong_table_is_refused() {
    let misplaced = "[retry]\njitter = 0.5\nsecrets = [\"HF_TOKEN\"]\n";
    assert!(manifest_fault(misplaced).is_some_and(|why| why.contains("secrets")));
    assert_eq!(manifest_fault("secrets = [\"HF_TOKEN\"]\n"), None);
}
