//! Outcome of jobs whose worker is killed, with the default settings of a system.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use crate::measure::Crash;
use crate::peers::Spec;
use crate::program::{How, Job};
use crate::system::System;

const JOBS: usize = 1_000;
/// Number of started jobs at each kill of the worker.
const KILLS: [usize; 3] = [200, 400, 600];
/// Maximum number of concurrent jobs, so that the jobs last long enough for three kills.
const CONCURRENCY_MAX: usize = 20;
/// Time from the last restart: our lease of 30 s and as much again.
const WATCH: Duration = Duration::from_secs(60);
/// Maximum time until the next kill.
const KILL_MAX: Duration = Duration::from_secs(60);

pub(crate) async fn measure(spec: &Spec) -> anyhow::Result<Crash> {
    let mut system = System::start(spec, CONCURRENCY_MAX).await?;
    system.client.submit(How::Bulk, Job::Note, JOBS).await?;
    system.start_worker().await?;
    let mut hit = BTreeSet::new();
    for kill in KILLS {
        let until = Instant::now() + KILL_MAX;
        while Journal::read(&system)?.started() < kill && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        system.kill_workers().await?;
        hit.extend(Journal::read(&system)?.cut_off());
        system.start_worker().await?;
    }
    let restarted = Instant::now();
    let mut done_s = None;
    // Until the end of the watch, or until nothing more can happen.
    while restarted.elapsed() < WATCH {
        if done_s.is_none() && Journal::read(&system)?.ended() == JOBS {
            done_s = Some(restarted.elapsed().as_secs_f64());
        }
        if done_s.is_some() && system.open().await? == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let journal = Journal::read(&system)?;
    Ok(Crash {
        hit: hit.len(),
        unfinished: JOBS - journal.ended(),
        started_twice: journal.jobs.values().filter(|(starts, _)| *starts > 1).count(),
        effects_twice: journal.jobs.values().filter(|(_, ends)| *ends > 1).count(),
        done_s,
        watched_s: restarted.elapsed().as_secs_f64(),
    })
}

/// The handlers' records: starts and ends of each job.
struct Journal {
    jobs: BTreeMap<usize, (usize, usize)>,
}

impl Journal {
    fn read(system: &System<'_>) -> anyhow::Result<Self> {
        let mut jobs: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        let text = match fs::read_to_string(&system.journal) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("start", number)) => jobs.entry(number.parse()?).or_default().0 += 1,
                Some(("end", number)) => jobs.entry(number.parse()?).or_default().1 += 1,
                _ => anyhow::bail!("the journal holds {line:?}"),
            }
        }
        Ok(Self { jobs })
    }

    fn started(&self) -> usize {
        self.jobs.len()
    }

    fn ended(&self) -> usize {
        self.jobs.values().filter(|(_, ends)| *ends > 0).count()
    }

    /// Jobs whose last start has no end, each with its number of starts: a job that is never resumed is cut off once.
    fn cut_off(&self) -> impl Iterator<Item = (usize, usize)> {
        self.jobs.iter().filter(|(_, (starts, ends))| starts > ends).map(|(job, (starts, _))| (*job, *starts))
    }
}
