//! A rented instance: its worker joins again after a crash, and terminates the instance when the gateway is
//! unreachable.

use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::gateway::Seen;
use crate::stage::{Setup, Stage};

const TIMEOUT: Duration = Duration::from_secs(60);

fn slots() -> (&'static str, String) {
    ("STOKE_SLOTS", "1".to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_life_joins_with_what_the_last_one_was_given_and_with_its_own_where_that_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let live = async |rejoin: &'static str, spent: &'static [&'static str]| {
        let before = move |seen: &mut Seen| {
            seen.rejoin_token = Some(rejoin.to_owned());
            seen.spent = spent.iter().map(|token| (*token).to_owned()).collect();
        };
        let (data_dir, variables) = (Some(folder.path().to_owned()), vec![slots()]);
        let setup = Setup { data_dir, variables, before: Some(Box::new(before)), ..Setup::default() };
        let stage = Stage::with(setup).await;
        stage.gateway.until("its heartbeat", |seen| seen.calls.get("extend").map(drop)).await;
        stage.stop();
        stage.gone().await.seen().joined_with.clone()
    };
    assert_eq!(live("jt_2", &[]).await, ["jt_test"]);
    assert_eq!(live("jt_3", &["jt_test"]).await, ["jt_2"]);
    assert_eq!(live("jt_4", &["jt_3"]).await, ["jt_3", "jt_test"]);
    assert_eq!(std::fs::read_to_string(folder.path().join("rejoin_token")).unwrap(), "jt_4");
}

/// A provider that records requests as method, path, bearer token and body, and fails the first one.
async fn provider() -> (String, mpsc::UnboundedReceiver<String>) {
    async fn record(State(calls): State<mpsc::UnboundedSender<String>>, request: Request) -> StatusCode {
        let (parts, body) = request.into_parts();
        let bearer = parts.headers["authorization"].to_str().unwrap().to_owned();
        let body = axum::body::to_bytes(body, 1024).await.unwrap();
        let body = String::from_utf8_lossy(&body);
        calls.send(format!("{} {} {bearer} {body}", parts.method, parts.uri)).unwrap();
        StatusCode::SERVICE_UNAVAILABLE
    }
    let (calls, called) = mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(record).with_state(calls);
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, called)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rented_machine_that_reaches_nobody_destroys_itself_and_repeats_it_until_it_is_gone() {
    let (url, mut called) = provider().await;
    let variables = vec![
        slots(),
        ("STOKE_VAST_URL", url),
        ("STOKE_DEAD_MAN_MS", "5000".to_owned()),
        ("CONTAINER_ID", "4711".to_owned()),
        ("CONTAINER_API_KEY", "instance-key".to_owned()),
    ];
    let stage = Stage::with(Setup { variables, ..Setup::default() }).await;
    stage.gateway.until("it to serve", |seen| (!seen.joins.is_empty()).then_some(())).await;
    let mark = stage.dir.path().join("reached");
    let marked = async {
        while !mark.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(TIMEOUT, marked).await.expect("that the gateway was reached is noted");
    assert!(called.try_recv().is_err(), "a gateway that answers keeps it alive");
    stage.gateway.down(&["lease", "extend"]);
    for _ in 0..2 {
        let call = timeout(TIMEOUT, called.recv()).await.expect("it destroys itself").unwrap();
        assert_eq!(call, "DELETE /api/v0/instances/4711/ Bearer instance-key {}");
    }
    stage.stop();
    stage.gone().await;
}
