//! The order of the lines that are fed together to an engine. An engine keeps its work on the beginning of a prompt for
//! a while (vLLM's prefix caching, llama.cpp's slots): prompts that begin alike cost less if they follow each other.

use serde::Deserialize;
use serde_json::value::RawValue;
use stokehold_queue::endpoint::{EndpointSpec, Runner};
use stokehold_queue::job::NewJob;

/// Whether an endpoint's jobs are requests to a server, which may be an engine.
pub(super) fn is_server(spec: &EndpointSpec) -> bool {
    matches!(spec.runner, Runner::Server(_))
}

/// Orders jobs so that those whose prompts have a common beginning are neighbours. Jobs with the same prompt, or with
/// none, keep their order.
pub(super) fn order(jobs: &mut [NewJob]) {
    jobs.sort_by_cached_key(|job| prompt(job.input.get()).to_owned());
}

/// The members of a request that are its prompt: of chats, completions, and responses or embeddings.
#[derive(Default, Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    body: Option<&'a RawValue>,
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

impl<'a> Request<'a> {
    /// Reads a request; nothing of what is not an object.
    fn read(text: &'a str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }
}

/// The JSON text of the prompt of a request, `{"path": …, "body": …}` or a body alone; empty if there is none.
fn prompt(input: &str) -> &str {
    let request = Request::read(input);
    let request = request.body.map_or(request, |body| Request::read(body.get()));
    request.messages.or(request.prompt).or(request.input).map_or("", RawValue::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prompt_is_found_in_each_form_of_a_request() {
        for (input, expected) in [
            (
                r#"{"path": "/v1/chat/completions", "body": {"seed": 1, "messages": [{"content": "a"}]}}"#,
                r#"[{"content": "a"}]"#,
            ),
            (r#"{"model": "m", "prompt": "once"}"#, r#""once""#),
            (r#"{"input": ["a", "b"]}"#, r#"["a", "b"]"#),
            (r#"{"path": "/health", "method": "GET"}"#, ""),
            (r#"{"n": 1}"#, ""),
            (r#""text""#, ""),
            (r#"{"body": {"body": {"prompt": "deeper"}}}"#, ""),
        ] {
            assert_eq!(prompt(input), expected, "{input}");
        }
    }
}
