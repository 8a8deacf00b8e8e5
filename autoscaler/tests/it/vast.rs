//! Our client against the fake Vast.ai, over HTTP and with its rate limits on: it sends the same requests as the
//! provider's own client, and no faster than allowed.

use std::sync::Arc;

use serde_json::{Value, json};
use stokehold_autoscaler::config::Config;
use stokehold_autoscaler::provider::{Order, Provider, ProviderError, RentalState};
use stokehold_autoscaler::providers::vast::Vast;
use stokehold_autoscaler::providers::vast::transport::Http;
use stokehold_autoscaler::secret::Secret;
use stokehold_fake_vast::{Call, KEY, Market, Options, Server, Settings};
use stokehold_planner::Policy;
use stokehold_units::UsdMicros;

/// Minimum interval between two calls of a kind at Vast.ai, seconds.
const INTERVALS: [(&str, &str, f64); 6] = [
    ("POST", "/api/v0/bundles/", 6.0),
    ("PUT", "/api/v0/asks/", 4.5),
    ("GET", "/api/v1/instances/", 1.0),
    ("PUT", "/api/v0/instances/", 1.0),
    ("DELETE", "/api/v0/instances/", 3.0),
    ("GET", "/api/v0/charges/", 1.0),
];

fn vast(url: &str) -> Vast {
    let set = |name: &str| match name {
        "STOKE_VAST_API_KEY" => Some(KEY.to_owned()),
        "STOKE_VAST_URL" => Some(url.to_owned()),
        _ => None,
    };
    let config = Config::load(None, set).unwrap();
    let http = Arc::new(Http::new(url, &config.vast.api_key).unwrap());
    Vast::new(config.vast, &Policy::default(), "https://gateway.example", "exec sleep 600".to_owned(), http).unwrap()
}

fn of<'a>(calls: &'a [Call], method: &str, path: &str) -> Vec<&'a Call> {
    calls.iter().filter(|call| call.method == method && call.path.starts_with(path)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_has_the_headers_bodies_slashes_and_pauses_that_the_provider_wants() {
    let settings = Settings { boot_s: (0.5, 0.5), limits_calls: true, ..Settings::calm() };
    let server = Server::start(Market::new(1, settings), Options::default()).await.unwrap();
    let vast = vast(server.url());
    assert_eq!(vast.credit().await, Ok(Some(UsdMicros::from_usd(100.0))));
    assert_eq!(vast.rentals().await, Ok(Some(vec![])), "a list that is empty is a list");
    let offers = vast.offers().await.unwrap();
    let order = |label: &str, n: usize| Order {
        label: label.to_owned(),
        offer: offers[n].clone(),
        bid_usd_per_hour: None,
        join_token: Secret::new("jt_once"),
    };
    let first = vast.rent(&order("m-1", 0)).await.unwrap();
    let gone = vast.rent(&order("m-2", 0)).await;
    assert!(matches!(gone, Err(ProviderError::Vanished(_))), "an offer is taken once: {gone:?}");
    let runs = async || {
        let rentals = vast.rentals().await.unwrap().unwrap();
        rentals.iter().any(|rental| rental.label == "m-1" && rental.state == RentalState::Running)
    };
    while !runs().await {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    vast.stop(&first).await.unwrap();
    vast.resume(&first).await.unwrap();
    vast.release(&first).await.unwrap();
    vast.release(&first).await.unwrap();
    let charged = vast.charges(0).await.unwrap().unwrap();
    assert!(
        charged.iter().any(|charge| charge.rental == first && charge.label.as_deref() == Some("m-1")),
        "{charged:?}"
    );

    let calls: Vec<Call> = server.market().calls().cloned().collect();
    for call in calls.iter().filter(|call| !call.path.starts_with("/_fake/")) {
        let has_slash = call.path.ends_with('/');
        assert_eq!(has_slash, call.path != "/api/v0/users/current", "any other is redirected without: {}", call.path);
        assert_ne!(call.status, 429, "{call:?}");
        assert!(call.header("user-agent").is_some_and(|agent| agent.starts_with("stokehold/")), "{call:?}");
        assert!(
            call.header("authorization").is_some() && call.query.iter().all(|(name, _)| name != "api_key"),
            "{call:?}"
        );
        let has_body = !call.body.is_null() && call.body != json!("");
        let kind = call.header("content-type");
        assert_eq!(kind.is_some_and(|kind| kind.starts_with("application/json")), has_body, "{call:?}");
    }
    for (method, path, least_s) in INTERVALS {
        let at: Vec<f64> = of(&calls, method, path).iter().map(|call| call.at_s).collect();
        assert!(!at.is_empty(), "{method} {path} was never sent");
        assert!(at.windows(2).all(|two| two[1] - two[0] >= least_s), "{method} {path} at {at:?}, {least_s} s apart");
    }
    let rent = &of(&calls, "PUT", "/api/v0/asks/")[0].body;
    let wanted = json!({"client_id": "me", "price": null, "runtype": "args", "onstart": "/bin/sh", "args": ["-c", "exec sleep 600"],
        "cancel_unavail": true, "label": "stoke-default:m-1", "disk": 64.0});
    for (member, value) in wanted.as_object().unwrap() {
        assert_eq!(&rent[member], value, "{member}");
    }
    assert_eq!(rent["env"]["STOKE_JOIN_TOKEN"], "jt_once");
    let states: Vec<&Value> = calls
        .iter()
        .filter(|call| call.method == "PUT" && call.path.contains("/instances/"))
        .map(|call| &call.body)
        .collect();
    assert_eq!(states, [&json!({"state": "stopped"}), &json!({"state": "running"})]);
    assert!(of(&calls, "DELETE", "/api/v0/instances/").iter().all(|call| call.body == json!({})));
    let search = &of(&calls, "POST", "/api/v0/bundles/")[0].body;
    assert_eq!(
        (&search["type"], &search["rentable"], &search["rented"]),
        (&json!("on-demand"), &json!({"eq": true}), &json!({"eq": false}))
    );
    assert_eq!(search["allocated_storage"], 64.0, "prices are those of the disk that is rented");
}
