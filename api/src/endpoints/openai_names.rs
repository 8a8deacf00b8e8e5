//! The options of an endpoint for the API of OpenAI.

use stokehold_queue::endpoint::{EndpointSpec, OpenAiApi, Runner};
use utoipa::ToSchema;

use crate::error::Problem;
use crate::openai::route::speaks;

pub(super) const MODELS_MAX: usize = 16;
const MODEL_CHARS_MAX: usize = 200;

/// A part of the API of OpenAI.
#[derive(ToSchema)]
#[schema(as = OpenAiApi, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(super) enum OpenAiApiWord {
    Chat,
    Embeddings,
    Images,
    None,
}

/// Checks the names of a specification, and that its options have an effect.
pub(super) fn check(spec: &EndpointSpec) -> Result<(), Problem> {
    let EndpointSpec { openai_models, openai_served_model, .. } = spec;
    if openai_models.len() > MODELS_MAX {
        return Err(Problem::field("/openai_models", format!("must be at most {MODELS_MAX} names")));
    }
    for (n, name) in openai_models.iter().enumerate() {
        if !is_model(name) || name.contains('@') {
            let message =
                format!("must be 1 to {MODEL_CHARS_MAX} characters without spaces and @, which a version follows");
            return Err(Problem::field(format!("/openai_models/{n}"), message));
        }
    }
    if openai_served_model.as_ref().is_some_and(|name| !is_model(name)) {
        let message = format!("must be 1 to {MODEL_CHARS_MAX} characters without spaces");
        return Err(Problem::field("/openai_served_model", message));
    }
    if !openai_models.is_empty() && !speaks(spec) {
        return Err(Problem::field("/openai_models", "requires openai: chat, embeddings or images"));
    }
    let is_server = matches!(spec.runner, Runner::Server(_));
    if openai_served_model.is_some() && (!is_server || spec.openai == Some(OpenAiApi::None)) {
        return Err(Problem::field("/openai_served_model", "requires kind server: handlers do not get the model"));
    }
    Ok(())
}

fn is_model(name: &str) -> bool {
    matches!(name.chars().count(), 1..=MODEL_CHARS_MAX) && !name.chars().any(|c| c.is_whitespace() || c.is_control())
}
