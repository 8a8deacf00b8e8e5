//! The jobs that the lines of a retry repeat: each was the job of a line of the earlier batch.

use std::sync::Arc;

use bytes::Bytes;
use stokehold_queue::JobId;
use stokehold_queue::batches::{Batch, Source};

use super::bits::Lines;
use super::{Error, Runner};

/// The earlier batch, and its lines that had jobs. Those without a job are the last ones: a deadline passed before they
/// were fed.
pub(super) struct Tried {
    batch: String,
    created_ms: u64,
    lines: Arc<Lines>,
    shard: u8,
}

impl Tried {
    /// Jobs that the lines of the retry repeat, from its line `from` (1, 2, ...) on.
    pub(super) fn jobs_from(&self, from: u64) -> impl Iterator<Item = JobId> {
        let lines = self.lines.starting_at(from);
        lines.map(|line| JobId::of_line(&self.batch, self.created_ms, line, self.shard))
    }
}

impl Runner {
    /// Stores which lines of the earlier batch had jobs.
    pub(super) async fn note_tried(&self, batch: &Batch, lines: &Lines) -> Result<(), Error> {
        let bits = Bytes::copy_from_slice(lines.as_bytes());
        Ok(self.app.objects.put(&key_of(batch), bits, "application/octet-stream").await?)
    }

    /// Reads which jobs a batch repeats; `None` when it is not a retry, or the earlier batch is no longer stored.
    pub(super) async fn tried(&self, batch: &Batch) -> Result<Option<Tried>, Error> {
        let Source::Retry { batch: old } = &batch.spec.source else { return Ok(None) };
        let Some(old) = self.batches.get(old).await? else { return Ok(None) };
        let lines = self.bitmap(&key_of(batch)).await?;
        Ok(Some(Tried { batch: old.id, created_ms: old.spec.created_ms, lines, shard: self.shard.number() }))
    }
}

fn key_of(batch: &Batch) -> String {
    format!("{}retry-of.bits", batch.prefix())
}
