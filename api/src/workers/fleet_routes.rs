//! `GET /v1/fleet`: the instances and workers, rented, owned and joined, and their cost.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use stokehold_queue::gateway::ModelState;
use stokehold_queue::registry::{Decision, MachineRecord, MachineState, Notice};
use stokehold_queue::vram::{kind_of_gpus, sold_gib};
use stokehold_queue::{WorkerRecord, now_ms};
use utoipa::ToSchema;

use crate::database;
use crate::error::Problem;
use crate::state::App;
use crate::tenants::auth::{Caller, WorkersRead};
use crate::time_format::rfc3339;
use crate::workers::fleet::{MISSED_MAX, is_lost};

/// Every instance, by id.
#[derive(Serialize, ToSchema)]
#[schema(as = Fleet)]
pub(crate) struct FleetView {
    /// The current cost of all instances together.
    usd_micros_per_hour: u64,
    machines: Vec<MachineView>,
    /// When the autoscaler last reported its status, RFC 3339; null if there was no report.
    autoscaler_at: Option<String>,
    /// Notices for the operator: what the autoscaler cannot see, or holds back.
    notices: Vec<NoticeView>,
    /// The latest decisions and their reasons, newest first.
    decisions: Vec<DecisionView>,
}

/// A notice for the operator.
#[derive(Serialize, ToSchema)]
#[schema(as = Notice)]
pub(crate) struct NoticeView {
    /// The subject, e.g. `max_usd_per_hour` or `provider_unreachable vast`.
    kind: String,
    /// The notice, with what to do.
    text: String,
    /// Since when it applies, RFC 3339.
    since: String,
}

impl From<Notice> for NoticeView {
    fn from(notice: Notice) -> Self {
        Self { since: rfc3339(notice.since_ms), kind: notice.kind, text: notice.text }
    }
}

/// A decision of the autoscaler about an instance.
#[derive(Serialize, ToSchema)]
#[schema(as = Decision)]
pub(crate) struct DecisionView {
    /// When it was made, RFC 3339.
    at: String,
    /// `rent`, `resume`, `drain`, `undrain`, `stop` or `release`.
    #[schema(value_type = ActionWord)]
    action: String,
    /// The reason.
    reason: String,
    /// The instance, once there is one.
    machine: Option<String>,
    /// Why the action failed; null if it did not.
    failure: Option<String>,
}

impl From<Decision> for DecisionView {
    fn from(Decision { at_ms, action, reason, machine, failure }: Decision) -> Self {
        Self { at: rfc3339(at_ms), action, reason, machine, failure }
    }
}

/// What the autoscaler does with an instance.
#[derive(ToSchema)]
#[schema(as = DecisionAction, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the autoscaler's type, for the OpenAPI document")]
pub(crate) enum ActionWord {
    Rent,
    Resume,
    Drain,
    Undrain,
    Stop,
    Release,
}

/// An instance.
#[derive(Serialize, ToSchema)]
#[schema(as = Machine)]
pub(crate) struct MachineView {
    /// The autoscaler's id of the instance; for a worker that it did not start, the worker's name.
    id: String,
    /// The provider; `joined`: an operator started the worker, and the autoscaler does not manage it.
    provider: String,
    /// The GPU model, or `CPU`.
    kind: String,
    /// The physical host, if the provider names it.
    host: String,
    state: MachineStateView,
    /// Since when it is in this state, RFC 3339.
    since: String,
    /// Since when it is paid for, RFC 3339.
    rented_at: String,
    /// The cost per hour in its current state; 0 for an owned machine.
    usd_micros_per_hour: u64,
    /// Whether the provider may interrupt it for a higher bid.
    is_interruptible: bool,
    /// The number of GPUs; 0 computes on the CPU.
    cards: u32,
    /// The memory class of the smallest GPU.
    vram_class_gib: u32,
    /// Its worker, once it has joined.
    worker_id: Option<String>,
    /// Attempts that it runs concurrently.
    slots: u32,
    /// Attempts that it is running now.
    running: u32,
    /// Since when it runs no attempt, RFC 3339; null while it does and before it is ready.
    idle_since: Option<String>,
    /// Loaded models, as `tenant/name@version`.
    loaded: Vec<String>,
    /// Endpoints that it has loaded since it was rented, as `tenant/name`: their files are on its disk.
    on_disk: Vec<String>,
}

/// The state of an instance.
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

/// List the instances
///
/// Instances serve every tenant, so this requires the operator scope `workers:read`.
#[utoipa::path(get, operation_id = "get_fleet", path = "/v1/fleet", tag = "workers",
    responses((status = 200, description = "Every instance and what it costs.", body = FleetView), crate::server::responses::Problems))]
pub(crate) async fn get(State(app): State<App>, _: Caller<WorkersRead>) -> Result<Json<FleetView>, Problem> {
    Ok(Json(look(&app).await?))
}

impl FleetView {
    /// Number of instances that run or start, and their total cost.
    pub(crate) fn totals(&self) -> (usize, u64) {
        let is_here = |machine: &&MachineView| {
            !matches!(machine.state, MachineStateView::Stopped | MachineStateView::Lost | MachineStateView::Ending)
        };
        (self.machines.iter().filter(is_here).count(), self.usd_micros_per_hour)
    }
}

/// Returns the current fleet.
pub(crate) async fn look(app: &App) -> Result<FleetView, database::Error> {
    let (workers, machines, drains, autoscaler) = tokio::try_join!(
        app.db.ask("list workers", app.db.registry.workers()),
        app.db.ask("list the instances", app.db.registry.machines()),
        app.fleets.drains(),
        app.db.ask("read the autoscaler's status", app.db.registry.autoscaler()),
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

/// An instance with the data that its worker reports.
fn told(worker: &WorkerRecord, machine: MachineView) -> MachineView {
    let models = || worker.status.models.iter();
    let ready = models().filter(|model| model.state != ModelState::Loading);
    let last_run_ms = models().filter_map(|model| model.succeeded_ms).max().unwrap_or(0);
    MachineView {
        kind: kind_of_gpus(&worker.gpus),
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
