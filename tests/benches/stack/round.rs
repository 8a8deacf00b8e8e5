//! The measurements of every system in every round.

use std::time::Instant;

use crate::measure::{Figures, RoundTrip, rate};
use crate::options::Options;
use crate::peers::Spec;
use crate::program::{How, Job};
use crate::system::System;

const SINGLES: usize = 2_000;
const CONCURRENT: usize = 5_000;
const ROUND_TRIPS: usize = 300;

/// Measures everything possible; failures are recorded in the result.
pub(crate) async fn measure(spec: &Spec, options: &Options) -> Figures {
    let mut figures = Figures::default();
    if let Err(error) = run(spec, options, &mut figures).await {
        figures.failed.push(format!("{error:#}"));
    }
    figures
}

async fn run(spec: &Spec, options: &Options, figures: &mut Figures) -> anyhow::Result<()> {
    let mut system = System::start(spec, usize::MAX).await?;
    system.start_worker().await?;
    system.warm_up().await?;
    if options.part("round_trip") {
        figures.rtt_ms = RoundTrip::of(system.client.round_trips(ROUND_TRIPS).await?);
    }
    if options.part("submit") {
        submit(&mut system, figures).await?;
    }
    if options.part("drain") && !spec.client_only {
        drain(&mut system, spec.drain_jobs, figures).await?;
        system.start_worker().await?;
        system.warm_up().await?;
        figures.drain2_per_s = Some(drain_once(&mut system, spec.drain_jobs).await?);
    }
    Ok(())
}

/// Measures submits while the workers are paused.
async fn submit(system: &mut System<'_>, figures: &mut Figures) -> anyhow::Result<()> {
    system.pause(true);
    let (cpu, client_cpu) = (system.cpu(), system.client_cpu());
    figures.submit_single_per_s = Some(rate(SINGLES, system.client.submit(How::One, Job::Noop, SINGLES).await?));
    figures.submit_cpu_s_per_1000 = cpu.per_1000(SINGLES);
    figures.submit_cpu_s_per_1000.extend(client_cpu.per_1000(SINGLES));
    let took = system.client.submit(How::Many, Job::Noop, CONCURRENT).await?;
    figures.submit_concurrent_per_s = Some(rate(CONCURRENT, took));
    system.pause(false);
    system.drained().await
}

async fn drain(system: &mut System<'_>, jobs: usize, figures: &mut Figures) -> anyhow::Result<()> {
    system.pause(true);
    let before = system.used_memory().await?;
    figures.submit_bulk_per_s = Some(rate(jobs, system.client.submit(How::Bulk, Job::Noop, jobs).await?));
    figures.redis_bytes_per_job = Some((system.used_memory().await? - before) / jobs as f64);
    let (cpu, start) = (system.cpu(), Instant::now());
    system.pause(false);
    system.drained().await?;
    figures.drain_per_s = Some(rate(jobs, start.elapsed()));
    figures.cpu_s_per_1000 = cpu.per_1000(jobs);
    figures.redis_bytes_per_finished_job = Some((system.used_memory().await? - before) / jobs as f64);
    Ok(())
}

/// Rate of a drain from a full queue to an empty one, in jobs per second.
pub(crate) async fn drain_once(system: &mut System<'_>, jobs: usize) -> anyhow::Result<f64> {
    system.pause(true);
    system.client.submit(How::Bulk, Job::Noop, jobs).await?;
    let start = Instant::now();
    system.pause(false);
    system.drained().await?;
    Ok(rate(jobs, start.elapsed()))
}
