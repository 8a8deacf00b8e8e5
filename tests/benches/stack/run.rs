//! A whole run and its results, to JSON and back.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::measure::Figures;
use crate::options::Options;
use crate::peers::{Kind, Spec};
use crate::{crash, depth, round, width};

#[derive(Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) machine: Value,
    pub(crate) rounds: usize,
    pub(crate) systems: BTreeMap<String, Figures>,
    /// Duration of each part.
    pub(crate) took_s: BTreeMap<String, f64>,
}

/// Measures everything that is requested. Systems alternate within a round, so that other load of the machine affects
/// all of them.
pub(crate) async fn measure(specs: &[Spec], options: &Options) -> Run {
    let specs: Vec<&Spec> = specs.iter().filter(|spec| options.system(&spec.name)).collect();
    let mut took_s = BTreeMap::new();
    let mut rounds: BTreeMap<&str, Vec<Figures>> = BTreeMap::new();
    let (machine, begun) = (machine(), Instant::now());
    let asked_for = ["submit", "drain", "round_trip"].iter().any(|part| options.part(part));
    for round in 1..=if asked_for { options.rounds } else { 0 } {
        for spec in &specs {
            let start = Instant::now();
            let figures = round::measure(spec, options).await;
            eprintln!(
                "[{:>5.0} s] round {round} of {}: {} ({:.0} s) {}",
                begun.elapsed().as_secs_f64(),
                options.rounds,
                spec.name,
                start.elapsed().as_secs_f64(),
                figures.failed.join("; ")
            );
            rounds.entry(&spec.name).or_default().push(figures);
        }
    }
    took_s.insert("rounds".to_owned(), begun.elapsed().as_secs_f64());
    let mut systems: BTreeMap<String, Figures> = BTreeMap::new();
    for spec in &specs {
        let rounds = rounds.get(spec.name.as_str()).map_or(&[][..], Vec::as_slice);
        let figures = Figures { about: spec.about.clone(), ..Figures::medians(rounds) };
        systems.insert(spec.name.clone(), figures);
    }
    for part in ["crash", "depth", "width"].into_iter().filter(|part| options.part(part)) {
        let part_start = Instant::now();
        for spec in &specs {
            let Some(figures) = systems.get_mut(&spec.name) else { continue };
            if applies(part, spec) {
                let start = Instant::now();
                eprint!("[{:>5.0} s] {part}: {}", begun.elapsed().as_secs_f64(), spec.name);
                once(part, spec, figures).await;
                eprintln!(" ({:.0} s)", start.elapsed().as_secs_f64());
            }
        }
        took_s.insert(part.to_owned(), part_start.elapsed().as_secs_f64());
    }
    Run { machine, rounds: options.rounds, systems, took_s }
}

fn applies(part: &str, spec: &Spec) -> bool {
    match part {
        _ if spec.client_only => false,
        "crash" => spec.recovers,
        "width" => matches!(spec.kind, Kind::Stokehold),
        _ => true,
    }
}

async fn once(part: &str, spec: &Spec, figures: &mut Figures) {
    let done = match part {
        "crash" => crash::measure(spec).await.map(|crash| figures.crash = Some(crash)),
        "width" => width::measure(figures).await,
        _ => {
            depth::measure(spec, figures).await;
            Ok(())
        }
    };
    if let Err(error) = done {
        figures.failed.push(format!("{part}: {error:#}"));
    }
}

fn machine() -> Value {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split_whitespace().next().and_then(|minute| minute.parse().ok()).unwrap_or_default();
    let today = std::process::Command::new("date").arg("+%Y-%m-%d").output();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({
        "cpu": model.trim_start_matches([' ', '\t', ':']),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": kernel.trim(),
        "date": today.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default(),
        "load_average": load,
        "redis": "appendonly yes, appendfsync always",
    })
}
