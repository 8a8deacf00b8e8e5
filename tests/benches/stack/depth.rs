//! Cost of a job by the number of waiting jobs.

use std::time::{Duration, Instant};

use crate::measure::{Figures, rate};
use crate::peers::Spec;
use crate::program::{How, Job};
use crate::system::System;

/// Numbers of queued jobs. The second is the reference for the others: 2,000 jobs end before a worker is warm.
pub(crate) const DEPTHS: [usize; 4] = [2_000, 10_000, 200_000, 1_000_000];

/// Number of measured jobs at each depth, after a newly started worker has run some.
const MEASURED: usize = 20_000;

/// Maximum time to fill a queue; slower systems skip that depth.
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
    // A rewrite of the append-only file is one child process, whose CPU time counts when it ends: a rewrite begun by
    // the filling does not belong to the drain.
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
