//! The content of a webhook: `{"type", "timestamp", "data"}` as in Standard Webhooks, with links instead of data, under
//! 20 kB.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use stokehold_queue::JobId;
use stokehold_queue::job::HookEvent;
use stokehold_queue::outbox::{Delivery, Message};

use crate::batches::routes as batches;
use crate::jobs::view::JobView;
use crate::state::App;
use crate::time_format::rfc3339;
use crate::traces::context;
use crate::{database, history};

/// Size below which Standard Webhooks requires bodies to stay, bytes.
const BODY_BYTES: usize = 20_000;

#[derive(Serialize)]
struct Payload<'a, D> {
    #[serde(rename = "type")]
    event: HookEvent,
    timestamp: &'a str,
    data: D,
}

/// Reasons for which the content of a delivery cannot be built now; a retry may succeed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The queue failed.
    #[error(transparent)]
    Database(#[from] database::Error),
    /// The job's record cannot be read.
    #[error(transparent)]
    History(#[from] history::Error),
    /// The subject cannot be serialised, which indicates a bug.
    #[error("failed to serialise the subject of a webhook")]
    Json(#[from] serde_json::Error),
}

/// Builds the content of a delivery.
///
/// # Errors
/// If its subject cannot be read now; a retry may succeed.
pub(super) async fn build(app: &App, delivery: &Delivery) -> Result<Message, Error> {
    let (data, traceparent) = subject(app, delivery).await?;
    let body = body(delivery, data.as_deref())?;
    Ok(Message { body, traceparent })
}

/// The job or the batch in its API form, `None` when neither the queue nor the archive has it any more; and the trace
/// context of a job's delivery.
async fn subject(app: &App, delivery: &Delivery) -> Result<(Option<Box<RawValue>>, Option<String>), Error> {
    if batches::is_batch_id(&delivery.subject) {
        let batch = batches::told(&app.db, &app.config, &delivery.tenant, &delivery.subject).await?;
        return Ok((batch.as_ref().map(to_raw_value).transpose()?, None));
    }
    let Ok(id) = delivery.subject.parse::<JobId>() else { return Ok((None, None)) };
    let Some(job) = app.jobs.find(&delivery.tenant, id).await? else { return Ok((None, None)) };
    let view = to_raw_value(&JobView::new(&job, &app.config))?;
    let place = context::of_delivery(&app.config.traces.sampler, id, &job.spec, &delivery.id);
    Ok((Some(view), Some(place.to_string())))
}

/// Builds the body around `data`, shortened until it fits: the receiver can request the rest with the ID.
fn body(delivery: &Delivery, data: Option<&RawValue>) -> Result<String, serde_json::Error> {
    if let Some(data) = data {
        let text = around(delivery, data)?;
        if text.len() < BODY_BYTES {
            return Ok(text);
        }
        let mut data: Value = serde_json::from_str(data.get())?;
        for shorten in [drop_payloads, drop_traces, drop_attempts] {
            shorten(&mut data);
            let text = around(delivery, &data)?;
            if text.len() < BODY_BYTES {
                return Ok(text);
            }
        }
    }
    around(delivery, &json!({"id": delivery.subject}))
}

fn around<D: Serialize + ?Sized>(delivery: &Delivery, data: &D) -> Result<String, serde_json::Error> {
    let timestamp = rfc3339(delivery.created_ms);
    serde_json::to_string(&Payload { event: delivery.event, timestamp: &timestamp, data })
}

/// Removes input and result; `result_url` stays.
fn drop_payloads(job: &mut Value) {
    blank(job, &["input", "result"]);
}

/// Removes tracebacks and output; an error keeps its code, class and message.
fn drop_traces(job: &mut Value) {
    let blank_error = |of: &mut Value| {
        if let Some(error) = of.get_mut("error") {
            blank(error, &["traceback", "stderr"]);
        }
    };
    blank_error(job);
    job.get_mut("attempts").and_then(Value::as_array_mut).into_iter().flatten().for_each(blank_error);
}

/// Removes all attempts but the last.
fn drop_attempts(job: &mut Value) {
    if let Some(attempts) = job.get_mut("attempts").and_then(Value::as_array_mut) {
        attempts.drain(..attempts.len().saturating_sub(1));
    }
}

fn blank(of: &mut Value, members: &[&str]) {
    for member in members {
        if let Some(value) = of.get_mut(*member) {
            *value = Value::Null;
        }
    }
}

#[cfg(test)]
mod tests {
    use stokehold_queue::outbox::DeliveryState;

    use super::*;

    fn delivery() -> Delivery {
        Delivery {
            id: "msg_1_completed".to_owned(),
            event: HookEvent::JobCompleted,
            subject: "1".to_owned(),
            tenant: "acme".to_owned(),
            url: "https://example.com".to_owned(),
            created_ms: 1_795_240_200_123,
            state: DeliveryState::Pending,
            next_try_ms: None,
            tried: 0,
            held_ms: 0,
            tries: Vec::new(),
        }
    }

    fn sent(data: &Value) -> Value {
        let raw = to_raw_value(data).unwrap();
        let text = body(&delivery(), Some(&raw)).unwrap();
        assert!(text.len() < BODY_BYTES);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_small_job_is_sent_whole_and_digit_by_digit() {
        let raw = RawValue::from_string(r#"{"id":"1","result":12345678901234567890.10}"#.to_owned()).unwrap();
        let text = body(&delivery(), Some(&raw)).unwrap();
        assert_eq!(
            text,
            r#"{"type":"job.completed","timestamp":"2026-11-21T05:50:00.123Z","data":{"id":"1","result":12345678901234567890.10}}"#
        );
    }

    #[test]
    fn a_large_one_is_shortened_no_more_than_it_must_be() {
        let large = "x".repeat(BODY_BYTES);
        let shown = sent(&json!({"id": "1", "input": large, "result": 7, "result_url": "u", "attempts": [1, 2]}));
        assert_eq!(
            shown["data"],
            json!({"id": "1", "input": null, "result": null, "result_url": "u", "attempts": [1, 2]})
        );
        let error = json!({"code": "handler_error", "message": "m", "traceback": large, "stderr": null});
        let shown = sent(&json!({"id": "1", "error": error, "attempts": [{"error": error}, {"error": null}]}));
        let brief = json!({"code": "handler_error", "message": "m", "traceback": null, "stderr": null});
        assert_eq!(shown["data"], json!({"id": "1", "error": brief, "attempts": [{"error": brief}, {"error": null}]}));
        let shown = sent(&json!({"id": "1", "attempts": [large, "the last"]}));
        assert_eq!(shown["data"], json!({"id": "1", "attempts": ["the last"]}));
        assert_eq!(sent(&json!({"id": "1", "metadata": large}))["data"], json!({"id": "1"}));
    }

    #[test]
    fn a_job_that_is_gone_still_has_its_id() {
        let text = body(&delivery(), None).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["data"], json!({"id": "1"}));
    }
}
