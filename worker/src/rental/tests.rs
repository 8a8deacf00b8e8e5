#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

const LIMIT: Duration = Duration::from_secs(1200);

/// A clock set by the test, in seconds.
fn clock() -> (Arc<AtomicU64>, impl Fn() -> Duration) {
    let shown = Arc::new(AtomicU64::new(1_000));
    let seconds = shown.clone();
    (shown, move || Duration::from_secs(seconds.load(Ordering::SeqCst)))
}

#[tokio::test]
async fn who_never_reached_anybody_is_overdue_after_the_limit_and_who_did_later() {
    let folder = tempfile::tempdir().unwrap();
    let (shown, clock) = clock();
    let reached = Reached::by(Arc::new(clock), folder.path());
    assert_eq!(reached.left(LIMIT), LIMIT);
    shown.store(2_199, Ordering::SeqCst);
    assert_eq!(reached.left(LIMIT), Duration::from_secs(1));
    reached.now();
    assert_eq!(reached.left(LIMIT), LIMIT);
    shown.store(3_399, Ordering::SeqCst);
    reached.overdue(LIMIT).await;
}

#[tokio::test]
async fn the_clock_goes_on_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    Reached::new(folder.path()).overdue(Duration::from_millis(30)).await;
}

#[tokio::test]
async fn that_it_was_reached_is_noted_once_a_minute() {
    let folder = tempfile::tempdir().unwrap();
    let (passed, clock) = clock();
    let (reached, file) = (Reached::by(Arc::new(clock), folder.path()), folder.path().join("reached"));
    let noted = async || {
        while !file.exists() {
            tokio::task::yield_now().await;
        }
        std::fs::remove_file(&file).unwrap();
    };
    reached.now();
    noted().await;
    passed.store(1_059, Ordering::SeqCst);
    reached.now();
    passed.store(1_060, Ordering::SeqCst);
    reached.now();
    noted().await;
}

#[test]
fn the_key_does_not_print() {
    let rental = Rental {
        url: "https://provider.test".to_owned(),
        instance: "7".to_owned(),
        key: Secret::new("verysecret"),
        limit: LIMIT,
    };
    assert!(!format!("{rental:?}").contains("verysecret"));
}
