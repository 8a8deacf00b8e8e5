//! Does a job get dearer when more of them wait?

use std::time::{Duration, Instant};

use crate::measure::{Figures, rate};
use crate::peers::Spec;
use crate::program::{How, Job};
use crate::system::System;

/// Jobs queued. The second is what the others are compared with: 2,000 are over before a worker is warm.
pub(crate) const DEPTHS: [usize; 4] = [2_000, 10_000, 200_000, 1_000_000];

/// Of each depth this many jobs are measured, once a worker that has just started has done some.
const MEASURED: usize = 20_000;

/// A system that needs longer to fill a queue is not asked to.
const FILL_MAX: Duration = Duration::from_secs(120);

pub(crate) async fn measure(spec: &Spec, figures: &mut Figures) {
    for depth in DEPTHS {
        eprint!(" {depth}");
        if let Err(error) = at(spec, depth, figures).await {
            figures.failed.push(format!("depth {depth}: {error:#}"));
        }
    }
}

async fn at(spec: &Spec, depth: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let mut system = System::start(spec, usize::MAX).await?;
    let (mut filled, start) = (0, Instant::now());
    while filled < depth {
        let chunk = (depth - filled).min(20_000);
        system.client.submit(How::Bulk, Job::Noop, chunk).await?;
        filled += chunk;
        let expected = start.elapsed().mul_f64(depth as f64 / filled as f64);
        anyhow::ensure!(
            expected < FILL_MAX,
            "not measured: it submits {:.0} jobs/s, so filling the queue would take {:.0} s",
            rate(filled, start.elapsed()),
            expected.as_secs_f64()
        );
    }
    // A rewrite of the append-only file is one child process, whose CPU counts when it ends: what the filling began is not the drain's.
    system.written().await?;
    let measured = MEASURED.min(depth * 7 / 10);
    let warm = (depth / 10).min(2_000);
    system.start_worker().await?;
    system.drained_to(depth - warm).await?;
    let (cpu, start, from) = (system.cpu(), Instant::now(), system.open().await?);
    system.drained_to(from.saturating_sub(measured)).await?;
    let done = from - system.open().await?;
    figures.depth_drain_per_s.insert(depth, rate(done, start.elapsed()));
    figures.depth_cpu_s_per_1000.insert(depth, cpu.per_1000(done).values().sum());
    Ok(())
}
