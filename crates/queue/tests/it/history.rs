//! History: ended jobs leave Redis when they are forgotten and not before; feedback is counted once.

use stokehold_queue::capability::Capability;
use stokehold_queue::feedback::Verdict;
use stokehold_queue::job::{BatchLine, ErrorCode, JobSpec, JobState, NewJob, Priority};
use stokehold_queue::queue::{LeaseQuery, ListFilter};
use stokehold_queue::{Clock, JobId, ManualClock, Queue, RedisQueue};
use stokehold_tests::redis_server::RedisServer;

use crate::conformance::{START_MS, fail, job, spec, succeed};
use crate::redis::{queue, server};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

async fn keys(server: &RedisServer) -> Vec<String> {
    let mut redis = server.connection().await;
    ::redis::cmd("KEYS").arg("*").query_async(&mut redis).await.unwrap()
}

/// Runs every ready job; jobs of the endpoint `bad` fail permanently.
async fn drain(queue: &RedisQueue) {
    loop {
        let query = LeaseQuery::new("w", 100, Capability::usual(0));
        let leases = queue.lease(query).await.unwrap();
        if leases.is_empty() {
            return;
        }
        let reports: Vec<_> = leases
            .iter()
            .map(|lease| match lease.spec.endpoint.as_str() {
                "bad" => fail(lease, ErrorCode::BadOutput),
                _ => succeed(lease),
            })
            .collect();
        queue.finish(&reports).await.unwrap();
    }
}

async fn listed(queue: &RedisQueue, filter: ListFilter) -> Vec<JobId> {
    queue.list("acme", &filter, None, 100).await.unwrap().jobs.iter().map(|job| job.id).collect()
}

#[tokio::test]
async fn history_is_due_after_the_retention_in_order_of_the_end() {
    let (server, _dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let queue = queue(&server, Clock::Manual(clock.clone())).await;
    let history = queue.history();
    let slow = NewJob { spec: JobSpec { retention_ms: Some(60_000), ..spec("echo") }, ..job("echo") };
    let jobs = vec![job("echo"), job("echo"), slow];
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    queue.submit(jobs).await.unwrap();
    queue.cancel("acme", &[ids[1]]).await.unwrap();
    clock.advance_ms(10);
    drain(&queue).await;
    assert_eq!(history.waiting().await.unwrap(), 3);
    assert!(history.due(100).await.unwrap().jobs.is_empty());

    clock.advance_ms(60_000);
    let due = history.due(100).await.unwrap();
    assert_eq!(due.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [ids[2]], "its own retention");
    clock.advance_ms(DAY_MS);
    let due = history.due(2).await.unwrap();
    assert_eq!(due.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [ids[2], ids[1]]);
    assert!(due.more);
    assert_eq!(due.jobs[1].state, JobState::Cancelled);
    assert_eq!(history.present(&[ids[0], JobId::new(0)]).await.unwrap(), [true, false]);
    assert!(queue.get(ids[0]).await.unwrap().is_some(), "what is due stays until it is forgotten");
}

#[tokio::test]
async fn history_forgets_ended_jobs_whole_and_others_not_at_all() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let jobs: Vec<NewJob> = (0..2_500).map(|_| job("echo")).collect();
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    for jobs in jobs.chunks(1_000) {
        queue.submit(jobs.to_vec()).await.unwrap();
    }
    assert_eq!(queue.history().forget(&ids[..3]).await.unwrap(), 0, "they are still queued");
    drain(&queue).await;
    let open = job("echo");
    queue.submit(vec![open.clone()]).await.unwrap();
    assert_eq!(queue.history().forget(&ids).await.unwrap(), 2_500);
    assert_eq!(queue.history().forget(&ids).await.unwrap(), 0, "again changes nothing");
    assert_eq!(listed(&queue, ListFilter::default()).await, [open.id]);
    assert_eq!(queue.history().forget(&[open.id]).await.unwrap(), 0);

    queue.cancel("acme", &[open.id]).await.unwrap();
    queue.history().forget(&[open.id]).await.unwrap();
    let left: Vec<String> = keys(&server)
        .await
        .into_iter()
        .filter(|key| ![":turn", ":cost", ":flow", ":unmet"].iter().any(|kept| key.ends_with(kept)))
        .filter(|key| !key.contains(":spent:") && !key.contains(":timings:"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn history_makes_way_for_what_is_behind_a_record_that_cannot_be_read() {
    let (server, _dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let queue = queue(&server, Clock::Manual(clock.clone())).await;
    let jobs = vec![job("echo"), job("echo")];
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    queue.submit(jobs).await.unwrap();
    drain(&queue).await;
    clock.advance_ms(DAY_MS);
    let key = keys(&server).await.into_iter().find(|key| key.ends_with(&format!(":j:{}", ids[0]))).unwrap();
    let mut redis = server.connection().await;
    let _: () = ::redis::cmd("HSET").arg(&key).arg("input").arg("{").query_async(&mut redis).await.unwrap();

    let due = queue.history().due(100).await.unwrap();
    assert_eq!((due.jobs.len(), due.corrupt.len()), (1, 1));
    queue.history().defer(&[due.corrupt[0].0], 5_000).await.unwrap();
    assert!(queue.history().due(100).await.unwrap().corrupt.is_empty());
    clock.advance_ms(5_000);
    assert_eq!(queue.history().due(100).await.unwrap().corrupt.len(), 1, "nothing is dropped silently");

    let _: () = ::redis::cmd("DEL").arg(&key).query_async(&mut redis).await.unwrap();
    let gone = queue.history().due(100).await.unwrap().gone;
    assert_eq!(gone, [ids[0]]);
    queue.history().forget(&gone).await.unwrap();
    assert!(queue.history().due(100).await.unwrap().gone.is_empty());
}

#[tokio::test]
async fn history_and_lists_filter_by_batch_schedule_priority_and_error() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let of = |spec: JobSpec| NewJob { spec, ..job("echo") };
    let line = BatchLine { id: "batch_1".into(), line: 1, custom_id: None };
    let jobs = vec![
        of(JobSpec { batch: Some(line), ..spec("echo") }),
        of(JobSpec { schedule: Some("sch_1".into()), ..spec("echo") }),
        of(JobSpec { priority: Priority::Batch, ..spec("echo") }),
        of(spec("bad")),
    ];
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    queue.submit(jobs).await.unwrap();
    drain(&queue).await;
    let none = ListFilter::default();
    let batch = |id: &str| ListFilter { batch: Some(id.into()), ..none.clone() };
    assert_eq!(listed(&queue, batch("batch_1")).await, [ids[0]]);
    assert_eq!(listed(&queue, batch("batch_2")).await, []);
    assert_eq!(listed(&queue, ListFilter { schedule: Some("sch_1".into()), ..none.clone() }).await, [ids[1]]);
    assert_eq!(listed(&queue, ListFilter { priority: Some(Priority::Batch), ..none.clone() }).await, [ids[2]]);
    let failed = ListFilter { error_code: Some(ErrorCode::BadOutput), ..none.clone() };
    assert_eq!(listed(&queue, failed).await, [ids[3]]);
    assert_eq!(listed(&queue, ListFilter { error_code: Some(ErrorCode::Timeout), ..none }).await, []);
}

#[tokio::test]
async fn history_of_feedback_counts_a_replacement_once() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let feedback = queue.feedback();
    let verdict = |accepted, score| Verdict { accepted, score };
    let (a, b) = (JobId::new(0), JobId::new(0));
    let judge = async |id, version, verdict, former| {
        feedback.judge("acme", id, ("echo", version), verdict, former).await.unwrap()
    };
    assert!(!judge(a, 1, verdict(Some(true), Some(5)), None).await);
    assert!(judge(a, 1, verdict(Some(false), None), None).await, "replaces");
    assert!(judge(a, 1, verdict(Some(true), Some(4)), Some(verdict(None, Some(1)))).await, "what it knows comes first");
    assert!(!judge(b, 1, verdict(None, Some(2)), None).await);
    assert!(!judge(JobId::new(0), 2, verdict(Some(false), None), None).await);
    let tallies = feedback.tallies("acme", Some("echo")).await.unwrap();
    let sums: Vec<_> =
        tallies.iter().map(|t| (t.version, t.rated, t.judged, t.accepted, t.scored, t.score_sum)).collect();
    assert_eq!(sums, [(2, 1, 1, 0, 0, 0), (1, 2, 1, 1, 2, 6)]);
    assert!(feedback.tallies("acme", Some("other")).await.unwrap().is_empty());
    assert!(feedback.tallies("other", None).await.unwrap().is_empty());

    // After 90 days only the caller has the counts.
    let mut redis = server.connection().await;
    let key = keys(&server).await.into_iter().find(|key| key.ends_with(&format!(":fb:{b}"))).unwrap();
    let _: () = ::redis::cmd("DEL").arg(&key).query_async(&mut redis).await.unwrap();
    assert!(judge(b, 1, verdict(None, Some(3)), Some(verdict(None, Some(2)))).await);
    let tally = feedback.tallies("acme", None).await.unwrap().remove(1);
    assert_eq!((tally.rated, tally.scored, tally.score_sum), (2, 2, 7));
}
