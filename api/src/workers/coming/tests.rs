use serde_json::{Value, json};
use stokehold_queue::registry::Wanted;

use super::*;

const RENTED_MS: u64 = 1_000_000;

fn machine(offer: Value) -> MachineRecord {
    serde_json::from_value(json!({
        "id": "m-1", "provider": "cloud", "offer": offer, "wanted": "running", "wanted_ms": RENTED_MS, "is_done": true,
        "rented_ms": RENTED_MS, "usd_micros_per_hour": 0,
    }))
    .unwrap()
}

fn rtx() -> Value {
    json!({"kind": "RTX 4090", "cards": 1, "vram_gb": 24.0, "slots": 0, "boot_s": 40.0, "traits": {"trust": "datacenter"}})
}

fn after(machine: &MachineRecord, status: Option<&AutoscalerStatus>, class_gib: u32, passed_s: u64) -> Vec<Coming> {
    let demands = Requirements::default();
    let at = (RENTED_MS + passed_s * 1_000, 15_000);
    coming(std::iter::once(machine), &[], status, (&demands, class_gib), at)
}

#[test]
fn an_instance_is_rented_then_boots_and_is_late_after_a_usual_boot() {
    let mut rented = machine(rtx());
    let at = |machine: &MachineRecord, passed_s| after(machine, None, 20, passed_s).remove(0);
    let five = at(&rented, 5);
    assert_eq!(
        (five.step, five.since_ms, five.left_ms, five.is_late),
        (ComingStep::Renting, RENTED_MS, Some(35_000), false)
    );
    assert_eq!((five.words().as_str(), five.slots), ("an RTX 4090", 1));
    rented.listed_ms = Some(RENTED_MS + 4_000);
    let later = at(&rented, 39);
    assert_eq!((later.step, later.since_ms, later.left_ms), (ComingStep::Booting, RENTED_MS + 4_000, Some(1_000)));
    let late = at(&rented, 41);
    assert_eq!((late.left_ms, late.is_late), (None, true));

    let learned = AutoscalerStatus { boots_s: [("RTX 4090".to_owned(), 90)].into(), ..AutoscalerStatus::default() };
    assert_eq!(after(&rented, Some(&learned), 20, 10)[0].left_ms, Some(80_000), "the mean replaces the offer's value");
    let unknown = machine(json!({"kind": "RTX 4090", "cards": 1, "vram_gb": 24.0}));
    let unknown = &after(&unknown, None, 20, 10)[0];
    assert_eq!((unknown.left_ms, unknown.is_late), (None, false), "nothing is known");
}

#[test]
fn an_instance_that_was_stopped_resumes() {
    let again = MachineRecord { wanted_ms: RENTED_MS + 60_000, listed_ms: Some(RENTED_MS), ..machine(rtx()) };
    let status = AutoscalerStatus { resume_s: Some(30), ..AutoscalerStatus::default() };
    let one = after(&again, Some(&status), 20, 70).remove(0);
    assert_eq!((one.step, one.since_ms, one.left_ms), (ComingStep::Resuming, RENTED_MS + 60_000, Some(20_000)));
}

#[test]
fn only_instances_that_can_run_the_job_count() {
    let count = |machine: MachineRecord, class_gib| after(&machine, None, class_gib, 1).len();
    assert_eq!((count(machine(rtx()), 24), count(machine(rtx()), 48)), (1, 0));
    assert_eq!(count(machine(rtx()), 0), 1, "a job without a GPU runs anywhere");
    assert_eq!(count(MachineRecord { wanted: Wanted::Gone, ..machine(rtx()) }, 24), 0);
    assert_eq!(count(MachineRecord { drained_ms: Some(RENTED_MS), ..machine(rtx()) }, 24), 0);
    assert_eq!(count(machine(json!({"of_a_later_release": true})), 24), 0);
    let h100 = Requirements { gpu_models: vec!["H100".to_owned()], ..Requirements::default() };
    let rented = machine(rtx());
    let asked = coming(std::iter::once(&rented), &[], None, (&h100, 24), (RENTED_MS, 15_000));
    assert_eq!(asked, [], "it is another model");
}

#[test]
fn slots_are_limited_by_the_memory_of_the_gpus() {
    assert_eq!(slots_on(8, [24, 24].into_iter(), 10, 1), 4);
    assert_eq!(slots_on(3, [24, 24].into_iter(), 10, 1), 3);
    assert_eq!(slots_on(8, [24, 24].into_iter(), 20, 2), 1, "each job takes both");
    assert_eq!((slots_on(8, [].into_iter(), 0, 1), slots_on(8, [].into_iter(), 24, 1)), (8, 1));
}

#[test]
fn an_instance_is_named_with_its_article() {
    let named = |cards, kind: &str| {
        let offer = json!({"kind": kind, "cards": cards, "vram_gb": 24.0});
        after(&machine(offer), None, 0, 0)[0].words()
    };
    let names: Vec<String> = ["H100", "A100", "L4", "T4", "Tesla V100", "B200"].map(|kind| named(1, kind)).into();
    assert_eq!(names, ["an H100", "an A100", "an L4", "a T4", "a Tesla V100", "a B200"]);
    assert_eq!((named(4, "H100"), named(0, "CPU")), ("4 × H100".to_owned(), "an instance".to_owned()));
}
