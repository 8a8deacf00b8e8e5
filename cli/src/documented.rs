//! Tests of the code in Markdown: each fenced block is parsed by the program that reads such text. They are here because
//! only this crate depends on every crate that has settings.

mod languages;
mod settings;
mod shell;

use stokehold_tests::documented::{Fence, all_fences};

/// Languages that a block may have. `text` is output, or a figure; a test checks no more of it.
const LANGUAGES: [&str; 11] =
    ["sh", "python", "js", "toml", "json", "yaml", "console", "http", "ini", "mermaid", "text"];

/// Maximum number of blocks with the marker `no-run`, which no test checks.
const UNCHECKED_MAX: usize = 3;

/// The blocks in this language that are not marked `no-run`.
fn fences(language: &str) -> Vec<Fence> {
    let found: Vec<Fence> =
        all_fences().into_iter().filter(|fence| fence.language == language && !fence.is_unchecked()).collect();
    assert!(!found.is_empty(), "no block of {language} was found");
    found
}

/// Fails with all faults, if there are any.
fn report(faults: &[String]) {
    assert!(faults.is_empty(), "{} blocks are wrong:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn every_block_names_its_language() {
    let faults: Vec<String> = all_fences()
        .iter()
        .filter(|fence| !LANGUAGES.contains(&fence.language.as_str()))
        .map(|fence| format!("{}: the language is {:?}; use one of {LANGUAGES:?}", fence.place(), fence.language))
        .collect();
    report(&faults);
}

#[test]
fn few_blocks_are_unchecked() {
    let unchecked: Vec<String> = all_fences().iter().filter(|fence| fence.is_unchecked()).map(Fence::place).collect();
    assert!(unchecked.len() <= UNCHECKED_MAX, "blocks with the marker no-run: {unchecked:?}");
}
