//! Feeding: the valid lines of a batch become jobs, few enough at a time that the queue's memory never holds the whole
//! batch.

use stokehold_queue::batches::{Batch, FeedPosition};
use stokehold_queue::job::{BatchLine, JobSpec, NewJob};
use stokehold_queue::queue::{BatchGuard, Submitted};
use stokehold_queue::{Error as QueueError, JobId, now_ms};

use super::bits::Lines;
use super::lines::{self, Item};
use super::reader::Reader;
use super::{Error, Runner, prompt_order};
use crate::jobs::inputs;
use crate::jobs::submit::Target;
use crate::metrics;

/// Maximum number of jobs of one batch in the queue, including ended ones that have not been collected.
const WINDOW: u64 = 5_000;

/// Time after which an ended job moves to the archive, milliseconds. It keeps the jobs of a large batch from filling
/// the queue's memory.
const KEPT_MS: u64 = 20_000;

/// Maximum number of jobs fed in one call, and the number of bytes that ends a chunk earlier.
const CHUNK_JOBS: u64 = 500;
const CHUNK_BYTES: usize = 4 << 20;

/// Bytes that are read from S3 at a time: about the size of a chunk of short lines.
const PIECE: u64 = 256 << 10;

/// Minimum number of free places for a call to feed jobs: a call costs more than a job.
const ROOM_MIN: u64 = 100;

impl Runner {
    /// Feeds the next lines if there is room, and returns whether it did.
    pub(super) async fn feed(&self, batch: &Batch) -> Result<bool, Error> {
        let left = batch.accepted().saturating_sub(batch.fed);
        let held = batch.fed.saturating_sub(batch.collected);
        let room = WINDOW.saturating_sub(held);
        if batch.stop.is_some() || left == 0 || room < ROOM_MIN.min(left) {
            return Ok(false);
        }
        let wrong = self.wrong_lines(batch).await?;
        let (mut reader, mut place) = self.reader(batch, &wrong, batch.fed).await?;
        let (tried, from) = (self.tried(batch).await?, place.lines + 1);
        let mut tried = tried.iter().flat_map(|tried| tried.jobs_from(from));
        let (mut jobs, mut bytes, mut has_prompts) = (Vec::new(), 0, false);
        let most = room.min(left).min(CHUNK_JOBS);
        while (jobs.len() as u64) < most && bytes < CHUNK_BYTES {
            let Some(line) = reader.next().await? else { break };
            place.lines = line.number;
            place.bytes = line.end;
            let retry_of = tried.next();
            if wrong.contains(line.number) {
                continue;
            }
            let text = line.text.unwrap_or_default();
            bytes += text.len();
            let item = lines::parse(&text, batch.spec.format).map_err(|wrong| {
                Error::Broken(format!(
                    "line {} was valid at validation and no longer is: {}",
                    line.number, wrong.message
                ))
            })?;
            let target = self.target(batch, &item).await?;
            has_prompts |= prompt_order::is_server(&target.deployed.version.spec);
            jobs.push(job(batch, line.number, item, &target, retry_of));
        }
        if jobs.is_empty() {
            return Err(Error::Broken(format!("the input ends before line {}, for which a job is due", batch.fed + 1)));
        }
        if has_prompts {
            prompt_order::order(&mut jobs);
        }
        let to_line = batch.fed + jobs.len() as u64;
        let guard = BatchGuard { batch: batch.id.clone(), from_line: batch.fed, to_line };
        self.app.large_inputs.store(&mut jobs).await?;
        match self.shard.feed(&guard, &jobs).await {
            Ok(submitted) => {
                let new = submitted.iter().filter(|outcome| matches!(outcome, Submitted::New(_))).count();
                metrics::submitted(batch.spec.priority, new as u64);
            }
            // Another replica was faster, or the batch was stopped: read it again.
            Err(QueueError::StaleGuard) => return Ok(true),
            // Collecting ended jobs frees memory; until then there is none.
            Err(error @ (QueueError::Closed(_) | QueueError::Memory { .. })) => {
                tracing::warn!(batch.id = batch.id, %error, "the batch's next lines must wait");
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        self.batches.note_place(&batch.id, FeedPosition { jobs: to_line, ..place }).await?;
        Ok(true)
    }

    /// A reader of the batch's lines after the first `jobs` valid ones, and its position.
    pub(super) async fn reader(
        &self,
        batch: &Batch,
        wrong: &Lines,
        jobs: u64,
    ) -> Result<(Reader, FeedPosition), Error> {
        let key = batch.input.as_ref().ok_or_else(|| Error::Broken("a running batch has no input".to_owned()))?;
        let mut place = if batch.place.jobs <= jobs { batch.place } else { FeedPosition::default() };
        let mut reader = Reader::new(&self.app.objects, key, place.lines, place.bytes).with_piece(PIECE);
        while place.jobs < jobs {
            let Some(line) = reader.next().await? else { break };
            place.lines = line.number;
            place.bytes = line.end;
            place.jobs += u64::from(!wrong.contains(line.number));
        }
        Ok((reader, place))
    }

    /// The endpoint of a line, in the version against which it was validated.
    async fn target(&self, batch: &Batch, item: &Item) -> Result<Target, Error> {
        let name = item.endpoint.as_deref().unwrap_or(&batch.spec.endpoint);
        Ok(Target::resolve(&self.app, &batch.spec.tenant, name, batch.versions.get(name).copied()).await?)
    }
}

/// Builds the job of one line.
fn job(batch: &Batch, line: u64, item: Item, target: &Target, retry_of: Option<JobId>) -> NewJob {
    let spec = &batch.spec;
    let id = JobId::of_line(&batch.id, spec.created_ms, line, target.shard);
    let (defaults, now) = (target.spec(&spec.tenant), now_ms());
    let spec = JobSpec {
        pinned: spec.version.is_some(),
        priority: spec.priority,
        timeout_ms: spec.timeout_s.map_or(defaults.timeout_ms, |seconds| seconds * 1000),
        max_attempts: spec.max_attempts.unwrap_or(defaults.max_attempts),
        metadata: item.metadata,
        files: inputs::files_of(item.input.get()),
        // A line may start until its batch must have ended.
        start_by_ms: if spec.deadline_ms.is_none() { target.start_by_ms(now, now, None) } else { None },
        deadline_ms: spec.deadline_ms,
        retention_ms: Some(KEPT_MS),
        retry_of,
        batch: Some(BatchLine { id: batch.id.clone(), line, custom_id: item.custom_id }),
        ..defaults
    };
    NewJob::new(id, spec, item.input)
}
