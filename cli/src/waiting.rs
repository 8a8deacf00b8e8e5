//! Why a job waits, as text.

use stokehold_client::models::{Job, WaitingReason};

use crate::output;

/// Why a job waits, and how long it is expected to wait; `None` if the API gives no reason.
pub(crate) fn text(job: &Job) -> Option<String> {
    let waiting = job.waiting.as_ref()?;
    let message = output::plain(waiting.message.trim_end_matches('.'));
    if message.is_empty() {
        return None;
    }
    Some(match waiting.estimate_s {
        Some(seconds) => format!("{message}, about {}", about(seconds)),
        None => message.into_owned(),
    })
}

/// The phase before the job runs: the phase of its machine or its model, else its state.
pub(crate) fn phase(job: &Job) -> &str {
    use WaitingReason::{Booting, Environment, Loading, Renting};
    match job.waiting.as_ref().map(|waiting| &waiting.reason) {
        Some(reason @ (Renting | Booting | Environment | Loading)) => reason.as_str(),
        _ => job.state.as_str(),
    }
}

/// An estimate in its largest useful unit.
fn about(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds.div_ceil(60)),
        7_200..172_800 => format!("{} h", seconds.div_ceil(3_600)),
        _ => format!("{} d", seconds.div_ceil(86_400)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    use super::*;
    use crate::client::decode;

    #[test]
    fn the_message_comes_with_its_estimate() {
        let job =
            |waiting: Value| -> Job { decode(&json!({"id": "1", "state": "queued", "waiting": waiting})).unwrap() };
        let renting = job(json!({"reason": "renting", "message": "Renting an RTX 4090.", "estimate_s": 40}));
        assert_eq!(text(&renting).as_deref(), Some("Renting an RTX 4090, about 40 s"));
        assert_eq!(phase(&renting), "renting");
        let behind = job(json!({"reason": "behind_others", "message": "3 jobs are before it", "estimate_s": null}));
        assert_eq!(text(&behind).as_deref(), Some("3 jobs are before it"));
        assert_eq!(phase(&behind), "queued");
        assert_eq!(text(&job(Value::Null)), None);
        assert_eq!(text(&job(json!({"reason": "busy", "message": ""}))), None);
        assert_eq!([30, 300, 7_300, 200_000].map(about), ["30 s", "5 min", "3 h", "3 d"]);
    }
}
