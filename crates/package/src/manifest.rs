//! `stoke.toml`: the manifest of an endpoint. Names and bounds are the same as in `@endpoint` and the API, from whose
//! schema [`Manifest`] is generated.

mod fields;
mod overlay;
mod value;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use stokehold_serde_words::{json_in_words, shown_in_words};

use self::fields::DEMANDS;
pub(crate) use self::fields::Manifest;
pub use self::overlay::Overlay;
use self::value::{Decimal, UrlPath, Whole};
use crate::error::{Error, Step as _, invalid};
use crate::kind::Kind;
use crate::requirements::Declared;

/// File name.
pub(crate) const FILE: &str = "stoke.toml";

/// `[[weights]]`: a file, a folder or a repository.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightSource {
    /// `hf://org/model@revision/file`, `https://…`, `s3://bucket/key` or `file:path`.
    pub source: String,
    /// Path in the weights folder [default: the last component of the source].
    pub path: Option<String>,
    /// Expected SHA-256.
    #[serde(default, deserialize_with = "sha256")]
    pub sha256: Option<String>,
}

fn sha256<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if is_sha256(&text) {
        Ok(Some(text))
    } else {
        Err(D::Error::custom("use a SHA-256 of 64 lower-case hex digits, or leave it out: the first deploy pins it"))
    }
}

/// Whether a text is a SHA-256 in lower-case hex.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// `[server]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Server {
    #[serde(default = "health")]
    ready_path: UrlPath,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<UrlPath>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<Whole<1, 65_535>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    busy: Option<String>,
}

fn health() -> UrlPath {
    UrlPath("/health".to_owned())
}

impl Default for Server {
    fn default() -> Self {
        Self { ready_path: health(), path: None, port: None, busy: None }
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Retry {
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff_s: Option<Decimal<0, 86_400>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff_max_s: Option<Decimal<0, 86_400>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jitter: Option<Decimal<0, 1>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on: Option<Vec<String>>,
}

/// A pipeline step: an endpoint that checks the input or output of every job.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Step {
    endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<Whole<1, 4_294_967_295>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    thresholds: BTreeMap<String, Decimal<0, 1>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_s: Option<Whole<1, 604_800>>,
}

impl<'de> Deserialize<'de> for Declared {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "use the name of a file, or a list such as [\"numpy>=2\"]")]
        enum Either {
            File(PathBuf),
            Lines(Vec<String>),
        }
        Ok(match Either::deserialize(deserializer)? {
            Either::File(path) => Self::File(path),
            Either::Lines(lines) => Self::Lines(lines),
        })
    }
}

impl Manifest {
    /// Reads the manifest of a folder, if it exists.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, Error> {
        let path = folder.join(FILE);
        crate::files::read_if_there(&path, Self::parse)
    }

    fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| {
            let message = error.message();
            with_suggestion(shown_in_words(&error, message), message)
        })
    }

    /// Parses a JSON object with the same members.
    fn parse_json(options: Value) -> Result<Self, String> {
        serde_json::from_value(options).map_err(|error| with_suggestion(json_in_words(&error), &error.to_string()))
    }

    /// Members of the deploy request.
    pub(crate) fn members(&self) -> Result<Map<String, Value>, Error> {
        let members = serde_json::to_value(self).step(|| format!("cannot convert {FILE} to JSON"))?;
        let Value::Object(mut members) = members else { invalid!("{FILE} is not an object") };
        let demands: Map<String, Value> = DEMANDS.iter().filter_map(|name| members.remove_entry(*name)).collect();
        if !demands.is_empty() {
            members.insert("demands".to_owned(), Value::Object(demands));
        }
        Ok(members)
    }

    /// The `runner` member of the deploy request.
    pub(crate) fn runner(&self, kind: Kind) -> Result<Value, Error> {
        let command = || {
            let missing = || format!("{FILE}: kind {kind} needs a command, such as command = [\"./serve\"]");
            self.command.as_ref().ok_or_else(|| Error::invalid(missing()))
        };
        Ok(match kind {
            Kind::Python | Kind::Cog | Kind::Runpod => json!({"kind": kind}),
            Kind::Command => json!({"kind": kind, "command": command()?}),
            Kind::Server => {
                let mut runner = serde_json::to_value(self.server.clone().unwrap_or_default())
                    .step(|| format!("cannot convert [server] of {FILE} to JSON"))?;
                runner["kind"] = json!(kind);
                runner["command"] = json!(command()?);
                runner
            }
        })
    }
}

/// Adds the closest known name to a message about an unknown one.
fn with_suggestion(shown: String, message: &str) -> String {
    match unknown(message).and_then(|(field, known)| closest(field, &known).map(str::to_owned)) {
        Some(close) => format!("{shown}\ndid you mean `{close}`?"),
        None => shown,
    }
}

/// Parses serde's message `` unknown field `a`, expected one of `b`, `c` ``.
fn unknown(message: &str) -> Option<(&str, Vec<&str>)> {
    let mut quoted = message.strip_prefix("unknown ")?.split('`').skip(1).step_by(2);
    Some((quoted.next()?, quoted.collect()))
}

fn closest<'a>(field: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |name: &&&str| strsim::damerau_levenshtein(field, name);
    known.iter().filter(|name| distance(name) <= 3).min_by_key(distance).copied()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_it_says_is_what_is_deployed() {
        let manifest = Manifest::parse(
            r#"
            name = "chat"
            kind = "server"
            command = ["vllm", "serve", "--port", "{port}"]
            requirements = ["vllm==0.9"]
            python = "3.11"
            vram_gib = 20
            gpus = 2
            min_cuda = "12.4"
            timeout_s = 60
            before = [{ endpoint = "prompt-check", thresholds = { nsfw = 0.5 } }]
            warmup = [{ prompt = "hi" }]
            [env]
            HF_HUB_OFFLINE = "1"
            [server]
            path = "/v1/chat/completions"
            busy = "vllm:num_requests_waiting > 0"
            "#,
        )
        .unwrap();
        assert_eq!(
            Value::Object(manifest.members().unwrap()),
            json!({
                "vram_gib": 20.0, "timeout_s": 60, "warmup": [{"prompt": "hi"}], "env": {"HF_HUB_OFFLINE": "1"},
                "before": [{"endpoint": "prompt-check", "thresholds": {"nsfw": 0.5}}],
                "demands": {"gpus": 2, "min_cuda": "12.4"},
            })
        );
        assert_eq!(
            manifest.runner(Kind::Server).unwrap(),
            json!({"kind": "server", "command": ["vllm", "serve", "--port", "{port}"], "ready_path": "/health", "path": "/v1/chat/completions", "busy": "vllm:num_requests_waiting > 0"})
        );
        assert_eq!(manifest.requirements, Some(Declared::Lines(vec!["vllm==0.9".to_owned()])));
        assert!(Manifest::parse("kind = \"command\"").unwrap().runner(Kind::Command).is_err());
    }

    #[test]
    fn a_mistake_is_shown_where_it_is_with_what_is_allowed() {
        for (text, place, says) in [
            ("vram_gb = 3", "line 1, column 1", "did you mean `vram_gib`?"),
            ("name = \"a\"\nvram_gib = -1", "line 2, column 12", "use a number from 0 to 384"),
            ("gpus = 17", "line 1, column 8", "use a whole number from 1 to 16"),
            ("timeout_s = \"long\"", "line 1, column 13", "must be a whole number, not \"long\""),
            ("kind = \"pyton\"", "line 1, column 8", "did you mean `python`?"),
            ("python = \"2.7\"", "line 1, column 10", "such as \"3.11\""),
            ("min_trust = \"mine\"", "line 1, column 13", "expected one of `community`, `datacenter`, `owned`"),
            ("requirements = 3", "line 1, column 16", "the name of a file, or a list"),
            ("[server]\npath = \"v1\"", "line 2, column 8", "use a path such as"),
            ("[retry]\njitter = 2.0", "line 2, column 10", "use a number from 0 to 1"),
            ("name = ", "line 1, column 8", ""),
        ] {
            let shown = Manifest::parse(text).unwrap_err();
            assert!(shown.contains(place) && shown.contains(says), "{text}: {shown}");
        }
    }
}
