//! Clients, which submit, read and cancel jobs, and the replica's handling of their requests.

use std::fmt;

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::value::RawValue;
use stokehold_queue::job::{
    Concurrency, Dependency, DependencyOn, Idempotency, JobSpec, NewJob, Priority, RetryPolicy, Stage, StepSpec,
};
use stokehold_queue::queue::{CancelAnswer, LimitScope, Limits, Submitted};
use stokehold_queue::{Error, JobId, Queue};

use crate::network::{Answer, Call, Op, Party};
use crate::witness::{Broken, Verdict};
use crate::world::{Event, TENANTS, World, now};

/// Number of jobs with the same concurrency key that may run at once.
pub(crate) const KEY_MAX: u32 = 2;

/// Timeout of a client for a reply.
const PATIENCE_MS: u64 = 5_000;

#[derive(Debug, Clone)]
pub(crate) enum Ask {
    Submit(Box<NewJob>),
    Cancel { tenant: &'static str, id: JobId, own: bool },
    Get(JobId),
}

impl Ask {
    /// Whether a request may be sent twice. A submit without a key is a new job each time.
    pub(crate) fn may_be_repeated(&self) -> bool {
        !matches!(self, Self::Submit(job) if job.idempotency.is_none())
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Submit(job) => {
                let key = job.idempotency.as_ref().map_or("no key", |it| it.key.as_str());
                write!(f, "submit for {} as {:?}, {key}", job.spec.tenant, job.spec.priority)
            }
            Self::Cancel { id, .. } => write!(f, "cancel {id}"),
            Self::Get(id) => write!(f, "get {id}"),
        }
    }
}

/// A client with one request at a time: it sends a request, waits for the reply, and sends the next.
pub(crate) struct Client {
    pub(crate) tenant: &'static str,
    pub(crate) limited: bool,
    left: usize,
    keys: u32,
    jobs: Vec<JobId>,
    /// The call in progress, and its request.
    waits: Option<(u64, Ask)>,
}

impl Client {
    /// Whether nothing is left to submit and no outcome is unknown.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0 && !matches!(self.waits, Some((_, Ask::Submit(_))))
    }
}

pub(crate) fn all(jobs: usize, rng: &mut StdRng) -> Vec<Client> {
    let client = |tenant| Client {
        tenant,
        limited: rng.random_bool(0.3),
        left: jobs / TENANTS.len(),
        keys: 0,
        jobs: vec![],
        waits: None,
    };
    TENANTS.map(client).into()
}

/// Sets limits for some tenants during the faulty phase.
pub(crate) fn set_limits<Q: Queue>(world: &mut World<Q>) {
    for n in 0..world.clients.len() {
        let Client { tenant, limited, .. } = world.clients[n];
        if limited {
            let limits = Limits {
                weight: Some(world.rng.random_range(0.5..3.0)),
                max_running: world.rng.random_bool(0.5).then(|| world.rng.random_range(1..4)),
                max_open: world.rng.random_bool(0.3).then(|| world.rng.random_range(5..30)),
                starts_per_minute: world.rng.random_bool(0.3).then(|| world.rng.random_range(10..120)),
                max_memory_bytes: None,
                budget: None,
            };
            now(world.queue.limit(&LimitScope::Tenant(tenant.into()), Some(&limits))).expect("memory limits");
        }
    }
}

pub(crate) fn lift_limits<Q: Queue>(world: &mut World<Q>) {
    for tenant in TENANTS {
        now(world.queue.limit(&LimitScope::Tenant(tenant.into()), None)).expect("memory limits");
    }
    world.clients.iter_mut().for_each(|client| client.limited = false);
}

/// Takes the client's turn: sends its next request.
pub(crate) fn act<Q: Queue>(world: &mut World<Q>, n: usize) {
    world.after(20..4_000, Event::Client(n));
    if world.clients[n].waits.is_some() {
        return;
    }
    let choice = world.rng.random_range(0..10);
    let known = world.clients[n].jobs.len();
    let ask = match choice {
        0..=5 if world.clients[n].left > 0 => {
            world.clients[n].left -= 1;
            Ask::Submit(Box::new(wanted(world, n)))
        }
        6 if known > 0 && !world.healed => {
            // Sometimes the job of another tenant, which must not be visible.
            let whose = if world.rng.random_bool(0.2) { (n + 1) % TENANTS.len() } else { n };
            let Some(id) = pick(world, whose) else { return };
            Ask::Cancel { tenant: world.clients[n].tenant, id, own: whose == n }
        }
        7..=9 => match pick(world, n) {
            Some(id) => Ask::Get(id),
            None => return,
        },
        _ => return,
    };
    send(world, n, ask);
}

fn send<Q: Queue>(world: &mut World<Q>, n: usize, ask: Ask) {
    let number = world.send(Party::Client(n), Op::Ask(ask.clone()), PATIENCE_MS);
    world.clients[n].waits = Some((number, ask));
}

fn pick<Q: Queue>(world: &mut World<Q>, n: usize) -> Option<JobId> {
    let known = world.clients[n].jobs.len();
    (known > 0).then(|| world.clients[n].jobs[world.rng.random_range(0..known)])
}

/// A job in one of its many shapes. The replica assigns its id.
fn wanted<Q: Queue>(world: &mut World<Q>, n: usize) -> NewJob {
    let (now_ms, tenant) = (world.now_ms(), world.clients[n].tenant);
    let dependency = pick(world, n);
    let rng = &mut world.rng;
    let mut within = |odds: f64, ms: std::ops::Range<u64>| rng.random_bool(odds).then(|| now_ms + rng.random_range(ms));
    let (run_after, start_by, deadline) =
        (within(0.15, 100..20_000), within(0.1, 1_000..40_000), within(0.1, 5_000..120_000));
    let max_attempts = rng.random_range(1..4);
    let key = rng.random_bool(0.25).then(|| Concurrency { key: format!("k{}", rng.random_range(0..2)), max: KEY_MAX });
    let depends_on = dependency.filter(|_| rng.random_bool(0.15)).map(|job| {
        let on = if rng.random_bool(0.5) { DependencyOn::Success } else { DependencyOn::Completion };
        Dependency { job, on }
    });
    let stages = [Stage::Before, Stage::After].map(|stage| (stage, rng.random_bool(0.06)));
    let steps = stages.into_iter().filter(|(_, there)| *there).map(|(stage, _)| step(stage)).collect();
    let spec = JobSpec {
        tenant: tenant.into(),
        endpoint: ["a", "b"][rng.random_range(0..2)].into(),
        version: 1,
        priority: Priority::ALL[rng.random_range(0..3)],
        vram_class_gib: [0, 8, 24][rng.random_range(0..3)],
        timeout_ms: 60_000,
        max_attempts,
        metadata: [("max_attempts".to_owned(), max_attempts.to_string())].into(),
        start_by_ms: start_by,
        deadline_ms: deadline,
        concurrency: key,
        depends_on: depends_on.into_iter().collect(),
        steps,
        retry: RetryPolicy { backoff_max_ms: 20_000, ..RetryPolicy::default() },
        ..JobSpec::default()
    };
    let keyed = rng.random_bool(0.7);
    let client = &mut world.clients[n];
    client.keys += 1;
    let idempotency = keyed.then(|| Idempotency::new(format!("{tenant}-{}", client.keys), "same"));
    let id = world.new_id();
    NewJob {
        id,
        spec,
        input: RawValue::NULL.to_owned(),
        run_after_ms: run_after.unwrap_or(0),
        idempotency,
        archived: vec![],
        watcher: None,
    }
}

fn step(stage: Stage) -> StepSpec {
    StepSpec {
        name: "guard".into(),
        stage,
        endpoint: "guard".into(),
        version: 1,
        vram_class_gib: 0,
        demands: 0,
        thresholds: [].into(),
        timeout_ms: 10_000,
        max_attempts: 3,
    }
}

/// Does what a replica does to a request before it reaches the queue: a submit that arrives twice arrives as two jobs.
pub(crate) fn prepare<Q: Queue>(world: &mut World<Q>, call: &mut Call) {
    if let Op::Ask(Ask::Submit(_)) = &call.op {
        let (id, now_ms) = (world.new_id(), world.now_ms());
        if let Op::Ask(Ask::Submit(job)) = &mut call.op {
            job.id = id;
            job.spec.metadata.insert("queued_ms".into(), now_ms.to_string());
            world.witness.attempted(id);
        }
    }
}

pub(crate) fn carry_out<Q: Queue>(world: &mut World<Q>, ask: &Ask) -> Result<Answer, Broken> {
    match ask {
        Ask::Submit(job) => match now(world.queue.submit(vec![(**job).clone()])) {
            Ok(submitted) => {
                let key = job.idempotency.as_ref().map(|it| (job.spec.tenant.clone(), it.key.clone()));
                world.witness.submitted(submitted[0].id(), key)?;
                world.look_at(submitted[0].id())?;
                Ok(Answer::Submitted(submitted[0]))
            }
            Err(Error::Quota { .. } | Error::NoDependency { .. }) => Ok(Answer::Refused),
            Err(other) => Err(Broken { invariant: "I6", job: Some(job.id), what: other.to_string() }),
        },
        Ask::Cancel { tenant, id, own } => {
            let answer = now(world.queue.cancel(tenant, &[*id])).expect("memory cancels")[0];
            if *own == (answer == CancelAnswer::NotFound) {
                return Err(Broken {
                    invariant: "I15",
                    job: Some(*id),
                    what: format!("{tenant} cancels it: {answer:?}"),
                });
            }
            if answer == CancelAnswer::Cancelled {
                world.witness.cancelled(*id);
            }
            world.look_at(*id)?;
            Ok(Answer::Cancelled)
        }
        Ask::Get(id) => {
            world.look_at(*id)?;
            let job = now(world.queue.get(*id)).expect("memory reads");
            Ok(Answer::Seen(job.map(Box::new)))
        }
    }
}

pub(crate) fn hears<Q: Queue>(world: &mut World<Q>, n: usize, number: u64, answer: Answer) -> Verdict {
    if world.clients[n].waits.as_ref().is_none_or(|(waits, _)| *waits != number) {
        return Ok(());
    }
    let Some((_, ask)) = world.clients[n].waits.take() else { return Ok(()) };
    match (answer, ask) {
        (Answer::Submitted(Submitted::New(id) | Submitted::Repeat(id)), Ask::Submit(_)) => {
            world.clients[n].jobs.push(id);
            world.witness.accepted(id)
        }
        // The outcome is unknown: a submit with a key is repeated safely; one without a key is not repeated.
        (Answer::Unknown, Ask::Submit(job)) if job.idempotency.is_some() => {
            send(world, n, Ask::Submit(job));
            Ok(())
        }
        (Answer::Seen(None), Ask::Get(id)) => {
            Err(Broken { invariant: "I1", job: Some(id), what: "was accepted and is not there".into() })
        }
        _ => Ok(()),
    }
}
