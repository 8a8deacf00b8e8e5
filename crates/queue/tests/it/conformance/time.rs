//! Queue timeouts and deadlines.

use stokehold_queue::gateway::{ExtendAnswer, FinishAnswer};
use stokehold_queue::job::{AttemptOutcome, Dependency, DependencyOn, ErrorCode, JobSpec, JobState, NewJob};
use stokehold_queue::{JobId, ManualClock, Queue};

use super::{fails, held, look, of, one, spec, state, submit, succeed, succeeds, take};

async fn expired<Q: Queue>(queue: &Q, id: JobId) -> ErrorCode {
    let job = look(queue, id).await;
    assert_eq!(job.state, JobState::Expired);
    job.error.unwrap().code
}

pub(crate) async fn a_job_that_nobody_starts_in_time_expires<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let start_by = clock.now_ms() + 1_000;
    let base = JobSpec { start_by_ms: Some(start_by), deadline_ms: Some(start_by + 1_000), ..spec("echo") };
    let id = submit(queue, [base]).await[0];
    let swept = queue.expire().await.unwrap();
    assert_eq!((swept.jobs, swept.next_due_ms), (0, Some(start_by)));
    clock.advance_ms(1_000);
    let swept = queue.expire().await.unwrap();
    assert_eq!((swept.jobs, swept.next_due_ms), (1, None));
    assert_eq!(expired(queue, id).await, ErrorCode::QueueTimeout);
    assert_eq!(take(queue, 1).await.len(), 0);
    assert!(queue.depth().await.unwrap().is_empty());
}

pub(crate) async fn a_job_that_started_in_time_may_end_later<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let start_by_ms = Some(clock.now_ms() + 1_000);
    let id = submit(queue, [JobSpec { start_by_ms, ..spec("echo") }]).await[0];
    fails(queue, &one(queue).await, ErrorCode::HandlerError).await;
    clock.advance_ms(2_000);
    assert_eq!(queue.expire().await.unwrap().jobs, 0, "it has started once, that is enough");
    queue.promote().await.unwrap();
    succeeds(queue, &one(queue).await).await;
    assert_eq!(state(queue, id).await, JobState::Succeeded);
}

pub(crate) async fn a_deadline_ends_a_job_wherever_it_stands<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let now = clock.now_ms();
    let base = JobSpec { deadline_ms: Some(now + 1_000), start_by_ms: Some(now + 900), ..spec("echo") };
    let running = submit(queue, [base.clone()]).await[0];
    let lease = one(queue).await;
    let late = JobSpec { start_by_ms: None, ..base };
    let queued = submit(queue, [late.clone()]).await[0];
    let scheduled = NewJob { run_after_ms: now + 5_000, ..of(late.clone()) };
    let depends_on = vec![Dependency { job: queued, on: DependencyOn::Completion }];
    let blocked = of(JobSpec { depends_on, ..late });
    let others = [queued, scheduled.id, blocked.id];
    queue.submit(vec![scheduled, blocked]).await.unwrap();

    clock.advance_ms(1_000);
    assert_eq!(queue.expire().await.unwrap().jobs, 4);
    for id in others {
        assert_eq!(expired(queue, id).await, ErrorCode::Deadline);
    }
    assert_eq!(expired(queue, running).await, ErrorCode::Deadline);
    assert_eq!(look(queue, running).await.attempts[0].outcome, AttemptOutcome::Expired);
    assert_eq!(queue.extend(&[held(&lease)]).await.unwrap(), [ExtendAnswer::Lost], "its worker learns");
    assert_eq!(queue.finish(&[succeed(&lease)]).await.unwrap(), [FinishAnswer::StaleFence]);
    clock.advance_ms(60_000);
    assert_eq!(queue.promote().await.unwrap().jobs + queue.reap().await.unwrap().jobs, 0);
    assert_eq!(take(queue, 10).await.len(), 0);
}

pub(crate) async fn a_job_whose_time_is_over_does_not_start<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let base = JobSpec { start_by_ms: Some(clock.now_ms() + 1_000), ..spec("echo") };
    let deadline_ms = base.start_by_ms;
    let late = submit(queue, [base, JobSpec { deadline_ms, ..spec("echo") }]).await;
    let other = submit(queue, [spec("echo")]).await[0];
    clock.advance_ms(1_000);
    assert_eq!(one(queue).await.job_id, other, "though expire has not come by");
    assert_eq!(take(queue, 10).await.len(), 0);
    assert_eq!(queue.expire().await.unwrap().jobs, 2);
    assert_eq!(expired(queue, late[0]).await, ErrorCode::QueueTimeout);
    assert_eq!(expired(queue, late[1]).await, ErrorCode::Deadline);
    assert!(queue.depth().await.unwrap().is_empty());
}

pub(crate) async fn an_ended_job_does_not_expire<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let deadline_ms = Some(clock.now_ms() + 1_000);
    let id = submit(queue, [JobSpec { deadline_ms, ..spec("echo") }]).await[0];
    succeeds(queue, &one(queue).await).await;
    clock.advance_ms(1_000);
    let swept = queue.expire().await.unwrap();
    assert_eq!((swept.jobs, swept.next_due_ms), (0, None));
    assert_eq!(state(queue, id).await, JobState::Succeeded);
}
