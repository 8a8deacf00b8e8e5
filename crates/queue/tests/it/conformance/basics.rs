//! Submits, ends, cancels and lists of jobs.

use stokehold_queue::gateway::{ExtendAnswer, FinishAnswer, FinishOutcome, LeaseRef};
use stokehold_queue::job::{AttemptOutcome, Idempotency, JobResult, JobState, NewJob};
use stokehold_queue::queue::{CancelAnswer, ListFilter, Submitted};
use stokehold_queue::{Error, Fence, JobId, ManualClock, Queue};

use super::{held, job, one, owned, query, report, state, submit, succeed};

pub(crate) async fn a_job_goes_from_submit_to_its_result<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let new = job("echo");
    let id = new.id;
    assert_eq!(queue.submit(vec![new]).await.unwrap(), [Submitted::New(id)]);
    assert_eq!(state(queue, id).await, JobState::Queued);

    clock.advance_ms(250);
    let lease = one(queue).await;
    assert_eq!((lease.job_id, lease.attempt, lease.fence.counter()), (id, 1, 1));
    assert_eq!(lease.queued_ms, 250);
    assert_eq!(lease.input.get(), r#"{"text": "hi"}"#, "the input is untouched");
    let running = queue.get(id).await.unwrap().unwrap();
    assert_eq!(running.state, JobState::Running);
    assert_eq!(running.attempts[0].outcome, AttemptOutcome::Running);
    assert_eq!(queue.held(&held(&lease)).await.unwrap(), Some((lease.spec.clone(), 1)));

    clock.advance_ms(5);
    assert_eq!(queue.finish(&[succeed(&lease)]).await.unwrap(), [FinishAnswer::Ok]);
    let ended = queue.get(id).await.unwrap().unwrap();
    assert_eq!(ended.state, JobState::Succeeded);
    assert_eq!(ended.ended_ms, Some(clock.now_ms()));
    assert!(matches!(ended.result, Some(JobResult::Inline(ref json)) if json.get() == format!("\"{}\"", lease.fence)));
    let attempt = &ended.attempts[0];
    assert_eq!(
        (attempt.outcome, attempt.timing.run_ms, attempt.worker_id.as_str()),
        (AttemptOutcome::Succeeded, 5, "w1")
    );
    assert_eq!(ended.winner(), Some(attempt));
}

pub(crate) async fn the_same_id_twice_is_one_job<Q: Queue>(queue: &Q, _: &ManualClock) {
    let new = job("echo");
    queue.submit(vec![new.clone()]).await.unwrap();
    assert_eq!(queue.submit(vec![new.clone()]).await.unwrap(), [Submitted::New(new.id)]);
    assert_eq!(queue.lease(query(10, 0)).await.unwrap().len(), 1);
}

fn named(key: &str, request_hash: &str) -> NewJob {
    let idempotency = Some(Idempotency::new(key, request_hash));
    NewJob { idempotency, ..job("echo") }
}

pub(crate) async fn an_idempotency_key_gives_one_job_or_a_conflict<Q: Queue>(queue: &Q, _: &ManualClock) {
    let first = named("k", "h1");
    let id = first.id;
    queue.submit(vec![first]).await.unwrap();
    assert_eq!(queue.submit(vec![named("k", "h1")]).await.unwrap(), [Submitted::Repeat(id)]);
    let conflict = queue.submit(vec![named("k", "h2")]).await;
    assert!(matches!(conflict, Err(Error::IdempotencyConflict { key }) if key == "k"));
    let mut foreign = named("k", "h2");
    foreign.spec.tenant = "other".into();
    assert!(matches!(queue.submit(vec![foreign]).await.unwrap()[..], [Submitted::New(_)]), "keys are per tenant");
}

pub(crate) async fn a_conflict_accepts_nothing_of_its_bulk<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit(vec![named("k", "h1")]).await.unwrap();
    let fresh = job("echo");
    let id = fresh.id;
    assert!(queue.submit(vec![fresh, named("k", "h2")]).await.is_err());
    assert!(queue.get(id).await.unwrap().is_none());
    assert_eq!(queue.depth().await.unwrap()[0].jobs, 1);
}

pub(crate) async fn a_cancelled_job_never_gets_a_result<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit(vec![job("echo")]).await.unwrap();
    let lease = one(queue).await;
    assert_eq!(queue.cancel("acme", &[lease.job_id]).await.unwrap()[0], CancelAnswer::Cancelled);
    assert_eq!(queue.finish(&[succeed(&lease)]).await.unwrap(), [FinishAnswer::StaleFence]);
    assert_eq!(queue.extend(&[held(&lease)]).await.unwrap(), [ExtendAnswer::Lost], "its worker learns");
    let job = queue.get(lease.job_id).await.unwrap().unwrap();
    assert!(job.result.is_none());
    assert_eq!((job.state, job.attempts[0].outcome), (JobState::Cancelled, AttemptOutcome::Cancelled));
    let again = queue.cancel("acme", &[lease.job_id]).await.unwrap()[0];
    assert_eq!(again, CancelAnswer::AlreadyEnded(JobState::Cancelled));
    assert_eq!(queue.lease(query(1, 0)).await.unwrap().len(), 0);
}

pub(crate) async fn a_cancelled_job_leaves_its_lane<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let (doomed, kept) = (job("echo"), job("echo"));
    let later = NewJob { run_after_ms: clock.now_ms() + 5, ..job("echo") };
    let (doomed_id, kept_id, later_id) = (doomed.id, kept.id, later.id);
    queue.submit(vec![doomed, kept, later]).await.unwrap();
    for id in [doomed_id, later_id] {
        assert_eq!(queue.cancel("acme", &[id]).await.unwrap()[0], CancelAnswer::Cancelled);
    }
    assert_eq!(queue.depth().await.unwrap()[0].jobs, 1);
    clock.advance_ms(5);
    assert_eq!(queue.promote().await.unwrap().jobs, 0);
    assert_eq!(one(queue).await.job_id, kept_id);
    assert!(queue.depth().await.unwrap().is_empty());
}

pub(crate) async fn another_tenants_job_cannot_be_cancelled<Q: Queue>(queue: &Q, _: &ManualClock) {
    let new = job("echo");
    let id = new.id;
    queue.submit(vec![new]).await.unwrap();
    assert_eq!(queue.cancel("other", &[id]).await.unwrap()[0], CancelAnswer::NotFound);
    assert_eq!(state(queue, id).await, JobState::Queued);
}

pub(crate) async fn a_large_result_lies_under_the_winning_attempt<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit(vec![job("echo")]).await.unwrap();
    let lease = one(queue).await;
    queue.finish(&[report(&lease, FinishOutcome::Stored { size_bytes: 99 })]).await.unwrap();
    let job = queue.get(lease.job_id).await.unwrap().unwrap();
    let Some(JobResult::Object { key, size_bytes: 99 }) = job.result else { panic!("{:?}", job.result) };
    assert_eq!(key, format!("results/acme/{}/1-{}/output.json", lease.job_id, lease.fence));
}

pub(crate) async fn lists_page_newest_first_and_filter<Q: Queue>(queue: &Q, _: &ManualClock) {
    let mut jobs: Vec<NewJob> = (0..250).map(|_| job("echo")).collect();
    jobs[7].spec.endpoint = "rare".into();
    jobs[9].spec.metadata.insert("run".into(), "r1".into());
    let newest_first: Vec<JobId> = jobs.iter().rev().map(|job| job.id).collect();
    let (rare, labelled) = (jobs[7].id, jobs[9].id);
    queue.submit(jobs).await.unwrap();

    let all = async |filter: ListFilter, limit| {
        let (mut seen, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let page = queue.list("acme", &filter, cursor.as_deref(), limit).await.unwrap();
            assert!(page.jobs.len() <= limit as usize);
            seen.extend(page.jobs.iter().map(|job| job.id));
            cursor = page.next_cursor;
            if cursor.is_none() {
                return seen;
            }
        }
    };
    assert_eq!(all(ListFilter::default(), 30).await, newest_first);
    assert_eq!(all(ListFilter { endpoint: Some("rare".into()), ..Default::default() }, 20).await, [rare]);
    let label = vec![("run".to_owned(), "r1".to_owned())];
    assert_eq!(all(ListFilter { metadata: label, ..Default::default() }, 20).await, [labelled]);
    assert_eq!(all(ListFilter { state: Some(JobState::Running), ..Default::default() }, 20).await, []);
    assert!(queue.list("other", &ListFilter::default(), None, 20).await.unwrap().jobs.is_empty());
}

pub(crate) async fn depth_counts_ready_jobs<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit(vec![job("a"), job("b"), job("b")]).await.unwrap();
    let depths: Vec<(String, u64)> =
        queue.depth().await.unwrap().into_iter().map(|depth| (depth.lane, depth.jobs)).collect();
    assert_eq!(depths, [("1:0:acme:b".to_owned(), 2), ("1:0:acme:a".to_owned(), 1)]);
}

pub(crate) async fn unknown_ids_are_not_found<Q: Queue>(queue: &Q, _: &ManualClock) {
    let id = JobId::new(super::SHARD);
    let lease = LeaseRef { job_id: id, fence: Fence::new(1, "x") };
    assert!(queue.get(id).await.unwrap().is_none());
    assert!(queue.watch(id, "api-1").await.unwrap().is_none());
    assert_eq!(queue.cancel("acme", &[id]).await.unwrap()[0], CancelAnswer::NotFound);
    assert_eq!(queue.extend(std::slice::from_ref(&lease)).await.unwrap(), [ExtendAnswer::Lost]);
    assert_eq!(queue.release(&[lease]).await.unwrap(), [FinishAnswer::NotFound]);
    assert!(queue.read_events(id, "", 10).await.unwrap().is_empty());
}

pub(crate) async fn an_idempotency_key_twice_in_one_call_gives_one_job<Q: Queue>(queue: &Q, _: &ManualClock) {
    let (first, second) = (named("k", "h1"), named("k", "h1"));
    let id = first.id;
    let answers = queue.submit(vec![first, second]).await.unwrap();
    assert_eq!(answers, [Submitted::New(id), Submitted::Repeat(id)]);
    let conflict = queue.submit(vec![named("l", "h1"), named("l", "h2")]).await;
    assert!(matches!(conflict, Err(Error::IdempotencyConflict { key }) if key == "l"));
    let twin = job("echo");
    queue.submit(vec![twin.clone(), twin]).await.unwrap();
    assert_eq!(queue.lease(query(10, 0)).await.unwrap().len(), 2);
}

pub(crate) async fn many_jobs_are_cancelled_at_once<Q: Queue>(queue: &Q, _: &ManualClock) {
    let running = submit(queue, [owned("acme", "echo")]).await[0];
    one(queue).await;
    let queued = submit(queue, [owned("acme", "echo"), owned("acme", "other")]).await;
    let foreign = submit(queue, [owned("zoo", "echo")]).await[0];
    let answers = queue.cancel("acme", &[running, queued[0], foreign, queued[1], running]).await.unwrap();
    let cancelled = CancelAnswer::Cancelled;
    let again = CancelAnswer::AlreadyEnded(JobState::Cancelled);
    assert_eq!(answers, [cancelled, cancelled, CancelAnswer::NotFound, cancelled, again]);
    assert_eq!(one(queue).await.job_id, foreign);
}
