//! Webhooks to receivers that are slow, broken, gone, malicious, or working. The test moves the queue's clock, so that
//! three days of attempts take no time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use redis::AsyncCommands;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use stokehold_api::config::Webhooks;
use stokehold_queue::job::{Hook, HookEvent, JobSpec, NewJob};
use stokehold_queue::outbox::{Delivery, DeliveryState};
use stokehold_queue::{Clock, JobId, ManualClock, Queue, now_ms};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use crate::stack::{PATIENCE, Stack};

/// A receiver's response to a webhook. The last plan is repeated.
#[derive(Clone)]
enum Plan {
    Answer(u16),
    Redirect(String),
    Hang,
}

struct Got {
    headers: HeaderMap,
    body: String,
}

impl Got {
    fn id(&self) -> &str {
        self.headers["webhook-id"].to_str().unwrap()
    }

    fn verifies(&self, secret: &Value) -> bool {
        Webhook::new(secret.as_str().unwrap()).unwrap().verify(self.body.as_bytes(), &self.headers).is_ok()
    }
}

#[derive(Default)]
struct Receiver {
    port: u16,
    plans: Mutex<VecDeque<Plan>>,
    got: Mutex<Vec<Got>>,
    inside: AtomicUsize,
    most_inside: AtomicUsize,
}

impl Receiver {
    async fn start(plans: impl IntoIterator<Item = Plan>) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Arc::new(Self {
            port: listener.local_addr().unwrap().port(),
            plans: Mutex::new(plans.into_iter().collect()),
            ..Self::default()
        });
        let app = Router::new().fallback(receive).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        receiver
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    fn visits(&self) -> usize {
        self.got.lock().unwrap().len()
    }
}

async fn receive(State(receiver): State<Arc<Receiver>>, headers: HeaderMap, body: Bytes) -> Response {
    let inside = receiver.inside.fetch_add(1, Ordering::SeqCst) + 1;
    receiver.most_inside.fetch_max(inside, Ordering::SeqCst);
    let body = String::from_utf8(body.to_vec()).unwrap();
    receiver.got.lock().unwrap().push(Got { headers, body });
    let plan = {
        let mut plans = receiver.plans.lock().unwrap();
        if plans.len() > 1 { plans.pop_front() } else { plans.front().cloned() }
    };
    let answer = match plan {
        Some(Plan::Answer(status)) => StatusCode::from_u16(status).unwrap().into_response(),
        Some(Plan::Redirect(to)) => (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, to)]).into_response(),
        Some(Plan::Hang) => std::future::pending().await,
        None => StatusCode::OK.into_response(),
    };
    receiver.inside.fetch_sub(1, Ordering::SeqCst);
    answer
}

struct Rig {
    stack: Stack,
    clock: ManualClock,
    redis: redis::aio::MultiplexedConnection,
}

impl Rig {
    /// An API whose webhooks may go to these receivers.
    async fn start(receivers: &[&Receiver]) -> Self {
        let ports = receivers.iter().map(|receiver| receiver.port).collect();
        Self::start_with(Webhooks { allow_private: true, allow_http: true, ports, ..Webhooks::default() }).await
    }

    async fn start_with(webhooks: Webhooks) -> Self {
        let clock = ManualClock::new(now_ms());
        let stack = Stack::start_with(|config| {
            config.redis.clock = Clock::Manual(clock.clone());
            config.webhooks = webhooks;
        })
        .await;
        let redis = stack.redis.connection().await;
        Self { stack, clock, redis }
    }

    /// Writes the records that the scripts write when a job with a hook ends.
    async fn seed_delivery(&self, job: &str, url: &str) -> String {
        let (id, now_ms) = (format!("msg_{job}_completed"), self.clock.now_ms());
        let fields = [
            ("event", "job.completed"),
            ("subject", job),
            ("tenant", "acme"),
            ("url", url),
            ("created", &now_ms.to_string()),
            ("state", "pending"),
            ("tries", "0"),
        ];
        let mut pipe = redis::pipe();
        pipe.hset_multiple(format!("{{stoke:0}}:w:{id}"), &fields)
            .zadd("{stoke:0}:hooks", &id, now_ms)
            .zadd("{stoke:0}:wl:acme", &id, now_ms)
            .publish("{stoke:0}:signal:all", "work hooks");
        let _: () = pipe.query_async(&mut self.redis.clone()).await.unwrap();
        id
    }

    async fn read_delivery(&self, id: &str) -> Delivery {
        self.stack.queue.outbox().get("acme", id).await.unwrap().unwrap()
    }

    /// The delivery once it satisfies `wanted`.
    async fn until(&self, id: &str, wanted: impl Fn(&Delivery) -> bool) -> Delivery {
        let waited = async {
            loop {
                let delivery = self.read_delivery(id).await;
                if wanted(&delivery) {
                    return delivery;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        match timeout(PATIENCE, waited).await {
            Ok(delivery) => delivery,
            Err(_) => panic!("{:?}", self.read_delivery(id).await),
        }
    }

    /// Moves the clock to a time, and signals that there is work.
    async fn move_to(&self, at_ms: u64) {
        self.clock.advance_ms(at_ms.saturating_sub(self.clock.now_ms()));
        let _: u32 = self.redis.clone().publish("{stoke:0}:signal:all", "work hooks").await.unwrap();
    }

    async fn secret(&self) -> Value {
        self.stack.json(self.stack.get("/v1/webhooks/secret")).await
    }
}

fn statuses(delivery: &Delivery) -> Vec<Option<u16>> {
    delivery.tries.iter().map(|tried| tried.status).collect()
}

fn in_hours(ms: u64) -> u64 {
    ms / 3_600_000
}

#[tokio::test]
async fn a_bad_receiver_gets_it_in_the_end_with_one_id_and_the_log_tells_the_story() {
    let inside = Receiver::start([Plan::Answer(200)]).await;
    let plans = [Plan::Hang, Plan::Answer(500), Plan::Redirect(inside.url()), Plan::Answer(200)];
    let receiver = Receiver::start(plans).await;
    let rig = Rig::start(&[&receiver, &inside]).await;
    rig.stack.deploy_echo().await;
    let job = rig.stack.submit("hello").await;
    let id = rig.seed_delivery(&job, &receiver.url()).await;
    for tries in 1..=3 {
        let delivery = rig.until(&id, |delivery| delivery.tries.len() == tries).await;
        rig.move_to(delivery.next_try_ms.unwrap()).await;
    }
    let delivered = rig.until(&id, |delivery| delivery.state == DeliveryState::Delivered).await;
    assert_eq!(statuses(&delivered), [None, Some(500), Some(307), Some(200)]);
    assert_eq!(inside.visits(), 0, "the redirect was not followed");

    let secret = rig.secret().await;
    {
        let got = receiver.got.lock().unwrap();
        assert_eq!(got.len(), 4);
        assert!(got.iter().all(|one| one.id() == id && one.body == got[0].body && one.verifies(&secret["secret"])));
        let body: Value = serde_json::from_str(&got[0].body).unwrap();
        assert_eq!(body["type"], "job.completed");
        assert_eq!((&body["data"]["id"], &body["data"]["input"]), (&json!(job), &json!({"text": "hello"})));
    }

    let shown = rig.stack.json(rig.stack.get(&format!("/v1/webhooks/deliveries/{id}"))).await;
    assert_eq!(
        (&shown["state"], &shown["job_id"], &shown["batch_id"]),
        (&json!("delivered"), &json!(job), &Value::Null)
    );
    let told: Vec<[&Value; 2]> =
        shown["tries"].as_array().unwrap().iter().map(|tried| [&tried["status"], &tried["error"]]).collect();
    assert_eq!(
        json!(told),
        json!([[null, "no answer within 15 s"], [500, null], [307, "redirects are not followed"], [200, null]])
    );
    let listed = rig.stack.json(rig.stack.get(&format!("/v1/webhooks/deliveries?job={job}&state=delivered"))).await;
    assert_eq!(listed["deliveries"], json!([shown]));
}

#[tokio::test]
async fn the_end_of_a_job_reaches_its_receiver() {
    let receiver = Receiver::start([Plan::Answer(200)]).await;
    let rig = Rig::start(&[&receiver]).await;
    let hook = Hook { url: receiver.url(), events: vec![HookEvent::JobCompleted] };
    let id = JobId::new(0);
    let spec = JobSpec {
        tenant: "acme".to_owned(),
        endpoint: "echo".to_owned(),
        version: 1,
        timeout_ms: 60_000,
        max_attempts: 1,
        hook: Some(hook),
        ..JobSpec::default()
    };
    let job = NewJob::new(id, spec, RawValue::from_string("{}".to_owned()).unwrap());
    rig.stack.queue.submit(vec![job]).await.unwrap();
    rig.stack.queue.cancel("acme", &[id]).await.unwrap();
    let message = format!("msg_{id}_completed");
    rig.until(&message, |delivery| delivery.state == DeliveryState::Delivered).await;
    let body: Value = serde_json::from_str(&receiver.got.lock().unwrap()[0].body).unwrap();
    assert_eq!((&body["type"], &body["data"]["state"]), (&json!("job.completed"), &json!("cancelled")));
}

#[tokio::test]
async fn a_dead_receiver_is_tried_ten_times_over_three_days() {
    let receiver = Receiver::start([Plan::Answer(500)]).await;
    let rig = Rig::start(&[&receiver]).await;
    let start_ms = rig.clock.now_ms();
    let id = rig.seed_delivery(&JobId::new(0).to_string(), &receiver.url()).await;
    for tries in 1..10 {
        let delivery = rig.until(&id, |delivery| delivery.tries.len() == tries).await;
        rig.move_to(delivery.next_try_ms.unwrap()).await;
    }
    let exhausted = rig.until(&id, |delivery| delivery.state == DeliveryState::Exhausted).await;
    assert_eq!(statuses(&exhausted), [Some(500); 10]);
    // 75 h 35 min, plus or minus a tenth.
    let took = in_hours(rig.clock.now_ms() - start_ms);
    assert!((68..=83).contains(&took), "{took} h");
    rig.move_to(rig.clock.now_ms() + 86_400_000).await;
    assert_eq!(exhausted.next_try_ms, None);
}

#[tokio::test]
async fn a_receiver_that_is_gone_is_left_alone_until_a_replay() {
    let receiver = Receiver::start([Plan::Answer(410), Plan::Answer(204)]).await;
    let rig = Rig::start(&[&receiver]).await;
    let id = rig.seed_delivery(&JobId::new(0).to_string(), &receiver.url()).await;
    let disabled = rig.until(&id, |delivery| delivery.state == DeliveryState::Disabled).await;
    assert_eq!((statuses(&disabled), disabled.next_try_ms), (vec![Some(410)], None));

    let path = format!("/v1/webhooks/deliveries/{id}/replay");
    let answer = rig.stack.post(&path, &Value::Null).send().await.unwrap();
    assert_eq!(answer.status(), 202);
    assert_eq!(answer.json::<Value>().await.unwrap()["state"], "pending");
    let delivered = rig.until(&id, |delivery| delivery.state == DeliveryState::Delivered).await;
    assert_eq!(statuses(&delivered), [Some(410), Some(204)]);
    let got = receiver.got.lock().unwrap();
    assert!(got.len() == 2 && got.iter().all(|one| one.id() == id && one.body == got[0].body));
}

#[tokio::test]
async fn a_rotated_secret_verifies_and_so_does_the_one_before() {
    let receiver = Receiver::start([Plan::Answer(200)]).await;
    let rig = Rig::start(&[&receiver]).await;
    let old = rig.secret().await;
    assert_eq!((&old["previous"], &old["previous_until"]), (&Value::Null, &Value::Null));
    let new = rig.stack.json(rig.stack.post("/v1/webhooks/secret/rotate", &Value::Null)).await;
    assert_eq!(new["previous"], old["secret"]);
    assert!(new["previous_until"].is_string() && new["secret"] != old["secret"]);
    assert_eq!(rig.secret().await, new);

    let id = rig.seed_delivery(&JobId::new(0).to_string(), &receiver.url()).await;
    rig.until(&id, |delivery| delivery.state == DeliveryState::Delivered).await;
    let got = receiver.got.lock().unwrap();
    assert!(got[0].verifies(&old["secret"]) && got[0].verifies(&new["secret"]));
    assert!(!got[0].verifies(&json!(format!("whsec_{}", "A".repeat(44)))));
}

#[tokio::test]
async fn an_unsafe_url_is_not_sent_to_and_the_log_says_so() {
    let receiver = Receiver::start([Plan::Answer(200)]).await;
    let ports = vec![receiver.port];
    let rig = Rig::start_with(Webhooks { allow_http: true, ports, ..Webhooks::default() }).await;
    for host in ["127.0.0.1", "localhost", "2130706433", "[::ffff:7f00:1]"] {
        let url = format!("http://{host}:{}/hook", receiver.port);
        let id = rig.seed_delivery(&JobId::new(0).to_string(), &url).await;
        let tried = rig.until(&id, |delivery| delivery.tries.len() == 1).await;
        assert_eq!(
            tried.tries[0].error.as_deref(),
            Some("not sent: the URL must resolve to a public address"),
            "{host}"
        );
    }
    assert_eq!(receiver.visits(), 0);
}

#[tokio::test]
async fn a_receiver_that_hangs_does_not_hold_up_the_others() {
    let (hanging, fine) = (Receiver::start([Plan::Hang]).await, Receiver::start([Plan::Answer(200)]).await);
    let rig = Rig::start(&[&hanging, &fine]).await;
    for _ in 0..100 {
        rig.seed_delivery(&JobId::new(0).to_string(), &hanging.url()).await;
    }
    let id = rig.seed_delivery(&JobId::new(0).to_string(), &fine.url()).await;
    let delivered = rig.until(&id, |delivery| delivery.state == DeliveryState::Delivered).await;
    assert_eq!(statuses(&delivered), [Some(200)]);
    assert!(hanging.most_inside.load(Ordering::SeqCst) <= 4);
}

#[tokio::test]
async fn what_was_sent_but_not_reported_is_sent_again_with_the_same_id() {
    // As if the replica had died between the request and the report: only its claim remains, and the claim expires.
    let receiver = Receiver::start([Plan::Hang, Plan::Answer(200)]).await;
    let rig = Rig::start(&[&receiver]).await;
    let id = rig.seed_delivery(&JobId::new(0).to_string(), &receiver.url()).await;
    while receiver.visits() == 0 {
        sleep(Duration::from_millis(10)).await;
    }
    rig.move_to(rig.read_delivery(&id).await.next_try_ms.unwrap()).await;
    let delivered = rig.until(&id, |delivery| delivery.state == DeliveryState::Delivered).await;
    assert_eq!(statuses(&delivered), [Some(200)]);
    let got = receiver.got.lock().unwrap();
    assert!(got.len() == 2 && got.iter().all(|one| one.id() == id && one.body == got[0].body));
}

#[tokio::test]
async fn a_failing_receiver_is_left_alone_but_for_one_probe() {
    let receiver = Receiver::start([Plan::Answer(503)]).await;
    let rig = Rig::start(&[&receiver]).await;
    let start_ms = rig.clock.now_ms();
    let mut ids = Vec::new();
    for _ in 0..30 {
        ids.push(rig.seed_delivery(&JobId::new(0).to_string(), &receiver.url()).await);
    }
    // Each has been attempted, or put off because the receiver is busy or failing.
    for id in &ids {
        rig.until(id, |delivery| delivery.tried > 0 || delivery.held_ms > 0).await;
    }
    let visits = receiver.visits();
    assert!((5..30).contains(&visits), "{visits}");
    // Before the half minute of the circuit breaker is over nothing is sent; afterwards one delivery is.
    rig.move_to(start_ms + 20_000).await;
    for id in &ids {
        rig.until(id, |delivery| delivery.next_try_ms.is_some_and(|at_ms| at_ms > start_ms + 20_000)).await;
    }
    assert_eq!(receiver.visits(), visits);
    rig.move_to(start_ms + 40_000).await;
    for id in &ids {
        rig.until(id, |delivery| delivery.next_try_ms.is_some_and(|at_ms| at_ms > start_ms + 40_000)).await;
    }
    // A claim changes that time as well: the probe has ended once its attempt is in the log.
    let probe = async {
        loop {
            let mut tried = 0;
            for id in &ids {
                tried += rig.read_delivery(id).await.tries.len();
            }
            if tried > visits {
                return;
            }
        }
    };
    timeout(PATIENCE, probe).await.expect("the probe is reported");
    assert_eq!(receiver.visits(), visits + 1);
}

#[tokio::test]
async fn deliveries_are_their_tenants_own() {
    let receiver = Receiver::start([Plan::Answer(200)]).await;
    let rig = Rig::start(&[&receiver]).await;
    let id = rig.seed_delivery(&JobId::new(0).to_string(), &receiver.url()).await;
    let other = rig.stack.token_of("globex", &stokehold_api::token::Scope::ALL, None).await;
    let theirs = |method: reqwest::Method, path: &str| {
        rig.stack.client.request(method, format!("{}{path}", rig.stack.url)).bearer_auth(&other)
    };
    let one = format!("/v1/webhooks/deliveries/{id}");
    let not_found = (404, "not_found".to_owned());
    assert_eq!(rig.stack.problem(theirs(reqwest::Method::GET, &one)).await, not_found);
    assert_eq!(rig.stack.problem(theirs(reqwest::Method::POST, &format!("{one}/replay"))).await, not_found);
    let list = rig.stack.json(theirs(reqwest::Method::GET, "/v1/webhooks/deliveries")).await;
    assert_eq!(list, json!({"deliveries": [], "next_cursor": null}));
    let secret = rig.stack.json(theirs(reqwest::Method::GET, "/v1/webhooks/secret")).await;
    assert_ne!(secret["secret"], rig.secret().await["secret"]);
    for query in ["job=x", "batch=x", "state=lost", "cursor=x", "limit=0", "limit=101", "other=1"] {
        let asked = rig.stack.get(&format!("/v1/webhooks/deliveries?{query}"));
        assert_eq!(rig.stack.problem(asked).await, (400, "invalid_query".to_owned()), "{query}");
    }
}
