//! `POST /openai/v1/images/generations` to a handler: it gets the body and returns files.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use stokehold_queue::job::Job;
use stokehold_queue::now_ms;

use super::error::Error;
use crate::error::FieldError;
use crate::names;
use crate::server::json::strict_value;
use crate::state::App;

/// Maximum size of the images that a call answers, bytes.
pub(super) const IMAGES_MAX: u64 = 32 << 20;

/// Time after which the URL of an image expires.
const URL_TTL: Duration = Duration::from_secs(3600);

/// Members of the body that the handler does not get.
const OURS: [&str; 5] = ["model", "response_format", "service_tier", "stream", "user"];

/// What a client asks for.
pub(super) struct ImageRequest {
    input: Map<String, Value>,
    is_url: bool,
}

impl ImageRequest {
    /// Reads the body of a call.
    pub(super) fn read(body: &str) -> Result<Self, Error> {
        let Value::Object(mut input) = strict_value(body, "")? else {
            return Err(FieldError::new("", "must be an object").into());
        };
        let is_url = match input.get("response_format").and_then(Value::as_str) {
            None | Some("b64_json") => false,
            Some("url") => true,
            Some(_) => return Err(Error::invalid("response_format", "response_format must be b64_json or url")),
        };
        input.retain(|name, value| !OURS.contains(&name.as_str()) && !value.is_null());
        Ok(Self { input, is_url })
    }

    /// The input of the job.
    pub(super) fn input(&self) -> String {
        Value::Object(self.input.clone()).to_string()
    }

    /// Whether the client gets URLs of the images.
    pub(super) fn is_url(&self) -> bool {
        self.is_url
    }

    /// The answer, from the files of the result. They have at most `most` bytes.
    pub(super) async fn answer(&self, app: &App, job: &Job, result: &[u8], most: u64) -> Result<Bytes, Error> {
        let result: Value = serde_json::from_slice(result)
            .map_err(|error| Error::failed(format!("the result of the job is not JSON: {error}")))?;
        let mut files = Vec::new();
        collect(&result, &mut files);
        let winner = job.winner().filter(|_| !files.is_empty());
        let winner = winner.ok_or_else(|| Error::failed("the endpoint must return files: the path of each image"))?;
        let prefix = Job::attempt_prefix(&job.spec.tenant, job.id, winner.attempt, &winner.fence);
        let (mut data, mut room) = (Vec::with_capacity(files.len()), most);
        for name in files.into_iter().filter(|name| names::is_file_name(name)) {
            let key = format!("{prefix}{name}");
            if self.is_url {
                data.push(json!({"url": app.objects.presign_get(&key, URL_TTL).await?}));
                continue;
            }
            let bytes = app.objects.get(&key, room).await?;
            let bytes = bytes.ok_or_else(|| Error::failed(format!("the file {name:?} of the job is not stored")))?;
            room = room.saturating_sub(bytes.len() as u64);
            data.push(json!({"b64_json": STANDARD.encode(bytes)}));
        }
        Ok(json!({"created": now_ms() / 1000, "data": data}).to_string().into())
    }
}

/// Names of the files of a result, in their order.
fn collect<'a>(value: &'a Value, files: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => match members.get("$file").and_then(Value::as_str) {
            Some(name) => files.push(name),
            None => members.values().for_each(|member| collect(member, files)),
        },
        Value::Array(items) => items.iter().for_each(|item| collect(item, files)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_gets_what_it_draws_from() {
        let body =
            r#"{"model": "draw", "prompt": "a cat", "n": 2, "response_format": "url", "user": "u", "size": null}"#;
        let request = ImageRequest::read(body).unwrap();
        assert_eq!((request.input().as_str(), request.is_url), (r#"{"n":2,"prompt":"a cat"}"#, true));
        assert!(ImageRequest::read(r#"{"response_format": "png"}"#).is_err());
        assert!(ImageRequest::read("[1]").is_err() && ImageRequest::read(r#"{"n": 1, "n": 2}"#).is_err());
    }

    #[test]
    fn files_are_found_wherever_they_are() {
        let result = json!({"images": [{"$file": "0.png"}, {"image": {"$file": "1.png"}}], "seed": 7});
        let mut files = Vec::new();
        collect(&result, &mut files);
        assert_eq!(files, ["0.png", "1.png"]);
    }
}
