//! Tests the exact request of each call, and the meaning of each response for the caller. `BLESS=1` writes the requests
//! again.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use serde_json::Value;
use stokehold_planner::observation::Traits;
use stokehold_units::{Mib, UsdMicros};

use super::ask::tests::rows;
use super::scripted::{Scripted, Sent, json as answer, lost, said, shown, unsent};
use super::settings::tests::settings;
use super::*;
use crate::secret::Secret;

fn offer() -> Offer {
    let traits = Traits::default();
    let text = json!({"id": "45603753", "provider": "vast", "kind": "RTX 3090", "host": "machine 21486", "count": 1,
        "cards": 1, "vram_gib": 24.0, "speed": 0.55, "usd_per_hour": 0.21, "min_bid_usd_per_hour": 0.12,
        "stopped_usd_per_hour": 0.01, "boot_s": 70.0, "traits": traits});
    serde_json::from_value(text).unwrap()
}

fn order(bid_usd_per_hour: Option<f64>) -> Order {
    let bid_usd_per_hour = bid_usd_per_hour.map(UsdMicros::from_usd);
    Order {
        label: "m-0123456789abcdef".to_owned(),
        offer: offer(),
        bid_usd_per_hour,
        join_token: Secret::new("jt_verysecret"),
    }
}

fn vast_with(settings: VastSettings, policy: &Policy, script: &Arc<Scripted>) -> Vast {
    let transport = Arc::clone(script) as Arc<dyn Transport>;
    Vast::new(settings, policy, "https://gateway.example/", "exec stoke worker".to_owned(), transport).unwrap()
}

fn vast(script: &Arc<Scripted>) -> Vast {
    vast_with(settings(), &Policy { may_bid: true, ..Policy::default() }, script)
}

const OK: &str = r#"{"success":true}"#;

#[tokio::test(start_paused = true)]
async fn requests_are_what_they_were() {
    let empty = || answer(200, r#"{"offers":[]}"#);
    let script = Scripted::new([
        empty(),
        empty(),
        answer(200, r#"{"success":true,"new_contract":9001}"#),
        answer(200, r#"{"success":true,"new_contract":9002}"#),
        answer(200, r#"{"instances":[],"total_instances":0}"#),
        answer(200, OK),
        answer(200, OK),
        answer(200, OK),
        answer(200, r#"{"credit":1.5}"#),
    ]);
    let policy = Policy { may_bid: true, kinds: vec!["RTX 3090".to_owned()], ..Policy::default() };
    let strict = VastSettings { datacenter_only: true, url: "https://fake.example/".to_owned(), ..settings() };
    let vast = vast_with(strict, &policy, &script);
    vast.avoid(&["machine 7".to_owned(), "box-3".to_owned()].into());
    vast.offers().await.unwrap();
    assert_eq!(vast.rent(&order(None)).await.unwrap(), "9001");
    assert_eq!(vast.rent(&order(Some(0.126))).await.unwrap(), "9002");
    vast.rentals().await.unwrap();
    vast.stop("9001").await.unwrap();
    vast.resume("9001").await.unwrap();
    vast.release("9001").await.unwrap();
    vast.credit().await.unwrap();
    let told: Vec<Value> = script.asked().iter().map(shown).collect();
    let told = serde_json::to_string_pretty(&told).unwrap() + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/providers/vast/testdata/requests.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &told).unwrap();
    }
    let pinned = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(pinned == told, "requests.json is not what is sent; BLESS=1 rewrites it:\n{told}");
}

/// The kind of failure, as a word.
fn word(failure: &ProviderError) -> &'static str {
    match failure {
        ProviderError::Refused(why) if why.starts_with(NO_CREDIT) => "no credit",
        ProviderError::Refused(_) => "refused",
        ProviderError::Vanished(_) => "vanished",
        ProviderError::Unknown(_) => "unknown",
        ProviderError::Made { .. } => "made",
    }
}

#[tokio::test(start_paused = true)]
async fn a_rent_is_sent_once_and_its_outcome_is_never_guessed() {
    let table: Vec<(&str, Option<Sent>)> = vec![
        ("9001", Some(answer(200, r#"{"success":true,"new_contract":9001}"#))),
        ("9001", Some(answer(200, r#"{"success":true,"new_contract":"9001"}"#))),
        ("9001", Some(answer(200, r#"{"new_contract":9001}"#))),
        ("unknown", Some(answer(200, OK))),
        ("unknown", Some(answer(200, "{}"))),
        ("unknown", Some(answer(200, ""))),
        ("unknown", Some(said(200, "<html>"))),
        ("unknown", Some(answer(200, r#"{"success":true,"new_contract":null}"#))),
        ("unknown", Some(said(500, ""))),
        ("unknown", Some(said(502, "<html>"))),
        ("unknown", Some(answer(503, r#"{"error":"no_such_ask"}"#))),
        ("unknown", Some(answer(504, r#"{"error":"insufficient_credit"}"#))),
        ("unknown", Some(lost())),
        ("unknown", None),
        ("refused", Some(unsent())),
        ("refused", Some(answer(200, r#"{"success":false,"msg":"no"}"#))),
        ("made", Some(answer(200, r#"{"success":false,"new_contract":9001}"#))),
        ("made", Some(answer(400, r#"{"success":false,"error":"invalid_price","new_contract":9001}"#))),
        ("made", Some(answer(500, r#"{"new_contract":9001}"#))),
        ("vanished", Some(answer(400, r#"{"error":"no_such_ask"}"#))),
        (
            "vanished",
            Some(answer(404, r#"{"msg":"error 404/3603: no_such_ask Instance type by id 7 is not available"}"#)),
        ),
        ("vanished", Some(answer(410, r#"{"detail":"no longer available"}"#))),
        ("no credit", Some(answer(400, r#"{"error":"insufficient_credit","msg":"Your account lacks credit"}"#))),
        ("refused", Some(answer(400, r#"{"error":"invalid_price"}"#))),
        ("refused", Some(answer(400, r#"{"error":"invalid_args"}"#))),
        ("refused", Some(answer(401, r#"{"error":"auth_error"}"#))),
        ("refused", Some(answer(404, r#"{"msg":"Invalid user key"}"#))),
        ("refused", Some(said(404, "<html>not found</html>"))),
        ("refused", Some(said(308, ""))),
        ("refused", Some(said(429, "API requests too frequent: endpoint threshold=4.5"))),
    ];
    for (expected, sent) in table {
        let what = format!("{sent:?}");
        let script = Scripted::new(sent);
        let outcome = vast(&script).rent(&order(None)).await;
        let told = outcome.as_ref().map_or_else(|failure| word(failure).to_owned(), Clone::clone);
        assert_eq!((told.as_str(), script.count()), (expected, 1), "{what}: {outcome:?}");
        if let Err(ProviderError::Made { rental, .. }) = outcome {
            assert_eq!(rental, "9001");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_meant_is_not_sent() {
    let script = Scripted::silent();
    let vast = vast(&script);
    let refused = async |order: Order| word(&vast.rent(&order).await.unwrap_err());
    assert_eq!(refused(order(Some(0.0))).await, "refused");
    assert_eq!(refused(order(Some(500.0))).await, "refused");
    assert_eq!(refused(order(Some(f64::NAN))).await, "refused");
    assert_eq!(refused(Order { label: "m".repeat(60), ..order(None) }).await, "refused");
    assert_eq!(refused(Order { offer: Offer { id: "../x".into(), ..offer() }, ..order(None) }).await, "vanished");
    for rental in ["", "../users", "7/x", "-1"] {
        assert_eq!(word(&vast.release(rental).await.unwrap_err()), "refused");
    }
    assert_eq!(script.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn rents_that_would_wait_for_too_long_are_refused_without_being_sent() {
    let rented = || answer(200, r#"{"success":true,"new_contract":9001}"#);
    let script = Scripted::new(std::iter::repeat_with(rented).take(99));
    let vast = vast(&script);
    let order = order(None);
    let began = tokio::time::Instant::now();
    let outcomes = futures::future::join_all((0..20).map(|_| vast.rent(&order))).await;
    let sent = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!((sent, script.count()), (6, 6), "one each 4.6 s, in 27 s");
    assert!(outcomes.iter().flat_map(|outcome| outcome.as_ref().err()).all(|failure| word(failure) == "refused"));
    assert!(began.elapsed() < CALL_LIMIT);
}

#[tokio::test(start_paused = true)]
async fn giving_back_is_done_when_it_is_gone_and_not_when_the_key_is_wrong() {
    let of = async |answers: Vec<Sent>| {
        let script = Scripted::new(answers);
        let done = vast(&script).release("9001").await;
        (done.as_ref().map_or_else(word, |()| "done"), script.count())
    };
    assert_eq!(of(vec![answer(200, OK)]).await, ("done", 1));
    assert_eq!(of(vec![answer(404, r#"{"success":false,"error":"no_such_instance"}"#)]).await, ("done", 1));
    assert_eq!(of(vec![answer(404, r#"{"error":"not_found"}"#)]).await, ("done", 1));
    assert_eq!(of(vec![lost(), answer(404, r#"{"error":"no_such_instance"}"#)]).await, ("done", 2));
    assert_eq!(of(vec![said(503, ""), said(502, ""), answer(200, OK)]).await, ("done", 3));
    assert_eq!(of(vec![answer(404, r#"{"msg":"Invalid user key"}"#)]).await, ("refused", 1));
    assert_eq!(of(vec![said(404, "<html>404</html>")]).await, ("refused", 1));
    assert_eq!(of(vec![answer(404, r#"{"msg":"Session expired. Please log in again."}"#)]).await, ("refused", 1));
    assert_eq!(of(vec![said(403, "")]).await, ("refused", 1));
    assert_eq!(of(vec![answer(200, r#"{"success":false,"msg":"busy"}"#)]).await, ("refused", 1));
    assert_eq!(of(vec![said(500, ""), said(500, ""), said(500, "")]).await, ("unknown", 3));
    assert_eq!(of(vec![]).await, ("unknown", 2), "two times 25 s is what there is time for");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_put_off_is_called_off() {
    let queued = r#"{"success":false,"msg":"Required resources are currently unavailable, state change queued."}"#;
    for status in [200, 400] {
        let script = Scripted::new([answer(status, queued), answer(200, OK)]);
        assert_eq!(word(&vast(&script).resume("9001").await.unwrap_err()), "vanished");
        let bodies: Vec<Value> = script.asked().into_iter().map(|asked| asked.body.unwrap()).collect();
        assert_eq!(bodies, [json!({"state": "running"}), json!({"state": "stopped"})]);
    }
    let script = Scripted::new([answer(200, queued), lost(), lost(), lost()]);
    assert_eq!(word(&vast(&script).resume("9001").await.unwrap_err()), "unknown");
    let script = Scripted::new([answer(404, r#"{"error":"no_such_instance"}"#)]);
    assert_eq!(word(&vast(&script).resume("9001").await.unwrap_err()), "vanished");
}

#[tokio::test(start_paused = true)]
async fn a_rented_worker_is_told_which_package_indexes_it_may_ask() {
    for (listed, expected) in
        [("", Value::Null), ("https://index.example/simple", json!("https://index.example/simple"))]
    {
        let script = Scripted::new([answer(200, r#"{"success":true,"new_contract":9001}"#)]);
        let own = VastSettings { package_indexes: listed.to_owned(), ..settings() };
        vast_with(own, &Policy::default(), &script).rent(&order(None)).await.unwrap();
        let bodies: Vec<Value> = script.asked().into_iter().filter_map(|asked| asked.body).collect();
        assert_eq!(bodies[0]["env"]["STOKE_PACKAGE_INDEXES"], expected, "{bodies:?}");
    }
}

fn page(rows: &[Value]) -> Sent {
    answer(200, json!({"offers": rows}).to_string())
}

/// Offers like a real one with these IDs, each a tenth of a cent more expensive than the one before.
fn many(ids: std::ops::Range<u64>) -> Vec<Value> {
    let like = rows("ondemand").into_iter().find(|row| row["id"] == 45_603_753).unwrap();
    ids.map(|id| {
        let mut row = like.clone();
        let usd = 0.1 + f64::from(u32::try_from(id).unwrap()) / 1e3;
        (row["id"], row["machine_id"]) = (json!(id), json!(id));
        (row["dph_base"], row["dph_total"]) = (json!(usd), json!(usd));
        row
    })
    .collect()
}

fn found(offers: &[Offer]) -> BTreeSet<u64> {
    offers.iter().map(|offer| offer.id.parse().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn offers_are_what_both_searches_say_of_those_that_are_wanted() {
    let lenient = VastSettings {
        verified_only: false,
        min_cuda: 12.0,
        min_compute_capability: 7.0,
        disk_gb: 30.0,
        min_inet_down_mbit: 0.0,
        ..settings()
    };
    let script = Scripted::new([page(&rows("ondemand")), page(&rows("bid"))]);
    let policy = Policy { may_bid: true, ..Policy::default() };
    let offers = vast_with(lenient, &policy, &script).offers().await.unwrap();
    let told: Vec<(&str, bool)> =
        offers.iter().map(|offer| (&*offer.id, offer.min_bid_usd_per_hour.is_some())).collect();
    assert_eq!(told, [("38450985", true), ("45603753", false), ("50761692", false), ("52216317", false)]);
    assert!(
        offers[0].min_bid_usd_per_hour.unwrap() == UsdMicros::from(13_334) + offers[0].stopped_usd_per_hour.unwrap()
    );

    let script = Scripted::new([page(&rows("ondemand"))]);
    let offers = vast_with(settings(), &Policy::default(), &script).offers().await.unwrap();
    assert_eq!(found(&offers), [45_603_753].into(), "others are not verified, or too slow");
    assert_eq!(script.count(), 1, "no bids, no search for them");
}

#[tokio::test(start_paused = true)]
async fn pages_go_on_by_price_and_overlap_and_end() {
    let from = |request: &transport::Request| request.body.as_ref().unwrap()["dph_total"]["gte"].as_f64().unwrap();
    let script = Scripted::new([page(&many(0..64)), page(&many(63..127)), page(&many(126..130))]);
    let on_demand = vast_with(settings(), &Policy::default(), &script);
    let offers = on_demand.offers().await.unwrap();
    assert_eq!(found(&offers), (0..130).collect());
    let prices: Vec<f64> = script.asked().iter().map(from).collect();
    assert_eq!(prices, [0.0, 0.163, 0.226]);

    let same = || page(&many(0..64));
    let script = Scripted::new([same(), same(), same(), same(), same()]);
    let on_demand = vast_with(settings(), &Policy::default(), &script);
    assert_eq!(on_demand.offers().await.unwrap().len(), 64);
    assert_eq!(script.count(), 2, "the second told nothing new");

    let endless = (0..20).map(|page_no| page(&many(page_no * 64..page_no * 64 + 64)));
    let script = Scripted::new(endless);
    let on_demand = vast_with(settings(), &Policy::default(), &script);
    for _ in 0..10 {
        on_demand.offers().await.unwrap();
        tokio::time::advance(Duration::from_secs(2)).await;
    }
    assert_eq!(script.count(), 4, "max_search_pages");
}

fn needs(vram_gib: f64, demands: Value) -> Needs {
    Needs { vram: Mib::from_gib(vram_gib), demands: serde_json::from_value(demands).unwrap() }
}

#[tokio::test(start_paused = true)]
async fn a_search_asks_for_what_is_needed() {
    let names = r#"{"gpu_names":["RTX A1000","A100 PCIE","A100 SXM4","A10"]}"#;
    let script = Scripted::new([answer(200, names), page(&[]), page(&[])]);
    let vast = vast_with(settings(), &Policy::default(), &script);
    let asked = json!({"gpus": 2, "gpu_models": ["a100"], "min_compute_capability": "8.0", "min_cuda": "12.8", "regions": ["de", "pl"],
        "min_trust": "datacenter"});
    vast.look_for(&[needs(80.0, asked)]);
    assert_eq!(vast.offers().await.unwrap(), []);
    assert_eq!(script.lines(), ["GET /api/v0/gpu_names/unique/", "POST /api/v0/bundles/"]);
    let body = script.asked()[1].body.clone().unwrap();
    let filters = ["gpu_ram", "num_gpus", "gpu_name", "compute_cap", "cuda_max_good", "geolocation", "datacenter"];
    let told: Value = filters.map(|name| body[name].clone()).into_iter().collect();
    assert_eq!(
        told,
        json!([{"gte": 75_366.0}, {"gte": 2}, {"in": ["A100 PCIE", "A100 SXM4"]}, {"gte": 800.0}, {"gte": 12.8},
            {"in": ["DE", "PL"]}, {"eq": true}]),
        "{body}"
    );
    // A GPU with ECC has less memory than its nominal size.
    for (sold_gib, mb) in [(24.0, 23_028.0), (48.0, 46_068.0), (16.0, 15_360.0), (180.0, 183_359.0)] {
        let class = Class::all(&[needs(sold_gib, json!({}))]).remove(0);
        let told = format!("{class:?}");
        let least: f64 = told.split(&[' ', ','][..]).nth(3).unwrap().parse().unwrap();
        assert!((0.9 * mb..mb).contains(&least), "{told} for {mb} MB");
    }
    vast.look_for(&[needs(8.0, json!({"min_trust": "owned"})), needs(8.0, json!({"regions": ["attic"]}))]);
    assert_eq!((vast.offers().await.unwrap(), script.count()), (vec![], 2), "nothing there will ever do");
}

#[tokio::test(start_paused = true)]
async fn each_class_is_searched_for_unless_another_has_found_all() {
    let of = async |first: Value, answers: Vec<Sent>| {
        let script = Scripted::new(answers);
        let vast = vast_with(VastSettings { max_search_pages: 2, ..settings() }, &Policy::default(), &script);
        vast.look_for(&[needs(24.0, first), needs(8.0, json!({}))]);
        let mut offers = Vec::new();
        for _ in 0..6 {
            offers = vast.offers().await.unwrap();
            tokio::time::advance(Duration::from_secs(3)).await;
        }
        let least = |request: &transport::Request| request.body.as_ref().unwrap()["gpu_ram"]["gte"].as_f64().unwrap();
        (found(&offers), script.asked().iter().map(least).collect::<Vec<_>>())
    };
    let (offers, searches) = of(json!({}), vec![page(&many(0..10))]).await;
    assert_eq!((offers, searches), ((0..10).collect(), vec![7_536.0]), "it has found all");
    let (offers, searches) = of(json!({}), vec![page(&many(0..64)), page(&many(100..102))]).await;
    assert_eq!((offers.len(), searches), (66, vec![7_536.0, 22_609.0]), "it was cut off");
    let other = json!({"min_trust": "community"});
    let (_, searches) = of(other, vec![page(&many(0..10)), page(&many(100..102))]).await;
    assert_eq!(searches, [7_536.0, 22_609.0], "the other asks for less than it in one way");
}

#[tokio::test(start_paused = true)]
async fn a_page_of_one_price_is_gone_beyond() {
    let level = |ids: std::ops::Range<u64>, usd: f64| {
        let mut rows = many(ids);
        rows.iter_mut().for_each(|row| (row["dph_base"], row["dph_total"]) = (json!(usd), json!(usd)));
        rows
    };
    let same = || page(&level(0..64, 0.2));
    let script = Scripted::new([same(), same(), page(&level(64..70, 0.3))]);
    let offers = vast_with(settings(), &Policy::default(), &script).offers().await.unwrap();
    assert_eq!(found(&offers), (0..70).collect());
    let from = |request: &transport::Request| request.body.as_ref().unwrap()["dph_total"].clone();
    let from: Vec<Value> = script.asked().iter().map(from).collect();
    assert_eq!(
        from,
        [json!({"gte": 0.0, "lte": 100.0}), json!({"gte": 0.2, "lte": 100.0}), json!({"gt": 0.2, "lte": 100.0})]
    );
}

#[tokio::test(start_paused = true)]
async fn the_market_is_looked_at_again_without_anybody_waiting() {
    let script = Scripted::new([page(&many(0..1)), page(&many(0..1)), page(&many(0..2)), page(&many(0..2))]);
    let vast = vast(&script);
    let began = tokio::time::Instant::now();
    assert_eq!(vast.offers().await.unwrap().len(), 1);
    assert_eq!((script.count(), began.elapsed().as_secs()), (2, 6), "the first time both are waited for");
    tokio::time::advance(Duration::from_secs(31)).await;
    let began = tokio::time::Instant::now();
    assert_eq!(vast.offers().await.unwrap().len(), 1, "the search for bids is not there yet");
    assert_eq!((script.count(), began.elapsed().as_secs()), (3, 0));
    tokio::time::advance(Duration::from_secs(7)).await;
    assert_eq!(vast.offers().await.unwrap().len(), 2);
    assert_eq!((script.count(), began.elapsed().as_secs()), (4, 7));
}

#[tokio::test(start_paused = true)]
async fn a_search_that_fails_is_told_when_nothing_is_known_and_not_repeated_at_once() {
    for bad in [said(503, ""), lost(), answer(200, "{}"), said(200, "<html>"), page(&[json!({}), json!({"id": 1})])] {
        let script = Scripted::new([bad, page(&many(0..1))]);
        let on_demand = vast_with(settings(), &Policy::default(), &script);
        on_demand.offers().await.unwrap_err();
        on_demand.offers().await.unwrap_err();
        assert_eq!(script.count(), 1);
        tokio::time::advance(Duration::from_secs(16)).await;
        assert_eq!(on_demand.offers().await.unwrap().len(), 1);
    }
    let script = Scripted::new([page(&many(0..1)), lost(), lost(), lost()]);
    let on_demand = vast_with(settings(), &Policy::default(), &script);
    for (after_s, is_known) in [(0, true), (40, true), (60, true), (60, false)] {
        tokio::time::advance(Duration::from_secs(after_s)).await;
        assert_eq!(on_demand.offers().await.is_ok(), is_known, "after {after_s} s more");
    }
    let mut some = many(0..2);
    some[0]["machine_id"] = Value::Null;
    let script = Scripted::new([page(&some)]);
    assert_eq!(vast_with(settings(), &Policy::default(), &script).offers().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn when_the_quota_is_used_up_there_are_no_offers_and_no_more_searches() {
    let quota = || {
        answer(429, r#"{"success":false,"error":"search_quota_exceeded"}"#).map(|mut answer| {
            answer.quota_resets_in_s = Some(7_200.0);
            answer
        })
    };
    let script = Scripted::new([quota(), page(&many(0..1))]);
    let on_demand = vast_with(settings(), &Policy::default(), &script);
    for _ in 0..5 {
        assert_eq!(on_demand.offers().await.unwrap(), []);
        tokio::time::advance(Duration::from_secs(20)).await;
    }
    assert_eq!(script.count(), 1);
    tokio::time::advance(Duration::from_secs(7_200)).await;
    assert_eq!(on_demand.offers().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn boxes_that_are_left_alone_are_not_offered_even_if_they_were_found() {
    let script = Scripted::new([page(&many(0..3))]);
    let on_demand = vast_with(settings(), &Policy::default(), &script);
    assert_eq!(on_demand.offers().await.unwrap().len(), 3);
    on_demand.avoid(&["machine 1".to_owned()].into());
    assert_eq!(found(&on_demand.offers().await.unwrap()), [0, 2].into());
}

#[tokio::test(start_paused = true)]
async fn a_list_is_not_old_after_something_was_asked_for() {
    let list = || answer(200, r#"{"instances":[],"total_instances":0}"#);
    let script = Scripted::new([list(), answer(200, OK), list()]);
    let vast = vast(&script);
    vast.rentals().await.unwrap();
    vast.release("9001").await.unwrap();
    assert_eq!(vast.rentals().await.unwrap(), Some(vec![]));
    assert_eq!(script.count(), 3);
}

#[test]
fn a_script_that_is_too_long_is_refused_at_once() {
    let of = |length: usize| {
        let transport = Scripted::silent() as Arc<dyn Transport>;
        Vast::new(settings(), &Policy::default(), "https://g", "x".repeat(length), transport).map(drop)
    };
    of(4_048 - 9).unwrap();
    assert!(of(4_048).unwrap_err().to_string().contains("4057 characters"));
}

#[tokio::test(start_paused = true)]
async fn secrets_do_not_print() {
    let quoting = answer(400, r#"{"error":"invalid_args","msg":"env STOKE_JOIN_TOKEN=jt_verysecret of verysecret"}"#);
    let script = Scripted::new([quoting]);
    let failure = vast(&script).rent(&order(None)).await.unwrap_err();
    assert!(!format!("{failure:?} {failure}").contains("verysecret"), "{failure:?}");
    assert!(!format!("{:?} {:?}", script.asked(), settings()).contains("verysecret"));
}

#[test]
fn it_answers_for_itself() {
    let vast = vast(&Scripted::silent());
    assert_eq!((vast.name(), vast.join_limit().as_secs(), vast.call_limit().as_secs()), ("vast", 900, 60));
    assert!(vast.keeps_list() && vast.takes_join_token() && !vast.leaves_with_us());
    assert!((60..=120).contains(&vast.settles_after().as_secs()));
}
