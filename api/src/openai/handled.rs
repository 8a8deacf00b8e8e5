//! What a handler gets of a call, and what its client gets of the result. Calls of engines pass through unchanged.

use bytes::Bytes;
use serde_json::value::RawValue;
use stokehold_queue::endpoint::EndpointSpec;
use stokehold_queue::job::Job;

use super::error::Error;
use super::route::{Call, Form};
use super::{embeddings, images, route};
use crate::state::App;

/// What this API writes the answer from.
pub(super) enum Handled {
    /// The result is the answer.
    Nothing,
    Embeddings(embeddings::EmbeddingRequest),
    Images(images::ImageRequest),
}

impl Handled {
    /// Reads the body of a call.
    pub(super) fn read(form: Form, call: Call, body: &str) -> Result<Self, Error> {
        Ok(match (form, call) {
            (Form::Handler, Call::Images) => Self::Images(images::ImageRequest::read(body)?),
            (Form::Handler, _) => Self::Embeddings(embeddings::EmbeddingRequest::read(body)?),
            (Form::Body | Form::Request, _) => Self::Nothing,
        })
    }

    /// The input of the job. `model` is the text of the body's `model`, which `sent` replaces.
    pub(super) fn input(&self, form: Form, call: Call, body: &str, model: &RawValue, sent: &str) -> String {
        match self {
            Self::Nothing => route::input(form, call, body, model, sent),
            Self::Embeddings(request) => request.input(),
            Self::Images(request) => request.input(),
        }
    }

    /// Refuses what the answer to a line of a batch cannot have: it is written from the job's input, which does not
    /// have the form that the client wants.
    pub(super) fn check_in_batch(&self) -> Result<(), Error> {
        match self {
            Self::Embeddings(request) if request.is_base64() => {
                let message = "encoding_format must be float in a batch, or absent: this endpoint is a handler";
                Err(Error::invalid("encoding_format", message))
            }
            Self::Images(request) if request.is_url() => {
                let message = "response_format must be b64_json in a batch, or absent: this endpoint is a handler, \
                    and the URLs of its images expire after an hour";
                Err(Error::invalid("response_format", message))
            }
            _ => Ok(()),
        }
    }

    /// The answer to the client, from the result of the job. Images have at most `images_max` bytes.
    pub(super) async fn answer(
        &self,
        app: &App,
        job: &Job,
        (model, result): (&str, Bytes),
        images_max: u64,
    ) -> Result<Bytes, Error> {
        match self {
            Self::Nothing => Ok(result),
            Self::Embeddings(request) => request.answer(model, &result),
            Self::Images(request) => request.answer(app, job, &result, images_max).await,
        }
    }
}

/// The form in which an endpoint gets a call of `model`.
pub(super) fn form_of(spec: &EndpointSpec, call: Call, model: &str) -> Result<Form, Error> {
    if let Some(form) = route::form(spec, call) {
        return Ok(form);
    }
    let (path, answered) = (call.path(), route::answered(spec));
    let answered = if answered.is_empty() {
        "it does not speak the API of OpenAI; see the option openai".to_owned()
    } else {
        format!("it answers {answered}")
    };
    Err(Error::invalid("model", format!("the model {model:?} does not answer {path}: {answered}")))
}
