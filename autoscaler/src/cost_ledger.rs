//! Changes to the bills of machines. Pure; [`writer`] writes them.

pub(crate) mod writer;

use std::collections::BTreeMap;

use stokehold_queue::costs::{BillState, Charged, MachineBill};
use stokehold_queue::registry::{MachineRecord, MachineState, Wanted};
use stokehold_units::UsdMicros;

use crate::observe::{RawState, SILENT_MS};
use crate::provider::{Charge, RentalState};

/// Time after the end of a machine in which its provider is asked for charges, milliseconds.
const ASKED_FOR_MS: u64 = 2 * 3_600_000;

/// Retention of bills after the end of their machine, milliseconds: a year, and a month to report on it.
const KEPT_MS: u64 = 400 * 86_400_000;

/// Maximum number of bills: fifty machines a day over that retention.
const BILLS_MAX: usize = 20_000;

/// Average age of a list that shows for the first time that a machine runs, milliseconds.
const LIST_LAG_MS: u64 = 3_000;

/// Change to a bill.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Entry {
    /// The bill is new or has changed.
    Write(Box<MachineBill>),
    /// The machine was never created.
    Drop(String),
}

/// Charges by provider, of providers that send bills and responded in this round.
pub(crate) type Charges = BTreeMap<String, ProviderCharges>;

/// Charges of one provider.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProviderCharges {
    pub(crate) charges: Vec<Charge>,
    /// Time after the end of a machine at which its charges are final, milliseconds.
    pub(crate) last_word_ms: u64,
}

/// Lists the changes since `known`. A bill is opened when its machine is first written to the ledger, because a rent of
/// unknown outcome costs money if it succeeded. It is closed when the machine is struck off. A machine without a
/// provider's ID was never created.
///
/// The bill ends when the provider confirmed the release. For a machine that went away by itself it ends when the
/// machine was last known to exist (`there_ms`), because a list without it is trusted only later.
pub(crate) fn entries(
    seen: &RawState,
    known: &BTreeMap<String, MachineBill>,
    there_ms: &BTreeMap<String, u64>,
    charges: &Charges,
) -> Vec<Entry> {
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
            let there_ms = there_ms.get(&bill.machine).copied().unwrap_or(seen.now_ms);
            end(&mut bill, there_ms.min(seen.now_ms));
        }
        let bill = charged(seen, bill, charges);
        if bill != *before {
            entries.push(Entry::Write(Box::new(bill)));
        }
    }
    entries
}

fn end(bill: &mut MachineBill, at_ms: u64) {
    bill.advance(at_ms);
    bill.ended_ms = Some(at_ms.max(bill.since_ms));
}

/// Records which machines are known to exist now, because they are listed or heard.
pub(crate) fn note_there(seen: &RawState, there_ms: &mut BTreeMap<String, u64>) {
    for machine in seen.machines.values() {
        let is_heard = seen.worker_of(machine).is_some_and(|worker| seen.is_heard(worker));
        let has_list = seen.rentals.get(&machine.provider).is_some_and(Option::is_some);
        let is_new = !there_ms.contains_key(&machine.id);
        if is_heard || is_new || (has_list && seen.rental_of(machine).is_some()) {
            there_ms.insert(machine.id.clone(), seen.now_ms);
        }
    }
}

/// Bills that are past their retention, and the oldest ones above the maximum number.
pub(crate) fn outdated(bills: &BTreeMap<String, MachineBill>, now_ms: u64) -> Vec<String> {
    let ended = |bill: &MachineBill| bill.ended_ms.map(|ended_ms| (ended_ms, bill.machine.clone()));
    let mut ended: Vec<(u64, String)> = bills.values().filter_map(ended).collect();
    ended.sort();
    let too_many = bills.len().saturating_sub(BILLS_MAX);
    let is_old = |ended_ms: u64| ended_ms + KEPT_MS < now_ms;
    let old = ended.into_iter().enumerate().take_while(|(n, (ended_ms, _))| *n < too_many || is_old(*ended_ms));
    old.map(|(_, (_, machine))| machine).collect()
}

/// Whether further charges of a bill may come.
pub(crate) fn is_awaited(bill: &MachineBill, now_ms: u64) -> bool {
    let is_final = bill.charged.is_some_and(|charged| charged.is_final);
    !is_final && bill.ended_ms.is_none_or(|ended_ms| now_ms < ended_ms + ASKED_FOR_MS)
}

/// The current bill of an existing machine.
fn current(seen: &RawState, machine: &MachineRecord, before: Option<&MachineBill>) -> MachineBill {
    let mut bill = before.cloned().unwrap_or_else(|| opened(machine));
    if let (Wanted::Gone, Some(released_ms)) = (machine.wanted, machine.released_ms) {
        bill.rental = machine.rental.clone().or(bill.rental);
        if bill.ended_ms.is_none() {
            end(&mut bill, released_ms);
        }
        return bill;
    }
    if bill.ended_ms.take().is_some() {
        // The machine's name is used again: the time in between is not charged.
        bill.since_ms = machine.rented_ms.max(bill.since_ms);
        bill.charged = bill.charged.map(|charged| Charged { is_final: false, ..charged });
    }
    let state = state(seen, machine).unwrap_or(bill.state);
    let prices = (price(seen, machine, &bill), machine.stopped_usd_micros_per_hour);
    if (bill.state, bill.usd_micros_per_hour, bill.stopped_usd_micros_per_hour) != (state, prices.0, prices.1) {
        let has_started =
            machine.booting_usd_micros_per_hour.is_some_and(|less| bill.usd_micros_per_hour <= less && prices.0 > less);
        bill.advance(seen.now_ms.saturating_sub(if has_started { LIST_LAG_MS } else { 0 }));
        bill.on_demand_usd_micros_per_hour = on_demand(machine, prices.0);
        (bill.state, bill.usd_micros_per_hour, bill.stopped_usd_micros_per_hour) = (state, prices.0, prices.1);
    }
    bill.rental = machine.rental.clone().or(bill.rental);
    bill
}

/// Current price per hour of a machine that is not stopped. Lower while it boots, if its provider charges from the
/// start of the run.
fn price(seen: &RawState, machine: &MachineRecord, bill: &MachineBill) -> u64 {
    let Some(booting) = machine.booting_usd_micros_per_hour else { return machine.usd_micros_per_hour };
    let is_heard = seen.worker_of(machine).is_some_and(|worker| seen.is_heard(worker));
    match seen.rental_of(machine).map(|rental| rental.state) {
        Some(RentalState::Starting) if !is_heard => booting,
        // If there is no list, the state is unchanged.
        None if !is_heard && bill.usd_micros_per_hour <= booting => booting,
        _ => machine.usd_micros_per_hour,
    }
}

/// On-demand price of a machine that currently costs this.
fn on_demand(machine: &MachineRecord, usd_micros_per_hour: u64) -> u64 {
    if machine.booting_usd_micros_per_hour.is_some_and(|booting| usd_micros_per_hour <= booting) {
        return usd_micros_per_hour;
    }
    machine.offer["usd_per_hour"].as_f64().map_or(machine.usd_micros_per_hour, |usd| UsdMicros::from_usd(usd).micros())
}

fn opened(machine: &MachineRecord) -> MachineBill {
    let usd_micros_per_hour = machine.booting_usd_micros_per_hour.unwrap_or(machine.usd_micros_per_hour);
    let word = |member: &str| machine.offer[member].as_str().unwrap_or_default().to_owned();
    MachineBill {
        machine: machine.id.clone(),
        provider: machine.provider.clone(),
        rental: machine.rental.clone(),
        kind: word("kind"),
        host: word("host"),
        is_interruptible: machine.is_interruptible,
        usd_micros_per_hour,
        on_demand_usd_micros_per_hour: on_demand(machine, usd_micros_per_hour),
        stopped_usd_micros_per_hour: machine.stopped_usd_micros_per_hour,
        rented_ms: machine.rented_ms,
        ended_ms: None,
        state: BillState::Booting,
        since_ms: machine.made_ms.unwrap_or(machine.rented_ms),
        days: BTreeMap::new(),
        charged: None,
    }
}

/// State that a machine is charged for; `None` while it is given back, when the state is unchanged.
fn state(seen: &RawState, machine: &MachineRecord) -> Option<BillState> {
    // Only the disk of a machine that was taken away is charged, regardless of its wanted state.
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

/// The bill with the current charges of its provider.
fn charged(seen: &RawState, bill: MachineBill, charges: &Charges) -> MachineBill {
    if !is_awaited(&bill, seen.now_ms) {
        return bill;
    }
    let is_of = |charge: &&Charge| {
        Some(&charge.rental) == bill.rental.as_ref() || charge.label.as_deref() == Some(&bill.machine)
    };
    let Some(charged) = charges.get(&bill.provider) else { return bill };
    let Some(charge) = charged.charges.iter().find(is_of) else { return bill };
    let is_final = bill.ended_ms.is_some_and(|ended_ms| seen.now_ms >= ended_ms + charged.last_word_ms);
    let now = Charged {
        gpu_usd_micros: charge.gpu_usd.micros(),
        disk_usd_micros: charge.disk_usd.micros(),
        traffic_usd_micros: charge.traffic_usd.micros(),
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

    fn seen(minutes: u64, machine: Option<MachineRecord>) -> RawState {
        let now_ms = NOW + minutes * MINUTE;
        let machines = machine.into_iter().map(|machine| (machine.id.clone(), machine)).collect();
        RawState { now_ms, machines, ..RawState::default() }
    }

    fn ready(minutes: u64) -> RawState {
        let seen = seen(minutes, Some(machine(Wanted::Running)));
        RawState { workers: vec![worker(seen.now_ms)], ..seen }
    }

    /// The bills after these states were observed in order.
    fn after(all: &[RawState]) -> BTreeMap<String, MachineBill> {
        let mut known = BTreeMap::new();
        for seen in all {
            apply(&mut known, seen, &Charges::new());
        }
        known
    }

    fn apply(known: &mut BTreeMap<String, MachineBill>, seen: &RawState, charges: &Charges) {
        for entry in entries(seen, known, &BTreeMap::new(), charges) {
            match entry {
                Entry::Write(bill) => drop(known.insert(bill.machine.clone(), *bill)),
                Entry::Drop(id) => drop(known.remove(&id)),
            }
        }
    }

    fn charges(gpu_usd: f64) -> Charges {
        let charge = Charge {
            rental: "9001".to_owned(),
            label: None,
            gpu_usd: UsdMicros::from_usd(gpu_usd),
            disk_usd: 10_000.into(),
            traffic_usd: 2_000.into(),
        };
        [("cloud".to_owned(), ProviderCharges { charges: vec![charge], last_word_ms: 10 * MINUTE })].into()
    }

    #[test]
    fn a_bill_follows_its_machine_and_is_written_when_that_changes() {
        let booting = seen(0, Some(machine(Wanted::Running)));
        let known = after(&[booting]);
        assert_eq!(entries(&seen(1, Some(machine(Wanted::Running))), &known, &BTreeMap::new(), &Charges::new()), []);
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
        let away = RawState { rentals: [("cloud".to_owned(), Some(vec![taken]))].into(), ..ready(20) };
        let known = after(&[ready(10), away]);
        assert_eq!(known["m-1"].state, BillState::Stopped);
    }

    #[test]
    fn what_is_not_charged_while_it_boots_is_not_reckoned_and_neither_is_what_comes_after_its_end() {
        let of_vast = |wanted| MachineRecord {
            booting_usd_micros_per_hour: Some(60_000),
            made_ms: Some(NOW + 6_000),
            listed_ms: None,
            ..machine(wanted)
        };
        let listed = |minutes, state| {
            let rental = Rental { id: "9001".to_owned(), label: "m-1".to_owned(), state, usd_per_hour: None };
            let rentals = [("cloud".to_owned(), Some(vec![rental]))].into();
            RawState { rentals, ..seen(minutes, Some(of_vast(Wanted::Running))) }
        };
        let ended_at = NOW + 16 * MINUTE;
        let ending = MachineRecord { released_ms: Some(ended_at), ..of_vast(Wanted::Gone) };
        let never_ran = [
            seen(0, Some(of_vast(Wanted::Running))),
            listed(1, RentalState::Starting),
            seen(5, Some(of_vast(Wanted::Running))),
            seen(17, Some(ending.clone())),
            seen(19, None),
        ];
        let bill = &after(&never_ran)["m-1"];
        assert_eq!(
            (bill.ended_ms, bill.total_usd_micros(u64::MAX)),
            (Some(ended_at), 60_000 * (16 * MINUTE - 6_000) / 3_600_000)
        );
        assert_eq!(bill.by_day(u64::MAX).values().map(|day| day.on_demand).sum::<u64>(), 15_900);
        let mut ran = never_ran;
        ran[2] = listed(6, RentalState::Running);
        // Ten minutes and some seconds of GPUs.
        let total = after(&ran)["m-1"].total_usd_micros(u64::MAX);
        assert!((15_900 + 50_000..15_900 + 50_300).contains(&total), "{total}");
        let again = MachineRecord { is_done: false, ..ending };
        let bill = &after(&[listed(0, RentalState::Running), seen(17, Some(again)), seen(30, None)])["m-1"];
        assert_eq!(bill.ended_ms, Some(ended_at), "what is listed after its end is asked for again, and not paid for");
    }

    #[test]
    fn one_that_went_away_by_itself_is_paid_for_until_it_was_last_known_to_be_there() {
        let (mut there_ms, mut known) = (BTreeMap::new(), BTreeMap::new());
        for seen in [ready(0), ready(10)] {
            note_there(&seen, &mut there_ms);
            apply(&mut known, &seen, &Charges::new());
        }
        let silent = RawState { now_ms: NOW + 20 * MINUTE, ..ready(10) };
        note_there(&silent, &mut there_ms);
        apply(&mut known, &silent, &Charges::new());
        let gone = seen(25, None);
        let [Entry::Write(bill)] = &entries(&gone, &known, &there_ms, &Charges::new())[..] else { panic!() };
        assert_eq!((bill.ended_ms, bill.total_usd_micros(u64::MAX)), (Some(NOW + 10 * MINUTE), 60_000));
    }

    #[test]
    fn a_bid_that_is_raised_counts_from_then_on() {
        let dearer = MachineRecord { usd_micros_per_hour: 720_000, ..machine(Wanted::Running) };
        let raised = RawState { machines: [("m-1".to_owned(), dearer)].into(), ..ready(30) };
        let known = after(&[ready(0), raised, seen(60, None)]);
        assert_eq!(known["m-1"].total_usd_micros(u64::MAX), 180_000 + 360_000);
    }

    #[test]
    fn what_the_provider_charges_ten_minutes_after_the_end_is_its_last_word() {
        let mut known = after(&[ready(0)]);
        apply(&mut known, &ready(1), &charges(0.2));
        let charged = known["m-1"].charged.unwrap();
        assert_eq!((charged.gpu_usd_micros, charged.disk_usd_micros, charged.is_final), (200_000, 10_000, false));
        assert_eq!(entries(&ready(2), &known, &BTreeMap::new(), &charges(0.2)), [], "the same again is no news");
        apply(&mut known, &seen(5, None), &charges(0.2));
        assert!(is_awaited(&known["m-1"], NOW + 14 * MINUTE));
        apply(&mut known, &seen(15, None), &charges(0.3));
        assert_eq!(known["m-1"].total_usd_micros(u64::MAX), 312_000);
        assert!(!is_awaited(&known["m-1"], NOW + 15 * MINUTE));
        assert_eq!(
            entries(&seen(16, None), &known, &BTreeMap::new(), &charges(0.9)),
            [],
            "nothing changes it any more"
        );
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
