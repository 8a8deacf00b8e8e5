//! Invariants, checked against the calls to the queue and its replies. Their numbers are those of the reliability
//! notes: I1 nothing lost, I2 nothing from nowhere, I3 one end, I4 one commit, I5 a commit has its run, I6 one id for
//! one key, I7 bounded attempts, I8 no two valid leases, I9 no fence twice, I10 nothing after a cancel, I19 priority,
//! I20 no reader's view goes back, I24 drained in time.

use std::collections::{BTreeMap, BTreeSet};

use stokehold_queue::gateway::{ExtendAnswer, FinishAnswer, FinishOutcome, FinishReport, LeaseRef};
use stokehold_queue::job::{AttemptOutcome, Job, JobResult, JobState, Priority, Responsible};
use stokehold_queue::queue::{AGE_AFTER_MS, Lease};
use stokehold_queue::retry::{MAX_INFRA_ATTEMPTS, MAX_OOM_ATTEMPTS};
use stokehold_queue::{Fence, JobId};

/// A violated invariant.
#[derive(Debug, Clone)]
pub(crate) struct Broken {
    pub(crate) invariant: &'static str,
    pub(crate) job: Option<JobId>,
    pub(crate) what: String,
}

pub(crate) type Verdict = Result<(), Broken>;

/// A lease that was given and, according to all replies, has neither ended nor been reaped.
struct Grant {
    fence: Fence,
    valid_until_ms: u64,
}

#[derive(Default)]
struct Story {
    accepted: bool,
    cancelled: bool,
    last: Option<Seen>,
    grant: Option<Grant>,
    fences: BTreeSet<String>,
    refused_counter: u64,
    commits: Vec<Fence>,
    /// Fences of runs that produced a result.
    ran: BTreeSet<String>,
    waiting_since_ms: Option<u64>,
}

/// The last view that a reader got of a job.
#[derive(Clone, PartialEq)]
struct Seen {
    state: JobState,
    attempts: usize,
    ended_ms: Option<u64>,
    result: Option<String>,
    error: Option<String>,
}

pub(crate) struct Witness {
    lease_ms: u64,
    stories: BTreeMap<JobId, Story>,
    keys: BTreeMap<(String, String), JobId>,
}

fn broken(invariant: &'static str, job: JobId, what: impl Into<String>) -> Verdict {
    Err(Broken { invariant, job: Some(job), what: what.into() })
}

fn holds(invariant: &'static str, job: JobId, holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { broken(invariant, job, what()) }
}

impl Witness {
    pub(crate) fn new(lease_ms: u64) -> Self {
        Self { lease_ms, stories: BTreeMap::new(), keys: BTreeMap::new() }
    }

    /// Records that a submit with this id is in flight.
    pub(crate) fn attempted(&mut self, id: JobId) {
        self.stories.entry(id).or_default();
    }

    /// Records that a client was notified of its job's acceptance.
    pub(crate) fn accepted(&mut self, id: JobId) -> Verdict {
        let Some(story) = self.stories.get_mut(&id) else {
            return broken("I2", id, "accepted, and nobody asked for it");
        };
        story.accepted = true;
        Ok(())
    }

    /// Records that the queue accepted a submit, whether or not the client gets the reply.
    pub(crate) fn submitted(&mut self, id: JobId, key: Option<(String, String)>) -> Verdict {
        let first = key.map_or(id, |key| *self.keys.entry(key).or_insert(id));
        holds("I6", id, first == id, || format!("one key gave {first} and {id}"))
    }

    /// Records that a client was notified of its job's cancellation.
    pub(crate) fn cancelled(&mut self, id: JobId) {
        self.stories.entry(id).or_default().cancelled = true;
    }

    /// Records that a run produced a result.
    pub(crate) fn ran(&mut self, lease: &LeaseRef) {
        self.stories.entry(lease.job_id).or_default().ran.insert(lease.fence.0.clone());
    }

    /// Records that the queue gave a lease.
    pub(crate) fn leased(&mut self, lease: &Lease, now_ms: u64) -> Verdict {
        let id = lease.job_id;
        let until = now_ms + self.lease_ms;
        let Some(story) = self.stories.get_mut(&id) else { return broken("I2", id, "leased, and nobody asked for it") };
        holds("I10", id, !story.cancelled, || "leased after its cancel was acknowledged".into())?;
        if let Some(grant) = &story.grant {
            let over = grant.valid_until_ms <= now_ms;
            holds("I8", id, over, || format!("leased as {} while {} is valid", lease.fence, grant.fence))?;
        }
        let last = story.fences.iter().map(|fence| Fence(fence.clone()).counter()).max().unwrap_or(0);
        let new = story.fences.insert(lease.fence.0.clone()) && lease.fence.counter() > last;
        holds("I9", id, new, || format!("fence {} after one numbered {last}", lease.fence))?;
        story.grant = Some(Grant { fence: lease.fence.clone(), valid_until_ms: until });
        story.waiting_since_ms = None;
        let late = [lease.spec.start_by_ms.filter(|_| lease.attempt == 1), lease.spec.deadline_ms];
        holds("P3", id, late.into_iter().flatten().all(|due| now_ms < due), || "leased after its time was over".into())
    }

    /// Checks that no started job is less urgent than a waiting one within the same worker's capability (I19).
    /// `waiting` are the queued jobs that no limit can hold back.
    pub(crate) fn in_order(&self, leases: &[Lease], waiting: &[Job], reach_gib: u32, now_ms: u64) -> Verdict {
        let Some(least) =
            leases.iter().filter(|lease| !self.is_aged(lease, now_ms)).max_by_key(|lease| lease.spec.priority)
        else {
            return Ok(());
        };
        for job in waiting {
            let since = self.stories.get(&job.id).and_then(|story| story.waiting_since_ms).unwrap_or(now_ms);
            let passed = job.spec.priority < least.spec.priority
                && job.spec.vram_class_gib <= reach_gib
                && now_ms > since + 1_000;
            holds("I19", job.id, !passed, || {
                format!(
                    "waits as {:?} since {since} while {} starts as {:?}",
                    job.spec.priority, least.job_id, least.spec.priority
                )
            })?;
        }
        Ok(())
    }

    fn is_aged(&self, lease: &Lease, now_ms: u64) -> bool {
        let queued_ms = lease.spec.metadata.get("queued_ms").and_then(|ms| ms.parse::<u64>().ok());
        lease.spec.priority == Priority::Interactive || queued_ms.is_none_or(|since| now_ms >= since + AGE_AFTER_MS)
    }

    pub(crate) fn extended(&mut self, lease: &LeaseRef, answer: ExtendAnswer, now_ms: u64) -> Verdict {
        let (id, until) = (lease.job_id, now_ms + self.lease_ms);
        let grant =
            self.stories.get_mut(&id).and_then(|story| story.grant.as_mut()).filter(|grant| grant.fence == lease.fence);
        match (answer, grant) {
            (ExtendAnswer::Held, Some(grant)) => {
                grant.valid_until_ms = until;
                Ok(())
            }
            (ExtendAnswer::Held, None) => broken("I8", id, format!("{} is said to be held, and is not", lease.fence)),
            (ExtendAnswer::Lost, Some(grant)) => holds("I8", id, grant.valid_until_ms <= now_ms, || {
                format!("{} is said to be lost, and is valid", lease.fence)
            }),
            (ExtendAnswer::Lost, None) => Ok(()),
        }
    }

    pub(crate) fn finished(&mut self, report: &FinishReport, answer: FinishAnswer, now_ms: u64) -> Verdict {
        let id = report.job_id;
        let Some(story) = self.stories.get_mut(&id) else {
            return broken("I2", id, "finished, and nobody asked for it");
        };
        let current = story.grant.as_ref().is_some_and(|grant| grant.fence == report.fence);
        match answer {
            FinishAnswer::Ok => {
                holds("I4", id, current, || format!("{} ended an attempt that was not its own", report.fence))?;
                story.grant = None;
                if !matches!(report.outcome, FinishOutcome::Failed { .. }) {
                    story.commits.push(report.fence.clone());
                    holds("I5", id, story.ran.contains(&report.fence.0), || {
                        format!("{} commits without a run", report.fence)
                    })?;
                    holds("I4", id, report.fence.counter() >= story.refused_counter, || {
                        "committed under an old fence".into()
                    })?;
                }
                Ok(())
            }
            FinishAnswer::StaleFence | FinishAnswer::AlreadyEnded => {
                if !story.commits.contains(&report.fence) {
                    story.refused_counter = story.refused_counter.max(report.fence.counter());
                }
                let valid = current && story.grant.as_ref().is_some_and(|grant| grant.valid_until_ms > now_ms);
                holds("I8", id, !valid || story.cancelled, || format!("{} is valid and refused", report.fence))
            }
            FinishAnswer::NotFound => broken("I1", id, "finished, and it is not known any more"),
        }
    }

    pub(crate) fn released(&mut self, lease: &LeaseRef, answer: FinishAnswer) -> Verdict {
        let Some(story) = self.stories.get_mut(&lease.job_id) else { return Ok(()) };
        let current = story.grant.as_ref().is_some_and(|grant| grant.fence == lease.fence);
        if answer == FinishAnswer::Ok {
            story.grant = None;
            return holds("I8", lease.job_id, current, || format!("{} gave back what was not its own", lease.fence));
        }
        Ok(())
    }

    /// Checks a job's current view against every invariant that holds for one job at any time.
    pub(crate) fn sees(&mut self, job: &Job, now_ms: u64) -> Verdict {
        let id = job.id;
        let Some(story) = self.stories.get_mut(&id) else {
            return broken("I2", id, "is there, and nobody asked for it");
        };
        let seen = Seen {
            state: job.state,
            attempts: job.attempts.len(),
            ended_ms: job.ended_ms,
            result: job.result.as_ref().map(|result| format!("{result:?}")),
            error: job.error.as_ref().map(|error| error.message.clone()),
        };
        if let Some(last) = &story.last {
            let same = !last.state.is_terminal() || *last == seen;
            holds("I3", id, same, || format!("was {} and is {}", last.state.as_str(), job.state.as_str()))?;
            holds("I20", id, seen.attempts >= last.attempts, || "has fewer attempts than before".into())?;
        }
        story.last = Some(seen);
        let sane = job.ended_ms.is_some() == job.state.is_terminal()
            && job.result.is_some() == (job.state == JobState::Succeeded)
            && job.error.is_some() == matches!(job.state, JobState::Failed | JobState::Expired);
        holds("I3", id, sane, || format!("is {} with the parts of another state", job.state.as_str()))?;
        let only_cancelled = !story.cancelled || job.state == JobState::Cancelled;
        holds("I10", id, only_cancelled, || format!("is {} after its cancel was acknowledged", job.state.as_str()))?;
        if let Some(grant) = &story.grant {
            let running =
                job.state == JobState::Running && job.attempts.last().is_some_and(|last| last.fence == grant.fence);
            let ended = matches!(job.state, JobState::Cancelled | JobState::Expired);
            let explained = running || ended || grant.valid_until_ms <= now_ms;
            holds("I8", id, explained, || format!("{} was taken away while it was valid", grant.fence))?;
            if !running {
                story.grant = None;
            }
        } else {
            let running = job.state == JobState::Running;
            holds("I8", id, !running, || "runs, and nobody has a lease".into())?;
        }
        if job.state == JobState::Queued {
            story.waiting_since_ms.get_or_insert(now_ms);
        } else {
            story.waiting_since_ms = None;
        }
        if let (JobState::Succeeded, Some(JobResult::Inline(result))) = (job.state, &job.result) {
            let of = story.commits.last().map(|fence| format!("\"{fence}\""));
            let own = of.as_deref() == Some(result.get()) || job.spec.step_of.is_some();
            holds("I5", id, own && story.commits.len() == 1, || {
                format!("{result} was committed {} times", story.commits.len())
            })?;
        }
        is_bounded(job)
    }

    /// Checks the invariants after the faults have ended and the drain time has passed.
    pub(crate) fn at_rest(&self, drained: bool) -> Verdict {
        for (id, story) in &self.stories {
            let ended = story.last.as_ref().is_some_and(|last| last.state.is_terminal());
            let invariant = if story.last.is_none() { "I1" } else { "I24" };
            holds(invariant, *id, !story.accepted || ended, || match &story.last {
                None => "was accepted and is not there".into(),
                Some(last) => format!("is {} long after everything healed", last.state.as_str()),
            })?;
            holds("I24", *id, story.last.is_none() || ended, || {
                "was never accepted, is there, and does not end".into()
            })?;
        }
        if drained {
            Ok(())
        } else {
            Err(Broken {
                invariant: "I8",
                job: None,
                what: "all ended, and the lanes or the counters are not empty".into(),
            })
        }
    }

    pub(crate) fn jobs(&self) -> Vec<JobId> {
        self.stories.keys().copied().collect()
    }

    pub(crate) fn all_ended(&self) -> bool {
        self.stories.values().all(|story| story.last.as_ref().is_none_or(|last| last.state.is_terminal()))
    }
}

/// P5: bounds of failures by the job's fault, by the system's fault, and for want of memory.
fn is_bounded(job: &Job) -> Verdict {
    let (mut own, mut lost, mut oom) = (0, 0, 0);
    for attempt in &job.attempts {
        let fault = attempt.error.as_ref().map(|error| error.code.fault());
        match (attempt.outcome, fault) {
            (AttemptOutcome::Failed, Some(Responsible::Model | Responsible::Crash | Responsible::Final)) => own += 1,
            (AttemptOutcome::Failed, Some(Responsible::Infra)) | (AttemptOutcome::Lost, _) => lost += 1,
            (AttemptOutcome::Failed, Some(Responsible::Oom)) => oom += 1,
            _ => {}
        }
    }
    // The requested number is in a label, which nothing in the queue reads.
    let most =
        job.spec.metadata.get("max_attempts").and_then(|most| most.parse().ok()).unwrap_or(job.spec.max_attempts);
    let bounded = own <= most && lost <= MAX_INFRA_ATTEMPTS && oom <= MAX_OOM_ATTEMPTS;
    holds("I7", job.id, bounded, || format!("{own} own failures of {most}, {lost} lost, {oom} without memory"))
}
