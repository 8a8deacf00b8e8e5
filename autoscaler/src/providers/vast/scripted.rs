//! A transport with scripted responses, which it returns in order. It records the requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use serde_json::Value;

use super::error::answer;
use super::transport::{Answer, Request, Transport, TransportError};

pub(super) type Sent = Result<Answer, TransportError>;

pub(super) struct Scripted {
    /// The remaining responses. Without any, requests get no response.
    answers: Mutex<VecDeque<Sent>>,
    asked: Mutex<Vec<Request>>,
}

impl Scripted {
    pub(super) fn new(answers: impl IntoIterator<Item = Sent>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), asked: Mutex::default() })
    }

    pub(super) fn silent() -> Arc<Self> {
        Self::new([])
    }

    pub(super) fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    pub(super) fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }

    /// Method and path of each request.
    pub(super) fn lines(&self) -> Vec<String> {
        self.asked().iter().map(line).collect()
    }
}

fn line(request: &Request) -> String {
    format!("{} {}", request.method.as_str(), request.path)
}

/// A request in the form of the goldens: everything that is sent.
pub(super) fn shown(request: &Request) -> Value {
    let query: Vec<String> = request.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    serde_json::json!({"line": line(request), "query": query, "body": request.body})
}

impl Transport for Scripted {
    fn send(&self, request: Request) -> BoxFuture<'_, Sent> {
        let timeout = request.timeout;
        self.asked.lock().unwrap().push(request);
        let answer = self.answers.lock().unwrap().pop_front();
        Box::pin(async move {
            match answer {
                Some(answer) => answer,
                None => {
                    tokio::time::sleep(timeout).await;
                    Err(TransportError::Unknown("it took too long".to_owned()))
                }
            }
        })
    }
}

pub(super) fn json(status: u16, body: impl Into<String>) -> Sent {
    Ok(answer(status, body.into()))
}

pub(super) fn said(status: u16, body: &'static str) -> Sent {
    let content_type = "text/html".to_owned();
    Ok(Answer { content_type, ..answer(status, body) })
}

pub(super) fn lost() -> Sent {
    Err(TransportError::Unknown("connection reset".to_owned()))
}

pub(super) fn unsent() -> Sent {
    Err(TransportError::Unsent("no connection".to_owned()))
}
