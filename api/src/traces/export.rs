//! The loop that sends the traces of ended jobs to a collector. Every replica with a configured collector runs it on
//! each shard; claims in Redis keep two replicas from sending the same trace. Each trace is sent once. If a replica
//! stops, or the collector's response is lost, before the trace is removed from the queue, the trace is sent once more
//! with the same IDs, which a trace store treats as the same spans. No request waits for an export.

use std::time::Duration;

use anyhow::Context;
use futures::{StreamExt, stream};
use stokehold_queue::outbox::DeliveryState;
use stokehold_queue::queue::Queue;
use stokehold_queue::traces::{CLAIM_MAX, Traces};
use stokehold_queue::{JobId, RedisQueue};
use stokehold_supervise::{BoxError, Duty};
use tokio::time::timeout;

use super::collector::{Collector, Error};
use super::job_trace::{JobTrace, trace_of};
use super::{deliveries, otlp};
use crate::config::traces::Exporter;
use crate::database;
use crate::metrics::{self, TraceDrop};
use crate::state::App;

/// Pause between two rounds. A full round is followed at once by the next.
const ROUND: Duration = Duration::from_secs(1);

/// Timeout of a round: three attempts at the longest timeout of a collector, plus reading.
const ROUND_MAX: Duration = Duration::from_secs(300);

/// Timeout for reading the traces to send.
const READ_MAX: Duration = Duration::from_secs(10);

/// Jobs that are read concurrently.
const AT_ONCE: usize = 16;

/// Duration of a claim, milliseconds. It is longer than reading and three attempts together, at the usual timeout. It
/// is also the pause before a trace is retried whose collector is unreachable.
const CLAIM_MS: u64 = 60_000;

/// Pause of a trace whose webhooks are not delivered yet, milliseconds.
const HOOKS_PAUSE_MS: u64 = 2_000;

/// Time after a job's end until which its trace waits for its webhooks, milliseconds. The exported trace omits later
/// delivery attempts; `GET /v1/jobs/{id}/trace` includes them.
const HOOKS_MAX_MS: u64 = 60_000;

/// Age at which a trace is dropped, milliseconds. A collector that is unreachable for longer does not receive it.
const GIVE_UP_MS: u64 = 10 * 60 * 1000;

/// Result of one round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Traces that the collector has received.
    pub(crate) sent: usize,
    /// Traces that were dropped.
    pub(crate) dropped: u64,
    /// Traces that wait for their webhooks or for the collector.
    pub(crate) waiting: usize,
    /// Set when more may be due.
    pub(crate) is_full: bool,
    /// Set when the collector accepts nothing at present.
    pub(crate) is_away: bool,
}

/// The export loop.
pub(crate) struct Sender {
    app: App,
    traces: Traces,
    queue: RedisQueue,
    collector: Collector,
    exporter: Exporter,
}

/// Outcomes for a claimed trace.
enum Fate {
    /// The trace is sent.
    Send(JobTrace),
    /// Its webhooks are not delivered yet.
    Wait,
    /// The trace is not sampled, or the job does not exist.
    Leave,
    /// The trace is too old to be sent.
    Drop,
}

impl Sender {
    /// Creates the loop for the traces of one shard.
    ///
    /// # Errors
    /// When the system's certificates cannot be read.
    pub(crate) fn new(app: App, shard: &RedisQueue, exporter: Exporter) -> anyhow::Result<Self> {
        let collector =
            Collector::new(exporter.clone()).context("failed to set up the HTTP client that exports traces")?;
        Ok(Self { app, traces: shard.traces(), queue: shard.clone(), collector, exporter })
    }

    /// Claims due traces and sends them.
    ///
    /// # Errors
    /// When Redis does not answer: claimed traces become due again when their claims expire.
    pub(crate) async fn run_once(&self) -> Result<Summary, database::Error> {
        let claimed = self.app.db.ask("claim traces", self.traces.claim(CLAIM_MAX, CLAIM_MS)).await?;
        let mut summary =
            Summary { dropped: claimed.dropped, is_full: claimed.jobs.len() == CLAIM_MAX, ..Summary::default() };
        metrics::traces_dropped(TraceDrop::TooMany, claimed.dropped);
        let (mut traces, mut sent, mut over, mut put_off) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let fates = stream::iter(claimed.jobs).map(|id| async move {
            // A trace that cannot be read now becomes due again; the others are sent.
            (id, timeout(READ_MAX, self.fate(id)).await.ok().and_then(|fate| fate.inspect_err(|error| {
                tracing::warn!(error = error as &dyn std::error::Error, job.id = %id, "a trace waits: its job cannot be read");
            }).ok()))
        });
        for (id, fate) in fates.buffered(AT_ONCE).collect::<Vec<_>>().await {
            match fate {
                None => summary.waiting += 1,
                Some(Fate::Send(trace)) => {
                    traces.push(trace);
                    sent.push(id);
                }
                Some(Fate::Wait) => put_off.push(id),
                Some(Fate::Leave) => over.push(id),
                Some(Fate::Drop) => {
                    summary.dropped += 1;
                    metrics::traces_dropped(TraceDrop::TooLate, 1);
                    over.push(id);
                }
            }
        }
        summary.waiting += put_off.len();
        let again_ms = self.now_ms() + HOOKS_PAUSE_MS;
        self.app.db.ask("postpone traces", self.traces.put_off(&put_off, again_ms)).await?;
        self.send(&traces, &sent, &mut summary, &mut over).await;
        self.app.db.ask_again("forget traces", || self.traces.forget(&over)).await?;
        Ok(summary)
    }

    async fn send(&self, traces: &[JobTrace], jobs: &[JobId], summary: &mut Summary, over: &mut Vec<JobId>) {
        if traces.is_empty() {
            return;
        }
        match self.collector.send(&otlp::request(&self.exporter.service_name, traces)).await {
            Ok(()) => {
                summary.sent += traces.len();
                metrics::traces_exported(traces.len());
                over.extend(jobs);
            }
            Err(error @ Error::Refused(_)) => {
                tracing::error!(%error, traces = traces.len(), "traces were dropped");
                summary.dropped += traces.len() as u64;
                metrics::traces_dropped(TraceDrop::Refused, traces.len() as u64);
                over.extend(jobs);
            }
            Err(error @ Error::Away(_)) => {
                tracing::warn!(%error, traces = traces.len(), "traces wait");
                summary.waiting += traces.len();
                summary.is_away = true;
            }
        }
    }

    /// The queue's time, so that a test which moves the queue's clock also moves this one.
    fn now_ms(&self) -> u64 {
        self.app.config.redis.clock.now_ms()
    }

    async fn fate(&self, id: JobId) -> Result<Fate, database::Error> {
        let Some(job) = self.app.db.ask("read a job", self.queue.get(id)).await? else { return Ok(Fate::Leave) };
        let Some(ended_ms) = job.ended_ms else { return Ok(Fate::Leave) };
        if !self.app.config.traces.sampler.samples(job.spec.trace, job.trace_id()) {
            return Ok(Fate::Leave);
        }
        let now_ms = self.now_ms();
        let age_ms = now_ms.saturating_sub(ended_ms);
        if age_ms > GIVE_UP_MS {
            return Ok(Fate::Drop);
        }
        let deliveries = deliveries(&self.app.db, &job).await?;
        let is_told = deliveries.iter().all(|delivery| delivery.state != DeliveryState::Pending);
        if !is_told && age_ms < HOOKS_MAX_MS {
            return Ok(Fate::Wait);
        }
        Ok(Fate::Send(trace_of(&job, &deliveries, now_ms)))
    }
}

impl Duty for Sender {
    const NAME: &'static str = "traces";
    const ROUND_TIMEOUT: Duration = ROUND_MAX;
    const RETRY_DELAY: Duration = ROUND;
    const BLOCKS_READINESS: bool = false;
    /// Another replica sends the claimed traces after their claims expire.
    const CANCEL_ON_SHUTDOWN: bool = true;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        match self.run_once().await {
            Ok(summary) if summary.is_full && !summary.is_away => Ok(Duration::ZERO),
            Ok(_) => Ok(ROUND),
            Err(error) => Err(error.into()),
        }
    }
}
