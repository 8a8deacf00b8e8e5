//! Which calls of the API of OpenAI an endpoint answers, and in which form it gets them. Pure.

use std::borrow::Cow;

use serde_json::value::RawValue;
use stokehold_queue::endpoint::{EndpointSpec, OpenAiApi, Runner};

/// A call that becomes a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Chat,
    Completions,
    Responses,
    Embeddings,
    Images,
}

impl Call {
    const ALL: [Self; 5] = [Self::Chat, Self::Completions, Self::Responses, Self::Embeddings, Self::Images];

    /// The call with this path.
    pub(super) fn from_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|call| call.path() == path)
    }

    /// The paths of all calls, for a message.
    pub(super) fn paths() -> String {
        Self::ALL.map(Self::path).join(", ")
    }

    /// The call's path at an engine.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Responses => "/v1/responses",
            Self::Embeddings => "/v1/embeddings",
            Self::Images => "/v1/images/generations",
        }
    }

    fn api(self) -> OpenAiApi {
        match self {
            Self::Chat | Self::Completions | Self::Responses => OpenAiApi::Chat,
            Self::Embeddings => OpenAiApi::Embeddings,
            Self::Images => OpenAiApi::Images,
        }
    }

    /// Whether the call is the one that its API is named after.
    fn is_main(self) -> bool {
        !matches!(self, Self::Completions | Self::Responses)
    }

    /// Whether the answer can be streamed.
    pub(super) fn streams(self) -> bool {
        self.api() == OpenAiApi::Chat
    }

    /// The call whose path a server's own path is, possibly below a prefix.
    fn of_path(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
        Self::ALL.into_iter().find(|call| path.ends_with(call.path()))
    }
}

/// The form in which an endpoint gets a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The body is the input, and the result is the answer.
    Body,
    /// The input names the path: `{"path": …, "body": …}`. The result is the answer.
    Request,
    /// A handler gets only what it works with, and this API writes the answer.
    Handler,
}

/// The form in which an endpoint gets a call; `None` if it does not answer it.
pub(super) fn form(spec: &EndpointSpec, call: Call) -> Option<Form> {
    let is_its_api = spec.openai == Some(call.api());
    match &spec.runner {
        _ if spec.openai == Some(OpenAiApi::None) => None,
        Runner::Server(server) => match &server.path {
            None => (spec.openai.is_none() || is_its_api).then_some(Form::Request),
            Some(path) => match Call::of_path(path) {
                Some(its) => (its == call && (spec.openai.is_none() || is_its_api)).then_some(Form::Body),
                None => (is_its_api && call.is_main()).then_some(Form::Body),
            },
        },
        _ if !is_its_api || !call.is_main() => None,
        _ if call == Call::Chat => Some(Form::Body),
        _ => Some(Form::Handler),
    }
}

/// Whether an endpoint answers any call.
pub(crate) fn speaks(spec: &EndpointSpec) -> bool {
    Call::ALL.into_iter().any(|call| form(spec, call).is_some())
}

/// The calls that an endpoint answers, for a message.
pub(super) fn answered(spec: &EndpointSpec) -> String {
    let calls = Call::ALL.into_iter().filter(|call| form(spec, *call).is_some());
    calls.map(Call::path).collect::<Vec<_>>().join(", ")
}

/// The input of a job whose endpoint gets the body. `model` is the text of the body's `model`, inside of `body`, which
/// `sent` replaces; all other bytes stay as they are.
pub(super) fn input(form: Form, call: Call, body: &str, model: &RawValue, sent: &str) -> String {
    let body = with_model(body, model, sent);
    match form {
        Form::Request => format!("{{\"path\":\"{}\",\"body\":{body}}}", call.path()),
        Form::Body | Form::Handler => body.into_owned(),
    }
}

fn with_model<'a>(body: &'a str, model: &RawValue, sent: &str) -> Cow<'a, str> {
    let sent = serde_json::Value::from(sent).to_string();
    let text = model.get();
    let from = (text.as_ptr() as usize).checked_sub(body.as_ptr() as usize);
    match from.and_then(|from| Some((body.get(..from)?, body.get(from + text.len()..)?))) {
        Some((before, after)) if text != sent => Cow::Owned(format!("{before}{sent}{after}")),
        _ => Cow::Borrowed(body),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(runner: Value, openai: Option<OpenAiApi>) -> EndpointSpec {
        let spec = json!({
            "package_sha256": "", "package_size_bytes": 1, "entry": "", "input_schema": {}, "runner": runner,
            "openai": openai,
        });
        serde_json::from_value(spec).unwrap()
    }

    fn server(path: Option<&str>) -> Value {
        json!({"kind": "server", "command": ["serve"], "ready_path": "/health", "path": path})
    }

    #[test]
    fn servers_answer_openais_paths_and_handlers_what_they_declare() {
        use OpenAiApi::{Chat, Embeddings, Images};
        let all = "/v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, /v1/images/generations";
        let text = "/v1/chat/completions, /v1/completions, /v1/responses";
        let python = || json!({"kind": "python"});
        for (runner, openai, expected) in [
            (server(None), None, all),
            (server(None), Some(Chat), text),
            (server(None), Some(Embeddings), "/v1/embeddings"),
            (server(None), Some(OpenAiApi::None), ""),
            (server(Some("/v1/chat/completions")), None, "/v1/chat/completions"),
            (server(Some("/v1/completions")), None, "/v1/completions"),
            (server(Some("/api/v1/embeddings/")), None, "/v1/embeddings"),
            (server(Some("/v1/chat/completions")), Some(OpenAiApi::None), ""),
            (server(Some("/v1/chat/completions")), Some(Embeddings), ""),
            (server(Some("/generate")), None, ""),
            (server(Some("/generate")), Some(Chat), "/v1/chat/completions"),
            (python(), None, ""),
            (python(), Some(Chat), "/v1/chat/completions"),
            (python(), Some(Embeddings), "/v1/embeddings"),
            (python(), Some(Images), "/v1/images/generations"),
        ] {
            let spec = spec(runner.clone(), openai);
            assert_eq!(answered(&spec), expected, "{runner} {openai:?}");
            assert_eq!(speaks(&spec), !expected.is_empty(), "{runner} {openai:?}");
        }
        assert_eq!(form(&spec(server(None), None), Call::Chat), Some(Form::Request));
        assert_eq!(form(&spec(server(Some("/v1/completions")), None), Call::Completions), Some(Form::Body));
        assert_eq!(form(&spec(python(), Some(Embeddings)), Call::Embeddings), Some(Form::Handler));
    }

    #[test]
    fn only_the_model_of_a_body_is_rewritten() {
        #[derive(serde::Deserialize)]
        struct Head<'a> {
            #[serde(borrow)]
            model: &'a RawValue,
        }
        let body = r#"{"seed": 1.50, "model" : "chat@7", "messages":[{"content":"\u00e9 chat@7"}], "big": 12345678901234567890123}"#;
        let head: Head<'_> = serde_json::from_str(body).unwrap();
        let sent = input(Form::Body, Call::Chat, body, head.model, "chat");
        assert_eq!(sent, body.replacen("\"chat@7\"", "\"chat\"", 1));
        assert_eq!(input(Form::Body, Call::Chat, body, head.model, "chat@7"), body);
        let request = input(Form::Request, Call::Completions, body, head.model, "a\"b");
        assert!(
            request.starts_with(r#"{"path":"/v1/completions","body":{"seed": 1.50, "model" : "a\"b", "#),
            "{request}"
        );
        assert!(serde_json::from_str::<Value>(&request).is_ok());
    }
}
