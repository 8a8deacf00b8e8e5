//! Clients of the queue, and their journal of the acknowledgements that they received.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stokehold_queue::capability::Capability;
use stokehold_queue::gateway::{FinishAnswer, FinishOutcome, FinishReport};
use stokehold_queue::job::{Job, JobSpec, JobState, NewJob, Timing};
use stokehold_queue::queue::{CancelAnswer, Lease, LeaseQuery};
use stokehold_queue::{JobId, Queue, RedisQueue};
use tokio::task::JoinSet;

use crate::draw::Draw;

pub(crate) const TENANT: &str = "acme";

const SUBMITTERS: u64 = 4;
const WORKERS: u64 = 3;

/// Timeout of a client that waits for a reply of a dead server.
const GIVE_UP: Duration = Duration::from_millis(500);

/// The last reply to a client about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Accepted,
    Succeeded,
    Cancelled,
}

/// The replies to the clients, with their times.
#[derive(Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<HashMap<JobId, (Told, Instant)>>>);

impl Journal {
    fn note(&self, ids: impl IntoIterator<Item = JobId>, told: Told) {
        let now = Instant::now();
        let mut jobs = self.0.lock().unwrap();
        for id in ids {
            // A job's end may be acknowledged before its submit: the replies arrive on different tasks.
            if told != Told::Accepted || !jobs.contains_key(&id) {
                jobs.insert(id, (told, now));
            }
        }
    }

    pub(crate) fn acknowledged(&self) -> Vec<(JobId, Told, Instant)> {
        self.0.lock().unwrap().iter().map(|(id, (told, at))| (*id, *told, *at)).collect()
    }

    /// Jobs without an acknowledged end.
    fn some(&self, draw: &mut Draw, most: usize) -> Vec<JobId> {
        let jobs = self.0.lock().unwrap();
        let open = jobs.iter().filter(|(_, (told, _))| *told == Told::Accepted).map(|(id, _)| *id);
        let mut open: Vec<JobId> = open.collect();
        open.sort();
        (0..most.min(open.len())).map(|_| open[draw.below(open.len() as u64) as usize]).collect()
    }

    /// Whether `job` is at least as far as its last acknowledgement.
    pub(crate) fn agrees(told: Told, job: Option<&Job>) -> bool {
        match (told, job.map(|job| job.state)) {
            (_, None) => false,
            (Told::Accepted, Some(_)) => true,
            (Told::Succeeded, Some(state)) => state == JobState::Succeeded,
            (Told::Cancelled, Some(state)) => state == JobState::Cancelled,
        }
    }
}

/// Clients that work until they are stopped.
pub(crate) struct Load {
    clients: JoinSet<()>,
    stop: Arc<AtomicBool>,
}

impl Load {
    pub(crate) fn start(queue: &RedisQueue, journal: &Journal, draw: &mut Draw) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        for n in 0..SUBMITTERS + WORKERS + 1 {
            let client = Client {
                queue: queue.clone(),
                journal: journal.clone(),
                draw: Draw(draw.below(u64::MAX)),
                stop: stop.clone(),
            };
            match n {
                0 => clients.spawn(client.cancels()),
                n if n <= SUBMITTERS => clients.spawn(client.submits()),
                _ => clients.spawn(client.works()),
            };
        }
        Self { clients, stop }
    }

    /// Stops the clients. The server is dead: requests without a reply will never get one.
    pub(crate) async fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = async { while self.clients.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(GIVE_UP, ended).await;
        self.clients.shutdown().await;
    }
}

/// One client. The first failed call ends it: its server is gone.
struct Client {
    queue: RedisQueue,
    journal: Journal,
    draw: Draw,
    stop: Arc<AtomicBool>,
}

impl Client {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    async fn submits(mut self) {
        while self.goes_on() {
            let jobs: Vec<NewJob> = (0..=self.draw.below(8)).map(|_| job(self.draw.below(2_000))).collect();
            let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
            if self.queue.submit(jobs).await.is_err() {
                return;
            }
            self.journal.note(ids, Told::Accepted);
        }
    }

    async fn works(self) {
        while self.goes_on() {
            let query = LeaseQuery::new("w", 8, Capability::usual(0));
            let Ok(leases) = self.queue.lease(query).await else { return };
            let reports: Vec<FinishReport> = leases.iter().map(report).collect();
            let Ok(answers) = self.queue.finish(&reports).await else { return };
            let ended = reports.iter().zip(&answers).filter(|(_, answer)| **answer == FinishAnswer::Ok);
            self.journal.note(ended.map(|(report, _)| report.job_id), Told::Succeeded);
            if leases.is_empty() {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn cancels(mut self) {
        while self.goes_on() {
            let ids = self.journal.some(&mut self.draw, 2);
            let Ok(answers) = self.queue.cancel(TENANT, &ids).await else { return };
            let ended = ids.iter().zip(&answers).filter(|(_, answer)| **answer == CancelAnswer::Cancelled);
            self.journal.note(ended.map(|(id, _)| *id), Told::Cancelled);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn job(padding: u64) -> NewJob {
    let spec = JobSpec {
        tenant: TENANT.to_owned(),
        endpoint: "echo".to_owned(),
        version: 1,
        timeout_ms: 60_000,
        max_attempts: 3,
        ..JobSpec::default()
    };
    let text = "x".repeat(usize::try_from(padding).unwrap());
    let input = serde_json::value::to_raw_value(&serde_json::json!({"text": text})).unwrap();
    NewJob::new(JobId::new(0), spec, input)
}

fn report(lease: &Lease) -> FinishReport {
    let result = serde_json::value::to_raw_value("done").unwrap();
    FinishReport::new(lease.named(), Timing::default(), FinishOutcome::Succeeded { result })
}
