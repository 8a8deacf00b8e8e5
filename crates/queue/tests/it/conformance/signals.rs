//! Signals that replicas receive without polling, and the messages of jobs.

use stokehold_queue::capability::Capability;
use stokehold_queue::gateway::{JobEventReport, JobMessage, LogStream, Outgrown};
use stokehold_queue::job::{JobSpec, JobState, NewJob};
use stokehold_queue::queue::{
    KeptOutputs, LeaseQuery, OUTPUTS_BYTES_KEPT, OUTPUTS_KEPT, OutputsPosition, Signal, Waiter,
};
use stokehold_queue::{Fence, ManualClock, Queue};

use super::{LEASE_MS, job, noise, of, one, outgrow, parking, query, raw, spec, succeed, succeeds};

pub(crate) async fn one_submit_wakes_one_waiter_the_smallest_that_fits<Q: Queue>(queue: &Q, _: &ManualClock) {
    let mut signals = queue.listen("api-1").await.unwrap();
    for (reach, waiter) in [(80, 1), (24, 2), (0, 3), (24, 4)] {
        assert!(queue.lease(parking(reach, waiter)).await.unwrap().is_empty());
    }
    let submit = async |vram_class_gib| {
        queue.submit(vec![of(JobSpec { vram_class_gib, ..spec("echo") })]).await.unwrap();
    };
    submit(16).await;
    assert_eq!(signals.recv().await, Some(Signal::Wake(2)));
    submit(0).await;
    assert_eq!(signals.recv().await, Some(Signal::Wake(3)));
    submit(141).await;
    submit(48).await;
    assert_eq!(signals.recv().await, Some(Signal::Wake(1)), "nobody was woken for what nobody can take");
    assert!(signals.try_recv().is_err());
}

pub(crate) async fn demands_wake_only_who_meets_them_and_that_once<Q: Queue>(queue: &Q, _: &ManualClock) {
    let mut signals = queue.listen("api-1").await.unwrap();
    let reach = |parts: &[(u32, u32)]| -> Capability { parts.iter().copied().collect() };
    let able = reach(&[(0, 80), (7, 24), (8, 0)]);
    for (waiter, reach) in [(1, reach(&[(0, 80)])), (2, reach(&[(7, 8)])), (3, able.clone())] {
        assert!(queue.lease(LeaseQuery { reach, ..parking(0, waiter) }).await.unwrap().is_empty());
    }
    let picky = of(JobSpec { vram_class_gib: 16, demands: 7, ..spec("echo") });
    let id = picky.id;
    queue.submit(vec![picky]).await.unwrap();
    assert_eq!(signals.recv().await, Some(Signal::Wake(3)));
    assert!(
        !queue.unpark(&Waiter { replica: "api-1".into(), waiter: 3 }, &able).await.unwrap(),
        "it is on no list any more"
    );
    queue.submit(vec![of(JobSpec { demands: 8, ..spec("echo") })]).await.unwrap();
    assert!(signals.try_recv().is_err(), "who met these demands is gone");

    assert!(queue.lease(query(10, 141)).await.unwrap().is_empty(), "a large card that does not meet them");
    assert!(queue.lease(LeaseQuery { reach: reach(&[(7, 8)]), ..query(10, 0) }).await.unwrap().is_empty());
    let leases = queue.lease(LeaseQuery { reach: reach(&[(7, 16)]), ..query(10, 0) }).await.unwrap();
    assert_eq!(leases.iter().map(|lease| (lease.job_id, lease.spec.demands)).collect::<Vec<_>>(), [(id, 7)]);
    let outgrown = outgrow(&leases[0], Outgrown::To(24));
    queue.finish(&[outgrown]).await.unwrap();
    let job = queue.get(id).await.unwrap().unwrap();
    assert_eq!(
        (job.state, job.spec.vram_class_gib, job.spec.demands),
        (JobState::Queued, 24, 7),
        "what it asks for stays"
    );
    let again = queue.lease(LeaseQuery { reach: reach(&[(7, 24)]), ..query(10, 0) }).await.unwrap();
    assert_eq!(again[0].job_id, id);
}

pub(crate) async fn who_has_the_model_is_woken_then_the_cheapest<Q: Queue>(queue: &Q, _: &ManualClock) {
    let mut signals = queue.listen("api-1").await.unwrap();
    let waits = async |waiter, reach_gib, rank, warm: &[&str]| {
        let warm = warm.iter().map(|place| super::warm(place, 1)).collect();
        let query = LeaseQuery { rank, warm, ..parking(reach_gib, waiter) };
        assert!(queue.lease(query).await.unwrap().is_empty());
    };
    let place = "8:acme:echo";
    waits(1, 24, 500, &[]).await;
    waits(2, 24, 100, &[]).await;
    waits(3, 80, 900, &[place, "0:acme:other"]).await;
    waits(4, 4, 0, &[place]).await;
    let submit = async || queue.submit(vec![of(JobSpec { vram_class_gib: 8, ..spec("echo") })]).await.unwrap();
    let order =
        [(4, "it has the model, and is the cheaper"), (3, "it has the model"), (2, "it is cheaper"), (1, "it is left")];
    for (woken, why) in order {
        submit().await;
        assert_eq!(signals.recv().await, Some(Signal::Wake(woken)), "{why}");
    }
    waits(5, 4, 0, &["4:acme:echo"]).await;
    submit().await;
    assert!(signals.try_recv().is_err(), "its card is too small for what the model needs by now");
}

pub(crate) async fn a_wake_is_passed_on_while_there_is_work<Q: Queue>(queue: &Q, _: &ManualClock) {
    let mut signals = queue.listen("api-1").await.unwrap();
    for waiter in 1..=3 {
        queue.lease(parking(0, waiter)).await.unwrap();
    }
    queue.submit(vec![job("echo"), job("echo")]).await.unwrap();
    assert_eq!(signals.recv().await, Some(Signal::Wake(1)));
    one(queue).await;
    assert_eq!(signals.recv().await, Some(Signal::Wake(2)), "the first left a job: the next is woken");
    one(queue).await;
    assert!(signals.try_recv().is_err(), "nothing is left: the third sleeps on");
}

pub(crate) async fn a_waiter_that_left_says_whether_a_wake_is_under_way<Q: Queue>(queue: &Q, _: &ManualClock) {
    let mut signals = queue.listen("api-1").await.unwrap();
    let waiter = |waiter| Waiter { replica: "api-1".into(), waiter };
    queue.lease(parking(0, 1)).await.unwrap();
    assert!(queue.unpark(&waiter(1), &Capability::usual(0)).await.unwrap(), "nothing was under way");

    queue.lease(parking(0, 2)).await.unwrap();
    queue.lease(parking(0, 3)).await.unwrap();
    queue.submit(vec![job("echo")]).await.unwrap();
    assert_eq!(signals.recv().await, Some(Signal::Wake(2)));
    assert!(!queue.unpark(&waiter(2), &Capability::usual(0)).await.unwrap());
    queue.wake_next().await.unwrap();
    assert_eq!(signals.recv().await, Some(Signal::Wake(3)), "the wake is not lost");
}

pub(crate) async fn a_watched_job_signals_each_change<Q: Queue>(queue: &Q, _: &ManualClock) {
    let mut signals = queue.listen("api-1").await.unwrap();
    let new = job("echo");
    let id = new.id;
    queue.submit(vec![new, job("unwatched")]).await.unwrap();
    assert_eq!(queue.watch(id, "api-1").await.unwrap().unwrap().state, JobState::Queued);
    let leases = queue.lease(query(2, 0)).await.unwrap();
    assert_eq!(signals.recv().await, Some(Signal::Job(id)));
    queue.finish(&leases.iter().map(succeed).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(signals.recv().await, Some(Signal::Job(id)));
    assert_eq!(queue.watch(id, "api-1").await.unwrap().unwrap().state, JobState::Succeeded);
    assert!(signals.try_recv().is_err(), "the other job is nobody's business");
}

pub(crate) async fn who_submits_hears_of_the_job_without_asking<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let mut signals = queue.listen("api-1").await.unwrap();
    let mut others = queue.listen("api-2").await.unwrap();
    let new = NewJob { watcher: Some("api-1".into()), ..job("echo") };
    let id = new.id;
    queue.submit(vec![new]).await.unwrap();
    let lease = one(queue).await;
    assert_eq!(signals.recv().await, Some(Signal::Job(id)));
    // Watching again, or watching by another replica, takes nothing from the first.
    queue.watch(id, "api-1").await.unwrap();
    queue.watch(id, "api-2").await.unwrap();
    clock.advance_ms(LEASE_MS - 1);
    succeeds(queue, &lease).await;
    for signals in [&mut signals, &mut others] {
        assert_eq!(signals.recv().await, Some(Signal::Job(id)));
        assert!(signals.try_recv().is_err());
    }
}

pub(crate) async fn events_are_kept_in_order_and_only_from_the_holder<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit(vec![job("echo")]).await.unwrap();
    let lease = one(queue).await;
    let event = |fence: &Fence, event| JobEventReport { job_id: lease.job_id, fence: fence.clone(), event };
    let log = |text: &str| JobMessage::Log { stream: LogStream::Stdout, text: text.into() };
    let progress = JobMessage::Progress { fraction: 0.5, message: "half".into() };
    let stale = Fence::new(lease.fence.counter(), "0000000000000000");
    let events = [event(&lease.fence, log("one")), event(&stale, log("forged")), event(&lease.fence, progress)];
    queue.append_events(&events).await.unwrap();

    let kept = queue.read_events(lease.job_id, "", 10).await.unwrap();
    assert_eq!(kept.len(), 2);
    assert!(matches!(&kept[0].message, JobMessage::Log { text, .. } if text == "one"));
    assert_eq!(kept[0].attempt, 1);
    let rest = queue.read_events(lease.job_id, &kept[0].id, 10).await.unwrap();
    assert!(matches!(&rest[..], [event] if matches!(event.message, JobMessage::Progress { .. })));
    let job = queue.get(lease.job_id).await.unwrap().unwrap();
    assert_eq!(job.progress.unwrap().message, "half");
}

pub(crate) async fn outputs_that_readers_have_are_stored_without_a_signal<Q: Queue>(queue: &Q, _: &ManualClock) {
    let mut signals = queue.listen("api-1").await.unwrap();
    let new = NewJob { watcher: Some("api-1".into()), ..job("echo") };
    let id = new.id;
    queue.submit(vec![new]).await.unwrap();
    let lease = one(queue).await;
    assert_eq!(signals.recv().await, Some(Signal::Job(id)));
    let report = |event| JobEventReport { job_id: id, fence: lease.fence.clone(), event };
    let outputs = |index: u64| report(JobMessage::Outputs { index, values: vec![raw("1"), raw("2")] });
    queue.append_relayed(&[outputs(0)]).await.unwrap();
    let log = report(JobMessage::Log { stream: LogStream::Stdout, text: "a line".into() });
    queue.append_relayed(&[outputs(2), log]).await.unwrap();
    assert_eq!(signals.recv().await, Some(Signal::Job(id)), "for the line");
    queue.append_events(&[outputs(4)]).await.unwrap();
    assert_eq!(signals.recv().await, Some(Signal::Job(id)));
    assert!(signals.try_recv().is_err());
    let kept = queue.read_outputs(id, OutputsPosition::default(), 10).await.unwrap();
    assert_eq!(kept.iter().map(|kept| (kept.index, kept.values.len())).collect::<Vec<_>>(), [(0, 2), (2, 2), (4, 2)]);
}

pub(crate) async fn outputs_are_found_by_their_index_within_bounds_and_only_from_the_holder<Q: Queue>(
    queue: &Q,
    clock: &ManualClock,
) {
    queue.submit(vec![job("echo")]).await.unwrap();
    let first = one(queue).await;
    let say = async |fence: &Fence, index: u64, values: &[&str]| {
        let values = values.iter().map(|value| raw(value)).collect();
        let event = JobMessage::Outputs { index, values };
        queue.append_events(&[JobEventReport { job_id: first.job_id, fence: fence.clone(), event }]).await.unwrap();
    };
    let read = async |attempt, next| {
        let kept = queue.read_outputs(first.job_id, OutputsPosition { attempt, next }, 2_000).await.unwrap();
        let shown = |kept: &KeptOutputs| {
            let values: Vec<&str> = kept.values.iter().map(|value| value.get()).collect();
            format!("{} {} {}", kept.attempt, kept.index, values.join(" "))
        };
        kept.iter().map(shown).collect::<Vec<String>>()
    };
    say(&first.fence, 0, &["1.50", "{\"a\": \"ü\"}"]).await;
    say(&Fence::new(first.fence.counter(), "0000000000000000"), 2, &["\"forged\""]).await;
    let single = JobMessage::Output { index: 2, value: raw("null") };
    let single = JobEventReport { job_id: first.job_id, fence: first.fence.clone(), event: single };
    queue.append_events(&[single]).await.unwrap();
    // The same message again, and the message before it.
    say(&first.fence, 2, &["null"]).await;
    say(&first.fence, 0, &["1.50"]).await;
    assert_eq!(read(0, 0).await, ["1 0 1.50 {\"a\": \"ü\"}", "1 2 null"]);
    assert_eq!(read(1, 1).await, ["1 0 1.50 {\"a\": \"ü\"}", "1 2 null"], "the second of the first lies after it");
    assert_eq!(read(1, 2).await, ["1 2 null"]);
    // The end of an attempt.
    say(&first.fence, 3, &[]).await;
    assert_eq!(read(1, 3).await, ["1 3 "]);
    assert!(queue.read_events(first.job_id, "", 10).await.unwrap().is_empty());

    clock.advance_ms(LEASE_MS);
    queue.reap().await.unwrap();
    let second = one(queue).await;
    say(&second.fence, 0, &["7"]).await;
    assert_eq!(read(1, 3).await, ["1 3 ", "2 0 7"]);
    let large = format!("\"{}\"", noise(OUTPUTS_BYTES_KEPT / 4));
    for index in 1..7 {
        say(&second.fence, index, &[&large]).await;
    }
    let kept = queue.read_outputs(first.job_id, OutputsPosition::default(), 10).await.unwrap();
    assert_eq!(kept.iter().map(|kept| kept.index).collect::<Vec<_>>(), [4, 5, 6]);
    for index in 7..2_000 {
        say(&second.fence, index, &["0"]).await;
    }
    let kept = queue.read_outputs(first.job_id, OutputsPosition::default(), 2_000).await.unwrap();
    // Redis trims a stream by whole nodes of 100 entries.
    assert!((OUTPUTS_KEPT..OUTPUTS_KEPT + 100).contains(&kept.len()), "{}", kept.len());
    assert_eq!(kept[0].index, 2_000 - kept.len() as u64);
}
