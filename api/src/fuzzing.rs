//! Properties that must hold for any input from outside. The targets in `fuzz/` call these functions with libFuzzer's
//! inputs; the test below calls them with the inputs that are stored in the tree. Each function accepts any bytes, and
//! panics when a property is violated.

#![doc(hidden)]
#![allow(missing_docs, clippy::missing_panics_doc, clippy::unwrap_used, reason = "these are tests with another driver")]

pub mod cursors;
pub mod job_json;
pub mod lines;
pub mod tokens;
pub mod url_policy;
pub mod webhook_secrets;

/// Splits the input: the first byte selects the case, the rest is the data.
fn split(data: &[u8]) -> (usize, &[u8]) {
    data.split_first().map_or((0, data), |(first, rest)| (usize::from(*first), rest))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    type Property = fn(&[u8]);

    const TARGETS: [(&str, Property); 6] = [
        ("cursors", super::cursors::check),
        ("job_json", super::job_json::check),
        ("lines", super::lines::check),
        ("tokens", super::tokens::check),
        ("url_policy", super::url_policy::check),
        ("webhook_secrets", super::webhook_secrets::check),
    ];

    #[test]
    fn every_kept_input_holds() {
        for (target, check) in TARGETS {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(target);
            let seeds: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            assert!(!seeds.is_empty(), "{target} has no seeds");
            for seed in seeds {
                println!("{}", seed.display());
                check(&std::fs::read(&seed).unwrap());
            }
        }
    }
}
