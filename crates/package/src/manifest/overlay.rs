//! Options of a deploy that override the folder's files.

use serde_json::{Value, json};

use super::Manifest;
use crate::error::{Error, invalid};

/// Options that override `stoke.toml` and `cog.yaml`.
#[derive(Debug, Default)]
pub struct Overlay {
    /// Python version. Unlike in `stoke.toml`, it may have a patch level.
    pub(crate) python: Option<String>,
    pub(crate) manifest: Manifest,
}

impl Overlay {
    /// Parses a JSON object with the members of `stoke.toml`; null means that a member is not set.
    ///
    /// # Errors
    /// If a member is unknown, or its value is out of bounds.
    pub fn parse(options: Value) -> Result<Self, Error> {
        let Value::Object(mut options) = options else { invalid!("the deploy options are not an object") };
        options.retain(|_, value| !value.is_null());
        let python = match options.remove("python") {
            Some(Value::String(python)) => Some(python),
            Some(other) => invalid!("deploy options: python must be a string, not {other}"),
            None => None,
        };
        // Members are parsed one by one first, because an error in the whole object does not name its member.
        for (name, value) in &options {
            let parsed = Manifest::parse_json(json!({name: value}));
            parsed.map_err(|why| Error::invalid(format!("deploy options: {name}: {why}")))?;
        }
        let manifest = Manifest::parse_json(Value::Object(options));
        let manifest = manifest.map_err(|why| Error::invalid(format!("deploy options: {why}")))?;
        Ok(Self { python, manifest })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn options_replace_what_the_file_has() {
        let file =
            Manifest::parse("name = \"a\"\ntimeout_s = 60\ngpus = 2\nsecrets = [\"A\"]\n[env]\nX = \"1\"\nY = \"1\"\n");
        let options = json!({"timeout_s": 5, "min_cuda": "12.0", "env": {"Y": "2"}, "name": null, "vram_gib": 8});
        let merged = Overlay::parse(options).unwrap().manifest.over(file.unwrap());
        assert_eq!(merged.name.as_deref(), Some("a"));
        assert_eq!(
            Value::Object(merged.members().unwrap()),
            json!({
                "timeout_s": 5, "vram_gib": 8.0, "demands": {"gpus": 2, "min_cuda": "12.0"},
                "secrets": ["A"], "env": {"X": "1", "Y": "2"},
            })
        );
    }

    #[test]
    fn an_empty_list_replaces_that_of_the_file() {
        let file = Manifest::parse("secrets = [\"A\"]\nregions = [\"eu\"]\n[[weights]]\nsource = \"hf://a/b\"\n");
        let options = json!({"secrets": [], "regions": [], "weights": []});
        let merged = Overlay::parse(options).unwrap().manifest.over(file.unwrap());
        assert_eq!(merged.weights.as_ref().map(Vec::len), Some(0));
        assert_eq!(Value::Object(merged.members().unwrap()), json!({"secrets": [], "demands": {"regions": []}}));
    }

    #[test]
    fn a_wrong_option_is_named() {
        for (options, expected) in [
            (json!({"vram_gb": 8}), "did you mean `vram_gib`?"),
            (json!({"timeout_s": 0}), "timeout_s: use a whole number from 1 to 604800"),
            (json!({"python": 3}), "python must be a string, not 3"),
            (json!([]), "are not an object"),
        ] {
            let error = Overlay::parse(options).unwrap_err().to_string();
            assert!(error.starts_with("deploy options: ") || error.contains("deploy options are"), "{error}");
            assert!(error.contains(expected), "{error}");
        }
    }
}
