//! Offers, instances and their representation in the API.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stokehold_fake_vast::{Act, Event, KEY, Market, OutbidLook, Request, Settings};

use crate::side::{call, destroy, offer_of, one_box, rent, rented, search, set, show};

fn ids(offers: &[Value]) -> BTreeSet<u64> {
    offers.iter().map(|offer| offer["id"].as_u64().unwrap()).collect()
}

#[test]
fn the_same_seed_and_the_same_calls_give_the_same_answers() {
    let story = |seed| {
        let mut market = Market::new(seed, Settings::default());
        let mut answers = Vec::new();
        for step in 0..40_u32 {
            let now_s = f64::from(step) * 900.0;
            let offers = search(&mut market, now_s, &json!({"type": "bid", "order": [["dph_total", "asc"]]}));
            let body = json!({"price": offers[0]["min_bid"].as_f64().unwrap() * 1.2});
            answers.push(rent(&mut market, now_s, offers[0]["id"].as_u64().unwrap(), &body).value());
            answers.push(call(&mut market, now_s, "GET", "/api/v1/instances/", &Value::Null).value());
            answers.push(json!(offers));
        }
        answers
    };
    assert!(story(3) == story(3));
    assert!(story(3) != story(4));
}

#[test]
fn renting_one_offer_withdraws_those_that_share_its_gpus_and_a_relisted_one_has_another_number() {
    let mut market = one_box();
    let all = search(&mut market, 0.0, &json!({}));
    let sizes: Vec<u64> = all.iter().map(|offer| offer["num_gpus"].as_u64().unwrap()).collect();
    assert_eq!((sizes.len(), sizes.iter().sum::<u64>()), (7, 12), "four of one, two of two, one of four");
    let two = all.iter().find(|offer| offer["num_gpus"] == 2).unwrap();
    let cards: BTreeSet<u64> = two["gpu_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    let ask = two["id"].as_u64().unwrap();
    let id = rent(&mut market, 1.0, ask, &json!({})).value()["new_contract"].as_u64().unwrap();
    let left = search(&mut market, 1.0, &json!({}));
    assert_eq!(left.len(), 3, "two of one and one of two");
    for offer in &left {
        assert!(offer["gpu_ids"].as_array().unwrap().iter().all(|card| !cards.contains(&card.as_u64().unwrap())));
    }
    let again = rent(&mut market, 2.0, ask, &json!({}));
    assert_eq!((again.status, again.value()["error"].clone()), (404, json!("no_such_ask")));
    assert_eq!(destroy(&mut market, 3.0, id).value(), json!({"success": true}));
    let back = search(&mut market, 3.0, &json!({}));
    assert_eq!(back.len(), 7);
    assert!(!ids(&back).contains(&ask));
    assert!(ids(&left).is_subset(&ids(&back)), "what was not withdrawn keeps its number");
    assert_eq!(destroy(&mut market, 4.0, id).status, 404);
    assert_eq!(show(&mut market, 4.0, id), Value::Null);
}

#[test]
fn prices_are_those_of_the_kind_of_rental_and_of_the_disk_asked_for() {
    let mut market = Market::new(1, Settings::calm());
    let query = json!({"type": "ask", "allocated_storage": 100, "order": [["dph_total", "asc"]], "limit": 3000});
    let offers = search(&mut market, 0.0, &query);
    assert_eq!(offers.len(), 64);
    let number = |offer: &Value, name: &str| offer[name].as_f64().unwrap();
    for pair in offers.windows(2) {
        assert!(number(&pair[0], "dph_total") <= number(&pair[1], "dph_total"));
    }
    for offer in &offers {
        let total = number(offer, "dph_base") + number(offer, "storage_cost") * 100.0 / 720.0;
        assert!((total - number(offer, "dph_total")).abs() < 1e-9);
        assert_eq!(offer["search"]["totalHour"], offer["dph_total"]);
    }
    let bids = search(&mut market, 0.0, &json!({"type": "bid", "limit": 64, "verified": {"in": [true, false]}}));
    assert!(bids.iter().all(|offer| offer["dph_base"] == offer["min_bid"] && offer["is_bid"] == false));
    let mut above = Market::new(1, Settings { search_cap: 2000, ..Settings::calm() });
    let all = search(&mut above, 0.0, &json!({"verified": {"in": [true, false]}}));
    let is_above = |offer: &&Value| number(offer, "min_bid") > number(offer, "dph_base");
    assert!(all.iter().filter(is_above).count() > 0, "some least bids are above the price on demand");
}

#[test]
fn filters_hold_and_an_unknown_one_is_refused() {
    let mut market = Market::new(2, Settings { search_cap: 5000, ..Settings::calm() });
    let everything = json!({"verified": {"in": [true, false]}});
    let all = search(&mut market, 0.0, &everything);
    assert!(all.len() > 300);
    let verified = search(&mut market, 0.0, &json!({}));
    assert!(verified.len() < all.len() && verified.iter().all(|offer| offer["verification"] == "verified"));
    let query = json!({"gpu_name": {"in": ["RTX 4090", "RTX 5090"]}, "num_gpus": {"eq": "1"}, "reliability": {"gte": 0.9},
        "geolocation": {"in": ["US", "CA"]}, "gpu_ram": {"gte": 24000.0}, "dph_total": {"lte": "9"}, "rented": {"eq": false}});
    for offer in search(&mut market, 0.0, &query) {
        assert!(["US", "CA"].iter().any(|code| offer["geolocation"].as_str().unwrap().ends_with(code)));
        assert_eq!(offer["num_gpus"], 1);
    }
    let machine = all[0]["machine_id"].clone();
    let others = json!({"verified": {"in": [true, false]}, "machine_id": {"notin": [machine]}});
    let others = search(&mut market, 0.0, &others);
    assert!(others.len() < all.len() && others.iter().all(|offer| offer["machine_id"] != machine));
    let one = json!({"ask_contract_id": {"eq": all[0]["id"]}, "verified": {"in": [true, false]}});
    assert_eq!(search(&mut market, 0.0, &one).len(), 1);
    assert!(search(&mut market, 0.0, &json!({"id": {"eq": all[0]["id"]}})).is_empty());
    assert_eq!(call(&mut market, 0.0, "POST", "/api/v0/bundles/", &json!({"gpus": {"eq": 1}})).status, 400);
    let wrapped = json!({"select_cols": ["id", "gpu_name"], "q": {"num_gpus": {"eq": 1}}});
    let narrow = call(&mut market, 0.0, "PUT", "/api/v0/search/asks/", &wrapped).value();
    assert_eq!(narrow["offers"][0].as_object().unwrap().len(), 2);
}

#[test]
fn an_instance_boots_runs_stops_and_starts_again() {
    let mut market = one_box();
    let body = json!({"onstart": "/bin/sh", "args": ["-c", "true"], "env": {"A": "1", "-p 8000:8000": "1"}});
    let id = rented(&mut market, 0.0, 1, &body);
    let mut seen = Vec::new();
    for tenth in 0..=700_u32 {
        let status = show(&mut market, f64::from(tenth) / 10.0, id)["actual_status"].clone();
        if seen.last() != Some(&status) {
            seen.push(status);
        }
    }
    assert_eq!(seen, [Value::Null, json!("created"), json!("loading"), json!("running")]);
    let row = show(&mut market, 70.0, id);
    assert_eq!(row["extra_env"], json!([["-p 8000:8000", "1"], ["A", "1"]]));
    assert_eq!(row["ports"]["8000/tcp"][0]["HostIp"], "0.0.0.0");
    assert_eq!((&row["intended_status"], &row["cur_state"]), (&json!("running"), &json!("running")));
    let events = market.advance(70.0);
    let Event::Started(started) = &events[0].event else { panic!("{events:?}") };
    assert_eq!((events[0].at_s, started.instance, started.starts), (60.0, id, 1));
    assert_eq!((started.onstart.as_deref(), started.args.len()), (Some("/bin/sh"), 2));

    assert_eq!(set(&mut market, 100.0, id, &json!({"state": "stopped"})).value()["success"], true);
    assert_eq!(show(&mut market, 101.9, id)["actual_status"], "running");
    assert_eq!(show(&mut market, 102.0, id)["actual_status"], "stopped");
    assert_eq!(search(&mut market, 103.0, &json!({})).len(), 7, "its cards are anybody's");
    assert_eq!(set(&mut market, 110.0, id, &json!({"state": "running"})).value()["success"], true);
    assert_eq!(show(&mut market, 120.0, id)["actual_status"], "running");
    let kinds: Vec<bool> = market.advance(120.0).iter().map(|one| matches!(one.event, Event::Started(_))).collect();
    assert_eq!(kinds, [false, true]);
}

#[test]
fn a_start_whose_gpus_are_gone_is_queued_and_runs_later_unless_it_is_stopped() {
    let mut market = one_box();
    let first = rented(&mut market, 0.0, 1, &json!({"target_state": "running"}));
    set(&mut market, 100.0, first, &json!({"state": "stopped"}));
    market.advance(110.0);
    let whole = rented(&mut market, 110.0, 4, &json!({}));
    let answer = set(&mut market, 120.0, first, &json!({"state": "running"})).value();
    assert_eq!(answer["success"], false);
    assert!(answer["msg"].as_str().unwrap().contains("state change queued"));
    destroy(&mut market, 200.0, whole);
    assert_eq!(show(&mut market, 215.0, first)["actual_status"], "running");

    set(&mut market, 300.0, first, &json!({"state": "stopped"}));
    let whole = rented(&mut market, 310.0, 4, &json!({}));
    set(&mut market, 320.0, first, &json!({"state": "running"}));
    set(&mut market, 330.0, first, &json!({"state": "stopped"}));
    destroy(&mut market, 340.0, whole);
    assert_eq!(show(&mut market, 400.0, first)["actual_status"], "stopped");
}

#[test]
fn an_outbid_instance_looks_as_reported_and_comes_back_by_a_higher_bid() {
    let looks = [
        (OutbidLook::Exited, "exited", "stopped"),
        (OutbidLook::Stopped, "stopped", "stopped"),
        (OutbidLook::Loading, "loading", "stopped"),
        (OutbidLook::StillIntended, "exited", "running"),
    ];
    for (look, actual, intended) in looks {
        let mut market = one_box();
        let id = rented(&mut market, 0.0, 1, &json!({"price": 0.25}));
        market.advance(100.0);
        market.act(100.0, &Act::Outbid { instance: id, look });
        let row = show(&mut market, 101.0, id);
        assert_eq!((&row["actual_status"], &row["intended_status"]), (&json!(actual), &json!(intended)));
        assert_eq!((&row["cur_state"], &row["is_bid"]), (&json!("stopped"), &json!(true)));
        assert!(matches!(market.advance(101.0)[0].event, Event::Halted { .. }));
        let path = format!("/api/v0/instances/bid_price/{id}/");
        call(&mut market, 102.0, "PUT", &path, &json!({"client_id": "me", "price": 0.25}));
        assert_ne!(show(&mut market, 120.0, id)["actual_status"], "running", "as much as before does not win");
        call(&mut market, 121.0, "PUT", &path, &json!({"client_id": "me", "price": null}));
        let row = show(&mut market, 140.0, id);
        assert_eq!((&row["actual_status"], &row["intended_status"]), (&json!("running"), &json!("running")));
    }
}

#[test]
fn a_bid_too_low_is_an_error_that_carries_a_stopped_instance() {
    let mut market = one_box();
    let ask = offer_of(&mut market, 0.0, 2);
    let answer = rent(&mut market, 0.0, ask, &json!({"price": 0.3}));
    assert_eq!((answer.status, &answer.value()["success"]), (400, &json!(false)));
    let id = answer.value()["new_contract"].as_u64().unwrap();
    assert_eq!(show(&mut market, 1.0, id)["actual_status"], "stopped");
    let bill = market.invoice(3600.0).remove(0);
    assert!(bill.items.disk.0 > 0 && bill.items.gpu.0 == 0, "{bill:?}");
    let ask = offer_of(&mut market, 3600.0, 2);
    let answer = rent(&mut market, 3600.0, ask, &json!({"price": 0.3, "cancel_unavail": true}));
    assert_eq!((answer.status, answer.value().get("new_contract")), (400, None));
}

#[test]
fn the_list_is_paged_by_twenty_five_and_filtered_by_stored_columns() {
    let mut market = Market::new(5, Settings { search_cap: 500, ..Settings::calm() });
    for number in 0..60 {
        let ask = offer_of(&mut market, 0.0, 1);
        let label = json!({"label": if number % 2 == 0 { "even" } else { "odd" }});
        assert_eq!(rent(&mut market, 0.0, ask, &label).status, 200);
    }
    let get = |market: &mut Market, path: &str| call(market, 1.0, "GET", path, &Value::Null);
    let mut ids = Vec::new();
    let mut path = "/api/v1/instances/?limit=25".to_owned();
    let sizes: Vec<usize> = std::iter::from_fn(|| {
        let page = get(&mut market, &path).value();
        assert_eq!(page["label_counts"], json!({"even": 30, "odd": 30}));
        let rows = page["instances"].as_array()?.clone();
        ids.extend(rows.iter().map(|row| row["id"].as_u64().unwrap()));
        path = page["next_token"]
            .as_str()
            .map_or(String::new(), |next| format!("/api/v1/instances/?limit=25&after_token={next}"));
        Some(rows.len())
    })
    .take(3)
    .collect();
    assert_eq!((sizes, path.as_str()), (vec![25, 25, 10], ""));
    ids.dedup();
    assert_eq!(ids.len(), 60);
    assert_eq!(get(&mut market, "/api/v1/instances/?limit=0").value()["instances"].as_array().unwrap().len(), 5);
    let odd = get(&mut market, "/api/v1/instances/?select_filters={\"label\":{\"in\":[\"odd\"]}}&select_cols=[\"id\"]")
        .value();
    assert_eq!((&odd["instances_found"], &odd["total_instances"]), (&json!(30), &json!(60)));
    assert_eq!(odd["instances"][0].as_object().unwrap().len(), 1);
    assert_eq!(get(&mut market, "/api/v1/instances/?select_filters={\"dph_total\":{\"lte\":1}}").status, 400);
    assert_eq!(get(&mut market, "/api/v0/instances/?owner=me").value()["instances"].as_array().unwrap().len(), 60);
}

#[test]
fn a_missing_slash_is_a_redirect_and_keys_open_only_what_they_are_for() {
    let mut market = one_box();
    let id = rented(&mut market, 0.0, 1, &json!({}));
    let path = format!("/api/v0/instances/{id}");
    let answer = call(&mut market, 1.0, "DELETE", &path, &json!({}));
    assert_eq!((answer.status, answer.headers[1].1.clone()), (308, format!("{path}/")));
    assert_eq!(call(&mut market, 1.0, "GET", "/api/v0/users/current", &Value::Null).status, 200);
    let with = |market: &mut Market, key: &str, method: &str, path: &str, body: &Value| {
        market.handle(2.0, &Request::new(method, path, key, body)).status
    };
    assert_eq!(with(&mut market, "other", "GET", "/api/v0/users/current/", &Value::Null), 401);
    assert_eq!(with(&mut market, "", "POST", "/api/v0/bundles/", &json!({})), 200, "a search needs no key");
    let ask = offer_of(&mut market, 2.0, 1);
    let answer = rent(&mut market, 2.0, ask, &json!({})).value();
    let (own, key) =
        (answer["new_contract"].as_u64().unwrap(), answer["instance_api_key"].as_str().unwrap().to_owned());
    assert_eq!(with(&mut market, &key, "DELETE", &format!("/api/v0/instances/{id}/"), &json!({})), 401);
    assert_eq!(with(&mut market, &key, "GET", "/api/v1/instances/", &Value::Null), 401);
    let own = format!("/api/v0/instances/{own}/");
    assert_eq!(with(&mut market, &key, "PUT", &own, &json!({"label": "mine"})), 401);
    assert_eq!(with(&mut market, &key, "PUT", &own, &json!({"state": "stopped"})), 200);
    assert_eq!(with(&mut market, &key, "DELETE", &own, &json!({})), 200);
    assert_eq!(with(&mut market, &key, "DELETE", &own, &json!({})), 401, "it is gone with its instance");
    assert_eq!(with(&mut market, KEY, "GET", &own, &Value::Null), 200);
}

#[test]
fn a_listing_ends_and_what_was_rented_of_it_cannot_start_again() {
    let mut market = one_box();
    let id = rented(&mut market, 0.0, 1, &json!({}));
    market.pay_in(0.0, 1000.0);
    let end_s = 30.0 * 86_400.0;
    assert_eq!(show(&mut market, end_s - 1.0, id)["actual_status"], "running");
    let row = show(&mut market, end_s, id);
    assert_eq!((&row["actual_status"], &row["intended_status"]), (&json!("stopped"), &json!("stopped")));
    assert_eq!(set(&mut market, end_s + 1.0, id, &json!({"state": "running"})).value()["error"], "expired");
    assert!(search(&mut market, end_s + 1.0, &json!({})).is_empty());
    assert_eq!(search(&mut market, end_s + 13.0 * 3600.0, &json!({})).len(), 7, "and the box is listed anew");
    assert_eq!(show(&mut market, end_s + 48.0 * 3600.0, id), Value::Null);
}

#[test]
fn logs_are_there_a_little_later_and_need_no_key() {
    let mut market = one_box();
    let id = rented(&mut market, 0.0, 1, &json!({}));
    market.write_log(id, "one\ntwo\nthree\n".into());
    let path = format!("/api/v0/instances/request_logs/{id}/");
    let answer = call(&mut market, 1.0, "PUT", &path, &json!({"tail": "2"})).value();
    let url = answer["result_url"].as_str().unwrap().strip_prefix("http://127.0.0.1").unwrap().to_owned();
    let mut read =
        |now_s| market.handle(now_s, &Request { method: "GET".into(), path: url.clone(), ..Request::default() });
    assert_eq!(read(1.1).status, 404);
    assert_eq!(read(1.5).body, b"two\nthree\n");
}
