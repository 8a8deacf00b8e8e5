//! The results as tables: rows of text, which the terminal and the documentation format in their own ways.

use crate::gates::gates;
use crate::measure::Figures;
use crate::run::Run;

/// A title, a header row, and rows; the first column is text, the others numbers.
pub(crate) struct Table {
    pub(crate) title: &'static str,
    pub(crate) rows: Vec<Vec<String>>,
}

/// The order of the systems: Stokehold, its SDKs, the peers, the floor.
pub(crate) fn order(run: &Run) -> Vec<(&str, &Figures)> {
    let mut systems: Vec<(&str, &Figures)> = run.systems.iter().map(|(name, f)| (name.as_str(), f)).collect();
    systems.sort_by_key(|(name, _)| match *name {
        "stokehold" => 0,
        name if is_sdk(name) => 1,
        "raw" => 3,
        _ => 2,
    });
    systems
}

/// Whether a row is Stokehold through an SDK. Only a client's part is measured there.
pub(crate) fn is_sdk(name: &str) -> bool {
    name.starts_with("stokehold-")
}

pub(crate) fn tables(run: &Run) -> Vec<Table> {
    vec![
        systems(
            run,
            "Submit, jobs/s",
            &["one by one", "64 at a time", "bulk", "server CPU s/1,000, one by one", "client CPU"],
            |f| {
                let server = f.submit_cpu_s_per_1000.iter().filter(|(part, _)| *part != "client").map(|(_, cpu)| cpu);
                let server: Option<f64> = (!f.submit_cpu_s_per_1000.is_empty()).then(|| server.sum());
                vec![
                    number(f.submit_single_per_s, 0),
                    number(f.submit_concurrent_per_s, 0),
                    number(f.submit_bulk_per_s, 0),
                    number(server, 3),
                    number(f.submit_cpu_s_per_1000.get("client").copied(), 3),
                ]
            },
        ),
        systems(
            run,
            "Drain: jobs/s, and CPU s per 1,000 jobs with one worker",
            &["1 worker", "2 workers", "CPU, all", "worker", "runner", "api", "redis"],
            |f| {
                let part = |name: &str| number(f.cpu_s_per_1000.get(name).copied(), 4);
                vec![
                    number(f.drain_per_s, 0),
                    number(f.drain2_per_s, 0),
                    number(f.cpu_all(), 4),
                    part("worker"),
                    part("runner"),
                    part("api"),
                    part("redis"),
                ]
            },
        ),
        systems(
            run,
            "Round trip on an idle system, ms; Redis bytes per job",
            &["p50", "p95", "p99", "queued", "finished"],
            |f| {
                vec![
                    number(f.rtt_ms.map(|r| r.p50), 2),
                    number(f.rtt_ms.map(|r| r.p95), 2),
                    number(f.rtt_ms.map(|r| r.p99), 2),
                    number(f.redis_bytes_per_job, 0),
                    number(f.redis_bytes_per_finished_job, 0),
                ]
            },
        ),
        depth(run),
        systems(
            run,
            "Three kill -9 of the worker during 1,000 jobs of 5 ms, settings that a system has by itself",
            &["running at the kills", "unfinished", "started twice", "effects twice", "all done after, s"],
            |f| {
                let Some(crash) = f.crash else { return vec!["-".to_owned(); 5] };
                let done = crash.done_s.map_or_else(|| format!("not in {:.0}", crash.watched_s), |s| format!("{s:.1}"));
                [crash.hit, crash.unfinished, crash.started_twice, crash.effects_twice]
                    .map(|count| count.to_string())
                    .into_iter()
                    .chain([done])
                    .collect()
            },
        ),
        width(run),
        goals(run),
    ]
    .into_iter()
    .filter(|table| table.rows.iter().skip(1).any(|row| row.iter().skip(1).any(|cell| cell != "-")))
    .collect()
}

fn systems(run: &Run, title: &'static str, columns: &[&str], of: impl Fn(&Figures) -> Vec<String>) -> Table {
    let mut rows = vec![[&[""], columns].concat().iter().map(|&cell| cell.to_owned()).collect()];
    for (name, figures) in order(run) {
        let cells = of(figures);
        if !is_sdk(name) || cells.iter().any(|cell| cell != "-") {
            rows.push([vec![name.to_owned()], cells].concat());
        }
    }
    Table { title, rows }
}

fn depth(run: &Run) -> Table {
    let depths = crate::depth::DEPTHS;
    let mut head = vec![String::new()];
    head.extend(depths.iter().map(|&depth| format!("{} queued", thousands(depth as f64, 0))));
    head.extend(depths.iter().map(|&depth| format!("CPU at {}", thousands(depth as f64, 0))));
    let mut rows = vec![head];
    for (name, figures) in order(run).into_iter().filter(|(name, _)| !is_sdk(name)) {
        let mut row = vec![name.to_owned()];
        row.extend(depths.iter().map(|depth| number(figures.depth_drain_per_s.get(depth).copied(), 0)));
        row.extend(depths.iter().map(|depth| number(figures.depth_cpu_s_per_1000.get(depth).copied(), 4)));
        rows.push(row);
    }
    Table { title: "Depth: drain with one worker, jobs/s, and CPU s per 1,000 jobs", rows }
}

fn width(run: &Run) -> Table {
    let none = Figures::default();
    let ours = run.systems.get("stokehold").unwrap_or(&none);
    let row = |name: &str, per_s, cpu| vec![name.to_owned(), number(per_s, 0), number(cpu, 4)];
    let rows = vec![
        vec![String::new(), "jobs/s".to_owned(), "Redis CPU s/1,000".to_owned()],
        row("1 endpoint, 1 priority, 1 tenant", ours.narrow_drain_per_s, ours.narrow_cpu_s_per_1000),
        row("1,000 endpoints, 3 priorities, 20 tenants", ours.width_drain_per_s, ours.width_cpu_s_per_1000),
    ];
    Table { title: "Width: 60,000 jobs through Stokehold's queue alone, 100 a lease", rows }
}

fn goals(run: &Run) -> Table {
    let mut rows = vec![["goal", "limit (aim)", "reached", "met"].map(str::to_owned).to_vec()];
    for gate in gates(run).into_iter().filter(|gate| gate.reached.is_some()) {
        let digits = if gate.limit >= 10.0 { 0 } else { 2 };
        let aim = gate.aim.map(|aim| format!(" ({aim:.digits$})")).unwrap_or_default();
        let met = gate.met().map_or("-", |met| if met { "yes" } else { "no" });
        rows.push(vec![
            gate.what.to_owned(),
            format!("{} {:.digits$}{aim}", gate.sign(), gate.limit),
            number(gate.reached, if gate.limit < 0.1 && gate.limit > 0.0 { 3 } else { digits }),
            met.to_owned(),
        ]);
    }
    Table { title: "Goals", rows }
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| thousands(value, digits))
}

/// `12,345.6`.
pub(crate) fn thousands(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let first = whole.find(|digit: char| digit.is_ascii_digit()).unwrap_or(0);
    let mut grouped = String::new();
    for (at, digit) in whole.char_indices() {
        if at > first && digit.is_ascii_digit() && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    fraction.map_or(grouped.clone(), |fraction| format!("{grouped}.{fraction}"))
}

pub(crate) fn print(run: &Run) {
    for table in tables(run) {
        println!("\n{}", table.title);
        let columns = table.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| table.rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0))
            .collect();
        for row in &table.rows {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
                if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") }
            });
            println!("{}", cells.collect::<String>().trim_end());
        }
    }
    for (name, figures) in order(run) {
        for reason in &figures.failed {
            println!("\n{name}: {reason}");
        }
    }
    let took: Vec<String> = run.took_s.iter().map(|(part, s)| format!("{part} {s:.0} s")).collect();
    println!("\n{} rounds; {}", run.rounds, took.join(", "));
}
