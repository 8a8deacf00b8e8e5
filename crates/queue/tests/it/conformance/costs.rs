//! Costs counted for each attempt that ends.

use stokehold_queue::costs::{Spent, day_of};
use stokehold_queue::gateway::{FinishAnswer, FinishReport};
use stokehold_queue::job::{BatchLine, ErrorCode, JobSpec, Stage, TOKENS_MAX, Timing, TokenUsage};
use stokehold_queue::queue::Lease;
use stokehold_queue::{ManualClock, Queue};

use super::{LEASE_MS, START_MS, cancels, fail, held, one, owned, spec, step_spec, submit, succeed, take};

const DAY_MS: u64 = 86_400_000;

/// A report of 600 ms of run time and 300 ms of load time on a machine that costs one micro-dollar per millisecond.
fn on(machine: &str, report: FinishReport) -> FinishReport {
    let timing = Timing { run_ms: 590, upload_ms: 10, env_ms: 100, load_ms: 200, ..Timing::default() };
    FinishReport { machine: machine.to_owned(), cost_usd_micros: Some(900), timing, ..report }
}

async fn ends<Q: Queue>(queue: &Q, report: FinishReport) {
    assert_eq!(queue.finish(&[report]).await.unwrap(), [FinishAnswer::Ok]);
}

async fn spent<Q: Queue>(queue: &Q) -> Vec<Spent> {
    let today = day_of(START_MS);
    queue.spent(today..=today + 1, None).await.unwrap()
}

fn sums(spent: &[Spent]) -> (u64, u64, u64, u64) {
    let sum = |of: fn(&Spent) -> u64| spent.iter().map(of).sum();
    (sum(|it| it.jobs), sum(|it| it.run_ms), sum(|it| it.run_usd_micros), sum(|it| it.load_usd_micros))
}

pub(crate) async fn every_attempt_that_ends_is_counted_once<Q: Queue>(queue: &Q, clock: &ManualClock) {
    submit(queue, [spec("echo")]).await;
    let first = one(queue).await;
    ends(queue, on("m-1", fail(&first, ErrorCode::HandlerError))).await;
    clock.advance_ms(60_000);
    queue.promote().await.unwrap();
    let report = on("m-1", succeed(&one(queue).await));
    ends(queue, report.clone()).await;
    assert_eq!(queue.finish(&[report]).await.unwrap(), [FinishAnswer::AlreadyEnded], "told again, counted once");
    assert_eq!(queue.finish(&[on("m-1", succeed(&first))]).await.unwrap(), [FinishAnswer::StaleFence]);
    let all = spent(queue).await;
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(sums(&all), (2, 1_200, 1_200, 600), "the failed attempt took as much as the other");
    assert_eq!((all[0].machine.as_str(), all[0].day), ("m-1", day_of(START_MS)));
}

pub(crate) async fn jobs_that_shared_a_call_share_what_it_cost<Q: Queue>(queue: &Q, _: &ManualClock) {
    submit(queue, vec![spec("embed"); 4]).await;
    let share = |lease: &Lease| {
        let timing = Timing { run_ms: 4_000, batch_size: 4, ..Timing::default() };
        let cost_usd_micros = Some(timing.occupied_ms());
        FinishReport { machine: "m-1".to_owned(), timing, cost_usd_micros, ..succeed(lease) }
    };
    let reports: Vec<FinishReport> = take(queue, 4).await.iter().map(share).collect();
    assert_eq!(queue.finish(&reports).await.unwrap(), [FinishAnswer::Ok; 4]);
    assert_eq!(sums(&spent(queue).await), (4, 4_000, 4_000, 0));
}

pub(crate) async fn what_is_released_or_lost_or_cancelled_is_not_counted<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let id = submit(queue, [spec("echo")]).await[0];
    queue.release(&[held(&one(queue).await)]).await.unwrap();
    one(queue).await;
    clock.advance_ms(LEASE_MS);
    assert_eq!(queue.reap().await.unwrap().jobs, 1);
    let last = one(queue).await;
    cancels(queue, id).await;
    assert_ne!(queue.finish(&[on("m-1", succeed(&last))]).await.unwrap(), [FinishAnswer::Ok]);
    assert_eq!(spent(queue).await, []);
}

pub(crate) async fn each_tenant_endpoint_batch_and_machine_is_counted_apart<Q: Queue>(queue: &Q, _: &ManualClock) {
    let line = BatchLine { id: "batch_7".to_owned(), line: 1, custom_id: None };
    let in_batch = JobSpec { batch: Some(line), ..spec("echo") };
    submit(queue, [spec("echo"), spec("draw"), owned("zoo", "echo"), in_batch, spec("echo")]).await;
    for (n, lease) in take(queue, 5).await.iter().enumerate() {
        ends(queue, on(if n == 4 { "left|rack" } else { "m-1" }, succeed(lease))).await;
    }
    let all = spent(queue).await;
    assert_eq!(sums(&all), (5, 3_000, 3_000, 1_500));
    let of = |wanted: &dyn Fn(&Spent) -> bool| all.iter().filter(|it| wanted(it)).map(|it| it.jobs).sum::<u64>();
    assert_eq!((of(&|it| it.tenant == "zoo"), of(&|it| it.endpoint == "draw")), (1, 1));
    assert_eq!((of(&|it| it.batch.as_deref() == Some("batch_7")), of(&|it| it.machine == "left|rack")), (1, 1));
    let today = day_of(START_MS);
    let zoo = queue.spent(today..=today, Some("zoo")).await.unwrap();
    assert_eq!(sums(&zoo), (1, 600, 600, 300), "no other tenant's");
    assert!(queue.spent(today + 1..=today + 5, None).await.unwrap().is_empty());
}

pub(crate) async fn a_run_over_midnight_is_counted_in_both_days<Q: Queue>(queue: &Q, clock: &ManualClock) {
    submit(queue, [spec("echo")]).await;
    let midnight = (START_MS / DAY_MS + 1) * DAY_MS;
    clock.advance_ms(midnight - START_MS - 20_000);
    let lease = one(queue).await;
    clock.advance_ms(25_000);
    ends(queue, on("m-1", succeed(&lease))).await;
    let all = spent(queue).await;
    let facts: Vec<_> = all.iter().map(|it| (it.day, it.jobs, it.run_usd_micros, it.load_usd_micros)).collect();
    let today = day_of(START_MS);
    assert_eq!(facts, [(today, 0, 480, 240), (today + 1, 1, 120, 60)]);
}

/// A report of an attempt that used these tokens.
fn using(usage: [u64; 3], report: FinishReport) -> FinishReport {
    FinishReport { usage: Some(usage.into()), ..on("m-1", report) }
}

/// The tokens by day, and those of the endpoint `echo` since the queue exists.
async fn tokens<Q: Queue>(queue: &Q) -> (Vec<(u32, [u64; 3])>, [u64; 3]) {
    let by_day = spent(queue).await.into_iter().map(|it| (it.day - day_of(START_MS), it.usage.numbers()));
    let flows = queue.flow().await.unwrap();
    let of_echo = flows.iter().find(|flow| flow.endpoint == "echo").map(|flow| flow.tokens.numbers());
    (by_day.collect(), of_echo.unwrap_or_default())
}

pub(crate) async fn the_tokens_of_a_job_are_counted_once<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let id = submit(queue, [spec("echo")]).await[0];
    // A failed attempt, and one whose worker disappears and reports later.
    ends(queue, using([90, 90, 90], fail(&one(queue).await, ErrorCode::HandlerError))).await;
    clock.advance_ms(60_000);
    queue.promote().await.unwrap();
    let lost = one(queue).await;
    clock.advance_ms(LEASE_MS);
    assert_eq!(queue.reap().await.unwrap().jobs, 1);
    assert_eq!(queue.get(id).await.unwrap().unwrap().usage(), None);
    let last = using([12, 8, 5], succeed(&one(queue).await));
    assert_eq!(queue.finish(&[using([70, 0, 70], succeed(&lost))]).await.unwrap(), [FinishAnswer::StaleFence]);
    ends(queue, last.clone()).await;
    assert_eq!(queue.finish(&[last]).await.unwrap(), [FinishAnswer::AlreadyEnded]);
    assert_eq!(tokens(queue).await, (vec![(0, [12, 8, 5])], [12, 8, 5]));
    let job = queue.get(id).await.unwrap().unwrap();
    assert_eq!(job.usage(), Some(TokenUsage { prompt_tokens: 12, cached_tokens: 8, completion_tokens: 5 }));
    assert_eq!(job.attempts[0].usage, None, "the failed one");
}

pub(crate) async fn tokens_add_up_after_jobs_without_tokens<Q: Queue>(queue: &Q, _: &ManualClock) {
    submit(queue, vec![spec("echo"); 5]).await;
    let leases = take(queue, 5).await;
    ends(queue, on("m-1", succeed(&leases[0]))).await;
    ends(queue, using([10, 0, 2], succeed(&leases[1]))).await;
    let both = [using([1, 1, 0], succeed(&leases[2])), on("m-1", succeed(&leases[3]))];
    assert_eq!(queue.finish(&both).await.unwrap(), [FinishAnswer::Ok; 2]);
    // Impossible numbers do not count, and the job ends all the same.
    ends(queue, using([TOKENS_MAX + 1, 9, 3], succeed(&leases[4]))).await;
    assert_eq!(tokens(queue).await, (vec![(0, [11, 1, 5])], [11, 1, 5]));
    assert_eq!(sums(&spent(queue).await), (5, 3_000, 3_000, 1_500));
}

pub(crate) async fn a_result_that_a_step_checks_has_its_tokens_counted<Q: Queue>(queue: &Q, _: &ManualClock) {
    let checked = JobSpec { steps: vec![step_spec("guard", Stage::After)], ..spec("echo") };
    let id = submit(queue, [checked]).await[0];
    let report = using([3, 0, 4], succeed(&one(queue).await));
    ends(queue, report.clone()).await;
    assert_eq!(queue.finish(&[report]).await.unwrap(), [FinishAnswer::AlreadyEnded]);
    assert_eq!(tokens(queue).await, (vec![(0, [3, 0, 4])], [3, 0, 4]));
    assert_eq!(queue.get(id).await.unwrap().unwrap().usage().unwrap().total(), 7);
}

pub(crate) async fn tokens_count_on_the_day_of_the_end<Q: Queue>(queue: &Q, clock: &ManualClock) {
    submit(queue, [spec("echo")]).await;
    let midnight = (START_MS / DAY_MS + 1) * DAY_MS;
    clock.advance_ms(midnight - START_MS - 5_000);
    let lease = one(queue).await;
    clock.advance_ms(10_000);
    ends(queue, using([6, 0, 1], succeed(&lease))).await;
    assert_eq!(tokens(queue).await.0, [(0, [0; 3]), (1, [6, 0, 1])]);
}
