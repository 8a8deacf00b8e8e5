//! Time of one observation and one decision, with 1,000 endpoints, 500 machines and 3,000 offers. `--json` prints one
//! document.
#![expect(clippy::print_stdout, reason = "a bench measures, and prints")]

#[path = "../tests/it/large.rs"]
mod large;

use std::time::Instant;

use stokehold_planner::{Observer, Policy, Snapshot, decide};

const ROUNDS: u32 = 200;

fn median_and_worst(mut took_ms: Vec<f64>) -> (f64, f64) {
    took_ms.sort_by(f64::total_cmp);
    (took_ms[took_ms.len() / 2], took_ms[took_ms.len() - 1])
}

fn main() {
    let policy = Policy { max_machines: 10_000, max_usd_per_hour: 1e6, ..Policy::default() };
    let mut observer = Observer::new(&policy);
    let (mut note_ms, mut decide_ms, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    let mut seen = large::observation();
    observer.note(&seen);
    for _ in 0..ROUNDS {
        large::go_on(&mut seen);
        let began = Instant::now();
        let learned = observer.note(&seen);
        note_ms.push(began.elapsed().as_secs_f64() * 1_000.0);
        let began = Instant::now();
        let plan = decide(&Snapshot { seen: &seen, learned }, &policy);
        decide_ms.push(began.elapsed().as_secs_f64() * 1_000.0);
        steps.push(plan.steps.len() as f64);
    }
    let ((note, note_worst), (decided, decided_worst)) = (median_and_worst(note_ms), median_and_worst(decide_ms));
    let (steps, steps_most) = median_and_worst(steps);
    if std::env::args().any(|argument| argument == "--json") {
        let document = serde_json::json!({
            "rounds": ROUNDS,
            "note_ms": {"median": note, "worst": note_worst},
            "decide_ms": {"median": decided, "worst": decided_worst},
            "steps": {"median": steps, "most": steps_most},
        });
        println!("{document}");
    } else {
        println!("note:   {note:.2} ms, at worst {note_worst:.2} ms");
        println!("decide: {decided:.2} ms, at worst {decided_worst:.2} ms, {steps} steps, at most {steps_most}");
    }
}
