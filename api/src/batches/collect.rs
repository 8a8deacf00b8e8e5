//! Collecting: the outcomes of ended jobs are written to S3, so that the queue may delete them.

use bytes::Bytes;
use stokehold_queue::batches::Batch;
use stokehold_queue::{nonce, now_ms};

use super::results::{Kind, ended_lines, written};
use super::{Error, Runner};

/// Number of jobs that are written at a time.
const PIECE: usize = 1_000;

/// Longest time for which fewer jobs wait for more, milliseconds: soon after it their jobs move to the archive.
const PATIENCE_MS: u64 = 10_000;

impl Runner {
    /// Writes the next ended jobs, and returns whether there were enough of them.
    pub(super) async fn collect(&self, batch: &Batch) -> Result<bool, Error> {
        let (collected, ids) = self.batches.uncollected(&batch.id, PIECE).await?;
        let since = batch.collected_ms.or(batch.started_ms).unwrap_or(0);
        let waits = batch.open() > 0 && now_ms() < since + PATIENCE_MS;
        if ids.is_empty() || (ids.len() < PIECE && waits) {
            return Ok(false);
        }
        let lines = ended_lines(&self.app.db, &self.app.jobs, &batch.spec.tenant, &ids).await?;
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        for line in &lines {
            let (kind, text) = written(line, batch.is_over_budget, &self.app.config.public_url);
            match kind {
                Kind::Output => output.extend_from_slice(&text),
                Kind::Errors => errors.extend_from_slice(&text),
            }
        }
        drop(lines);
        // A new name each time: another replica may be writing other objects now, and only one of the two is ever read.
        let (nonce, mut parts) = (nonce(), Vec::new());
        for (kind, text) in Kind::ALL.into_iter().zip([output, errors]) {
            if !text.is_empty() {
                let part = kind.part(collected, &nonce);
                let key = format!("{}{part}", batch.prefix());
                self.app.objects.put(&key, Bytes::from(text), "application/jsonl").await?;
                parts.push(part);
            }
        }
        if self.batches.collect(&batch.id, collected, ids.len(), &parts).await? {
            return Ok(true);
        }
        let keys: Vec<String> = parts.iter().map(|part| format!("{}{part}", batch.prefix())).collect();
        self.app.objects.delete(&keys).await?;
        Ok(true)
    }
}
