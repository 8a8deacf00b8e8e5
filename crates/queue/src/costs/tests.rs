//! Property tests: assigned costs always add up to the bills, for any instances and jobs.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::job::TokenUsage;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;
const ALL: std::ops::RangeInclusive<u32> = 0..=u32::MAX;
const NOW: u64 = 20 * DAY;

fn bill(n: usize, provider: &str, price: u64) -> MachineBill {
    MachineBill {
        machine: format!("m-{n}"),
        provider: provider.to_owned(),
        rental: None,
        kind: "RTX 4090".to_owned(),
        host: String::new(),
        is_interruptible: false,
        usd_micros_per_hour: price,
        on_demand_usd_micros_per_hour: 2 * price,
        stopped_usd_micros_per_hour: price / 10,
        rented_ms: 10 * DAY,
        ended_ms: None,
        state: BillState::Booting,
        since_ms: 10 * DAY,
        days: BTreeMap::new(),
        charged: None,
    }
}

fn spent(day: u32, tenant: &str, machine: &str, run: u64, load: u64) -> Spent {
    Spent {
        day,
        tenant: tenant.to_owned(),
        endpoint: "draw".to_owned(),
        batch: None,
        machine: machine.to_owned(),
        jobs: 2,
        run_ms: run,
        run_usd_micros: run,
        load_usd_micros: load,
        usage: TokenUsage::default(),
    }
}

/// The lives of instances: the time in each state, and the charges.
fn lives() -> impl Strategy<Value = Vec<MachineBill>> {
    let state = prop_oneof![Just(BillState::Booting), Just(BillState::Running), Just(BillState::Stopped)];
    let charged = (0..3_000_000_u64, 0..90_000_u64, 0..5_000_u64, any::<bool>());
    let life = (
        prop_oneof![Just("cloud"), Just("other"), Just("owned")],
        0..5_000_000_u64,
        0..40 * HOUR,
        prop::collection::vec((state, 0..30 * HOUR), 0..6),
        any::<bool>(),
        prop::option::of(charged),
    );
    prop::collection::vec(life, 0..8).prop_map(|lives| {
        let one = |(n, (provider, price, late, states, is_open, charged)): (usize, _)| {
            let price = if provider == "owned" { 0 } else { price };
            let mut bill = bill(n, provider, price);
            let mut at = bill.rented_ms + late;
            (bill.rented_ms, bill.since_ms) = (at, at);
            for (state, ms) in states {
                bill.state = state;
                at += ms;
                bill.advance(at);
            }
            bill.ended_ms = if is_open { None } else { Some(at) };
            let charge = |(gpu_usd_micros, disk_usd_micros, traffic_usd_micros, is_final)| Charged {
                gpu_usd_micros,
                disk_usd_micros,
                traffic_usd_micros,
                at_ms: at,
                is_final,
            };
            bill.charged = Option::<(u64, u64, u64, bool)>::map(charged, charge);
            bill
        };
        lives.into_iter().enumerate().map(one).collect()
    })
}

fn works() -> impl Strategy<Value = Vec<Spent>> {
    let work = (
        9..22_u32,
        prop::sample::select(vec!["acme", "zoo"]),
        prop::sample::select(vec!["draw", "write", "*"]),
        prop::option::of(Just("batch_1".to_owned())),
        0..10_usize,
        (0..4_u64, 0..9_000_000_u64, prop_oneof![Just(0), 0..4_000_000_u64], 0..400_000_u64),
    );
    prop::collection::vec(work, 0..60).prop_map(|works| {
        let mut cells: BTreeMap<_, Spent> = BTreeMap::new();
        for (day, tenant, endpoint, batch, machine, (jobs, run_ms, run, load)) in works {
            let machine = format!("m-{machine}");
            let it = Spent {
                endpoint: endpoint.to_owned(),
                batch: batch.clone(),
                jobs,
                run_ms,
                usage: [jobs % 3, 0, run_ms % 2].into(),
                ..spent(day, tenant, &machine, run, load)
            };
            cells.insert((day, tenant, endpoint, batch, machine), it);
        }
        cells.into_values().collect()
    })
}

/// The total to pay: the bills, and the prices of workers without one.
fn owed(spent: &[Spent], bills: &[MachineBill]) -> u64 {
    let billed: u64 = bills.iter().map(|bill| bill.total_usd_micros(NOW)).sum();
    let is_billed = |it: &&Spent| bills.iter().any(|bill| bill.machine == it.machine);
    let own: u64 = spent.iter().filter(|it| !is_billed(it)).map(|it| it.run_usd_micros + it.load_usd_micros).sum();
    billed + own
}

proptest! {
    #[test]
    fn every_micro_dollar_is_told_of_once_whatever_it_is_told_by(spent in works(), bills in lives()) {
        let owed = owed(&spent, &bills);
        let (whole, apart) = (reckon(&spent, &bills, ALL, NOW, false), reckon(&spent, &bills, ALL, NOW, true));
        for (lines, by) in [
            (&whole, By::Endpoint), (&whole, By::Tenant), (&whole, By::Batch), (&whole, By::Day), (&apart, By::Machine),
        ] {
            let told = report(lines, by, None, &[]);
            prop_assert_eq!(told.rows.iter().map(|row| row.cost.total()).sum::<u64>(), owed);
            prop_assert_eq!(told.total.cost.total(), owed);
            prop_assert_eq!(told.total.jobs, spent.iter().map(|it| it.jobs).sum::<u64>());
            prop_assert_eq!(told.total.usage.total(), spent.iter().map(|it| it.usage.total()).sum::<u64>());
            prop_assert!(told.total.of_tokens_usd_micros <= told.total.cost.total());
        }
        // The cost of each instance equals its bill, and the cost of a tenant is the same in every grouping.
        for row in report(&apart, By::Machine, None, &[]).rows {
            if let Some(bill) = bills.iter().find(|bill| Some(&bill.machine) == row.group.machine.as_ref()) {
                prop_assert_eq!(row.cost.total(), bill.total_usd_micros(NOW));
            }
        }
        for row in report(&whole, By::Tenant, None, &[]).rows {
            let Some(tenant) = row.group.tenant.as_deref() else { continue };
            for by in [By::Endpoint, By::Batch, By::Day, By::Machine] {
                prop_assert_eq!(report(&whole, by, Some(tenant), &[]).total.cost, row.cost);
            }
        }
    }

    #[test]
    fn what_is_charged_is_what_is_told(bills in lives()) {
        for bill in bills {
            if let Some(charged) = bill.charged.filter(|charged| charged.is_final) {
                prop_assert_eq!(bill.total_usd_micros(NOW), charged.total_usd_micros());
            }
        }
    }

    #[test]
    fn a_day_is_the_same_in_every_report(spent in works(), bills in lives()) {
        let all = report(&reckon(&spent, &bills, ALL, NOW, false), By::Day, None, &[]);
        for row in all.rows {
            let day = row.group.day.unwrap();
            let alone = report(&reckon(&spent, &bills, day..=day, NOW, false), By::Day, None, &[]);
            prop_assert_eq!(alone.rows, vec![row]);
        }
    }
}

/// Two instances: one ran for two hours and served both tenants, the other booted and was released.
fn two() -> (Vec<Spent>, Vec<MachineBill>) {
    let mut busy = bill(1, "cloud", 1_000_000);
    busy.stopped_usd_micros_per_hour = 100_000;
    busy.state = BillState::Running;
    busy.advance(10 * DAY + 2 * HOUR);
    busy.ended_ms = Some(busy.since_ms);
    let mut idle = bill(2, "cloud", 500_000);
    idle.stopped_usd_micros_per_hour = 0;
    idle.advance(10 * DAY + HOUR);
    idle.ended_ms = Some(idle.since_ms);
    (vec![spent(10, "acme", "m-1", 900_000, 100_000), spent(10, "zoo", "m-1", 300_000, 0)], vec![busy, idle])
}

#[test]
fn what_a_machine_did_beside_its_jobs_is_spread_by_what_they_ran() {
    let (spent, bills) = two();
    let told = report(&reckon(&spent, &bills, ALL, NOW, false), By::Tenant, None, &[]);
    let [acme, zoo] = &told.rows[..] else { panic!("{told:?}") };
    // 20 cents of the 2.00 dollars are for the disk. The first tenant's running time is 90 of 200 parts of the rest.
    assert_eq!((acme.cost.run, acme.cost.load, zoo.cost.run), (810_000, 90_000, 270_000));
    // 80 of 200 parts are idle, and the boot of the other instance cost 50 cents. The first tenant's share is three
    // quarters.
    assert_eq!((acme.cost.idle, acme.cost.disk, acme.cost.boot), (472_500, 150_000, 375_000));
    assert_eq!((zoo.cost.idle, zoo.cost.disk, zoo.cost.boot), (157_500, 50_000, 125_000));
    assert_eq!((told.total.cost.total(), told.total.on_demand_usd_micros), (2_500_000, 5_000_000));
    assert_eq!(told.total.per_1000_jobs(), Some(625_000_000));
    assert!((told.idle_share() - 0.252).abs() < 1e-9 && told.total.is_estimate);
}

#[test]
fn a_million_tokens_cost_what_the_endpoints_with_tokens_cost() {
    let (mut spent, bills) = two();
    spent[0].usage = [1_500_000, 1_000_000, 500_000].into();
    // Failed runs of the same endpoint, in a batch.
    spent.push(Spent { batch: Some("batch_1".to_owned()), ..spent[0].clone() });
    spent[2].usage = TokenUsage::default();
    let told = report(&reckon(&spent, &bills, ALL, NOW, false), By::Tenant, None, &[]);
    let [acme, zoo] = &told.rows[..] else { panic!("{told:?}") };
    assert_eq!(acme.per_million_tokens(), Some(acme.cost.total() / 2));
    assert_eq!((zoo.per_million_tokens(), zoo.of_tokens_usd_micros), (None, 0));
    assert_eq!(told.total.per_million_tokens(), acme.per_million_tokens(), "no other endpoint is in the price");
}

#[test]
fn what_serves_nothing_on_a_day_without_work_is_nobodys() {
    let (_, bills) = two();
    let told = report(&reckon(&[], &bills, ALL, NOW, false), By::Endpoint, None, &[]);
    let [row] = &told.rows[..] else { panic!("{told:?}") };
    assert!(row.group.is_nobodys && row.cost.total() == 2_500_000);
    assert_eq!(report(&reckon(&[], &bills, ALL, NOW, false), By::Endpoint, Some("acme"), &[]).rows, []);
}

#[test]
fn a_machine_that_served_nothing_has_a_row_of_its_own_among_machines() {
    let (spent, bills) = two();
    let told = report(&reckon(&spent, &bills, ALL, NOW, true), By::Machine, None, &[]);
    let of: Vec<_> = told.rows.iter().map(|row| (row.group.machine.as_deref(), row.cost.total())).collect();
    assert_eq!(of, [(Some("m-1"), 2_000_000), (Some("m-2"), 500_000)]);
}

#[test]
fn owned_machines_and_workers_with_a_price_of_their_own() {
    let owned = [bill(1, "owned", 0)];
    let told = report(&reckon(&[spent(10, "acme", "m-1", 0, 0)], &owned, ALL, NOW, false), By::Tenant, None, &[]);
    assert_eq!((told.total.cost.total(), told.total.jobs, told.total.is_estimate), (0, 2, false));
    let told = report(&reckon(&[spent(10, "acme", "desk", 50, 7)], &[], ALL, NOW, false), By::Tenant, None, &[]);
    assert_eq!((told.total.cost.total(), told.total.cost.load, told.total.is_estimate), (57, 7, true));
}

#[test]
fn a_worker_without_a_price_leaves_no_dollar_untold() {
    let mut bill = bill(1, "cloud", 1_000_000);
    bill.state = BillState::Running;
    let spent = [Spent { run_ms: 60_000, ..spent(10, "acme", "m-1", 0, 0) }];
    let told = report(&reckon(&spent, &[bill.clone()], ALL, 10 * DAY + HOUR, false), By::Tenant, None, &[]);
    assert_eq!(told.total.cost.total(), bill.total_usd_micros(10 * DAY + HOUR));
    assert_eq!((told.rows[0].group.tenant.as_deref(), told.rows[0].cost.run), (Some("acme"), 0));
}

#[test]
fn a_price_list_of_others_counts_what_it_has_prices_for() {
    let (spent, bills) = two();
    let price = |kind: &str| Hosted { service: "somebody".to_owned(), kind: kind.to_owned(), usd_per_hour: 3.6 };
    let lines = reckon(&spent, &bills, ALL, NOW, false);
    let told = report(&lines, By::Tenant, None, &[price("RTX 4090"), price("H100")]);
    let [there] = &told.hosted[..] else { panic!() };
    // 1,200 seconds at a tenth of a cent.
    assert_eq!((there.usd_micros, there.ours_usd_micros), (1_200_000, 2_500_000));
    assert_eq!(report(&lines, By::Tenant, None, &[price("H100")]).hosted, []);
}
