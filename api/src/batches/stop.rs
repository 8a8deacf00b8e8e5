//! Cancelling the jobs of a stopped batch. The script that stopped it counts the lines that were never fed.

use stokehold_queue::batches::Batch;
use stokehold_queue::job::JobState;
use stokehold_queue::{BATCH_MAX, JobId, Queue};

use super::bits::Lines;
use super::{Error, Runner};

/// Jobs that are read in one call.
const PIECE: usize = 500;

impl Runner {
    /// Cancels the open jobs or, of a batch that drains, the jobs that have not started. The open jobs are among the
    /// last that were fed, so the search goes backwards and stops when none is left.
    pub(super) async fn cancel(&self, batch: &Batch) -> Result<(), Error> {
        if batch.drains && batch.open() <= batch.running {
            return Ok(());
        }
        let mut running = 0;
        let wrong = self.wrong_lines(batch).await?;
        let mut before = last_line(batch, &wrong) + 1;
        while before > 1 {
            let mut ids = Vec::with_capacity(PIECE);
            while before > 1 && ids.len() < PIECE {
                before -= 1;
                if !wrong.contains(before) {
                    ids.push(JobId::of_line(&batch.id, batch.spec.created_ms, before, self.shard.number()));
                }
            }
            let states = self.batches.states(&ids).await?;
            let may_end = |state: &JobState| batch.drains && *state == JobState::Running;
            running += states.iter().flatten().filter(|state| may_end(state)).count() as u64;
            let open: Vec<JobId> = ids
                .into_iter()
                .zip(states)
                .filter(|(_, state)| state.is_some_and(|state| !state.is_terminal() && !may_end(&state)))
                .map(|(id, _)| id)
                .collect();
            for ids in open.chunks(BATCH_MAX) {
                self.shard.cancel(&batch.spec.tenant, ids).await?;
            }
            if self.batches.get(&batch.id).await?.is_none_or(|now| now.open() <= running) {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Number of the last line that became a job.
fn last_line(batch: &Batch, wrong: &Lines) -> u64 {
    let handed = batch.handed.unwrap_or(batch.fed);
    let place = if batch.place.jobs <= handed { batch.place } else { Default::default() };
    let (mut jobs, mut line) = (place.jobs, place.lines);
    while jobs < handed && line < batch.total {
        line += 1;
        jobs += u64::from(!wrong.contains(line));
    }
    line
}
