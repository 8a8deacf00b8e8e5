//! Exclusive work on a batch.

use std::pin::Pin;
use std::time::Duration;

use stokehold_queue::batches::Batch;
use tokio::time::sleep;

use super::{Error, HOLD_MS, Runner};

impl Runner {
    /// Takes or renews this replica's role for the batch, for the next [`HOLD_MS`]. Returns whether it has the role.
    pub(super) async fn hold(&self, id: &str) -> Result<bool, Error> {
        Ok(self.shard.claim_role(&format!("batch:{id}"), &self.app.replica, HOLD_MS).await?)
    }

    /// Runs a long step and renews this replica's role meanwhile. Stops the step if the role could not be renewed for
    /// too long.
    pub(super) async fn holding<T>(
        &self,
        batch: &Batch,
        step: Pin<Box<impl Future<Output = Result<T, Error>>>>,
    ) -> Result<T, Error> {
        let keep = async {
            loop {
                sleep(Duration::from_millis(HOLD_MS / 3)).await;
                match self.hold(&batch.id).await {
                    Ok(true) => {}
                    Ok(false) => return,
                    // The role may be lost, but the step is safe all the same.
                    Err(error) => tracing::warn!(batch.id = batch.id, %error, "cannot renew the lock on a batch"),
                }
            }
        };
        tokio::select! {
            done = step => done,
            () = keep => Err(Error::Overtaken),
        }
    }
}
