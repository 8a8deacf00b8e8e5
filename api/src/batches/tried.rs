//! What the lines of a retry try again: each the job of a line of the batch before.

use std::sync::Arc;

use bytes::Bytes;
use stokehold_queue::JobId;
use stokehold_queue::batches::{Batch, Source};

use super::bits::Lines;
use super::{Error, Runner};

/// The batch before, and which of its lines had jobs. Those that had none are the last ones: a deadline came before their turn.
pub(super) struct Tried {
    batch: String,
    created_ms: u64,
    lines: Arc<Lines>,
    shard: u8,
}

impl Tried {
    /// What the lines of the retry try again, from its line `from` (1, 2, ...) on.
    pub(super) fn jobs_from(&self, from: u64) -> impl Iterator<Item = JobId> {
        let lines = self.lines.starting_at(from);
        lines.map(|line| JobId::of_line(&self.batch, self.created_ms, line, self.shard))
    }
}

impl Runner {
    /// Remembers which lines of the batch before had jobs.
    pub(super) async fn note_tried(&self, batch: &Batch, lines: &Lines) -> Result<(), Error> {
        let bits = Bytes::copy_from_slice(lines.as_bytes());
        Ok(self.app.objects.put(&key_of(batch), bits, "application/octet-stream").await?)
    }

    /// What a batch tries again; `None` when it is no retry, or the batch before is not kept any more.
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
