//! From the `model` of a call to the endpoint that answers it.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use stokehold_queue::job::Priority;

use super::error::Error;
use crate::endpoints::catalog;
use crate::error::FieldError;
use crate::jobs::submit::Target;
use crate::names;
use crate::state::App;

/// The members of a body that this API reads. The others are the engine's.
#[derive(Deserialize)]
pub(super) struct Head<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(borrow, default, deserialize_with = "present")]
    stream_options: Option<&'a RawValue>,
    #[serde(default)]
    service_tier: Option<String>,
}

/// Parses a present member. `null` is a value like any other: only an absent member is `None`.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Head<'a> {
    /// Reads the head of a body.
    pub(super) fn read(body: &'a str) -> Result<Self, Error> {
        if !body.trim_start().starts_with('{') {
            return Err(FieldError::new("", "must be an object").into());
        }
        serde_json::from_str(body).map_err(|error| FieldError::new("", stokehold_queue::json_in_words(&error)).into())
    }

    /// The model's text in the body, and the model.
    pub(super) fn model(&self) -> Result<(&'a RawValue, String), Error> {
        let text =
            self.model.ok_or_else(|| Error::invalid("model", "the body must have a model: the name of an endpoint"))?;
        match serde_json::from_str(text.get()) {
            Ok(model) => Ok((text, model)),
            Err(_) => Err(Error::invalid("model", "model must be a string: the name of an endpoint")),
        }
    }

    pub(super) fn streams(&self) -> bool {
        self.stream == Some(true)
    }

    /// The options of the stream, if the body has some.
    pub(super) fn stream_options(&self) -> Option<&'a RawValue> {
        self.stream_options
    }

    /// The priority of the job; `None` is the endpoint's.
    pub(super) fn priority(&self) -> Result<Option<Priority>, Error> {
        Ok(Some(match self.service_tier.as_deref() {
            None => return Ok(None),
            Some("priority") => Priority::Interactive,
            Some("default" | "auto") => Priority::Standard,
            Some("flex") => Priority::Batch,
            Some(other) => {
                let message = format!("service_tier must be priority, default, auto or flex, not {other:?}");
                return Err(Error::invalid("service_tier", message));
            }
        }))
    }
}

/// An endpoint that a model names.
pub(super) struct Model {
    pub(super) target: Target,
    /// The version, if the model names one.
    pub(super) version: Option<u32>,
    /// The name without a version.
    pub(super) name: String,
}

impl Model {
    /// What the engine gets as the model.
    pub(super) fn sent(&self) -> &str {
        self.target.deployed.version.spec.openai_served_model.as_deref().unwrap_or(&self.name)
    }
}

/// Finds the endpoint of a model: the name of an endpoint or one of its other names, each also with a version.
pub(super) async fn resolve(app: &App, tenant: &str, model: &str) -> Result<Model, Error> {
    let (name, version) = versioned(model);
    let found = |target| Model { target, version, name: name.to_owned() };
    if names::is_name(name) {
        match Target::resolve(app, tenant, name, version).await {
            Err(catalog::Error::UnknownEndpoint { .. }) => {}
            outcome => return outcome.map(found).map_err(|error| unknown(model, error)),
        }
    }
    let Some(endpoint) = app.models.endpoint(tenant, name).await? else { return Err(Error::no_model(model, None)) };
    Target::resolve(app, tenant, &endpoint, version).await.map(found).map_err(|error| unknown(model, error))
}

fn unknown(model: &str, error: catalog::Error) -> Error {
    match error {
        catalog::Error::UnknownEndpoint { .. } => Error::no_model(model, None),
        catalog::Error::UnknownVersion { .. } => Error::no_model(model, Some(&error.to_string())),
        error => error.into(),
    }
}

/// Splits `name@7`. Other names may contain an `@` that no number follows.
fn versioned(model: &str) -> (&str, Option<u32>) {
    let split = model.rsplit_once('@').and_then(|(name, version)| Some((name, version.parse().ok()?)));
    split.map_or((model, None), |(name, version)| (name, Some(version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_a_name_and_perhaps_a_version() {
        assert_eq!(versioned("chat"), ("chat", None));
        assert_eq!(versioned("chat@7"), ("chat", Some(7)));
        assert_eq!(versioned("Qwen/Qwen3-8B@12"), ("Qwen/Qwen3-8B", Some(12)));
        assert_eq!(versioned("claude@latest"), ("claude@latest", None));
    }

    #[test]
    fn the_head_of_a_body_is_read_and_the_rest_is_not() {
        let head = Head::read(r#"{"model": "a\u0062", "stream": null, "service_tier": "flex", "seed": 1e99}"#).unwrap();
        assert_eq!(head.model().unwrap().1, "ab");
        assert!(!head.streams());
        assert_eq!(head.priority().unwrap(), Some(Priority::Batch));
        let error = |body: &str| {
            let head = Head::read(body);
            let error = head.and_then(|head| head.model().and(head.priority().map(|_| ()))).unwrap_err();
            error.json()["error"]["param"].clone()
        };
        assert_eq!(error("{}"), "model");
        assert_eq!(error(r#"{"model": 7}"#), "model");
        assert_eq!(error(r#"{"model": "a", "service_tier": "scale"}"#), "service_tier");
        assert!(Head::read("[]").is_err() && Head::read(r#"{"stream": 1}"#).is_err());
    }
}
