//! Why a job waits, as text.

use serde_json::Value;

use crate::output;

/// Why a job waits, and how long it is expected to wait; `None` if the API gives no reason.
pub(crate) fn text(job: &Value) -> Option<String> {
    let waiting = job.get("waiting")?;
    let message = waiting["message"].as_str()?.trim_end_matches('.');
    let message = output::plain(message);
    if message.is_empty() {
        return None;
    }
    Some(match waiting["estimate_s"].as_u64() {
        Some(seconds) => format!("{message}, about {}", about(seconds)),
        None => message.into_owned(),
    })
}

/// The phase in which a job is before it runs: that of its machine or its model, else its state.
pub(crate) fn phase<'a>(job: &'a Value, state: &'a str) -> &'a str {
    match job["waiting"]["reason"].as_str() {
        Some(reason @ ("renting" | "booting" | "environment" | "loading")) => reason,
        _ => state,
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
    use serde_json::json;

    use super::*;

    #[test]
    fn the_message_comes_with_its_estimate() {
        let job = |waiting: Value| json!({"id": "1", "state": "queued", "waiting": waiting});
        let renting = job(json!({"reason": "renting", "message": "Renting an RTX 4090.", "estimate_s": 40}));
        assert_eq!(text(&renting).as_deref(), Some("Renting an RTX 4090, about 40 s"));
        assert_eq!(phase(&renting, "queued"), "renting");
        let behind = job(json!({"reason": "behind_others", "message": "3 jobs are before it", "estimate_s": null}));
        assert_eq!(text(&behind).as_deref(), Some("3 jobs are before it"));
        assert_eq!(phase(&behind, "queued"), "queued");
        assert_eq!(text(&job(Value::Null)), None);
        assert_eq!(text(&job(json!({"reason": "busy", "message": ""}))), None);
        assert_eq!([30, 300, 7_300, 200_000].map(about), ["30 s", "5 min", "3 h", "3 d"]);
    }
}
