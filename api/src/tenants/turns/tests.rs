#![allow(clippy::unwrap_used)]

use serde_json::Value;
use tokio::time::{advance, sleep};

use super::*;

fn parts(method: Method) -> Parts {
    let mut request = Request::builder().method(method).body(axum::body::Body::empty()).unwrap();
    request.extensions_mut().insert(Meter::default());
    request.into_parts().0
}

/// Returns a request with this weight that is being served.
async fn served(turns: &Turns, tenant: &str, weight: Weight) -> Turn {
    let entry = turns.enter(tenant, &parts(Method::GET)).await.unwrap();
    let turn = Turn(Arc::new(TurnState { entry, weight, served: Mutex::default() }));
    turn.begin(0).await.unwrap();
    turn
}

fn use_up(turn: &Turn, used: Duration) {
    lock(&turn.0.entry.line.account).settle(Duration::ZERO, used);
}

/// Returns whether a future completes without time passing.
async fn is_at_once(what: impl Future) -> bool {
    timeout(Duration::ZERO, what).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_is_alone_is_served_as_fast_as_it_asks() {
    let turns = Turns::new();
    let mut all = Vec::new();
    for _ in 0..100 {
        all.push(served(&turns, "a", Weight::Heavy).await);
    }
    use_up(&all[0], Duration::from_secs(10));
    assert!(is_at_once(served(&turns, "a", Weight::Light)).await);
}

#[tokio::test(start_paused = true)]
async fn beside_another_a_tenant_has_its_places_and_rests_after_what_is_heavy() {
    let turns = Turns::new();
    let other = served(&turns, "b", Weight::Heavy).await;
    let heavy = served(&turns, "a", Weight::Heavy).await;
    assert!(!is_at_once(served(&turns, "a", Weight::Heavy)).await, "one at a time");
    let mut light = Vec::new();
    for _ in 0..LIGHT_AT_ONCE {
        light.push(served(&turns, "a", Weight::Light).await);
    }
    assert!(!is_at_once(served(&turns, "a", Weight::Light)).await, "all its places are taken");
    assert!(is_at_once(served(&turns, "b", Weight::Light)).await, "the other has its own");
    light[0].end();
    assert!(is_at_once(served(&turns, "a", Weight::Light)).await);

    advance(Duration::from_millis(40)).await;
    drop(heavy);
    assert!(!is_at_once(served(&turns, "a", Weight::Heavy)).await);
    advance(Duration::from_millis(41)).await;
    assert!(is_at_once(served(&turns, "a", Weight::Heavy)).await, "it has rested");

    drop(other);
    advance(SHARED_FOR).await;
    let _both = (served(&turns, "a", Weight::Heavy).await, served(&turns, "a", Weight::Heavy).await);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_has_used_more_than_its_part_waits_and_the_other_does_not() {
    let turns = Turns::new();
    let (first, _other) = (served(&turns, "a", Weight::Light).await, served(&turns, "b", Weight::Light).await);
    use_up(&first, Duration::from_secs(8));
    assert!(!is_at_once(served(&turns, "a", Weight::Light)).await);
    assert!(is_at_once(served(&turns, "b", Weight::Light)).await);
    let began = Instant::now();
    while !is_at_once(served(&turns, "a", Weight::Light)).await {
        let _ = served(&turns, "b", Weight::Light).await;
        advance(Duration::from_millis(50)).await;
    }
    let (waited, wanted) = (began.elapsed(), due(Duration::from_secs(8)));
    assert!(waited > wanted.mul_f64(0.9) && waited < wanted.mul_f64(1.1), "{waited:?} of {wanted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_charged_for_the_time_that_it_is_polled_and_not_for_waiting() {
    let turns = Turns::new();
    let _other = served(&turns, "b", Weight::Light).await;
    let request = parts(Method::GET);
    let entry = turns.enter("a", &request).await.unwrap();
    let meter = request.extensions.get::<Meter>().unwrap().clone();
    meter.count(advance(Duration::from_millis(20))).await;
    meter.count(sleep(Duration::from_secs(1))).await;
    drop((meter, request));
    assert_eq!(lock(&entry.line.account).paid_until, Instant::now() + due(Duration::from_millis(20)));
}

#[tokio::test(start_paused = true)]
async fn a_bounded_number_waits_and_no_longer_than_it_may() {
    let turns = Arc::new(Turns::new());
    let _served = (served(&turns, "b", Weight::Heavy).await, served(&turns, "a", Weight::Heavy).await);
    let waits = |_| {
        let turns = turns.clone();
        tokio::spawn(async move {
            let turn = Turn(Arc::new(TurnState {
                entry: turns.enter("a", &parts(Method::GET)).await.map_err(|problem| problem.code())?,
                weight: Weight::Heavy,
                served: Mutex::default(),
            }));
            turn.begin(0).await.map_err(|problem| problem.code())
        })
    };
    let all: Vec<_> = (0..=WAITING_MAX).map(waits).collect();
    for waiting in all {
        assert_eq!(waiting.await.unwrap().unwrap_err(), Code::RateLimited);
    }
}

#[test]
fn every_route_that_is_called_heavy_is_there() {
    let document: Value = serde_json::from_str(crate::openapi::json()).unwrap();
    // OpenAI's API is not in the document.
    let openai = include_str!("../../openai.rs");
    for (method, path) in HEAVY {
        if path.starts_with("/openai/") {
            assert!(openai.contains(&format!(".route(\"{path}\",")), "{method} {path}");
            continue;
        }
        assert!(document["paths"][path].get(method.as_str().to_lowercase()).is_some(), "{method} {path}");
    }
}

#[test]
fn the_page_of_limits_has_these() {
    let page = include_str!("../../../../docs/how-to/access.md").replace('\n', " ");
    for fact in [
        format!("- {LIGHT_AT_ONCE} requests at a time"),
        format!("waited {} ms for its place", LIGHT_WAIT_MAX.as_millis()),
        format!("bodies over {} KiB", LIGHT_BODY_MAX >> 10),
        format!("{} seconds each", WAIT_MAX.as_secs()),
        "1,000 requests of a tenant may wait".to_owned(),
        "A quarter of the processors' time".to_owned(),
    ] {
        assert!(page.contains(&fact), "{fact}");
    }
    assert_eq!((WAITING_MAX, PARTS), (1_000, 4));
}
