//! Tests of how messages are merged, cut and dropped.

use stokehold_protocol::gateway::LogStream;

use super::send::singly;
use super::*;

fn log(text: &str) -> JobMessage {
    JobMessage::Log { stream: LogStream::Stdout, text: text.to_owned() }
}

#[test]
fn neighbours_merge_and_order_stays() {
    let progress = |fraction| JobMessage::Progress { fraction, message: String::new() };
    let few = merged(vec![log("a\n"), log("b\n"), progress(0.1), progress(0.2), log("c\n")]);
    assert_eq!(few.len(), 4);
    assert!(matches!(&few[0], JobMessage::Log { text, .. } if text == "a\nb\n"));
    assert!(matches!(few[1], JobMessage::Progress { fraction, .. } if fraction < 0.15));
    assert!(matches!(few[2], JobMessage::Progress { fraction, .. } if fraction > 0.15));
    let many = merged((0..50).map(|n| progress(f64::from(n))).collect());
    assert!(matches!(many[..], [JobMessage::Progress { fraction, .. }] if fraction > 48.0));
}

#[test]
fn a_long_text_is_cut_at_characters() {
    let text = "é".repeat(100_000);
    let merged = merged(vec![log(&text)]);
    let joined: String = merged
        .iter()
        .filter_map(|m| if let JobMessage::Log { text, .. } = m { Some(text.as_str()) } else { None })
        .collect();
    assert!(merged.len() > 2);
    assert_eq!(joined, text);
}

fn output(index: u64, text: &str) -> JobMessage {
    let value = serde_json::value::to_raw_value(text).unwrap();
    JobMessage::Output { index, value }
}

#[tokio::test]
async fn outputs_that_come_together_are_one_message_within_its_bounds() {
    let pending = Pending::default();
    for index in 0..20_000 {
        assert!(pending.put(output(index, "token")), "{index}");
    }
    assert!(pending.put(log("a line\n")) && pending.put(output(20_000, "last")));
    pending.close();
    let mut sent = Vec::new();
    while let Some(batch) = pending.batch().await {
        sent.extend(batch);
    }
    assert!(sent.len() < 100, "{}", sent.len());
    assert!(sent.iter().all(|message| size(message) <= MERGED_BYTES));
    let expected: Vec<u64> = (0..=20_000).collect();
    let singly = singly(sent);
    let indexes = |messages: &[JobMessage]| -> Vec<u64> {
        let index = |message: &JobMessage| match message {
            JobMessage::Output { index, .. } => Some(*index),
            _ => None,
        };
        messages.iter().filter_map(index).collect()
    };
    assert_eq!(indexes(&singly), expected);
    assert!(matches!(&singly[20_000], JobMessage::Log { .. }), "order stays");
    assert!(matches!(pending.end(), Some(JobMessage::Outputs { index: 20_001, values }) if values.is_empty()));
}

#[tokio::test]
async fn what_is_too_much_is_lost_and_its_index_missing() {
    let pending = Pending::default();
    let large = "x".repeat(1 << 20);
    assert_eq!((0..10).filter(|index| pending.put(output(*index, &large))).count(), 7);
    assert!(pending.batch().await.is_some(), "and there is room again");
    assert!(pending.put(output(10, "small")));
    pending.close();
    while pending.batch().await.is_some() {}
    assert!(matches!(pending.end(), Some(JobMessage::Outputs { index: 11, .. })));
}

#[tokio::test(start_paused = true)]
async fn the_first_outputs_are_sent_at_once_and_the_next_ones_together() {
    let pending = Pending::default();
    tokio::time::sleep_until(next_moment(Instant::now())).await;
    let started = Instant::now();
    let took = || started.elapsed().as_millis();
    for index in 0..u64::from(CALLS_AT_ONCE) {
        assert!(pending.put(output(index, "first")));
        assert_eq!((pending.batch().await.unwrap().len(), took()), (1, 0));
    }
    assert!(pending.put(output(3, "fourth")));
    let (batch, ()) = tokio::join!(pending.batch(), async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(pending.put(output(4, "fifth")));
    });
    assert!(matches!(&batch.unwrap()[..], [JobMessage::Outputs { index: 3, values }] if values.len() == 2));
    assert_eq!(took(), OUTPUTS_EVERY.as_millis());
    // After a pause, an output does not wait, and the next one waits for the moment that is next.
    tokio::time::sleep(Duration::from_millis(85)).await;
    assert!(pending.put(output(5, "sixth")));
    assert_eq!((pending.batch().await.unwrap().len(), took()), (1, 105));
    assert!(pending.put(output(6, "seventh")));
    assert_eq!((pending.batch().await.unwrap().len(), took()), (1, 120));
}

#[tokio::test(start_paused = true)]
async fn log_lines_wait_for_others_and_an_output_takes_them_along() {
    let pending = Pending::default();
    let started = Instant::now();
    assert!(pending.put(log("one\n")));
    let (batch, ()) = tokio::join!(pending.batch(), async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(pending.put(output(0, "first")));
    });
    assert_eq!((batch.unwrap().len(), started.elapsed().as_millis()), (2, 5));
    assert!(pending.put(log("two\n")));
    assert_eq!(pending.batch().await.unwrap().len(), 1);
    assert_eq!(started.elapsed(), Duration::from_millis(5) + LINGER);
}
