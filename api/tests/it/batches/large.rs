//! A batch of 100,000 lines.

use super::*;

/// Peak memory of this process, MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// `STOKE_TEST_LINES` lines (100,000), of which 1 % are invalid and 2 % fail, and workers that take jobs and disappear.
/// Everything is in one process: API, object store, workers, and this test with its map of each line's end.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; run it alone, since it looks at the memory of its process"]
async fn a_large_batch_takes_little_memory_and_loses_nothing() {
    let total: u64 = std::env::var("STOKE_TEST_LINES").map_or(100_000, |text| text.parse().unwrap());
    let stack = Stack::start_with(|config| config.redis.lease_ms = 3_000).await;
    stack.deploy_echo().await;
    let line = |n: u64| match n % 100 {
        0 => "{\"input\": {\"text\": 1}}\n".to_owned(),
        1 | 2 => format!("{{\"custom_id\": \"c{n}\", \"input\": {{\"text\": \"fail {n}\"}}}}\n"),
        _ => format!("{{\"custom_id\": \"c{n}\", \"input\": {{\"text\": \"say {n}, {}\"}}}}\n", "x".repeat(100)),
    };
    let chunks = (1..=total).step_by(1_000).map(move |from| {
        let text: String = (from..(from + 1_000).min(total + 1)).map(line).collect();
        Ok::<_, std::io::Error>(text)
    });
    let body = reqwest::Body::wrap_stream(futures::stream::iter(chunks));
    let request = stack.request(reqwest::Method::POST, "/v1/batches?endpoint=echo&on_invalid=skip");
    let request = request.header("content-type", "application/jsonl").timeout(20 * PATIENCE).body(body);
    let id = id_of(&stack.json(request).await);
    println!("sent: {} MiB at most", peak_mib());
    let (mut rounds, started) = (0u64, std::time::Instant::now());
    loop {
        let worked = futures::future::join_all((0..4).map(|_| work(&stack.queue))).await.into_iter().sum::<usize>();
        rounds += 1;
        if rounds.is_multiple_of(200) {
            // A worker that dies with the jobs that it holds.
            let query = LeaseQuery::new(format!("dead{rounds}"), 50, Capability::usual(0));
            stack.queue.lease(query).await.unwrap();
        }
        if worked == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if rounds.is_multiple_of(50) || worked == 0 {
            let batch = look(&stack, &id).await;
            if rounds.is_multiple_of(500) {
                println!("{:?} {} MiB {}", started.elapsed(), peak_mib(), batch["counts"]);
            }
            if !batch["ended_at"].is_null() {
                assert_eq!(batch["state"], "completed");
                break;
            }
        }
    }
    println!("ended after {:?}: {} MiB at most", started.elapsed(), peak_mib());
    let peak = peak_mib();
    assert!(peak < 300, "{peak} MiB");
    let told = told(&stack, &id).await;
    assert_eq!(told.len() as u64, total);
    assert_eq!((count(&told, "invalid"), count(&told, "failed")), (total / 100, total / 50));
    assert_eq!(count(&told, "succeeded"), total - total / 100 - total / 50);
}
