//! Faults that the stand-in injects on request.

use serde_json::{Value, json};
use stokehold_fake_vast::{Delivery, Fault, Market, Route, Rule, Settings};

use crate::side::{call, destroy, offer_of, one_box, rent, rented, search, show};

fn list(market: &mut Market, now_s: f64) -> Vec<Value> {
    call(market, now_s, "GET", "/api/v1/instances/", &Value::Null).value()["instances"].as_array().unwrap().clone()
}

#[test]
fn an_answer_that_is_lost_leaves_the_instance_and_a_call_that_is_lost_none() {
    for (fault, there) in [
        (Fault::DropBefore { hold: false }, 0),
        (Fault::StatusBefore { status: 503 }, 0),
        (Fault::DropAfter { hold: true }, 1),
        (Fault::StatusAfter { status: 502 }, 1),
    ] {
        let mut market = one_box();
        let ask = offer_of(&mut market, 0.0, 1);
        market.set_faults(vec![Rule::on(Route::Rent, fault.clone()).times(1)]);
        let answer = rent(&mut market, 0.0, ask, &json!({}));
        assert!(answer.delivery != Delivery::Sent || answer.status >= 500, "{fault:?}");
        assert_eq!(list(&mut market, 1.0).len(), there, "{fault:?}");
        let again = rent(&mut market, 2.0, ask, &json!({}));
        assert_eq!(again.status == 404, there == 1, "an offer is accepted once");
    }
}

#[test]
fn a_refused_rent_may_carry_a_stopped_instance() {
    let mut market = one_box();
    market.set_faults(vec![Rule::of(Fault::RefusedButCreated).times(1)]);
    let ask = offer_of(&mut market, 0.0, 1);
    let answer = rent(&mut market, 0.0, ask, &json!({}));
    let id = answer.value()["new_contract"].as_u64().unwrap();
    assert_eq!((answer.status, show(&mut market, 1.0, id)["intended_status"].clone()), (400, json!("stopped")));
}

#[test]
fn every_refusal_of_a_rent_has_its_code() {
    for (fault, status, code) in [
        (Fault::NoSuchAsk { status: 400 }, 400, "no_such_ask"),
        (Fault::NoSuchAsk { status: 404 }, 404, "no_such_ask"),
        (Fault::NoSuchAsk { status: 410 }, 410, "no_such_ask"),
        (Fault::InsufficientCredit, 400, "insufficient_credit"),
        (Fault::Unauthorized, 401, "auth_error"),
        (Fault::Unsuccessful { message: "no".into() }, 200, "error"),
    ] {
        let mut market = one_box();
        let ask = offer_of(&mut market, 0.0, 1);
        market.set_faults(vec![Rule::on(Route::Rent, fault)]);
        let answer = rent(&mut market, 0.0, ask, &json!({}));
        assert_eq!((answer.status, &answer.value()["error"]), (status, &json!(code)));
        assert_eq!(answer.value()["success"], false);
    }
    let mut market = one_box();
    market.set_faults(vec![Rule::on(Route::Show, Fault::NotFoundForAuth)]);
    let answer = call(&mut market, 0.0, "GET", "/api/v0/instances/5/", &Value::Null);
    assert!(answer.status == 404 && answer.value()["msg"].is_string());
    market.set_faults(vec![Rule::of(Fault::TooMany { retry_after_s: Some(2.0) })]);
    let answer = call(&mut market, 0.0, "GET", "/api/v0/instances/5/", &Value::Null);
    assert!(answer.status == 429 && answer.headers.contains(&("Retry-After".into(), "2".into())));
}

#[test]
fn a_list_can_be_empty_partial_cut_off_or_no_list() {
    let mut market = one_box();
    for _ in 0..4 {
        rented(&mut market, 0.0, 1, &json!({}));
    }
    let mut with = |fault: Fault| {
        market.set_faults(vec![Rule::on(Route::List, fault)]);
        call(&mut market, 1.0, "GET", "/api/v1/instances/", &Value::Null)
    };
    let empty = with(Fault::EmptyList).value();
    assert_eq!((&empty["instances"], &empty["instances_found"]), (&json!([]), &json!(4)));
    assert_eq!(with(Fault::PartialList).value()["instances"].as_array().unwrap().len(), 2);
    assert!(serde_json::from_slice::<Value>(&with(Fault::Malformed).body).is_err());
    assert!(with(Fault::Html).body.starts_with(b"<!doctype"));
    assert_eq!(with(Fault::WrongType).value(), json!("ok"));
}

#[test]
fn a_new_one_may_be_missing_and_a_destroyed_one_still_there() {
    let mut market = one_box();
    let rules = vec![Rule::of(Fault::HiddenAtFirst { for_s: 5.0 }), Rule::of(Fault::Ghost { for_s: 10.0 })];
    market.set_faults(rules);
    let id = rented(&mut market, 0.0, 1, &json!({}));
    assert_eq!((list(&mut market, 4.9).len(), list(&mut market, 5.0).len()), (0, 1));
    destroy(&mut market, 20.0, id);
    assert_eq!((list(&mut market, 29.9).len(), list(&mut market, 30.0).len()), (1, 0));
    assert_eq!(destroy(&mut market, 21.0, id).status, 404);
}

#[test]
fn a_boot_can_hang_fail_or_take_long() {
    for (fault, at_s, status) in [
        (Fault::StuckLoading, 86_400.0, "loading"),
        (Fault::RuntimeError, 86_400.0, "created"),
        (Fault::SlowBoot { factor: 10.0 }, 599.0, "loading"),
        (Fault::SlowBoot { factor: 10.0 }, 600.0, "running"),
        (Fault::Exit { after_s: 5.0 }, 66.0, "exited"),
        (Fault::HostOffline { after_s: 5.0, for_s: 60.0 }, 66.0, "offline"),
        (Fault::HostOffline { after_s: 5.0, for_s: 60.0 }, 140.0, "running"),
        (Fault::HostUnknown { after_s: 5.0, for_s: 60.0 }, 66.0, "unknown"),
    ] {
        let mut market = one_box();
        market.set_faults(vec![Rule::of(fault.clone()).times(1)]);
        let id = rented(&mut market, 0.0, 1, &json!({}));
        let row = show(&mut market, at_s, id);
        assert_eq!(row["actual_status"], status, "{fault:?}");
        let is_dead = row["status_msg"].as_str().is_some_and(|text| text.contains("OCI runtime create failed"));
        assert_eq!(is_dead, fault == Fault::RuntimeError);
    }
}

#[test]
fn the_same_search_may_find_other_offers() {
    let mut market = Market::new(9, Settings::calm());
    market.set_faults(vec![Rule::of(Fault::Varying { keep: 0.5 })]);
    let (one, two) = (search(&mut market, 0.0, &json!({})), search(&mut market, 0.0, &json!({})));
    assert!(one != two && one.len() < 64 && !one.is_empty());
}

#[test]
fn faults_are_switched_over_the_wire_and_the_log_tells_of_every_call() {
    let mut market = one_box();
    let faults = json!({"rules": [{"on": "show", "fault": {"kind": "status_before", "status": 500}, "count": 1}]});
    assert_eq!(call(&mut market, 0.0, "PUT", "/_fake/faults", &faults).status, 200);
    assert_eq!(call(&mut market, 0.0, "PUT", "/_fake/faults", &json!({"rules": [{}]})).status, 400);
    assert_eq!(call(&mut market, 1.5, "GET", "/api/v0/instances/5/", &Value::Null).status, 500);
    assert_eq!(call(&mut market, 2.5, "GET", "/api/v0/instances/5/", &Value::Null).status, 200);
    let log = call(&mut market, 3.0, "GET", "/_fake/log", &Value::Null).value();
    let statuses: Vec<u64> = log.as_array().unwrap().iter().map(|one| one["status"].as_u64().unwrap()).collect();
    assert_eq!((statuses, &log[1]["at_s"]), (vec![500, 200], &json!(2.5)));
    assert_eq!(log[0]["headers"][0], json!(["authorization", "Bearer ..."]));
    assert_eq!(call(&mut market, 3.0, "GET", "/_fake/state", &Value::Null).value()["machines"], 1);
}
