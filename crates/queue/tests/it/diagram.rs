//! Checks that the state diagram in ARCHITECTURE.md equals the one generated from the state table. `BLESS=1` replaces
//! it.

use std::collections::BTreeMap;

use stokehold_queue::job::JobState;
use stokehold_queue::state::{JobEvent, next};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md");

/// Every transition of the table. Transitions between the same two states share a line.
fn diagram() -> String {
    let mut lines = vec![
        "stateDiagram-v2".to_owned(),
        "    [*] --> queued: submit".to_owned(),
        "    [*] --> scheduled: submit with run_after".to_owned(),
        "    [*] --> blocked: submit with depends_on or steps before".to_owned(),
    ];
    for state in JobState::ALL {
        let mut moves: BTreeMap<JobState, Vec<String>> = BTreeMap::new();
        for event in JobEvent::ALL {
            if let Ok(to) = next(state, event) {
                moves.entry(to).or_default().push(format!("{event:?}").to_lowercase());
            }
        }
        for (to, events) in moves {
            lines.push(format!("    {} --> {}: {}", state.as_str(), to.as_str(), events.join(", ")));
        }
    }
    lines.join("\n")
}

#[test]
fn the_picture_in_the_architecture_is_the_table() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once("```mermaid\n").expect("the page has a diagram");
    let (shown, after) = rest.split_once("\n```").expect("the diagram ends");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(PAGE, format!("{before}```mermaid\n{}\n```{after}", diagram())).unwrap();
        return;
    }
    assert_eq!(shown, diagram(), "run `make bless` and look at what has changed");
}
