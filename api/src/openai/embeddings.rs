//! `POST /openai/v1/embeddings` to a handler: it gets a list of inputs and returns a list of vectors.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::error::Error;
use crate::error::FieldError;

/// What a client asks for.
#[derive(Debug)]
pub(super) struct EmbeddingRequest {
    inputs: Vec<Value>,
    dimensions: Option<u64>,
    is_base64: bool,
}

#[derive(Deserialize)]
struct Body {
    input: Option<Value>,
    encoding_format: Option<String>,
    dimensions: Option<u64>,
}

/// One vector of the answer.
#[derive(Serialize)]
struct Item<'a> {
    object: &'static str,
    index: usize,
    embedding: Vector<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector<'a> {
    /// Little-endian 32-bit floats, which the official clients ask for.
    Base64(String),
    List(&'a RawValue),
}

#[derive(Serialize)]
struct Answer<'a> {
    object: &'static str,
    data: Vec<Item<'a>>,
    model: &'a str,
    usage: Usage,
}

/// A handler does not report tokens.
#[derive(Default, Serialize)]
struct Usage {
    prompt_tokens: u64,
    total_tokens: u64,
}

impl EmbeddingRequest {
    /// Reads the body of a call.
    pub(super) fn read(body: &str) -> Result<Self, Error> {
        let body: Body =
            serde_json::from_str(body).map_err(|error| FieldError::new("", stokehold_queue::json_in_words(&error)))?;
        let is_base64 = match body.encoding_format.as_deref() {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => return Err(Error::invalid("encoding_format", "encoding_format must be float or base64")),
        };
        Ok(Self { inputs: inputs(body.input)?, dimensions: body.dimensions, is_base64 })
    }

    /// Whether the client gets vectors in base64.
    pub(super) fn is_base64(&self) -> bool {
        self.is_base64
    }

    /// The input of the job.
    pub(super) fn input(&self) -> String {
        let mut input = json!({"input": self.inputs});
        if let Some(dimensions) = self.dimensions {
            input["dimensions"] = dimensions.into();
        }
        input.to_string()
    }

    /// The answer, from the vectors that the handler returned.
    pub(super) fn answer(&self, model: &str, result: &[u8]) -> Result<Bytes, Error> {
        let wrong = |what: String| {
            let inputs = self.inputs.len();
            Error::failed(format!("the endpoint must return a list of {inputs} vectors, one for each input; {what}"))
        };
        let vectors: Vec<&RawValue> =
            serde_json::from_slice(result).map_err(|_| wrong("it returned no list".to_owned()))?;
        if vectors.len() != self.inputs.len() {
            return Err(wrong(format!("it returned {}", vectors.len())));
        }
        let mut data = Vec::with_capacity(vectors.len());
        for (index, vector) in vectors.into_iter().enumerate() {
            let numbers: Vec<f32> = serde_json::from_str(vector.get())
                .map_err(|_| wrong(format!("number {index} is not a list of numbers")))?;
            let embedding = if self.is_base64 { Vector::Base64(base64_of(&numbers)) } else { Vector::List(vector) };
            data.push(Item { object: "embedding", index, embedding });
        }
        let answer = Answer { object: "list", data, model, usage: Usage::default() };
        let text =
            serde_json::to_vec(&answer).map_err(|error| Error::failed(format!("the answer is not JSON: {error}")))?;
        Ok(text.into())
    }
}

fn base64_of(numbers: &[f32]) -> String {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    STANDARD.encode(bytes)
}

/// The inputs as a list: of texts, or of lists of tokens.
fn inputs(input: Option<Value>) -> Result<Vec<Value>, Error> {
    let wrong = || {
        Err(Error::invalid(
            "input",
            "input must be a text, a list of texts, a list of tokens or a list of lists of tokens",
        ))
    };
    match input {
        Some(Value::String(text)) => Ok(vec![Value::String(text)]),
        Some(Value::Array(items)) if items.is_empty() => Err(Error::invalid("input", "input must not be empty")),
        Some(Value::Array(items)) if items.iter().all(Value::is_u64) => Ok(vec![Value::Array(items)]),
        Some(Value::Array(items)) if items.iter().all(Value::is_string) || items.iter().all(Value::is_array) => {
            Ok(items)
        }
        _ => wrong(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_input_becomes_a_list() {
        let read = |input: Value| EmbeddingRequest::read(&json!({"model": "m", "input": input}).to_string());
        for (input, expected) in [
            (json!("a"), json!(["a"])),
            (json!(["a", "b"]), json!(["a", "b"])),
            (json!([1, 2]), json!([[1, 2]])),
            (json!([[1], [2, 3]]), json!([[1], [2, 3]])),
        ] {
            assert_eq!(read(input).unwrap().input(), json!({"input": expected}).to_string());
        }
        for wrong in [json!([]), json!(7), json!(["a", 1]), json!(null), json!([{"a": 1}])] {
            assert_eq!(read(wrong.clone()).unwrap_err().json()["error"]["param"], "input", "{wrong}");
        }
        let request =
            EmbeddingRequest::read(r#"{"input": "a", "dimensions": 3, "encoding_format": "base64"}"#).unwrap();
        assert_eq!((request.input().as_str(), request.is_base64), (r#"{"dimensions":3,"input":["a"]}"#, true));
        assert!(EmbeddingRequest::read(r#"{"input": "a", "encoding_format": "hex"}"#).is_err());
    }

    #[test]
    fn vectors_are_lists_or_little_endian_floats() {
        let request = |format: &str| {
            EmbeddingRequest::read(&json!({"input": ["a", "b"], "encoding_format": format}).to_string()).unwrap()
        };
        let result = b"[[1, -0.5], [0.25, 3.0]]";
        let list: Value = serde_json::from_slice(&request("float").answer("m", result).unwrap()).unwrap();
        let item = |index, vector: Value| json!({"object": "embedding", "index": index, "embedding": vector});
        let usage = json!({"prompt_tokens": 0, "total_tokens": 0});
        let expected = json!({
            "object": "list", "model": "m", "usage": usage,
            "data": [item(0, json!([1, -0.5])), item(1, json!([0.25, 3.0]))],
        });
        assert_eq!(list, expected);
        let base64: Value = serde_json::from_slice(&request("base64").answer("m", result).unwrap()).unwrap();
        assert_eq!(base64["data"][0]["embedding"], "AACAPwAAAL8=");
        for wrong in ["[[1]]", "{}", "[[1], \"x\"]", "[[1], [[2]]]"] {
            let error = request("float").answer("m", wrong.as_bytes()).unwrap_err().json();
            assert!(error["error"]["message"].as_str().unwrap().contains("a list of 2 vectors"), "{wrong}: {error}");
        }
    }
}
