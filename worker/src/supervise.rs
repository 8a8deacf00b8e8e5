//! Keeps what a worker does beside its jobs going: what panicked is started again, and no job waits for ever for one whose attempt panicked.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::{Instant, sleep};

use crate::metrics;

/// The pause after a panic. It doubles with each that follows soon.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A panic that comes after so long is a first one.
const WELL: Duration = Duration::from_secs(300);

/// Runs `work`. A panic is logged and counted, and its text returned.
pub(crate) async fn guarded<T>(name: &'static str, work: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| {
        let text = text(&*panic).to_owned();
        tracing::error!(name, panic = text, "a part of this worker panicked");
        metrics::panicked(name);
        text
    })
}

/// Runs a duty until it ends by itself, and starts it again after a panic.
pub(crate) async fn kept<F: Future>(duty: &'static str, start: impl Fn() -> F) -> F::Output {
    let mut pause = PAUSE_MIN;
    loop {
        let begun = Instant::now();
        match guarded(duty, start()).await {
            Ok(done) => return done,
            Err(_) if begun.elapsed() > WELL => pause = PAUSE_MIN,
            Err(_) => {}
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("of no text")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use stokehold_queue::gateway::{FinishOutcome, LeaseRef};
    use stokehold_queue::job::ErrorCode;
    use stokehold_queue::{Fence, JobId};

    use super::*;
    use crate::attempt::End;

    #[tokio::test]
    async fn an_attempt_that_panics_is_reported_and_costs_no_attempt_of_the_handlers() {
        let lease = LeaseRef { job_id: JobId::new(0), fence: Fence("1.x".to_owned()) };
        let ran = guarded("attempt", async { panic!("planted") }).await;
        let End::Report(report) = ran.unwrap_or_else(|panic| End::panicked(&lease, &panic)) else {
            panic!("no report")
        };
        let FinishOutcome::Failed { error } = &report.outcome else { panic!("{report:?}") };
        assert_eq!((error.code, &*error.message), (ErrorCode::Infra, "the worker panicked: planted"));
        assert_eq!((report.job_id, &report.fence), (lease.job_id, &lease.fence));
    }

    #[tokio::test]
    async fn a_duty_that_panics_is_started_again_until_it_ends() {
        let starts = AtomicU32::new(0);
        let ended = kept("tested", || async {
            match starts.fetch_add(1, Ordering::Relaxed) {
                0 => panic!("planted"),
                start => start,
            }
        });
        assert_eq!(ended.await, 1);
    }

    #[tokio::test]
    async fn a_panic_has_its_text() {
        assert_eq!(guarded("tested", async { panic!("plain") }).await, Err::<(), _>("plain".to_owned()));
        assert_eq!(guarded("tested", async { panic!("{}", 7) }).await, Err::<(), _>("7".to_owned()));
        assert_eq!(guarded("tested", async { 7 }).await, Ok(7));
    }
}
