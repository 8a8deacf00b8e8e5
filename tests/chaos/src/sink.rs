//! A receiver of webhooks that verifies each with an independent implementation and records the request and its
//! response.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::history::{Event, Journal, Kind};

/// One in `REFUSES_EVERY` deliveries is refused, and one in `LATE_EVERY` is answered late.
const REFUSES_EVERY: u64 = 23;
const LATE_EVERY: u64 = 37;
const LATE: Duration = Duration::from_millis(400);

/// The receiver.
pub(crate) struct Sink {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    journal: Journal,
    secrets: RwLock<BTreeMap<String, Webhook>>,
    received: AtomicU64,
}

impl Sink {
    pub(crate) async fn start(journal: Journal) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared { journal, secrets: RwLock::default(), received: AtomicU64::new(0) });
        let app = Router::new().route("/hook/{tenant}", axum::routing::post(receive)).with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move {
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { port, shared, serving })
    }

    /// Sets the signing secret of a tenant's deliveries.
    pub(crate) fn expect(&self, tenant: &str, secret: &str) -> Result<()> {
        let webhook = Webhook::new(secret)?;
        self.shared.secrets.write().unwrap_or_else(PoisonError::into_inner).insert(tenant.to_owned(), webhook);
        Ok(())
    }

    /// URL of a tenant's deliveries.
    pub(crate) fn url(&self, tenant: &str) -> String {
        format!("http://127.0.0.1:{}/hook/{tenant}", self.port)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn receive(
    State(sink): State<Arc<Shared>>,
    Path(tenant): Path<String>,
    headers: HeaderMap,
    body: String,
) -> StatusCode {
    let number = sink.received.fetch_add(1, Ordering::Relaxed);
    let verified = {
        let secrets = sink.secrets.read().unwrap_or_else(PoisonError::into_inner);
        let webhook = secrets.get(&tenant).ok_or_else(|| "a tenant without a secret".to_owned());
        webhook.and_then(|webhook| webhook.verify(body.as_bytes(), &headers).map_err(|error| error.to_string()))
    };
    let told: Value = serde_json::from_str(&body).unwrap_or_default();
    let data = &told["data"];
    let answer = if number % REFUSES_EVERY == REFUSES_EVERY - 1 {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::NO_CONTENT
    };
    let id = headers.get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
    let mut event = Event::new("sink", Kind::Ok, "hook_recv").key(id).v(json!({
        "type": told["type"], "subject": data["id"], "state": data["state"], "run": data["result"]["run"],
        "attempts": data["attempts"].as_array().map(Vec::len), "tenant": tenant, "verified": verified.is_ok(),
        "answered": answer.as_u16(),
    }));
    if let Err(why) = verified {
        event = event.err(why);
    }
    sink.journal.write(event);
    if number % LATE_EVERY == LATE_EVERY - 1 {
        tokio::time::sleep(LATE).await;
    }
    answer
}
