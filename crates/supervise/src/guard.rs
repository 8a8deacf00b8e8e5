//! Catches panics.

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;

use crate::metrics;
use crate::state::RoundFailure;

/// A panic that was caught and logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panic(String);

impl Panic {
    /// The message of the panic.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panicked: {}", self.0)
    }
}

impl std::error::Error for Panic {}

/// Runs a part of a duty. A panic is caught and logged.
///
/// # Errors
/// The panic.
pub async fn guard<T>(duty: &'static str, work: impl Future<Output = T>) -> Result<T, Panic> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| caught(duty, &*panic))
}

/// Runs work that a duty started beside its rounds. A panic is caught, logged and counted as a failed round of the
/// duty.
///
/// # Errors
/// The panic.
pub async fn guard_beside<T>(duty: &'static str, work: impl Future<Output = T>) -> Result<T, Panic> {
    guard(duty, work).await.inspect_err(|_| metrics::failed(duty, RoundFailure::Panic))
}

/// [`guard_beside`] for work on a thread of its own.
///
/// # Errors
/// The panic.
pub fn guard_blocking<T>(duty: &'static str, work: impl FnOnce() -> T) -> Result<T, Panic> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        metrics::failed(duty, RoundFailure::Panic);
        caught(duty, &*panic)
    })
}

fn caught(duty: &'static str, panic: &(dyn Any + Send)) -> Panic {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    tracing::error!(duty, panic = text, "a background duty panicked");
    Panic(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_returned_with_its_message() {
        let message = |caught: Result<u8, Panic>| caught.map_err(|panic| panic.message().to_owned());
        assert_eq!(message(guard("tested", async { panic!("plain") }).await), Err("plain".to_owned()));
        assert_eq!(message(guard_beside("tested", async { panic!("{}", 7) }).await), Err("7".to_owned()));
        let other = guard("tested", async { std::panic::panic_any(7_u8) }).await;
        assert_eq!(message(other), Err("no message".to_owned()));
        assert_eq!(message(guard_blocking("tested", || panic!("sync"))), Err("sync".to_owned()));
        assert_eq!((guard("tested", async { 7 }).await, guard_blocking("tested", || 7)), (Ok(7), Ok(7)));
    }
}
