//! Jobs that depend on other jobs.

use stokehold_queue::job::{Dependency, DependencyOn, ErrorCode, JobError, JobSpec, JobState, NewJob};
use stokehold_queue::queue::{Due, Settlement, Verdict};
use stokehold_queue::{Error, JobId, ManualClock, Queue};

use super::{cancels, fails, look, of, one, owned, spec, state, submit, succeeds, take};

const CLAIM_MS: u64 = 1_000;

fn after(jobs: &[JobId], on: DependencyOn) -> JobSpec {
    JobSpec { depends_on: jobs.iter().map(|job| Dependency { job: *job, on }).collect(), ..spec("echo") }
}

/// Does the settler's work: notifies dependent jobs, then releases or fails those whose dependencies have all ended.
/// Returns the settled jobs.
async fn settle_all<Q: Queue>(queue: &Q) -> Vec<JobId> {
    let mut settled = Vec::new();
    loop {
        let due = queue.due(CLAIM_MS).await.unwrap();
        if due.is_empty() {
            return settled;
        }
        for due in due {
            match due {
                Due::Ended(id) => while !queue.unblock(id).await.unwrap() {},
                Due::Ready(id) => {
                    if settle(queue, id).await {
                        settled.push(id);
                    }
                }
            }
        }
    }
}

async fn settle<Q: Queue>(queue: &Q, id: JobId) -> bool {
    let job = look(queue, id).await;
    let mut verdict = Verdict::Queue { input: None };
    for dependency in &job.spec.depends_on {
        let state = state(queue, dependency.job).await;
        if dependency.on == DependencyOn::Success && state.is_terminal() && state != JobState::Succeeded {
            verdict = Verdict::Fail { error: JobError::new(ErrorCode::DependencyFailed, "a job that it waits for") };
        }
    }
    queue.settle(&Settlement { id, revision: job.revision, steps: vec![], verdict }).await.unwrap()
}

pub(crate) async fn a_job_waits_for_the_success_of_another<Q: Queue>(queue: &Q, _: &ManualClock) {
    let first = submit(queue, [spec("echo")]).await[0];
    let second = submit(queue, [after(&[first], DependencyOn::Success)]).await[0];
    assert_eq!(state(queue, second).await, JobState::Blocked);
    assert_eq!(settle_all(queue).await, []);
    let lease = one(queue).await;
    assert_eq!(lease.job_id, first);
    assert_eq!(take(queue, 1).await.len(), 0);
    succeeds(queue, &lease).await;
    assert_eq!(settle_all(queue).await, [second]);
    let lease = one(queue).await;
    assert_eq!(lease.job_id, second);
    succeeds(queue, &lease).await;
}

pub(crate) async fn a_job_that_wants_an_end_takes_any<Q: Queue>(queue: &Q, _: &ManualClock) {
    let first = submit(queue, [spec("echo")]).await[0];
    let second = submit(queue, [after(&[first], DependencyOn::Completion)]).await[0];
    fails(queue, &one(queue).await, ErrorCode::Rejected).await;
    assert_eq!(settle_all(queue).await, [second]);
    assert_eq!(one(queue).await.job_id, second);
}

pub(crate) async fn a_failed_dependency_is_told_at_once<Q: Queue>(queue: &Q, _: &ManualClock) {
    let first = submit(queue, [spec("a"), spec("b")]).await;
    let second = submit(queue, [after(&first, DependencyOn::Success)]).await[0];
    let third = submit(queue, [after(&[second], DependencyOn::Success)]).await[0];
    fails(queue, &one(queue).await, ErrorCode::Rejected).await;
    assert_eq!(settle_all(queue).await, [second, third], "though the other still runs; and so down the line");
    let job = look(queue, second).await;
    assert_eq!((job.state, job.error.unwrap().code), (JobState::Failed, ErrorCode::DependencyFailed));
    succeeds(queue, &one(queue).await).await;
    assert_eq!(settle_all(queue).await, []);
}

pub(crate) async fn a_cancelled_dependency_is_told_too<Q: Queue>(queue: &Q, _: &ManualClock) {
    let first = submit(queue, [spec("echo")]).await[0];
    let waiting =
        submit(queue, [after(&[first], DependencyOn::Success), after(&[first], DependencyOn::Completion)]).await;
    cancels(queue, first).await;
    assert_eq!(settle_all(queue).await, waiting);
    assert_eq!(state(queue, waiting[0]).await, JobState::Failed);
    assert_eq!(state(queue, waiting[1]).await, JobState::Queued);
}

pub(crate) async fn a_job_waits_for_all_it_names<Q: Queue>(queue: &Q, _: &ManualClock) {
    let all = submit(queue, vec![spec("echo"); 120]).await;
    let last = submit(queue, [after(&all, DependencyOn::Success)]).await[0];
    for want in [50, 50, 20] {
        assert_eq!(settle_all(queue).await, []);
        assert_eq!(state(queue, last).await, JobState::Blocked);
        for lease in take(queue, want).await {
            succeeds(queue, &lease).await;
        }
    }
    assert_eq!(settle_all(queue).await, [last]);
    assert_eq!(one(queue).await.job_id, last);
}

pub(crate) async fn a_job_that_many_wait_for_tells_them_in_pieces<Q: Queue>(queue: &Q, _: &ManualClock) {
    let first = submit(queue, [spec("echo")]).await[0];
    submit(queue, vec![after(&[first], DependencyOn::Success); 250]).await;
    succeeds(queue, &one(queue).await).await;
    assert_eq!(queue.due(CLAIM_MS).await.unwrap(), [Due::Ended(first)]);
    let mut calls = 1;
    while !queue.unblock(first).await.unwrap() {
        calls += 1;
    }
    assert_eq!(calls, 3, "a hundred a call");
    assert_eq!(settle_all(queue).await.len(), 250);
    assert_eq!(queue.depth().await.unwrap()[0].jobs, 250);
    assert!(queue.unblock(first).await.unwrap(), "once more does no harm");
}

pub(crate) async fn what_has_ended_already_is_not_waited_for<Q: Queue>(queue: &Q, _: &ManualClock) {
    let first = submit(queue, [spec("a"), spec("b")]).await;
    for lease in take(queue, 2).await {
        match lease.job_id == first[0] {
            true => succeeds(queue, &lease).await,
            false => fails(queue, &lease, ErrorCode::Rejected).await,
        }
    }
    let good = submit(queue, [after(&first[..1], DependencyOn::Success)]).await[0];
    let bad = submit(queue, [after(&first, DependencyOn::Success)]).await[0];
    assert_eq!(state(queue, good).await, JobState::Blocked, "it is settled all the same");
    settle_all(queue).await;
    assert_eq!(state(queue, good).await, JobState::Queued);
    assert_eq!(state(queue, bad).await, JobState::Failed);
}

async fn refused<Q: Queue>(queue: &Q, jobs: Vec<NewJob>, number: usize, missing: JobId) {
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    let refused = queue.submit(jobs).await;
    let named =
        matches!(&refused, Err(Error::NoDependency { number: n, job }) if *n == number && *job == missing.to_string());
    assert!(named, "{refused:?}");
    for id in ids {
        assert!(queue.get(id).await.unwrap().is_none(), "nothing of the call is accepted");
    }
}

pub(crate) async fn an_unknown_dependency_is_refused<Q: Queue>(queue: &Q, _: &ManualClock) {
    let unknown = JobId::new(super::SHARD);
    refused(queue, vec![of(spec("echo")), of(after(&[unknown], DependencyOn::Completion))], 1, unknown).await;
}

pub(crate) async fn anothers_job_cannot_be_waited_for<Q: Queue>(queue: &Q, _: &ManualClock) {
    let foreign = submit(queue, [owned("zoo", "echo")]).await[0];
    refused(queue, vec![of(after(&[foreign], DependencyOn::Completion))], 0, foreign).await;
    let foreign = of(owned("zoo", "echo"));
    let id = foreign.id;
    refused(queue, vec![foreign, of(after(&[id], DependencyOn::Completion))], 1, id).await;
}

pub(crate) async fn no_job_waits_for_itself<Q: Queue>(queue: &Q, _: &ManualClock) {
    let mut own = of(spec("echo"));
    let id = own.id;
    own.spec.depends_on = after(&[id], DependencyOn::Completion).depends_on;
    refused(queue, vec![own.clone()], 0, id).await;
    let other = of(after(&[id], DependencyOn::Completion));
    own.spec.depends_on = after(&[other.id], DependencyOn::Completion).depends_on;
    refused(queue, vec![other, own], 0, id).await;
}

pub(crate) async fn a_job_may_wait_for_one_of_its_own_call<Q: Queue>(queue: &Q, _: &ManualClock) {
    let first = of(spec("echo"));
    let second = of(after(&[first.id], DependencyOn::Success));
    let third = of(after(&[first.id, second.id], DependencyOn::Success));
    let ids = [first.id, second.id, third.id];
    queue.submit(vec![first, second, third]).await.unwrap();
    for id in ids {
        let lease = one(queue).await;
        assert_eq!(lease.job_id, id);
        succeeds(queue, &lease).await;
        settle_all(queue).await;
    }
}

pub(crate) async fn what_is_not_settled_is_given_out_again<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let first = submit(queue, [spec("echo")]).await[0];
    let second = submit(queue, [after(&[first], DependencyOn::Success)]).await[0];
    succeeds(queue, &one(queue).await).await;
    for _ in 0..2 {
        assert_eq!(queue.due(CLAIM_MS).await.unwrap(), [Due::Ended(first)]);
        assert_eq!(queue.due(CLAIM_MS).await.unwrap(), [], "claimed");
        clock.advance_ms(CLAIM_MS);
    }
    while !queue.unblock(first).await.unwrap() {}
    for _ in 0..2 {
        assert_eq!(queue.due(CLAIM_MS).await.unwrap(), [Due::Ready(second)]);
        clock.advance_ms(CLAIM_MS);
    }
    // A claim lasts for as long as it is renewed, and renewing it does not bring back a settled job.
    let claimed = queue.due(CLAIM_MS).await.unwrap();
    for _ in 0..3 {
        clock.advance_ms(CLAIM_MS - 1);
        queue.keep_due(&claimed, CLAIM_MS).await.unwrap();
        assert_eq!(queue.due(CLAIM_MS).await.unwrap(), [], "the claim goes on");
    }
    assert!(settle(queue, second).await);
    queue.keep_due(&claimed, CLAIM_MS).await.unwrap();
    clock.advance_ms(CLAIM_MS);
    assert_eq!(queue.due(CLAIM_MS).await.unwrap(), []);
}

pub(crate) async fn a_blocked_job_can_be_cancelled_and_leaves_nothing_to_settle<Q: Queue>(queue: &Q, _: &ManualClock) {
    let first = submit(queue, [spec("echo")]).await[0];
    let waiting = submit(queue, vec![after(&[first], DependencyOn::Success); 2]).await;
    cancels(queue, waiting[0]).await;
    succeeds(queue, &one(queue).await).await;
    while !queue.unblock(first).await.unwrap() {}
    cancels(queue, waiting[1]).await;
    assert_eq!(queue.due(CLAIM_MS).await.unwrap(), []);
    assert_eq!(take(queue, 1).await.len(), 0);
}
