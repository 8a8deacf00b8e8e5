//! Finds a loaded model for a job, and waits for the turn to run on it.

use stokehold_protocol::gateway::LeasedJob;
use stokehold_vram::Claim;

use super::{Attempt, Error, START_TIMEOUT};
use crate::pool::{ModelGuard, NotReady, Ready};
use crate::turns::Turn;

impl Attempt<'_> {
    /// Waits for a loaded model and the turn to run on it.
    pub(super) async fn place(
        &mut self,
        job: &LeasedJob,
        mut claim: Option<Claim>,
    ) -> Result<(ModelGuard, Turn, Ready), Error> {
        let (pool, lease) = (&self.shared.pool, self.lease);
        let (which, mut behind) = (job.model(), Some(job.behind));
        loop {
            let model = pool.model(&which, behind.take()).await.map_err(Error::Failed)?;
            self.slot.shares(model.endpoint.jobs_at_once(), model.endpoint.max_batch_size() > 1);
            let _starting = pool.starts(lease.job_id, &model);
            pool.grow(&model, lease);
            let Some(turn) = self.turn(&model).await? else { continue };
            let (model, ready) = if model.is_ready() {
                let ready = pool.ready(&model, Some(lease), claim.take()).await;
                (model, ready)
            } else {
                let here = model.here();
                let mut loading = pool.ready_apart(model, lease, claim.take());
                tokio::select! {
                    biased;
                    ready = loading.done() => ready?,
                    () = here.better_elsewhere() => {
                        loading.leave();
                        continue;
                    }
                }
            };
            match ready {
                // The job can wait for one of the endpoint's other models.
                Err(NotReady::NoRoom) if model.has_siblings() => model.endpoint.cannot_grow(),
                Err(not_ready) => return Err(not_ready.into()),
                Ok(ready) => {
                    // The load time is known now.
                    pool.grow(&model, lease);
                    return Ok((model, turn, ready));
                }
            }
        }
    }

    /// Waits for the model's turn and a free slot. `None` if another model of the endpoint can start the job.
    async fn turn(&mut self, model: &ModelGuard) -> Result<Option<Turn>, Error> {
        let (turn, elsewhere) = (model.turns.take(), model.better_elsewhere());
        tokio::pin!(turn, elsewhere);
        loop {
            tokio::select! {
                biased;
                () = self.shared.draining.cancelled() => return Err(Error::Released),
                turn = &mut turn => return turn.map(Some).ok_or(Error::Released),
                () = &mut elsewhere => return Ok(None),
                () = tokio::time::sleep(START_TIMEOUT) => {
                    if self.slot.is_too_many() || !model.may_begin() {
                        return Err(Error::Released);
                    }
                    // The notification may have woken another job, which did not move.
                    if model.is_better_elsewhere() {
                        return Ok(None);
                    }
                    self.shared.pool.grow(model, self.lease);
                }
            }
        }
    }
}
