//! Every sum is exact.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use stokehold_fake_vast::{
    Act, Bill, Change, Fault, Items, Listing, Market, Money, OutbidLook, Rule, Settings, in_usd, of_traffic,
    per_ms_of_disk, per_ms_of_hourly,
};

use crate::side::{call, destroy, one_box, rent, rented, search, set, show};

const HOUR_S: f64 = 3600.0;

#[test]
fn a_life_of_known_hours_costs_what_it_should() {
    let mut market = one_box();
    let id = rented(&mut market, 0.0, 2, &json!({"disk": 72}));
    set(&mut market, 60.0 + HOUR_S - 2.0, id, &json!({"state": "stopped"}));
    market.transfer(2.0 * HOUR_S, id, 3_000_000_000, 1_000_000_000);
    destroy(&mut market, 10.0 * HOUR_S, id);
    let Bill { items, .. } = market.invoice(100.0 * HOUR_S).remove(0);
    assert_eq!(items.gpu, Money::from_usd(0.8), "two cards at 0.40 for an hour");
    assert_eq!(items.disk, Money::from_usd(0.2), "72 GB at 0.20 a month of 720 hours, for ten hours");
    assert_eq!(items.bwd, Money::from_usd(0.018), "an image of 6 GB and 3 GB at 0.002");
    assert_eq!(items.bwu, Money::from_usd(0.004));
    assert!((market.credit_usd(100.0 * HOUR_S) - (100.0 - 1.022)).abs() < 1e-12);
}

#[test]
fn charges_are_said_per_contract_and_day() {
    let mut market = one_box();
    let id = rented(&mut market, 12.0 * HOUR_S, 1, &json!({"label": "pool"}));
    let whole = json!({"day": {"gte": 0, "lte": 864_000}, "type": {"in": ["instance"]}});
    let get = |market: &mut Market, filters: &Value| {
        call(
            market,
            48.0 * HOUR_S,
            "GET",
            &format!("/api/v0/charges/?select_filters={filters}&limit=500"),
            &Value::Null,
        )
        .value()
    };
    let row = get(&mut market, &whole)["results"][0].clone();
    assert_eq!((&row["source"], &row["metadata"]["label"]), (&json!(format!("instance-{id}")), &json!("pool")));
    let kinds: Vec<&str> = row["items"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["gpu", "disk", "bwd", "bwu"]);
    let second = json!({"day": {"gte": 86_400, "lte": 90_000}});
    let day = get(&mut market, &second)["results"][0].clone();
    assert_eq!(day["items"][0]["amount"], json!(9.6));
    assert_eq!(day["items"][2]["amount"], json!(0.0), "the image came on the day before");
    let total = market.invoice(48.0 * HOUR_S)[0].items.total().usd();
    assert!((row["amount"].as_f64().unwrap() - total).abs() < 1e-12);
}

#[test]
fn when_credit_runs_out_everything_stops_at_that_moment_and_disks_go_on() {
    let settings = Settings {
        credit_usd: 1.0,
        image_gb: 0.0,
        machines: 0,
        listings: vec![Listing::default()],
        ..Settings::calm()
    };
    let mut market = Market::new(1, settings);
    let id = rented(&mut market, 0.0, 1, &json!({}));
    let per_hour = 0.4 + 0.2 * 20.0 / 720.0;
    let disk_while_booting = 60.0 / HOUR_S * 0.2 * 20.0 / 720.0;
    let out_s = 60.0 + (1.0 - disk_while_booting) / per_hour * HOUR_S;
    assert_eq!(show(&mut market, out_s - 0.01, id)["actual_status"], "running");
    assert_eq!(show(&mut market, out_s + 0.01, id)["actual_status"], "stopped");
    assert_eq!(set(&mut market, out_s + 1.0, id, &json!({"state": "running"})).value()["error"], "insufficient_credit");
    assert!(market.credit_usd(out_s + 24.0 * HOUR_S) < -0.1);
    market.pay_in(out_s + 24.0 * HOUR_S, 5.0);
    assert_eq!(set(&mut market, out_s + 25.0 * HOUR_S, id, &json!({"state": "running"})).value()["success"], true);
}

#[test]
fn an_accepted_increase_is_charged_from_that_moment_on() {
    let mut market = one_box();
    market.set_faults(vec![Rule::of(Fault::PriceIncrease { after_s: 0.0, factor: 1.5 })]);
    let id = rented(&mut market, 0.0, 1, &json!({}));
    let pending = call(&mut market, 61.0, "GET", "/api/v0/instances/pending-price-increases/", &Value::Null).value();
    let increase = pending["pending_price_increases"][0]["pending_price_increase_id"].clone();
    let path = format!("/api/v0/instances/{id}/accept-price-increase/");
    let extra = json!({"pending_price_increase_id": increase, "id": 1});
    assert_eq!(call(&mut market, 62.0, "PUT", &path, &extra).status, 400);
    let body = json!({"pending_price_increase_id": increase});
    assert_eq!(call(&mut market, 60.0 + HOUR_S, "PUT", &path, &body).value()["success"], true);
    assert_eq!(call(&mut market, 60.0 + HOUR_S, "PUT", &path, &body).status, 409);
    assert_eq!(market.invoice(60.0 + 2.0 * HOUR_S)[0].items.gpu, Money::from_usd(0.4 + 0.6));
}

/// A change of a market.
#[derive(Clone, Debug)]
enum Deed {
    Rent { at: usize, is_bid: bool, disk: u64 },
    Destroy(usize),
    Stop(usize),
    Start(usize),
    Bid(usize, f64),
    Outbid(usize),
    Offline(usize),
    Unknown(usize),
    Freeze(usize),
    Reboot(usize),
    Exit(usize),
}

fn deeds() -> impl Strategy<Value = Vec<(u64, Deed)>> {
    let which = 0..8_usize;
    let deed = prop_oneof![
        4 => (0..60_usize, any::<bool>(), 8..200_u64).prop_map(|(at, is_bid, disk)| Deed::Rent { at, is_bid, disk }),
        1 => which.clone().prop_map(Deed::Destroy),
        1 => which.clone().prop_map(Deed::Stop),
        1 => which.clone().prop_map(Deed::Start),
        1 => (which.clone(), 0.01..2.0).prop_map(|(which, usd)| Deed::Bid(which, usd)),
        1 => which.clone().prop_map(Deed::Outbid),
        1 => which.clone().prop_map(Deed::Offline),
        1 => which.clone().prop_map(Deed::Unknown),
        1 => which.clone().prop_map(Deed::Freeze),
        1 => which.clone().prop_map(Deed::Reboot),
        1 => which.prop_map(Deed::Exit),
    ];
    proptest::collection::vec((0..20_000_000_u64, deed), 1..40)
}

fn enact(market: &mut Market, now_s: f64, deed: &Deed) {
    let ids: Vec<u64> = market.instances().collect();
    let id = |which: usize| ids.get(which % ids.len().max(1)).copied().unwrap_or(0);
    match deed {
        Deed::Rent { at, is_bid, disk } => {
            let offers =
                search(market, now_s, &json!({"verified": {"in": [true, false]}, "order": [["dph_total", "asc"]]}));
            let Some(offer) = offers.get(*at % offers.len().max(1)) else { return };
            let price = offer["min_bid"].as_f64().map(|bid| bid * if *at % 5 == 0 { 0.9 } else { 1.3 });
            rent(
                market,
                now_s,
                offer["id"].as_u64().unwrap(),
                &json!({"price": price.filter(|_| *is_bid), "disk": disk}),
            );
        }
        Deed::Destroy(which) => drop(destroy(market, now_s, id(*which))),
        Deed::Stop(which) => drop(set(market, now_s, id(*which), &json!({"state": "stopped"}))),
        Deed::Start(which) => drop(set(market, now_s, id(*which), &json!({"state": "running"}))),
        Deed::Bid(which, usd) => {
            let path = format!("/api/v0/instances/bid_price/{}/", id(*which));
            call(market, now_s, "PUT", &path, &json!({ "price": usd }));
        }
        Deed::Reboot(which) => {
            call(market, now_s, "PUT", &format!("/api/v0/instances/reboot/{}/", id(*which)), &json!({}));
        }
        Deed::Outbid(which) => market.act(now_s, &Act::Outbid { instance: id(*which), look: OutbidLook::Loading }),
        Deed::Offline(which) => market.act(now_s, &Act::Offline { instance: id(*which), for_s: 700.0 }),
        Deed::Unknown(which) => market.act(now_s, &Act::Unknown { instance: id(*which), for_s: 700.0 }),
        Deed::Freeze(which) => market.act(now_s, &Act::Freeze { instance: id(*which) }),
        Deed::Exit(which) => market.act(now_s, &Act::Exit { instance: id(*which) }),
    }
}

/// The costs of each instance according to the history.
fn reckoned(history: &[Change], until_ms: u64) -> BTreeMap<u64, (Money, Money)> {
    let mut sums: BTreeMap<u64, (Money, Money)> = BTreeMap::new();
    let mut last: BTreeMap<u64, &Change> = BTreeMap::new();
    let mut add = |from: &Change, to_ms: u64| {
        let span = u128::from(to_ms - from.at_ms);
        let sum = sums.entry(from.instance).or_default();
        if from.status.is_some_and(stokehold_fake_vast::Status::charges_gpu) {
            sum.0 += Money(per_ms_of_hourly(from.price) * span);
        }
        if from.status.is_some_and(stokehold_fake_vast::Status::charges_disk) {
            sum.1 += Money(per_ms_of_disk(from.storage, from.disk_mb) * span);
        }
    };
    for change in history {
        if let Some(before) = last.insert(change.instance, change) {
            add(before, change.at_ms);
        }
    }
    last.values().for_each(|change| add(change, until_ms));
    sums
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn the_invoice_is_what_the_history_says_to_the_unit(
        seed in any::<u64>(), deeds in deeds(), credit in 0.5..200.0, tail_s in prop_oneof![Just(0.0), Just(300.0)], has_payment_card in any::<bool>(),
    ) {
        let settings = Settings {
            machines: 12, credit_usd: credit, bills_after_destroy_s: tail_s, has_payment_card, keeps_history: true, limits_calls: false,
            rivals_per_hour: 2.0, ..Settings::default()
        };
        let mut market = Market::new(seed, settings);
        let mut now_ms = 1_700_000_000_000_u64;
        for (wait_ms, deed) in &deeds {
            now_ms += wait_ms;
            enact(&mut market, now_ms as f64 / 1000.0, deed);
        }
        now_ms += 3_600_000;
        let now_s = now_ms as f64 / 1000.0;
        let bills = market.invoice(now_s);
        let reckoned = reckoned(market.history(), now_ms);
        for bill in &bills {
            let (gpu, disk) = reckoned.get(&bill.instance).copied().unwrap_or_default();
            prop_assert_eq!((bill.items.gpu, bill.items.disk), (gpu, disk));
        }
        let sum: Money = bills.iter().map(|bill| bill.items.total()).sum();
        prop_assert_eq!(sum, market.spent(now_s));
        let traffic: Vec<Items> = bills.iter().map(|bill| bill.items).filter(|items| items.bwd.0 > 0).collect();
        prop_assert!(traffic.iter().all(|items| items.bwd <= of_traffic(1_000_000_000, 6_000_000_000)));
        prop_assert!(in_usd(1_000_000_000) == 1.0);
    }
}
