use axum::Json as JsonAnswer;
use axum::extract::State;
use stokehold_queue::gateway::{JoinReply, JoinRequest, PROTOCOL, WorkerStatus};
use stokehold_queue::{TokenKind, TokenRecord, WorkerRecord, nonce, now_ms};

use super::TOKEN_TTL;
use crate::config::Config;
use crate::database::Database;
use crate::error::{Code, Problem};
use crate::server::json::Json;
use crate::state::App;
use crate::tenants::auth::Joiner;
use crate::tenants::token;
use crate::tenants::token::Secret;
use crate::workers::rented;

const NAME_MAX: usize = 64;
const SLOTS_MAX: u32 = 1_000;
const GPUS_MAX: usize = 64;

/// `join`: exchanges a join token for a worker ID and a worker token. All checks that can refuse the join come before a
/// single-use token is spent.
pub(super) async fn join(
    State(app): State<App>,
    joiner: Joiner,
    Json(request): Json<JoinRequest>,
) -> Result<JsonAnswer<JoinReply>, Problem> {
    check(&request)?;
    let machine = match &joiner.token.machine {
        Some(machine) => Some(app.instances.to_join(machine).await?),
        None => None,
    };
    let name = machine.as_ref().map_or(&request.name, |machine| &machine.id).clone();
    app.evictions.check_joins(&joiner.token.id, &name).await?;
    let resumed = resumed(&app.config, &joiner.token, request.resume.as_deref());
    if let Some(worker_id) = &resumed {
        app.evictions.check_stays(worker_id).await?;
    }
    let rejoin_token = spend(&app.db, &app.config, &joiner).await?;
    // For a rented instance, the ledger's price is more accurate than the worker's.
    let price_usd_micros_per_hour = match &machine {
        Some(machine) => machine.usd_micros_per_hour,
        None => price(&app.db, &request).await?,
    };
    let joiner = joiner.token;
    let worker_id = resumed.unwrap_or_else(|| format!("w_{}", nonce()));
    let now_ms = now_ms();
    let record = WorkerRecord {
        worker_id: worker_id.clone(),
        name,
        release: request.release,
        slots: request.slots,
        gpus: request.gpus,
        driver: request.driver,
        cuda: request.cuda,
        price_usd_micros_per_hour,
        sandbox: request.sandbox,
        trust: joiner.trust,
        region: joiner.region.clone(),
        leased_slots: machine.as_ref().map(rented::slots_of),
        joined_with: Some(joiner.id.clone()),
        joined_ms: now_ms,
        seen_ms: now_ms,
        status: WorkerStatus::default(),
    };
    app.db.ask_again("store a worker", || app.db.registry.put_worker(&record, ttl_ms())).await?;
    app.fleets.forget_worker(&worker_id);
    let resume = format!("{worker_id}.{}", app.config.token_key.seal(&resume_label(&joiner, &worker_id)));
    let token = mint(&app.db, &app.config, &joiner, &worker_id).await?;
    tracing::info!(worker.id = worker_id, name = record.name, release = record.release, "a worker joined");
    Ok(JsonAnswer(JoinReply {
        worker_id,
        token: token.expose().to_owned(),
        token_ttl_ms: ttl_ms(),
        lease_ms: app.db.queue.lease_ms(),
        extend_every_ms: app.config.extend_every_ms,
        rejoin_token: rejoin_token.map(|token| token.expose().to_owned()),
        resume: Some(resume),
    }))
}

/// The worker ID from an earlier join with the same token, if the seal in `shown` proves it. A worker that joins again
/// keeps its ID and therefore its leases. No other worker can present the seal.
fn resumed(config: &Config, joiner: &TokenRecord, shown: Option<&str>) -> Option<String> {
    let (worker_id, seal) = shown?.split_once('.')?;
    let is_its_own = config.token_key.is_sealed(&resume_label(joiner, worker_id), seal);
    is_its_own.then(|| worker_id.to_owned())
}

fn resume_label(joiner: &TokenRecord, worker_id: &str) -> String {
    format!("worker {worker_id}, joined with token {}", joiner.id)
}

/// Spends a single-use token. The token of a rented instance is replaced by the next one, which is returned: an
/// instance that was stopped, or whose worker crashed, joins again with the token that it has stored.
async fn spend(db: &Database, config: &Config, joiner: &Joiner) -> Result<Option<Secret>, Problem> {
    let Joiner { token, hash } = joiner;
    if token.machine.is_some() {
        let (next, secret) = token::after_join(token, hash, &config.token_key).map_err(not_made)?;
        if db.ask("mark a token as used", db.registry.swap_token(&token.hash, &next)).await? {
            return Ok(Some(secret));
        }
        return Err(Problem::new(
            Code::Unavailable,
            "another worker is joining with this token at the same moment; try again",
        ));
    }
    if token.single_use && db.ask("claim a token", db.registry.claim_token(&token.id)).await?.is_none() {
        return Err(Problem::new(Code::Unauthorized, "this join token was already used; create a new one"));
    }
    Ok(None)
}

fn not_made(error: token::Error) -> Problem {
    tracing::error!(%error, "cannot create a token");
    Problem::new(Code::Internal, "the worker's token could not be created; try again")
}

/// The hourly price of the worker's host as it reports it; if it reports none and was rented, the price of the
/// instance.
async fn price(db: &Database, request: &JoinRequest) -> Result<u64, Problem> {
    if request.price_usd_micros_per_hour > 0 {
        return Ok(request.price_usd_micros_per_hour);
    }
    let rented = db.ask("read an instance", db.registry.machine(&request.name)).await?;
    Ok(rented.map_or(0, |machine| machine.usd_micros_per_hour))
}

fn check(request: &JoinRequest) -> Result<(), Problem> {
    if request.protocol != PROTOCOL {
        return Err(Problem::new(
            Code::ProtocolMismatch,
            format!(
                "this worker (release {:?}) uses protocol version {} and this API uses version {PROTOCOL}; install \
                    the same release of Stokehold on both",
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

/// Makes a new token of a worker, which replaces its previous worker token or join token. The token's name is the
/// worker's ID.
pub(super) async fn mint(
    db: &Database,
    config: &Config,
    from: &TokenRecord,
    worker_id: &str,
) -> Result<Secret, Problem> {
    let minted = token::mint(TokenKind::Worker, &from.tenant, &[], worker_id, Some(TOKEN_TTL), &config.token_key);
    let (mut record, secret) = minted.map_err(not_made)?;
    record.machine.clone_from(&from.machine);
    db.ask_again("store a token", || db.registry.put_token(&record)).await?;
    Ok(secret)
}

/// Time for which a worker is listed, milliseconds: as long as it could return with its token.
pub(super) fn ttl_ms() -> u64 {
    u64::try_from(TOKEN_TTL.as_millis()).unwrap_or(u64::MAX)
}
