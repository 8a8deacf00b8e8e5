use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use stokehold_queue::Queue;
use stokehold_queue::gateway::{
    EVENTS_MAX, EventsReply, EventsRequest, JobEventReport, JobMessage, LeaseRef, LogStream, OutputHandling,
    RELAYED_BYTES_MAX,
};

use super::output_relay::OutputRelay;
use super::own;
use crate::database::Database;
use crate::error::Problem;
use crate::server::json::Json;
use crate::tenants::auth::JoinedWorker;
use crate::workers::gateway::own::Ownership;

/// Maximum length of the text of one event, and maximum size of an output that is stored as one, bytes.
const TEXT_MAX: usize = 64 << 10;
const PROGRESS_MAX: usize = 2 << 10;

/// Maximum size of merged outputs, bytes.
const MERGED_MAX: usize = 16 << 10;

/// Maximum size of the body, bytes: the maximum number of events at their longest.
const BODY_MAX: usize = EVENTS_MAX * TEXT_MAX;

/// `events`: stores events of running jobs, or relays outputs to connected readers. A call is not repeated if the
/// outcome is unknown: a duplicate line is worse than a missing one.
pub(super) async fn events(
    State(db): State<Arc<Database>>,
    State(ownership): State<Arc<Ownership>>,
    State(output_relay): State<Arc<OutputRelay>>,
    worker: JoinedWorker,
    Json(mut request): Json<EventsRequest, BODY_MAX>,
) -> Result<Response, Problem> {
    if request.events.len() > EVENTS_MAX {
        return Err(Problem::field("/events", format!("must be at most {EVENTS_MAX}")));
    }
    for (n, report) in request.events.iter_mut().enumerate() {
        fit(&mut report.event).map_err(|message| Problem::field(format!("/events/{n}"), message))?;
    }
    if request.outputs == OutputHandling::Relay {
        if request.events.iter().map(|report| output_bytes(&report.event)).sum::<usize>() > RELAYED_BYTES_MAX {
            return Err(Problem::field(
                "/events",
                format!("must be at most {RELAYED_BYTES_MAX} bytes of outputs to relay"),
            ));
        }
        let store = output_relay.relay(&worker.worker_id, request.events).await?;
        let nothing = store.is_empty();
        let reply = || axum::Json(EventsReply { store }).into_response();
        return Ok(if nothing { StatusCode::NO_CONTENT.into_response() } else { reply() });
    }
    let events = together(its_own(&ownership, &output_relay, &worker.worker_id, request.events).await?);
    if request.outputs == OutputHandling::StoreRelayed {
        db.ask("store outputs", db.queue.append_relayed(&events)).await?;
    } else {
        db.ask("store events", db.queue.append_events(&events)).await?;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn output_bytes(event: &JobMessage) -> usize {
    match event {
        JobMessage::Outputs { values, .. } => values.iter().map(|value| value.get().len()).sum(),
        JobMessage::Output { value, .. } => value.get().len(),
        JobMessage::Log { .. } | JobMessage::Progress { .. } => 0,
    }
}

/// Removes events of leases that another worker holds.
async fn its_own(
    ownership: &Ownership,
    output_relay: &OutputRelay,
    worker_id: &str,
    events: Vec<JobEventReport>,
) -> Result<Vec<JobEventReport>, Problem> {
    let lease = |event: &JobEventReport| LeaseRef { job_id: event.job_id, fence: event.fence.clone() };
    let mut leases: Vec<LeaseRef> = Vec::new();
    for event in &events {
        let lease = lease(event);
        if leases.last() != Some(&lease) && !output_relay.is_run_by(&lease, worker_id) {
            leases.push(lease);
        }
    }
    if leases.is_empty() {
        return Ok(events);
    }
    let holdings = ownership.holdings(&leases).await?;
    let anothers: HashSet<&LeaseRef> = leases
        .iter()
        .zip(&holdings)
        .filter(|(_, holding)| own::is_anothers(holding.as_ref(), worker_id))
        .map(|(lease, _)| lease)
        .collect();
    Ok(events.into_iter().filter(|event| !anothers.contains(&lease(event))).collect())
}

/// Merges consecutive outputs into one event: workers of the previous release send each by itself.
fn together(events: Vec<JobEventReport>) -> Vec<JobEventReport> {
    let mut out: Vec<JobEventReport> = Vec::with_capacity(events.len());
    for mut report in events {
        let JobMessage::Output { index, value } = report.event else {
            out.push(report);
            continue;
        };
        if let Some(JobEventReport { job_id, fence, event: JobMessage::Outputs { index: first, values } }) =
            out.last_mut()
            && (*job_id, &*fence) == (report.job_id, &report.fence)
            && *first + values.len() as u64 == index
            && values.iter().map(|value| value.get().len()).sum::<usize>() + value.get().len() <= MERGED_MAX
        {
            values.push(value);
            continue;
        }
        report.event = JobMessage::Outputs { index, values: vec![value] };
        out.push(report);
    }
    out
}

/// Prepares an event for storage. An invalid output of a handler must not affect the events beside it; a text over the
/// limit is the worker's mistake.
fn fit(event: &mut JobMessage) -> Result<(), String> {
    match event {
        JobMessage::Progress { fraction, message } => {
            *fraction = fraction.clamp(0.0, 1.0);
            message.truncate(message.floor_char_boundary(PROGRESS_MAX));
        }
        JobMessage::Log { text, .. } if text.len() > TEXT_MAX => {
            return Err(format!("must be at most {TEXT_MAX} bytes of text"));
        }
        JobMessage::Log { .. } => {}
        JobMessage::Outputs { index, values } => {
            let bytes: usize = values.iter().map(|value| value.get().len()).sum();
            if bytes > TEXT_MAX && values.len() > 1 {
                return Err(format!("must be at most {TEXT_MAX} bytes of outputs"));
            }
            if let Some(value) = values.pop_if(|_| bytes > TEXT_MAX) {
                *event = JobMessage::Output { index: *index, value };
                return fit(event);
            }
        }
        JobMessage::Output { index, value } => {
            if value.get().len() > TEXT_MAX {
                let text = format!("output {index} is larger than {TEXT_MAX} bytes and appears only in the result\n");
                *event = JobMessage::Log { stream: LogStream::Stderr, text };
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use stokehold_queue::{Fence, JobId};

    use super::*;

    #[test]
    fn odd_events_are_made_to_fit() {
        let mut progress = JobMessage::Progress { fraction: 7.0, message: "ü".repeat(PROGRESS_MAX) };
        fit(&mut progress).unwrap();
        assert!(matches!(progress, JobMessage::Progress { fraction: 1.0, message } if message.len() == PROGRESS_MAX));
        let large = serde_json::value::to_raw_value(&"x".repeat(TEXT_MAX)).unwrap();
        let mut output = JobMessage::Output { index: 3, value: large };
        fit(&mut output).unwrap();
        assert!(matches!(output, JobMessage::Log { text, .. } if text.contains("output 3")));
        let large = serde_json::value::to_raw_value(&"x".repeat(TEXT_MAX)).unwrap();
        let mut alone = JobMessage::Outputs { index: 4, values: vec![large.clone()] };
        fit(&mut alone).unwrap();
        assert!(matches!(alone, JobMessage::Log { text, .. } if text.contains("output 4")));
        let mut several = JobMessage::Outputs { index: 5, values: vec![large.clone(), large] };
        assert!(fit(&mut several).is_err());
    }

    #[test]
    fn outputs_that_follow_one_another_are_kept_as_one_event() {
        let (one, other) = (JobId::new(1), JobId::new(2));
        let output = |job_id, index| JobEventReport {
            job_id,
            fence: Fence("1.a".to_owned()),
            event: JobMessage::Output { index, value: serde_json::value::to_raw_value(&index).unwrap() },
        };
        let events = vec![output(one, 0), output(one, 1), output(other, 2), output(one, 2), output(one, 4)];
        let kept: Vec<(u64, usize)> = together(events)
            .into_iter()
            .map(|report| match report.event {
                JobMessage::Outputs { index, values } => (index, values.len()),
                event => panic!("{event:?}"),
            })
            .collect();
        assert_eq!(kept, [(0, 2), (2, 1), (2, 1), (4, 1)]);
    }
}
