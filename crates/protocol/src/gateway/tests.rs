//! Results and events pass through unchanged, and members of a later release are ignored.

use super::*;
use crate::id::JobId;
use crate::job::Timing;

#[test]
fn results_pass_through_as_they_are() {
    let id = JobId::new(0);
    for outcome in [
        r#""outcome":"succeeded","result":{"b": 1.50,  "a":null}"#,
        r#""outcome":"succeeded","result":null"#,
        r#""outcome":"stored","size_bytes":5"#,
        r#""outcome":"failed","error":{"code":"infra","message":"x"}"#,
    ] {
        let timing = serde_json::to_string(&Timing::default()).unwrap();
        let text = format!(r#"{{"job_id":"{id}","fence":"1.a","timing":{timing},{outcome}}}"#);
        let report: FinishReport = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&report).unwrap(), text);
    }
    assert!(
        serde_json::from_str::<FinishReport>(&format!(r#"{{"job_id":"{id}","fence":"1.a","outcome":"succeeded"}}"#))
            .is_err()
    );
}

#[test]
fn what_a_gateway_of_a_later_release_says_more_is_ignored() {
    let id = JobId::new(0);
    let more = r#""of_a_later_release":{"deep":[1,null]}"#;
    let job = format!(
        r#"{{"job_id":"{id}","tenant":"a","endpoint":"e","version":1,"attempt":1,"fence":"1.a","timeout_ms":5,"input":{{}},{more}}}"#
    );
    let lease: LeaseReply = serde_json::from_str(&format!(r#"{{"leases":[{job}],"finished":["ok"],{more}}}"#)).unwrap();
    assert_eq!((lease.leases[0].job_id, lease.leases[0].input.get()), (id, "{}"));
    let extend: ExtendReply = serde_json::from_str(&format!(r#"{{"leases":["held","lost"],{more}}}"#)).unwrap();
    assert_eq!(extend.leases, [ExtendAnswer::Held, ExtendAnswer::Lost]);
    let join = r#""worker_id":"w","token":"t","token_ttl_ms":3,"lease_ms":2,"extend_every_ms":1"#;
    let join: JoinReply = serde_json::from_str(&format!("{{{join},{more}}}")).unwrap();
    assert_eq!(join.lease_ms, 2);
}

#[test]
fn events_pass_through_as_they_are() {
    let id = JobId::new(0);
    for event in [
        r#""event":"progress","fraction":0.5,"message":"half""#,
        r#""event":"log","stream":"stderr","text":"a\nb""#,
        r#""event":"output","index":3,"value":[1.0, null]"#,
        r#""event":"output","index":4,"value":null"#,
        r#""event":"outputs","index":5,"values":[{"a": 1.50},null]"#,
    ] {
        let report: JobEventReport =
            serde_json::from_str(&format!(r#"{{"job_id":"{id}","fence":"1.a",{event}}}"#)).unwrap();
        assert_eq!(serde_json::to_string(&report).unwrap(), format!(r#"{{"job_id":"{id}","fence":"1.a",{event}}}"#));
        let kept: JobMessage = serde_json::from_str(&format!("{{{event}}}")).unwrap();
        assert_eq!(serde_json::to_string(&kept).unwrap(), format!("{{{event}}}"));
    }
}
