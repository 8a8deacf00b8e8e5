//! Runs rounds so that a panic or a hang of one does not end the loop.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::timeout;

use crate::metrics;

/// Runs a round of a duty with a timeout. `None` if it panicked or timed out, which is logged and counted.
pub(crate) async fn guarded<T>(duty: &'static str, most: Duration, round: impl Future<Output = T>) -> Option<T> {
    match timeout(most, AssertUnwindSafe(round).catch_unwind()).await {
        Ok(Ok(done)) => return Some(done),
        Ok(Err(panic)) => {
            tracing::error!(duty, panic = text(&*panic), "a round panicked; the next one follows");
            metrics::round_failed(duty, "panic");
        }
        Err(_) => {
            tracing::error!(duty, after_s = most.as_secs(), "a round timed out; the next one follows");
            metrics::round_failed(duty, "timeout");
        }
    }
    None
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("of no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_round_that_panics_or_never_ends_is_over_and_the_next_one_works() {
        let most = Duration::from_secs(5);
        assert_eq!(guarded("tested", most, async { panic!("planted") }).await, None::<()>);
        assert_eq!(guarded("tested", most, std::future::pending::<()>()).await, None);
        assert_eq!(guarded("tested", most, async { 7 }).await, Some(7));
        assert_eq!(text(&"owned".to_owned() as &(dyn Any + Send)), "owned");
        assert_eq!(text(&7_u8 as &(dyn Any + Send)), "of no text");
    }
}
