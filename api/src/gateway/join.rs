use axum::Json as JsonAnswer;
use axum::extract::State;
use stokehold_queue::gateway::{JoinReply, JoinRequest, PROTOCOL, WorkerStatus};
use stokehold_queue::{TokenKind, WorkerRecord, nonce, now_ms};

use super::TOKEN_TTL;
use crate::auth::Joiner;
use crate::error::{Code, Problem};
use crate::json::Json;
use crate::state::App;
use crate::token::{self, Secret};

const NAME_MAX: usize = 64;
const SLOTS_MAX: u32 = 1_000;
const GPUS_MAX: usize = 64;

/// `join`: a join token for a worker id and a token of its own. What can be refused is refused before a single-use token is spent.
pub(super) async fn join(
    State(app): State<App>,
    Joiner(joiner): Joiner,
    Json(request): Json<JoinRequest>,
) -> Result<JsonAnswer<JoinReply>, Problem> {
    check(&request)?;
    if joiner.single_use && app.ask("claim a token", app.registry.claim_token(&joiner.id)).await?.is_none() {
        return Err(Problem::new(Code::Unauthorized, "this join token has been used; make a new one"));
    }
    let price_usd_micros_per_hour = price(&app, &request).await?;
    let worker_id = format!("w_{}", nonce());
    let now_ms = now_ms();
    let record = WorkerRecord {
        worker_id: worker_id.clone(),
        name: request.name,
        release: request.release,
        slots: request.slots,
        gpus: request.gpus,
        driver: request.driver,
        cuda: request.cuda,
        price_usd_micros_per_hour,
        sandbox: request.sandbox,
        trust: joiner.trust,
        region: joiner.region.clone(),
        joined_ms: now_ms,
        seen_ms: now_ms,
        status: WorkerStatus::default(),
    };
    app.ask_again("store a worker", || app.registry.put_worker(&record, ttl_ms())).await?;
    let token = mint(&app, &joiner.tenant, &worker_id).await?;
    tracing::info!(worker.id = worker_id, name = record.name, release = record.release, "a worker joined");
    Ok(JsonAnswer(JoinReply {
        worker_id,
        token: token.expose().to_owned(),
        token_ttl_ms: ttl_ms(),
        lease_ms: app.queue.lease_ms(),
        extend_every_ms: app.config.extend_every_ms,
    }))
}

/// What an hour of its machine costs, as it says; of one that says nothing and was rented, as it was rented for.
async fn price(app: &App, request: &JoinRequest) -> Result<u64, Problem> {
    if request.price_usd_micros_per_hour > 0 {
        return Ok(request.price_usd_micros_per_hour);
    }
    let rented = app.ask("read a machine", app.registry.machine(&request.name)).await?;
    Ok(rented.map_or(0, |machine| machine.usd_micros_per_hour))
}

fn check(request: &JoinRequest) -> Result<(), Problem> {
    if request.protocol != PROTOCOL {
        return Err(Problem::new(
            Code::ProtocolMismatch,
            format!(
                "this worker (release {:?}) speaks version {} of the protocol and this API version {PROTOCOL}; install the same \
                 release of Stokehold on both",
                request.release, request.protocol
            ),
        ));
    }
    let printable = |text: &str| text.chars().count() <= NAME_MAX && !text.chars().any(char::is_control);
    let versions = [&request.driver, &request.cuda];
    let texts = [&request.name, &request.release].into_iter().chain(versions.into_iter().flatten());
    if !texts.into_iter().all(|text| printable(text)) {
        return Err(Problem::field(
            "/name",
            format!("name, release, driver and cuda must be at most {NAME_MAX} printable characters"),
        ));
    }
    if !(1..=SLOTS_MAX).contains(&request.slots) {
        return Err(Problem::field("/slots", format!("must be 1 to {SLOTS_MAX}")));
    }
    if request.gpus.len() > GPUS_MAX {
        return Err(Problem::field("/gpus", format!("must be at most {GPUS_MAX}")));
    }
    Ok(())
}

/// A fresh token of a worker, whose id is the token's name.
pub(super) async fn mint(app: &App, tenant: &str, worker_id: &str) -> Result<Secret, Problem> {
    let minted = token::mint(TokenKind::Worker, tenant, &[], worker_id, Some(TOKEN_TTL), &app.config.token_key);
    let (record, secret) = minted.map_err(|error| {
        tracing::error!(%error, "a worker token could not be made");
        Problem::new(Code::Internal, "a token could not be made; try again")
    })?;
    app.ask_again("store a token", || app.registry.put_token(&record)).await?;
    Ok(secret)
}

/// A worker is listed for as long as it could come back with its token.
pub(super) fn ttl_ms() -> u64 {
    u64::try_from(TOKEN_TTL.as_millis()).unwrap_or(u64::MAX)
}
