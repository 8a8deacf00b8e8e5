//! Helpers: a market and calls to it.

use serde_json::{Value, json};
use stokehold_fake_vast::{Answer, KEY, Listing, Market, Request, Settings};

/// A market of one box with four GPUs, where nothing happens by itself.
pub(crate) fn one_box() -> Market {
    Market::new(
        7,
        Settings { machines: 0, listings: vec![Listing { num_gpus: 4, ..Listing::default() }], ..Settings::calm() },
    )
}

/// A call at a moment, with the account's key.
pub(crate) fn call(market: &mut Market, now_s: f64, method: &str, path: &str, body: &Value) -> Answer {
    market.handle(now_s, &Request::new(method, path, KEY, body))
}

/// The offers of a search.
pub(crate) fn search(market: &mut Market, now_s: f64, query: &Value) -> Vec<Value> {
    let answer = call(market, now_s, "POST", "/api/v0/bundles/", query);
    assert_eq!(answer.status, 200, "{}", answer.value());
    answer.value()["offers"].as_array().unwrap().clone()
}

/// The id of an offer with this number of GPUs.
pub(crate) fn offer_of(market: &mut Market, now_s: f64, cards: u64) -> u64 {
    let query = json!({"num_gpus": {"eq": cards}, "order": [["id", "asc"]]});
    search(market, now_s, &query)[0]["id"].as_u64().unwrap()
}

pub(crate) fn rent(market: &mut Market, now_s: f64, ask: u64, body: &Value) -> Answer {
    let mut whole = json!({"client_id": "me", "image": "worker:1", "disk": 20, "label": "w", "runtype": "args"});
    whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
    call(market, now_s, "PUT", &format!("/api/v0/asks/{ask}/"), &whole)
}

/// Rents an instance. Returns its id.
pub(crate) fn rented(market: &mut Market, now_s: f64, cards: u64, body: &Value) -> u64 {
    let ask = offer_of(market, now_s, cards);
    let answer = rent(market, now_s, ask, body);
    answer.value()["new_contract"].as_u64().unwrap_or_else(|| panic!("{}", answer.value()))
}

pub(crate) fn show(market: &mut Market, now_s: f64, id: u64) -> Value {
    call(market, now_s, "GET", &format!("/api/v0/instances/{id}/?owner=me"), &Value::Null).value()["instances"].clone()
}

pub(crate) fn set(market: &mut Market, now_s: f64, id: u64, body: &Value) -> Answer {
    call(market, now_s, "PUT", &format!("/api/v0/instances/{id}/"), body)
}

pub(crate) fn destroy(market: &mut Market, now_s: f64, id: u64) -> Answer {
    call(market, now_s, "DELETE", &format!("/api/v0/instances/{id}/"), &json!({}))
}
