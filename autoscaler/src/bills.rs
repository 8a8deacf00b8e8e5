//! The machines' bills: what is to be written down of what they cost. Pure; [`books`] writes it.

pub(crate) mod books;

use std::collections::BTreeMap;

use stokehold_queue::costs::{BillState, Charged, MachineBill};
use stokehold_queue::registry::{MachineRecord, MachineState};

use crate::live::chores::micros;
use crate::observe::{SILENT_MS, Seen};
use crate::provider::{Charge, RentalState};

/// One that has not said anything of it by then is not asked any more.
const ASKED_FOR_MS: u64 = 2 * 3_600_000;

/// Bills are kept for so long after their machine's end, milliseconds: a year, and a month to look back on it.
const KEPT_MS: u64 = 400 * 86_400_000;

/// Bills that are kept at most: fifty machines a day for all that time.
const BILLS_MAX: usize = 20_000;

/// What is to be done with a bill.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Entry {
    /// It is new, or has changed.
    Write(Box<MachineBill>),
    /// Its machine was never made.
    Drop(String),
}

/// What providers charge, by provider: of those that have been asked now and send bills.
pub(crate) type Charges = BTreeMap<String, Said>;

/// What a provider has said.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Said {
    pub(crate) charges: Vec<Charge>,
    /// So long after a machine's end it is its last word, milliseconds.
    pub(crate) last_word_ms: u64,
}

/// What has changed since `known`. A bill is opened when its machine is first written down, for one whose rent was of unknown outcome is
/// paid for if it was made; it is closed when the machine is struck off. One of which its provider has never named an id was never made.
pub(crate) fn entries(seen: &Seen, known: &BTreeMap<String, MachineBill>, charges: &Charges) -> Vec<Entry> {
    let mut entries = Vec::new();
    for machine in seen.machines.values() {
        let before = known.get(&machine.id);
        let bill = charged(seen, current(seen, machine, before), charges);
        if before != Some(&bill) {
            entries.push(Entry::Write(Box::new(bill)));
        }
    }
    for before in known.values().filter(|bill| !seen.machines.contains_key(&bill.machine)) {
        if before.rental.is_none() && before.charged.is_none() {
            entries.push(Entry::Drop(before.machine.clone()));
            continue;
        }
        let mut bill = before.clone();
        if bill.ended_ms.is_none() {
            bill.advance(seen.now_ms);
            bill.ended_ms = Some(seen.now_ms);
        }
        let bill = charged(seen, bill, charges);
        if bill != *before {
            entries.push(Entry::Write(Box::new(bill)));
        }
    }
    entries
}

/// The bills that are kept no longer: those that ended too long ago, and the oldest of too many.
pub(crate) fn outdated(bills: &BTreeMap<String, MachineBill>, now_ms: u64) -> Vec<String> {
    let ended = |bill: &MachineBill| bill.ended_ms.map(|ended_ms| (ended_ms, bill.machine.clone()));
    let mut ended: Vec<(u64, String)> = bills.values().filter_map(ended).collect();
    ended.sort();
    let too_many = bills.len().saturating_sub(BILLS_MAX);
    let is_old = |ended_ms: u64| ended_ms + KEPT_MS < now_ms;
    let old = ended.into_iter().enumerate().take_while(|(n, (ended_ms, _))| *n < too_many || is_old(*ended_ms));
    old.map(|(_, (_, machine))| machine).collect()
}

/// Whether a provider may have more to say of this one.
pub(crate) fn is_awaited(bill: &MachineBill, now_ms: u64) -> bool {
    let is_final = bill.charged.is_some_and(|charged| charged.is_final);
    !is_final && bill.ended_ms.is_none_or(|ended_ms| now_ms < ended_ms + ASKED_FOR_MS)
}

/// The bill of a machine that is there.
fn current(seen: &Seen, machine: &MachineRecord, before: Option<&MachineBill>) -> MachineBill {
    let mut bill = before.cloned().unwrap_or_else(|| opened(machine));
    if bill.ended_ms.take().is_some() {
        // A name that is used again: what was between is not paid for.
        bill.since_ms = machine.rented_ms.max(bill.since_ms);
        bill.charged = bill.charged.map(|charged| Charged { is_final: false, ..charged });
    }
    let state = state(seen, machine).unwrap_or(bill.state);
    let prices = (machine.usd_micros_per_hour, machine.stopped_usd_micros_per_hour);
    if (bill.state, bill.usd_micros_per_hour, bill.stopped_usd_micros_per_hour) != (state, prices.0, prices.1) {
        bill.advance(seen.now_ms);
        (bill.state, bill.usd_micros_per_hour, bill.stopped_usd_micros_per_hour) = (state, prices.0, prices.1);
    }
    bill.rental = machine.rental.clone().or(bill.rental);
    bill
}

fn opened(machine: &MachineRecord) -> MachineBill {
    let word = |member: &str| machine.offer[member].as_str().unwrap_or_default().to_owned();
    MachineBill {
        machine: machine.id.clone(),
        provider: machine.provider.clone(),
        rental: machine.rental.clone(),
        kind: word("kind"),
        host: word("host"),
        is_interruptible: machine.is_interruptible,
        usd_micros_per_hour: machine.usd_micros_per_hour,
        on_demand_usd_micros_per_hour: machine.offer["usd_per_hour"]
            .as_f64()
            .map_or(machine.usd_micros_per_hour, micros),
        stopped_usd_micros_per_hour: machine.stopped_usd_micros_per_hour,
        rented_ms: machine.rented_ms,
        ended_ms: None,
        state: BillState::Booting,
        since_ms: machine.rented_ms,
        days: BTreeMap::new(),
        charged: None,
    }
}

/// What a machine is paid for; `None` while it is being given back, when it is as it was.
fn state(seen: &Seen, machine: &MachineRecord) -> Option<BillState> {
    // Of one that was taken away only the disk is paid for, whatever is wanted of it.
    let is_away = |state| matches!(state, RentalState::Lost | RentalState::Stopped | RentalState::Broken);
    if seen.rental_of(machine).is_some_and(|rental| is_away(rental.state)) {
        return Some(BillState::Stopped);
    }
    match machine.state(seen.worker_of(machine), seen.now_ms, SILENT_MS).0 {
        MachineState::Booting | MachineState::Resuming => Some(BillState::Booting),
        MachineState::Ready | MachineState::Draining | MachineState::Lost => Some(BillState::Running),
        MachineState::Stopped => Some(BillState::Stopped),
        MachineState::Ending => None,
    }
}

/// With what its provider charges now.
fn charged(seen: &Seen, bill: MachineBill, charges: &Charges) -> MachineBill {
    if !is_awaited(&bill, seen.now_ms) {
        return bill;
    }
    let is_of = |charge: &&Charge| {
        Some(&charge.rental) == bill.rental.as_ref() || charge.label.as_deref() == Some(&bill.machine)
    };
    let Some(said) = charges.get(&bill.provider) else { return bill };
    let Some(charge) = said.charges.iter().find(is_of) else { return bill };
    let is_final = bill.ended_ms.is_some_and(|ended_ms| seen.now_ms >= ended_ms + said.last_word_ms);
    let now = Charged {
        gpu_usd_micros: micros(charge.gpu_usd),
        disk_usd_micros: micros(charge.disk_usd),
        traffic_usd_micros: micros(charge.traffic_usd),
        at_ms: seen.now_ms,
        is_final,
    };
    let is_news = bill.charged.is_none_or(|before| Charged { at_ms: now.at_ms, ..before } != now);
    if is_news { MachineBill { charged: Some(now), ..bill } } else { bill }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;
    use stokehold_queue::WorkerRecord;
    use stokehold_queue::registry::Wanted;

    use super::*;
    use crate::provider::Rental;

    const NOW: u64 = 1_000_000_000;
    const MINUTE: u64 = 60_000;

    fn machine(wanted: Wanted) -> MachineRecord {
        let offer = json!({"kind": "RTX 4090", "host": "box-3", "usd_per_hour": 0.6});
        serde_json::from_value(
            json!({"id": "m-1", "provider": "cloud", "rental": "9001", "offer": offer, "wanted": wanted,
            "wanted_ms": NOW, "is_done": true, "rented_ms": NOW, "usd_micros_per_hour": 360_000,
            "stopped_usd_micros_per_hour": 60_000, "is_interruptible": true}),
        )
        .unwrap()
    }

    fn worker(at_ms: u64) -> WorkerRecord {
        serde_json::from_value(json!({"worker_id": "w", "name": "m-1", "release": "", "slots": 1, "joined_ms": at_ms,
            "seen_ms": at_ms, "gpus": [], "status": {}}))
        .unwrap()
    }

    fn seen(minutes: u64, machine: Option<MachineRecord>) -> Seen {
        let now_ms = NOW + minutes * MINUTE;
        let machines = machine.into_iter().map(|machine| (machine.id.clone(), machine)).collect();
        Seen { now_ms, machines, ..Seen::default() }
    }

    fn ready(minutes: u64) -> Seen {
        let seen = seen(minutes, Some(machine(Wanted::Running)));
        Seen { workers: vec![worker(seen.now_ms)], ..seen }
    }

    /// What is known after each of these was seen.
    fn after(all: &[Seen]) -> BTreeMap<String, MachineBill> {
        let mut known = BTreeMap::new();
        for seen in all {
            apply(&mut known, seen, &Charges::new());
        }
        known
    }

    fn apply(known: &mut BTreeMap<String, MachineBill>, seen: &Seen, charges: &Charges) {
        for entry in entries(seen, known, charges) {
            match entry {
                Entry::Write(bill) => drop(known.insert(bill.machine.clone(), *bill)),
                Entry::Drop(id) => drop(known.remove(&id)),
            }
        }
    }

    fn charges(gpu_usd: f64) -> Charges {
        let charge = Charge { rental: "9001".to_owned(), label: None, gpu_usd, disk_usd: 0.01, traffic_usd: 0.002 };
        [("cloud".to_owned(), Said { charges: vec![charge], last_word_ms: 10 * MINUTE })].into()
    }

    #[test]
    fn a_bill_follows_its_machine_and_is_written_when_that_changes() {
        let booting = seen(0, Some(machine(Wanted::Running)));
        let known = after(&[booting]);
        assert_eq!(entries(&seen(1, Some(machine(Wanted::Running))), &known, &Charges::new()), []);
        let stopped = MachineRecord { wanted: Wanted::Stopped, ..machine(Wanted::Running) };
        let lived = after(&[
            seen(0, Some(machine(Wanted::Running))),
            ready(10),
            seen(40, Some(stopped)),
            seen(70, Some(machine(Wanted::Gone))),
            seen(80, None),
        ]);
        let bill = &lived["m-1"];
        let day = bill.days.values().next().unwrap();
        let times = (day.booting_ms / MINUTE, day.running_ms / MINUTE, day.stopped_ms / MINUTE);
        assert_eq!(times, (10, 30, 40), "while it is given back it is as it was");
        assert_eq!(
            (bill.ended_ms, bill.host.as_str(), bill.on_demand_usd_micros_per_hour),
            (Some(NOW + 80 * MINUTE), "box-3", 600_000)
        );
        assert_eq!(bill.total_usd_micros(u64::MAX), 240_000 + 40_000);
    }

    #[test]
    fn a_machine_that_was_never_made_leaves_no_bill() {
        let unknown = MachineRecord { rental: None, ..machine(Wanted::Running) };
        assert_eq!(after(&[seen(0, Some(unknown.clone()))]).len(), 1);
        assert_eq!(after(&[seen(0, Some(unknown.clone())), seen(1, None)]).len(), 0);
        let found = after(&[seen(0, Some(unknown)), seen(1, Some(machine(Wanted::Gone))), seen(2, None)]);
        assert_eq!(found["m-1"].ended_ms, Some(NOW + 2 * MINUTE), "its provider had it after all");
    }

    #[test]
    fn of_a_machine_that_was_taken_away_only_the_disk_is_paid_for() {
        let taken =
            Rental { id: "9001".to_owned(), label: "m-1".to_owned(), state: RentalState::Lost, usd_per_hour: None };
        let away = Seen { rentals: [("cloud".to_owned(), Some(vec![taken]))].into(), ..ready(20) };
        let known = after(&[ready(10), away]);
        assert_eq!(known["m-1"].state, BillState::Stopped);
    }

    #[test]
    fn a_bid_that_is_raised_counts_from_then_on() {
        let dearer = MachineRecord { usd_micros_per_hour: 720_000, ..machine(Wanted::Running) };
        let raised = Seen { machines: [("m-1".to_owned(), dearer)].into(), ..ready(30) };
        let known = after(&[ready(0), raised, seen(60, None)]);
        assert_eq!(known["m-1"].total_usd_micros(u64::MAX), 180_000 + 360_000);
    }

    #[test]
    fn what_the_provider_charges_ten_minutes_after_the_end_is_its_last_word() {
        let mut known = after(&[ready(0)]);
        apply(&mut known, &ready(1), &charges(0.2));
        let charged = known["m-1"].charged.unwrap();
        assert_eq!((charged.gpu_usd_micros, charged.disk_usd_micros, charged.is_final), (200_000, 10_000, false));
        assert_eq!(entries(&ready(2), &known, &charges(0.2)), [], "the same again is no news");
        apply(&mut known, &seen(5, None), &charges(0.2));
        assert!(is_awaited(&known["m-1"], NOW + 14 * MINUTE));
        apply(&mut known, &seen(15, None), &charges(0.3));
        assert_eq!(known["m-1"].total_usd_micros(u64::MAX), 312_000);
        assert!(!is_awaited(&known["m-1"], NOW + 15 * MINUTE));
        assert_eq!(entries(&seen(16, None), &known, &charges(0.9)), [], "nothing changes it any more");
    }

    #[test]
    fn bills_go_when_they_are_old_or_too_many() {
        let of = |n: u64, ended_ms: Option<u64>| {
            let bill = MachineBill { machine: format!("m-{n:05}"), ended_ms, ..opened(&machine(Wanted::Running)) };
            (bill.machine.clone(), bill)
        };
        let few = [of(1, Some(NOW)), of(2, Some(NOW + 1)), of(3, None)].into();
        assert_eq!(outdated(&few, NOW + KEPT_MS), [""; 0]);
        assert_eq!(outdated(&few, NOW + KEPT_MS + 1), ["m-00001"]);
        assert_eq!(outdated(&few, NOW + 2 * KEPT_MS), ["m-00001", "m-00002"], "an open one stays");
        let many = (0..BILLS_MAX as u64 + 2).map(|n| of(n, Some(NOW + n))).collect();
        assert_eq!(outdated(&many, NOW), ["m-00000", "m-00001"]);
    }

    #[test]
    fn a_provider_that_says_nothing_is_asked_for_two_hours() {
        let known = after(&[ready(0), seen(1, None)]);
        assert!(is_awaited(&known["m-1"], NOW + 120 * MINUTE) && !is_awaited(&known["m-1"], NOW + 122 * MINUTE));
    }
}
