//! The output of a run.

use std::fmt::Write as _;

use crate::checker::Outcome;
use crate::run::Report;

/// A human-readable report. `clean_jobs_per_s` is the throughput of the same load without faults.
#[must_use]
pub fn text(report: &Report, clean_jobs_per_s: Option<f64>) -> String {
    let (measures, mut out) = (&report.measures, String::new());
    let of = |counts: &std::collections::BTreeMap<String, u64>| {
        let parts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
    };
    let _ = writeln!(out, "seed {}", measures.seed);
    let _ =
        writeln!(out, "jobs    {} acknowledged, {} lost; ended: {}", measures.jobs, measures.lost, of(&measures.ended));
    let _ = writeln!(out, "faults  {} landed: {}", measures.faults.values().sum::<u64>(), of(&measures.faults));
    let kept = clean_jobs_per_s.map_or(String::new(), |clean| {
        format!(", {:.0} % of {clean:.0} without faults", 100.0 * measures.jobs_per_s / clean)
    });
    let _ = writeln!(out, "speed   {:.1} s, {:.0} jobs/s{kept}", measures.seconds, measures.jobs_per_s);
    let _ = writeln!(out, "runs    {}, wasted {}", measures.runs, measures.wasted);
    let ms = |ms: Option<u64>| ms.map_or("-".to_owned(), |ms| format!("{ms} ms"));
    let _ = writeln!(
        out,
        "p99     reclaim {} (of {}), 202 {}, refusal {}",
        ms(measures.reclaim_p99_ms),
        measures.reclaimed,
        ms(measures.accept_p99_ms),
        ms(measures.refuse_p99_ms)
    );
    for verdict in &report.verdicts {
        let word = match verdict.outcome {
            Outcome::Holds => "holds",
            Outcome::Broken => "BROKEN",
            Outcome::Unexercised => "not exercised",
            Outcome::NotApplicable => "not applicable",
        };
        let _ = writeln!(out, "{:>4} {:14} {:>8} {}", verdict.id, word, verdict.checked, verdict.title);
    }
    for verdict in report.verdicts.iter().filter(|verdict| verdict.outcome == Outcome::Broken) {
        let _ = writeln!(out, "{}: {} wrong:", verdict.id, verdict.wrong);
        for told in &verdict.told {
            let _ = writeln!(out, "  {told}");
        }
    }
    out
}
