//! The last stage: the parts are joined to one file of results and one of errors, and the batch ends.

use futures::{StreamExt, pin_mut};
use stokehold_objects::Upload;
use stokehold_queue::batches::Batch;

use super::lines::custom_id_of;
use super::results::{ErrorLine, Kind, pieces, whole_key};
use super::{Error, Runner};
use crate::openai::outputs;

/// Time for which parts are kept after their batch has ended, milliseconds, because a client may be reading them.
const PARTS_KEEP_MS: u64 = 60 * 60 * 1000;

impl Runner {
    /// Joins both files and ends the batch. Repeating it writes the same files again.
    pub(super) async fn complete(&self, batch: &Batch) -> Result<(), Error> {
        let (parts, _) = self.batches.parts(&batch.id, 0).await?;
        for kind in Kind::ALL {
            let mut whole = self.app.objects.upload(&whole_key(batch, kind), "application/jsonl");
            for part in parts.iter().filter(|part| kind.has(part)) {
                let pieces = pieces(self.app.clone(), format!("{}{part}", batch.prefix()));
                pin_mut!(pieces);
                while let Some(piece) = pieces.next().await {
                    whole.write(&piece?).await?;
                }
            }
            if kind == Kind::Errors {
                self.write_unfed(batch, &mut whole).await?;
            }
            whole.finish().await?;
        }
        if batch.spec.openai.is_some() {
            outputs::publish(&self.app, batch).await?;
        }
        if self.batches.end(&batch.id, PARTS_KEEP_MS).await? {
            tracing::info!(
                batch.id = batch.id,
                succeeded = batch.succeeded,
                failed = batch.failed,
                "a batch has ended"
            );
        }
        Ok(())
    }

    /// Writes the lines that were stopped before they became jobs.
    async fn write_unfed(&self, batch: &Batch, whole: &mut Upload) -> Result<(), Error> {
        let Some(handed) = batch.handed.filter(|handed| *handed < batch.accepted()) else { return Ok(()) };
        let wrong = self.wrong_lines(batch).await?;
        let (mut reader, _) = self.reader(batch, &wrong, handed).await?;
        let mut left = batch.accepted() - handed;
        while left > 0 {
            let Some(line) = reader.next().await? else { break };
            if !wrong.contains(line.number) {
                let custom_id = line.text.as_deref().and_then(custom_id_of);
                whole.write(&ErrorLine::unfed(line.number, custom_id.as_deref(), batch).text()).await?;
                left -= 1;
            }
        }
        Ok(())
    }
}
