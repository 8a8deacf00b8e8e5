//! Decides on jobs that waited for other jobs, from the outcomes of those. Pure: the caller reads the data and applies
//! the decision.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::id::JobId;
use crate::job::{
    AttemptOutcome, Decision, DependencyOn, ErrorCode, Job, JobError, JobState, Stage, StepRun, StepSpec, Timing,
};

/// The member of an input that references another job's result: `{"$job": "<id>", "pointer": "/a/b"}`.
pub const REFERENCE: &str = "$job";

/// The outcome of a job that another one waits for.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The state of the job.
    pub state: JobState,
    /// Result of the job, if it succeeded and the result was requested.
    pub result: Option<Value>,
    /// Error of the job.
    pub error: Option<JobError>,
    /// Durations of the parts of its last attempt.
    pub timing: Timing,
    /// Total cost of its attempts, as far as known.
    pub cost_usd_micros: Option<u64>,
}

/// The next action for a blocked job.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Wait: a job that it depends on has not ended.
    Wait,
    /// Queue the job, with this input if it changed.
    Queue(Option<Value>),
    /// Run this step.
    Step {
        /// Index in [`crate::job::JobSpec::steps`].
        index: usize,
        /// The job's own input, if it changed.
        input: Option<Value>,
        /// The step's input.
        asked: Value,
    },
    /// End the job as succeeded, with this result if it changed.
    Succeed(Option<Value>),
    /// End the job as failed.
    Fail(JobError),
}

/// Everything that the decision on a blocked job depends on.
#[derive(Debug)]
pub struct Blocked<'a> {
    /// The job.
    pub job: &'a Job,
    /// Current input of the job.
    pub input: Value,
    /// Result of the job, if it has run and steps must allow the result.
    pub output: Option<Value>,
    /// The outcomes of its dependencies; those that no longer exist are missing.
    pub dependencies: BTreeMap<JobId, Outcome>,
    /// The outcome of the job of its last step.
    pub step: Option<Outcome>,
}

/// Whether `job` has run and waits for its steps to allow the result.
#[must_use]
pub fn has_run(job: &Job) -> bool {
    job.state == JobState::Blocked && job.attempts.last().is_some_and(|last| last.outcome == AttemptOutcome::Succeeded)
}

/// Whether `job` has not been settled yet, so that its input still contains references.
#[must_use]
pub fn is_untouched(job: &Job) -> bool {
    job.revision.ends_with("#0")
}

/// The jobs that `value` refers to, once per reference.
#[must_use]
pub fn references(value: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    collect(value, &mut found);
    found
}

fn collect<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => match members.get(REFERENCE) {
            Some(Value::String(id)) => found.push(id),
            _ => members.values().for_each(|value| collect(value, found)),
        },
        Value::Array(items) => items.iter().for_each(|value| collect(value, found)),
        _ => {}
    }
}

/// Decides on a blocked job. The returned steps replace the job's steps, whatever the action is.
#[must_use]
pub fn decide(blocked: &Blocked<'_>) -> (Vec<StepRun>, Next) {
    let mut steps = blocked.job.steps.clone();
    let next = settle(blocked, &mut steps).unwrap_or_else(Next::Fail);
    (steps, next)
}

fn settle(blocked: &Blocked<'_>, steps: &mut [StepRun]) -> Result<Next, JobError> {
    let job = blocked.job;
    let mut input = None;
    if is_untouched(job) && !has_run(job) {
        if !dependencies_are_met(blocked)? {
            return Ok(Next::Wait);
        }
        input = resolved(blocked)?;
    }
    let mut output = None;
    let number = steps.len();
    if let Some(run) = steps.last_mut()
        && run.decision.is_none()
    {
        let spec = job.spec.steps.get(number - 1).ok_or_else(|| broken("has a step that its spec does not list"))?;
        let Some(ended) = blocked.step.as_ref().filter(|outcome| outcome.state.is_terminal()) else {
            return Ok(Next::Wait);
        };
        let rewritten = judge(spec, ended, run)?;
        match spec.stage {
            Stage::Before => input = rewritten.or(input),
            Stage::After => output = rewritten,
        }
    }
    let stage = if has_run(job) { Stage::After } else { Stage::Before };
    match job.spec.steps.get(number).filter(|spec| spec.stage == stage) {
        Some(spec) => {
            let seen = input.as_ref().unwrap_or(&blocked.input);
            let mut asked = json!({"endpoint": job.spec.endpoint, "input": seen, "thresholds": spec.thresholds});
            if stage == Stage::After {
                asked["output"] = output.as_ref().or(blocked.output.as_ref()).cloned().unwrap_or(Value::Null);
            }
            Ok(Next::Step { index: number, input, asked })
        }
        None if stage == Stage::After => Ok(Next::Succeed(output)),
        None => Ok(Next::Queue(input)),
    }
}

/// Whether all dependencies have ended as required; `false` if one has not ended. An outcome that is not accepted fails
/// the job.
fn dependencies_are_met(blocked: &Blocked<'_>) -> Result<bool, JobError> {
    let mut met = true;
    for dependency in &blocked.job.spec.depends_on {
        let outcome = blocked
            .dependencies
            .get(&dependency.job)
            .ok_or_else(|| failed(format!("job {}, which this job waits for, is no longer stored", dependency.job)))?;
        if !outcome.state.is_terminal() {
            met = false;
        } else if dependency.on == DependencyOn::Success && outcome.state != JobState::Succeeded {
            let why = outcome.error.as_ref().map_or(String::new(), |error| format!(": {}", error.message));
            let state = outcome.state.as_str();
            return Err(failed(format!("job {}, which this job waits for, is {state}{why}", dependency.job)));
        }
    }
    Ok(met)
}

/// The input with every reference replaced; `None` if there are none. In a job without dependencies, a member that
/// looks like a reference is data, e.g. in a retried job whose references were already replaced.
fn resolved(blocked: &Blocked<'_>) -> Result<Option<Value>, JobError> {
    if blocked.job.spec.depends_on.is_empty() || references(&blocked.input).is_empty() {
        return Ok(None);
    }
    let mut input = blocked.input.clone();
    replace(&mut input, &blocked.dependencies)?;
    Ok(Some(input))
}

fn replace(value: &mut Value, outcomes: &BTreeMap<JobId, Outcome>) -> Result<(), JobError> {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(id)) = members.get(REFERENCE) {
                let pointer = members.get("pointer").and_then(Value::as_str).unwrap_or("");
                let result = id.parse().ok().and_then(|id: JobId| outcomes.get(&id)?.result.as_ref());
                let Some(result) = result else {
                    return Err(failed(format!("job {id} has no result for the input's reference")));
                };
                let Some(part) = result.pointer(pointer) else {
                    return Err(failed(format!("the result of job {id} has no value at {pointer:?}")));
                };
                // The replacement is data: references in it are not resolved.
                *value = part.clone();
                return Ok(());
            }
            members.values_mut().try_for_each(|value| replace(value, outcomes))
        }
        Value::Array(items) => items.iter_mut().try_for_each(|value| replace(value, outcomes)),
        _ => Ok(()),
    }
}

/// The result of a step's handler.
#[derive(Deserialize)]
struct Answer {
    decision: Option<Decision>,
    reason: Option<String>,
    #[serde(default)]
    scores: BTreeMap<String, f64>,
    value: Option<Value>,
}

/// Records a step's decision. Returns the value that replaces the step's subject, if any.
fn judge(spec: &StepSpec, ended: &Outcome, run: &mut StepRun) -> Result<Option<Value>, JobError> {
    run.state = ended.state;
    run.timing = ended.timing;
    run.cost_usd_micros = ended.cost_usd_micros;
    let name = &spec.name;
    let reject = |run: &mut StepRun, reason: String| {
        run.decision = Some(Decision::Reject);
        run.reason = Some(reason.clone());
        Err(JobError { class: name.clone(), ..JobError::new(ErrorCode::Rejected, reason) })
    };
    if let Some(error) = ended.error.as_ref().filter(|error| error.code == ErrorCode::Rejected) {
        return reject(run, error.message.clone());
    }
    if ended.state != JobState::Succeeded {
        let why = ended.error.as_ref().map_or(ended.state.as_str(), |error| error.message.as_str());
        return Err(failed(format!("step {name:?} did not succeed: {why}")));
    }
    let answer = ended.result.clone().unwrap_or_default();
    let Ok(Answer { decision, reason, scores, value }) = serde_json::from_value(answer) else {
        return Err(failed(format!(
            "step {name:?} returned something other than a decision: {{\"decision\": \"allow\" | \"reject\" | \
                \"rewrite\", \"reason\", \"scores\", \"value\"}}"
        )));
    };
    run.scores = scores;
    let over = run.scores.iter().find(|(label, score)| spec.thresholds.get(*label).is_some_and(|most| *score > most));
    let over =
        over.map(|(label, score)| format!("{label} is {score:.2}, over the threshold of {}", spec.thresholds[label]));
    match decision {
        None if run.scores.is_empty() => Err(failed(format!("step {name:?} returned neither a decision nor scores"))),
        Some(Decision::Reject) => reject(run, reason.or(over).unwrap_or_else(|| "rejected".to_owned())),
        None | Some(Decision::Allow) => match over {
            // A step with an explicit decision has already considered its scores.
            Some(over) if decision.is_none() => reject(run, over),
            _ => {
                run.decision = Some(Decision::Allow);
                Ok(None)
            }
        },
        Some(Decision::Rewrite) => {
            run.decision = Some(Decision::Rewrite);
            match value {
                Some(value) => Ok(Some(value)),
                None => Err(failed(format!("step {name:?} decided to rewrite but returned no value"))),
            }
        }
    }
}

fn failed(message: String) -> JobError {
    JobError::new(ErrorCode::DependencyFailed, message)
}

fn broken(what: &str) -> JobError {
    JobError::new(ErrorCode::Infra, format!("the job's record {what}"))
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::id::Fence;
    use crate::job::{Attempt, Dependency, JobSpec};

    fn step(stage: Stage) -> StepSpec {
        StepSpec {
            name: "check".into(),
            stage,
            endpoint: "check".into(),
            version: 1,
            vram_class_gib: 0,
            demands: 0,
            thresholds: BTreeMap::from([("violence".into(), 0.5)]),
            timeout_ms: 1_000,
            max_attempts: 3,
        }
    }

    fn blocked_job(steps: Vec<StepSpec>, depends_on: Vec<Dependency>) -> Job {
        Job {
            id: JobId::new(0),
            spec: JobSpec { endpoint: "render".into(), steps, depends_on, ..JobSpec::default() },
            input: RawValue::from_string("null".into()).unwrap(),
            state: JobState::Blocked,
            attempts: vec![],
            result: None,
            held: None,
            error: None,
            progress: None,
            oom_events: 0,
            run_after_ms: None,
            ended_ms: None,
            steps: vec![],
            revision: "#0".into(),
        }
    }

    fn ended(result: Value) -> Outcome {
        Outcome {
            state: JobState::Succeeded,
            result: Some(result),
            error: None,
            timing: Timing::default(),
            cost_usd_micros: None,
        }
    }

    fn failed_with(code: ErrorCode) -> Outcome {
        let error = Some(JobError::new(code, "no"));
        Outcome { state: JobState::Failed, result: None, error, timing: Timing::default(), cost_usd_micros: None }
    }

    fn on(job: &Job, input: Value, dependencies: &[(JobId, Outcome)], step: Option<Outcome>) -> (Vec<StepRun>, Next) {
        let dependencies = dependencies.iter().cloned().collect();
        decide(&Blocked { job, input, output: Some(json!("out")), dependencies, step })
    }

    /// The same job after its first step has started.
    fn stepped(mut job: Job) -> Job {
        job.steps.push(StepRun::queued(JobId::new(0)));
        job.revision = "#1".into();
        job
    }

    fn after_it_ran(mut job: Job) -> Job {
        job.attempts.push(Attempt {
            attempt: 1,
            worker_id: "w".into(),
            fence: Fence::new(1, "x"),
            leased_ms: 0,
            ended_ms: Some(1),
            outcome: AttemptOutcome::Succeeded,
            timing: Timing::default(),
            cost_usd_micros: None,
            usage: None,
            error: None,
        });
        job
    }

    #[test]
    fn references_become_results_and_what_they_bring_in_is_only_data() {
        let other = JobId::new(0);
        let job = blocked_job(vec![], vec![Dependency { job: other, on: DependencyOn::Success }]);
        let input = json!({"a": [{"$job": other.to_string(), "pointer": "/x"}], "b": {"$job": other.to_string()}});
        let result = json!({"x": {"$job": "someone else's"}});
        let (_, next) = on(&job, input.clone(), &[(other, ended(result.clone()))], None);
        assert_eq!(next, Next::Queue(Some(json!({"a": [result["x"]], "b": result}))));
        let (_, next) = on(&job, input, &[(other, ended(json!([])))], None);
        assert!(matches!(next, Next::Fail(error) if error.message.contains("no value at \"/x\"")));
    }

    #[test]
    fn a_dependency_that_failed_fails_the_job_unless_any_end_will_do() {
        let other = JobId::new(0);
        let outcome = [(other, failed_with(ErrorCode::Timeout))];
        let job = |on| blocked_job(vec![], vec![Dependency { job: other, on }]);
        let (_, next) = on(&job(DependencyOn::Success), Value::Null, &outcome, None);
        assert!(matches!(next, Next::Fail(error) if error.code == ErrorCode::DependencyFailed));
        let (_, next) = on(&job(DependencyOn::Completion), Value::Null, &outcome, None);
        assert_eq!(next, Next::Queue(None));
        let (_, next) = on(&job(DependencyOn::Completion), Value::Null, &[], None);
        assert!(matches!(next, Next::Fail(_)), "one that is gone cannot be waited for");
    }

    #[test]
    fn a_step_before_sees_the_input_and_its_rejection_stops_the_job() {
        let job = blocked_job(vec![step(Stage::Before)], vec![]);
        let (steps, next) = on(&job, json!({"prompt": "p"}), &[], None);
        let asked = json!({"endpoint": "render", "input": {"prompt": "p"}, "thresholds": {"violence": 0.5}});
        assert_eq!((steps.len(), next), (0, Next::Step { index: 0, input: None, asked }));

        let job = stepped(job);
        let rejected = |outcome| match on(&job, Value::Null, &[], Some(outcome)) {
            (steps, Next::Fail(error)) => (steps[0].decision, error.code, error.message),
            other => panic!("{other:?}"),
        };
        let verdict = rejected(ended(json!({"decision": "reject", "reason": "blood", "scores": {"violence": 0.9}})));
        assert_eq!(verdict, (Some(Decision::Reject), ErrorCode::Rejected, "blood".into()));
        let verdict = rejected(ended(json!({"scores": {"violence": 0.9}})));
        assert_eq!(verdict.2, "violence is 0.90, over the threshold of 0.5");
        assert_eq!(rejected(failed_with(ErrorCode::Rejected)).1, ErrorCode::Rejected);
        assert_eq!(rejected(failed_with(ErrorCode::Timeout)).1, ErrorCode::DependencyFailed);
        assert_eq!(rejected(ended(json!("yes"))).1, ErrorCode::DependencyFailed);
        assert_eq!(rejected(ended(json!({}))).1, ErrorCode::DependencyFailed);
    }

    #[test]
    fn a_step_before_may_allow_or_rewrite_the_input() {
        let job = stepped(blocked_job(vec![step(Stage::Before)], vec![]));
        let next = |answer| on(&job, json!("old"), &[], Some(ended(answer))).1;
        assert_eq!(next(json!({"decision": "allow"})), Next::Queue(None));
        assert_eq!(next(json!({"scores": {"violence": 0.5, "other": 1.0}})), Next::Queue(None));
        assert_eq!(next(json!({"decision": "rewrite", "value": "new"})), Next::Queue(Some(json!("new"))));
        let outcome = Outcome { state: JobState::Running, ..ended(Value::Null) };
        assert_eq!(on(&job, Value::Null, &[], Some(outcome)).1, Next::Wait);
    }

    #[test]
    fn a_step_after_sees_the_output_and_may_keep_it_back() {
        let job = after_it_ran(blocked_job(vec![step(Stage::After)], vec![]));
        let (_, next) = on(&job, json!("in"), &[], None);
        assert!(matches!(&next, Next::Step { asked, .. } if asked["output"] == "out" && asked["input"] == "in"));
        let job = stepped(job);
        let next = |answer| on(&job, Value::Null, &[], Some(ended(answer))).1;
        assert_eq!(next(json!({"decision": "allow"})), Next::Succeed(None));
        assert_eq!(next(json!({"decision": "rewrite", "value": 1})), Next::Succeed(Some(json!(1))));
        assert!(matches!(next(json!({"decision": "reject"})), Next::Fail(error) if error.code == ErrorCode::Rejected));
    }

    #[test]
    fn steps_before_run_one_after_the_other_and_those_after_wait_for_the_run() {
        let job = blocked_job(vec![step(Stage::Before), step(Stage::Before), step(Stage::After)], vec![]);
        let job = stepped(job);
        let (steps, next) = on(&job, json!("in"), &[], Some(ended(json!({"decision": "rewrite", "value": "new"}))));
        assert_eq!(steps[0].decision, Some(Decision::Rewrite));
        assert!(matches!(next, Next::Step { index: 1, input: Some(_), asked } if asked["input"] == "new"));
        let mut job = stepped(job);
        job.steps[0].decision = Some(Decision::Allow);
        assert_eq!(on(&job, Value::Null, &[], Some(ended(json!({"decision": "allow"})))).1, Next::Queue(None));
    }
}
