//! Every message's JSON, pinned in files that the Python tests decode as well. `BLESS=1` rewrites them.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use stokehold_wire::{Control, Failure, OutputFile, Report, Stream};

const JOB: &str = "0192f0c1a2b37cde8f00112233445500";

fn controls() -> Vec<Control> {
    vec![
        Control::Load { kind: "python".into(), entry: "endpoint.py:predict".into(), max_concurrency: 1 },
        Control::Run {
            run: 7,
            job: JOB.into(),
            attempt: 2,
            scratch: "/scratch/7".into(),
            files: BTreeMap::from([("0192f0c1a2b37cde8f00112233445501".into(), "/inputs/cat.png".into())]),
            more: 2,
            traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()),
        },
        Control::Cancel { run: 7 },
        Control::Shutdown,
    ]
}

fn reports() -> Vec<Report> {
    let error = |code: &str| Failure {
        code: code.into(),
        class: "ValueError".into(),
        message: "no such \"colour\"".into(),
        traceback: "Traceback (most recent call last):\n  File \"endpoint.py\", line 3, in predict\n".into(),
    };
    vec![
        Report::Ready { load_ms: 1_200 },
        Report::Failed { error: error("setup_failed") },
        Report::Heartbeat { rss_bytes: 52_428_800, peak_rss_bytes: 104_857_600, running: 1 },
        Report::Capacity { runs: 57 },
        Report::Log { run: 7, stream: Stream::Stderr },
        Report::Progress { run: 7, fraction: 0.5, message: "half way".into() },
        Report::Output { run: 7, index: 0 },
        Report::Done {
            run: 7,
            run_ms: 15,
            files: vec![OutputFile {
                name: "out.png".into(),
                path: "/scratch/7/out.png".into(),
                content_type: "image/png".into(),
            }],
        },
        Report::Error { run: 7, run_ms: 15, error: error("handler_error") },
        Report::Fatal { message: "a frame's header is not a valid message".into() },
    ]
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python/tests/wire")
}

/// A file name such as `control_run.json`.
fn file_name(family: &str, json: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    format!("{family}_{}.json", value["type"].as_str().unwrap())
}

fn check<M: Serialize + DeserializeOwned + PartialEq + Debug>(family: &str, message: &M) -> String {
    let json = serde_json::to_string_pretty(message).unwrap() + "\n";
    let name = file_name(family, &json);
    let path = folder().join(&name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &json).unwrap();
    }
    let pinned = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(pinned, json, "{name} is not what is sent; BLESS=1 rewrites it");
    assert_eq!(&serde_json::from_str::<M>(&pinned).unwrap(), message, "{name} does not read back");
    // A peer of a later release may send more members.
    let mut later: serde_json::Value = serde_json::from_str(&pinned).unwrap();
    later["of_a_later_release"] = serde_json::json!({"deep": [1, null]});
    assert_eq!(&serde_json::from_value::<M>(later).unwrap(), message, "{name} with a member more does not read back");
    name
}

#[test]
fn every_message_is_pinned_and_no_file_is_left_over() {
    let controls = controls();
    let reports = reports();
    let pinned: BTreeSet<String> = controls
        .iter()
        .map(|message| check("control", message))
        .chain(reports.iter().map(|message| check("report", message)))
        .collect();
    assert_eq!(pinned.len(), controls.len() + reports.len(), "one file per message");
    let found: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".json"))
        .collect();
    assert_eq!(found, pinned);
}

/// Breaks the build when a message is added and not pinned above.
#[test]
fn the_lists_above_are_whole() {
    for control in controls() {
        match control {
            Control::Load { .. } | Control::Run { .. } | Control::Cancel { .. } | Control::Shutdown => {}
        }
    }
    for report in reports() {
        match report {
            Report::Ready { .. }
            | Report::Failed { .. }
            | Report::Heartbeat { .. }
            | Report::Capacity { .. }
            | Report::Log { .. }
            | Report::Progress { .. }
            | Report::Output { .. }
            | Report::Done { .. }
            | Report::Error { .. }
            | Report::Fatal { .. } => {}
        }
    }
}
