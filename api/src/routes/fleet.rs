//! `GET /v1/fleet`: the machines, rented, owned and joined, and what they cost.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use stokehold_queue::gateway::ModelState;
use stokehold_queue::registry::{Decision, MachineRecord, MachineState, Notice};
use stokehold_queue::vram::{kind_of_cards, sold_gib};
use stokehold_queue::{WorkerRecord, now_ms};
use utoipa::ToSchema;

use crate::auth::{Caller, WorkersRead};
use crate::error::Problem;
use crate::fleet::{MISSED_MAX, is_lost};
use crate::stamp::rfc3339;
use crate::state::App;

/// Every machine, by id.
#[derive(Serialize, ToSchema)]
#[schema(as = Fleet)]
pub(crate) struct FleetView {
    /// What they cost now, all together.
    usd_micros_per_hour: u64,
    machines: Vec<MachineView>,
    /// When the autoscaler last said how things are, RFC 3339; null where there never was one.
    autoscaler_at: Option<String>,
    /// What it says that its operator should know: what it cannot see, or holds back.
    notices: Vec<NoticeView>,
    /// What it did last and why, the newest first.
    decisions: Vec<DecisionView>,
}

/// What the autoscaler's operator should know.
#[derive(Serialize, ToSchema)]
#[schema(as = Notice)]
pub(crate) struct NoticeView {
    /// What it is about, as `max_usd_per_hour` or `blind vast`.
    kind: String,
    /// In words, with what to do.
    text: String,
    /// Since when it is so, RFC 3339.
    since: String,
}

impl From<Notice> for NoticeView {
    fn from(notice: Notice) -> Self {
        Self { since: rfc3339(notice.since_ms), kind: notice.kind, text: notice.text }
    }
}

/// What the autoscaler decided about a machine.
#[derive(Serialize, ToSchema)]
#[schema(as = Decision)]
pub(crate) struct DecisionView {
    /// When, RFC 3339.
    at: String,
    /// `rent`, `resume`, `drain`, `undrain`, `stop` or `release`.
    action: String,
    /// Why, in words.
    reason: String,
    /// The machine, once there is one.
    machine: Option<String>,
    /// Why it failed; null where it did not.
    failure: Option<String>,
}

impl From<Decision> for DecisionView {
    fn from(Decision { at_ms, action, reason, machine, failure }: Decision) -> Self {
        Self { at: rfc3339(at_ms), action, reason, machine, failure }
    }
}

/// A machine.
#[derive(Serialize, ToSchema)]
#[schema(as = Machine)]
pub(crate) struct MachineView {
    /// The autoscaler's id of it; of a worker that it did not start, the worker's name.
    id: String,
    /// Where it is from; `joined`: its operator started its worker, and the autoscaler leaves it alone.
    provider: String,
    /// Its kind of card, or `CPU`.
    kind: String,
    /// The box it stands in, where its provider says.
    host: String,
    state: MachineStateView,
    /// Since when it is in that state, RFC 3339.
    since: String,
    /// Since when it is paid for, RFC 3339.
    rented_at: String,
    /// What an hour of it costs as it is now; 0 of one that is owned.
    usd_micros_per_hour: u64,
    /// Whether somebody who pays more may take it away.
    is_interruptible: bool,
    /// Its cards; 0 computes on the CPU.
    cards: u32,
    /// The class of the smallest of them.
    vram_class_gib: u32,
    /// Its worker, once it has joined.
    worker_id: Option<String>,
    /// Attempts it runs at once.
    slots: u32,
    /// Attempts it runs now.
    running: u32,
    /// Since when it runs none, RFC 3339; null while it does, and before it is ready.
    idle_since: Option<String>,
    /// Models that are loaded, as `tenant/name@version`.
    loaded: Vec<String>,
    /// Endpoints that it had loaded since it was rented, as `tenant/name`: what they need is on its disk.
    on_disk: Vec<String>,
}

/// Where a machine is in its life.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = MachineState)]
pub(crate) enum MachineStateView {
    /// Rented or started; its worker has not joined yet.
    Booting,
    /// Its worker takes jobs.
    Ready,
    /// It takes no more jobs, and ends those it has.
    Draining,
    /// Its cards are given back; its disk is kept and paid for.
    Stopped,
    /// Was stopped, and is asked to start again.
    Resuming,
    /// It has fallen silent.
    Lost,
    /// It is being given back.
    Ending,
}

impl From<MachineState> for MachineStateView {
    fn from(state: MachineState) -> Self {
        match state {
            MachineState::Booting => Self::Booting,
            MachineState::Ready => Self::Ready,
            MachineState::Draining => Self::Draining,
            MachineState::Stopped => Self::Stopped,
            MachineState::Resuming => Self::Resuming,
            MachineState::Lost => Self::Lost,
            MachineState::Ending => Self::Ending,
        }
    }
}

/// See the machines
///
/// Machines serve every tenant, so the scope `workers:read` is one for operators.
#[utoipa::path(get, operation_id = "get_fleet", path = "/v1/fleet", tag = "workers",
    responses((status = 200, description = "Every instance and what it costs.", body = FleetView), crate::openapi::Problems))]
pub(crate) async fn get(State(app): State<App>, _: Caller<WorkersRead>) -> Result<Json<FleetView>, Problem> {
    look(&app).await.map(Json)
}

impl FleetView {
    /// How many machines are here or coming, and what all of them cost.
    pub(crate) fn totals(&self) -> (usize, u64) {
        let is_here = |machine: &&MachineView| {
            !matches!(machine.state, MachineStateView::Stopped | MachineStateView::Lost | MachineStateView::Ending)
        };
        (self.machines.iter().filter(is_here).count(), self.usd_micros_per_hour)
    }
}

/// The machines now.
pub(crate) async fn look(app: &App) -> Result<FleetView, Problem> {
    let (workers, machines, drains, autoscaler) = tokio::try_join!(
        app.ask("list workers", app.registry.workers()),
        app.ask("list the instances", app.registry.machines()),
        app.drains(),
        app.ask("read the autoscaler's status", app.registry.autoscaler()),
    )?;
    let now_ms = now_ms();
    let silent_ms = app.config.extend_every_ms.saturating_mul(MISSED_MAX);
    let mut views: Vec<MachineView> = Vec::with_capacity(machines.len());
    for machine in machines.values() {
        let worker = machine.worker(&workers);
        let (state, since_ms) = machine.state(worker, now_ms, silent_ms);
        views.push(rented(machine, worker, state.into(), since_ms));
    }
    let ours: BTreeSet<&str> = machines.keys().map(String::as_str).collect();
    let others = workers.iter().filter(|worker| !ours.contains(worker.name.as_str()));
    for worker in others.filter(|worker| !is_lost(worker, now_ms, app.config.extend_every_ms)) {
        let is_draining = worker.status.draining || drains.contains_key(&worker.name);
        let state = if is_draining { MachineStateView::Draining } else { MachineStateView::Ready };
        views.push(joined(worker, state));
    }
    views.sort_by(|a, b| (&a.id, &a.worker_id).cmp(&(&b.id, &b.worker_id)));
    let usd_micros_per_hour = views.iter().map(|machine| machine.usd_micros_per_hour).sum();
    let autoscaler_at = autoscaler.as_ref().map(|autoscaler| rfc3339(autoscaler.at_ms));
    let (notices, decisions) = autoscaler.map(|said| (said.notices, said.decisions)).unwrap_or_default();
    Ok(FleetView {
        usd_micros_per_hour,
        machines: views,
        autoscaler_at,
        notices: notices.into_iter().map(NoticeView::from).collect(),
        decisions: decisions.into_iter().map(DecisionView::from).collect(),
    })
}

fn rented(
    machine: &MachineRecord,
    worker: Option<&WorkerRecord>,
    state: MachineStateView,
    since_ms: u64,
) -> MachineView {
    let word = |member: &str| machine.offer[member].as_str().unwrap_or_default().to_owned();
    let offered = MachineView {
        id: machine.id.clone(),
        provider: machine.provider.clone(),
        kind: word("kind"),
        host: word("host"),
        state,
        since: rfc3339(since_ms),
        rented_at: rfc3339(machine.rented_ms),
        usd_micros_per_hour: match state {
            MachineStateView::Stopped => machine.stopped_usd_micros_per_hour,
            _ => machine.usd_micros_per_hour,
        },
        is_interruptible: machine.is_interruptible,
        cards: machine.offer["cards"].as_u64().and_then(|cards| u32::try_from(cards).ok()).unwrap_or(0),
        vram_class_gib: 0,
        worker_id: None,
        slots: 0,
        running: 0,
        idle_since: None,
        loaded: Vec::new(),
        on_disk: machine.on_disk.clone(),
    };
    match worker {
        Some(worker) if matches!(state, MachineStateView::Ready | MachineStateView::Draining) => told(worker, offered),
        _ => offered,
    }
}

/// A worker that the autoscaler did not start.
fn joined(worker: &WorkerRecord, state: MachineStateView) -> MachineView {
    let view = MachineView {
        id: worker.name.clone(),
        provider: "joined".to_owned(),
        kind: String::new(),
        host: String::new(),
        state,
        since: rfc3339(worker.joined_ms),
        rented_at: rfc3339(worker.joined_ms),
        usd_micros_per_hour: worker.price_usd_micros_per_hour,
        is_interruptible: false,
        cards: 0,
        vram_class_gib: 0,
        worker_id: None,
        slots: 0,
        running: 0,
        idle_since: None,
        loaded: Vec::new(),
        on_disk: Vec::new(),
    };
    told(worker, view)
}

/// A machine as its worker tells of it.
fn told(worker: &WorkerRecord, machine: MachineView) -> MachineView {
    let models = || worker.status.models.iter();
    let ready = models().filter(|model| model.state != ModelState::Loading);
    let last_run_ms = models().filter_map(|model| model.succeeded_ms).max().unwrap_or(0);
    MachineView {
        kind: kind_of_cards(&worker.gpus),
        cards: u32::try_from(worker.gpus.len()).unwrap_or(u32::MAX),
        vram_class_gib: worker.gpus.iter().map(|gpu| sold_gib(gpu.vram_mib)).min().unwrap_or(0),
        worker_id: Some(worker.worker_id.clone()),
        slots: worker.slots,
        running: worker.status.running,
        idle_since: (worker.status.running == 0).then(|| rfc3339(worker.joined_ms.max(last_run_ms))),
        loaded: ready.map(|model| format!("{}/{}", model.tenant, model.name)).collect(),
        ..machine
    }
}
