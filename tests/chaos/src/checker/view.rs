//! The history, sorted by subject, without any judgement.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::history::{Event, Kind};

/// Uses of a key: one submit of one or more jobs, repeated until its outcome was known.
#[derive(Default)]
pub(crate) struct Submit<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) jobs: u64,
    /// Each reply with ids.
    pub(crate) acks: Vec<(&'a Event, Vec<&'a str>)>,
    /// Start of each of its calls.
    pub(crate) begun: Vec<u64>,
}

/// One run of a handler, as the handler recorded it.
pub(crate) struct Run<'a> {
    pub(crate) job: &'a str,
    pub(crate) attempt: u32,
    pub(crate) tag: &'a str,
    pub(crate) start: u64,
    /// The end of the run; `None` if it was killed.
    pub(crate) end: Option<&'a Event>,
}

/// All events of a job.
#[derive(Default)]
pub(crate) struct Job<'a> {
    /// Replies with its state, in the order of their arrival.
    pub(crate) reads: Vec<&'a Event>,
    /// Time of the first acknowledged cancel.
    pub(crate) cancelled: Option<u64>,
    /// Whether a client requested a cancel.
    pub(crate) cancel_asked: bool,
    /// Its runs, by nonce.
    pub(crate) runs: Vec<&'a str>,
    pub(crate) hooks: Vec<&'a Event>,
    /// The queue's final record of it.
    pub(crate) last: Option<&'a Event>,
}

/// A closed attempt in the record.
#[derive(Debug, Clone)]
pub(crate) struct Attempt<'a> {
    pub(crate) attempt: u32,
    pub(crate) fence: &'a str,
    pub(crate) worker: &'a str,
    pub(crate) leased_ms: u64,
    pub(crate) queued_ms: u64,
    pub(crate) ended_ms: u64,
    pub(crate) outcome: &'a str,
}

/// A batch.
#[derive(Default)]
pub(crate) struct Batch<'a> {
    /// Each poll of the batch.
    pub(crate) polls: Vec<&'a Event>,
    pub(crate) hooks: Vec<&'a Event>,
    pub(crate) last: Option<&'a Event>,
}

/// The history, sorted by subject.
#[derive(Default)]
pub(crate) struct View<'a> {
    pub(crate) plan: Option<&'a Event>,
    pub(crate) submits: BTreeMap<&'a str, Submit<'a>>,
    pub(crate) batch_submits: BTreeMap<&'a str, Submit<'a>>,
    pub(crate) jobs: HashMap<&'a str, Job<'a>>,
    pub(crate) batches: BTreeMap<&'a str, Batch<'a>>,
    pub(crate) runs: HashMap<&'a str, Run<'a>>,
    /// Two runs with the same name, or an end without a start: the witness itself is broken.
    pub(crate) broken_runs: Vec<String>,
    /// Replies to submits: every event with `v.ms`.
    pub(crate) answers: Vec<&'a Event>,
    pub(crate) hooks: Vec<&'a Event>,
    pub(crate) faults: Vec<&'a Event>,
    /// All other events by their `f`.
    pub(crate) rest: BTreeMap<&'a str, Vec<&'a Event>>,
}

impl<'a> View<'a> {
    /// Sorts events that are in the order of their time.
    pub(crate) fn new(events: &'a [Event]) -> Self {
        let mut view = Self::default();
        events.iter().for_each(|event| view.take(event));
        view
    }

    fn take(&mut self, event: &'a Event) {
        match event.f.as_str() {
            "plan" => self.plan = Some(event),
            "submit" => submit(&mut self.submits, &mut self.answers, event),
            "batch_submit" => submit(&mut self.batch_submits, &mut self.answers, event),
            "poll" if event.kind == Kind::Ok => self.job(event).reads.push(event),
            "cancel" => {
                let job = self.job(event);
                job.cancel_asked = true;
                if event.kind == Kind::Ok && job.cancelled.is_none() {
                    job.cancelled = Some(event.t);
                }
            }
            "batch_poll" if event.kind == Kind::Ok => self.batch(event).polls.push(event),
            "run_start" => self.run_start(event),
            "run_end" => match self.runs.get_mut(event.text("run")) {
                Some(run) => run.end = Some(event),
                None => self.broken_runs.push(format!("the run {} ended and never began", event.text("run"))),
            },
            "hook_recv" => {
                self.hooks.push(event);
                let subject = event.text("subject");
                if subject.starts_with("batch_") {
                    self.batches.entry(subject).or_default().hooks.push(event);
                } else {
                    self.jobs.entry(subject).or_default().hooks.push(event);
                }
            }
            "fault" => self.faults.push(event),
            "final" => self.job(event).last = Some(event),
            "final_batch" => self.batch(event).last = Some(event),
            other => self.rest.entry(other).or_default().push(event),
        }
    }

    fn job(&mut self, event: &'a Event) -> &mut Job<'a> {
        self.jobs.entry(event.job.as_deref().unwrap_or_default()).or_default()
    }

    fn batch(&mut self, event: &'a Event) -> &mut Batch<'a> {
        self.batches.entry(event.key.as_deref().unwrap_or_default()).or_default()
    }

    fn run_start(&mut self, event: &'a Event) {
        let name = event.text("run");
        let job = event.job.as_deref().unwrap_or_default();
        let run =
            Run { job, attempt: event.attempt.unwrap_or_default(), tag: event.text("tag"), start: event.t, end: None };
        if self.runs.insert(name, run).is_some() {
            self.broken_runs.push(format!("two runs are named {name}"));
        }
        self.jobs.entry(job).or_default().runs.push(name);
    }

    /// Events of a kind without its own field.
    pub(crate) fn of(&self, f: &str) -> &[&'a Event] {
        self.rest.get(f).map_or(&[], Vec::as_slice)
    }

    /// A number of the plan.
    pub(crate) fn planned(&self, name: &str) -> u64 {
        self.plan.map_or(0, |plan| plan.number(name))
    }

    /// Every id in a reply to a submit.
    pub(crate) fn acknowledged(&self) -> impl Iterator<Item = (&'a str, &'a str)> + '_ {
        let acks = |(key, submit): (&&'a str, &Submit<'a>)| -> Vec<(&'a str, &'a str)> {
            submit.acks.iter().flat_map(|(_, ids)| ids.iter().map(|id| (*key, *id))).collect()
        };
        self.submits.iter().flat_map(acks)
    }

    /// Jobs that the queue held at the end, with their records.
    pub(crate) fn finals(&self) -> impl Iterator<Item = (&'a str, &Job<'a>, &'a Event)> {
        self.jobs.iter().filter_map(|(id, job)| Some((*id, job, job.last?)))
    }

    /// The lines of every batch: its id and the line's record.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (&'a str, &'a Value)> + '_ {
        let lines = |(id, batch): (&&'a str, &Batch<'a>)| -> Vec<(&'a str, &'a Value)> {
            let lines = batch.last.and_then(|last| last.v.get("lines")?.as_array());
            lines.into_iter().flatten().map(|line| (*id, line)).collect()
        };
        self.batches.iter().flat_map(lines)
    }
}

fn submit<'a>(submits: &mut BTreeMap<&'a str, Submit<'a>>, answers: &mut Vec<&'a Event>, event: &'a Event) {
    let submit = submits.entry(event.key.as_deref().unwrap_or_default()).or_default();
    match event.kind {
        Kind::Invoke => {
            submit.tenant = event.text("tenant");
            submit.jobs = event.number("jobs");
            submit.begun.push(event.t);
        }
        Kind::Ok => {
            submit.acks.push((event, texts(&event.v, "ids")));
            answers.push(event);
        }
        Kind::Fail | Kind::Info => answers.push(event),
    }
}

/// The attempts of a record, by number.
pub(crate) fn attempts(last: &Event) -> Vec<Attempt<'_>> {
    let listed = last.v.get("attempts").and_then(Value::as_array);
    let number = |value: &Value, name: &str| value[name].as_u64().unwrap_or_default();
    let mut attempts: Vec<Attempt<'_>> = listed
        .into_iter()
        .flatten()
        .map(|one| Attempt {
            attempt: u32::try_from(number(one, "attempt")).unwrap_or(u32::MAX),
            fence: one["fence"].as_str().unwrap_or_default(),
            worker: one["worker_id"].as_str().unwrap_or_default(),
            leased_ms: number(one, "leased_ms"),
            queued_ms: number(one, "queued_ms"),
            ended_ms: number(one, "ended_ms"),
            outcome: one["outcome"].as_str().unwrap_or_default(),
        })
        .collect();
    attempts.sort_by_key(|attempt| attempt.attempt);
    attempts
}

/// The texts of a list.
pub(crate) fn texts<'a>(v: &'a Value, name: &str) -> Vec<&'a str> {
    v.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether a state is final.
pub(crate) fn is_terminal(state: &str) -> bool {
    matches!(state, "succeeded" | "failed" | "cancelled" | "expired")
}

/// The counter of a fence.
pub(crate) fn counter(fence: &str) -> u64 {
    fence.split('.').next().and_then(|counter| counter.parse().ok()).unwrap_or_default()
}
