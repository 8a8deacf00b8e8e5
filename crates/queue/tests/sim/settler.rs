//! The loop that settles blocked jobs, with the production decisions, as a replica runs it: it reads, and its decisions
//! are applied a moment later, when everything may have changed.

use std::collections::BTreeMap;

use serde_json::value::to_raw_value;
use stokehold_queue::job::{Job, JobResult, JobSpec, JobState, NewJob, StepRun, Timing};
use stokehold_queue::pipeline::{self, Blocked, Next, Outcome};
use stokehold_queue::queue::{Due, Settlement, Verdict as Fate};
use stokehold_queue::{JobId, Queue};

use crate::witness::Verdict;
use crate::world::{Event, World, now};

pub(crate) fn one<Q: Queue>(world: &mut World<Q>, replica: usize, life: u32, due: Due) {
    match due {
        Due::Ended(id) => {
            if !now(world.queue.unblock(id)).expect("memory unblocks") {
                world.after(1..50, Event::SettleOne(replica, life, due));
            }
        }
        Due::Ready(id) => {
            let Some(job) = read(world, id).filter(|job| job.state == JobState::Blocked) else {
                let gone =
                    Settlement { id, revision: "gone".into(), steps: vec![], verdict: Fate::Queue { input: None } };
                now(world.queue.settle(&gone)).expect("memory settles");
                return;
            };
            if let Some((steps, verdict)) = decide(world, &job) {
                let settlement = Settlement { id, revision: job.revision, steps, verdict };
                world.after(1..2_000, Event::Apply(replica, life, Box::new(settlement)));
            }
        }
    }
}

pub(crate) fn apply<Q: Queue>(world: &mut World<Q>, settlement: &Settlement) -> Verdict {
    if let Fate::Step { job, .. } = &settlement.verdict {
        world.witness.attempted(job.id);
    }
    let done = now(world.queue.settle(settlement)).expect("memory settles");
    let id = settlement.id;
    world.note(|| format!("   {id} settled: {done}"));
    world.look_at(id)
}

fn read<Q: Queue>(world: &World<Q>, id: JobId) -> Option<Job> {
    now(world.queue.get(id)).expect("memory reads")
}

fn decide<Q: Queue>(world: &mut World<Q>, job: &Job) -> Option<(Vec<StepRun>, Fate)> {
    let outcome = |id: JobId| read(world, id).map(|other| (id, came_to(&other)));
    let dependencies: BTreeMap<_, _> = job.spec.depends_on.iter().filter_map(|it| outcome(it.job)).collect();
    let step = job.steps.last().filter(|run| run.decision.is_none()).and_then(|run| outcome(run.job)).map(|(_, it)| it);
    let output = job.held.as_ref().map(value);
    let blocked = Blocked { job, input: serde_json::Value::Null, output, dependencies, step };
    let (mut steps, next) = pipeline::decide(&blocked);
    let raw = |value: &serde_json::Value| to_raw_value(value).expect("a value has a text");
    let fate = match next {
        Next::Wait => return None,
        Next::Fail(error) => Fate::Fail { error },
        Next::Queue(input) => Fate::Queue { input: input.as_ref().map(raw) },
        Next::Succeed(result) => Fate::Succeed { result: result.as_ref().map(raw) },
        Next::Step { index, input, asked } => {
            let (id, spec) = (world.new_id(), &job.spec.steps[index]);
            steps.push(StepRun::queued(id));
            let spec = JobSpec {
                tenant: job.spec.tenant.clone(),
                endpoint: spec.endpoint.clone(),
                version: 1,
                priority: job.spec.priority,
                timeout_ms: spec.timeout_ms,
                max_attempts: spec.max_attempts,
                deadline_ms: job.spec.deadline_ms,
                step_of: Some(job.id),
                ..JobSpec::default()
            };
            let job = NewJob {
                id,
                spec,
                input: raw(&asked),
                run_after_ms: 0,
                idempotency: None,
                archived: vec![],
                watcher: None,
            };
            Fate::Step { input: input.as_ref().map(raw), job: Box::new(job) }
        }
    };
    Some((steps, fate))
}

fn came_to(job: &Job) -> Outcome {
    let result = job.result.as_ref().map(value);
    Outcome { state: job.state, result, error: job.error.clone(), timing: Timing::default(), cost_usd_micros: None }
}

fn value(result: &JobResult) -> serde_json::Value {
    match result {
        JobResult::Inline(raw) => serde_json::from_str(raw.get()).expect("a result is JSON"),
        JobResult::Object { .. } => serde_json::Value::Null,
    }
}
