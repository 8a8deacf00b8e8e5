//! The timeout of the queue before a client receives an error.

use std::time::Duration;

use stokehold_queue::Error as QueueError;
use tokio::time::timeout;

use crate::database::Error;
use crate::metrics;

/// Timeout of one call to the queue or the registry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueTimeout(pub(crate) Duration);

impl QueueTimeout {
    /// Asks; `step` completes "failed to ...".
    pub(crate) async fn ask<T>(
        self,
        step: &'static str,
        question: impl Future<Output = Result<T, QueueError>>,
    ) -> Result<T, Error> {
        match timeout(self.0, question).await {
            Ok(answer) => Ok(answer?),
            Err(_) => {
                metrics::queue_late();
                Err(Error::Timeout { step })
            }
        }
    }
}
