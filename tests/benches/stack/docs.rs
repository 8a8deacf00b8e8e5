//! `make bench-docs`: a run's JSON as the tables and charts of the documentation.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::chart::{Chart, Row};
use crate::measure::Figures;
use crate::run::Run;
use crate::table::{is_sdk, order, tables};

const BEGIN: &str = "<!-- bench: from here to the end mark, `make bench-docs` writes -->";
const END: &str = "<!-- bench: end -->";

/// The longest line of Markdown that `tests/tidy/markdown.py` accepts.
const COLUMNS: usize = 100;

/// Writes the charts into `docs/assets/benchmarks`, and the tables between the marks of `docs/BENCHMARKS.md`.
pub(crate) fn write(json: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(json).with_context(|| format!("cannot read {}", json.display()))?;
    let run: Run = serde_json::from_str(&text)?;
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let charts = docs.join("assets/benchmarks");
    fs::create_dir_all(&charts)?;
    let mut names = vec![];
    for (name, svg) in draw(&run) {
        fs::write(charts.join(format!("{name}.svg")), svg)?;
        names.push(name);
    }
    let page = docs.join("BENCHMARKS.md");
    let text = fs::read_to_string(&page)?;
    let (before, rest) = text.split_once(BEGIN).context("docs/BENCHMARKS.md has lost its first mark")?;
    let (_, after) = rest.split_once(END).context("docs/BENCHMARKS.md has lost its end mark")?;
    fs::write(&page, format!("{before}{BEGIN}\n\n{}{END}{after}", section(&run, &names)))?;
    println!("{}: the section between the marks, and {} charts", page.display(), names.len());
    Ok(())
}

fn draw(run: &Run) -> Vec<(&'static str, String)> {
    // The floor is many times faster than all others: it would make the rest unreadable.
    let rows = |values: &dyn Fn(&Figures) -> Vec<Option<f64>>| -> Vec<Row> {
        let systems = order(run).into_iter().filter(|(name, _)| *name != "raw");
        let rows = systems.map(|(name, figures)| Row { name: name.to_owned(), values: values(figures) });
        rows.filter(|row| !is_sdk(&row.name) || row.values.iter().any(Option::is_some)).collect()
    };
    let parts = ["worker", "runner", "api", "redis"];
    let depths = crate::depth::DEPTHS;
    let submit = Chart {
        title: "Submit, jobs/s: longer is better",
        series: &["one by one", "64 at a time", "bulk"],
        rows: rows(&|f| vec![f.submit_single_per_s, f.submit_concurrent_per_s, f.submit_bulk_per_s]),
        digits: 0,
    };
    let drain = Chart {
        title: "Drain, jobs/s: longer is better",
        series: &["1 worker", "2 workers"],
        rows: rows(&|f| vec![f.drain_per_s, f.drain2_per_s]),
        digits: 0,
    };
    let cpu = Chart {
        title: "CPU seconds per 1,000 jobs drained: shorter is better",
        series: &parts,
        rows: rows(&|f| parts.iter().map(|part| f.cpu_s_per_1000.get(*part).copied()).collect()),
        digits: 3,
    };
    let round_trip = Chart {
        title: "Round trip on an idle system, ms: further left is better",
        series: &["p50", "p99"],
        rows: rows(&|f| vec![f.rtt_ms.map(|r| r.p50), f.rtt_ms.map(|r| r.p99)]),
        digits: 1,
    };
    let depth = Chart {
        title: "CPU seconds per 1,000 jobs by jobs queued: as long at every depth is best",
        series: &["10,000", "200,000", "1,000,000"],
        rows: rows(&|f| depths[1..].iter().map(|depth| f.depth_cpu_s_per_1000.get(depth).copied()).collect()),
        digits: 3,
    };
    [
        ("submit", submit.rows.len(), submit.grouped()),
        ("drain", drain.rows.len(), drain.grouped()),
        ("cpu", cpu.rows.len(), cpu.stacked()),
        ("round-trip", round_trip.rows.len(), round_trip.dots()),
        ("depth", depth.rows.len(), depth.grouped()),
    ]
    .into_iter()
    .filter(|(_, rows, _)| *rows > 0)
    .map(|(name, _, svg)| (name, svg))
    .collect()
}

fn section(run: &Run, charts: &[&str]) -> String {
    let machine = |name: &str| run.machine[name].as_str().unwrap_or("?").to_owned();
    let load = run.machine["load_average"].as_f64().unwrap_or_default();
    let about = format!(
        "{}: {} cores ({}), Linux {}, {}. {} rounds, medians; depth, width and crash once. Load average when it began: {load:.1}.",
        machine("date"),
        run.machine["cores"],
        machine("cpu"),
        machine("kernel"),
        machine("redis"),
        run.rounds,
    );
    let mut text = format!("{}\n", paragraph("", &about));
    let systems: Vec<String> = order(run).iter().map(|(name, figures)| format!("{name} ({})", figures.about)).collect();
    let _ = writeln!(text, "{}", paragraph("", &format!("{}.", systems.join("; "))));
    for chart in charts {
        let _ = writeln!(text, "![{chart}](assets/benchmarks/{chart}.svg)\n");
    }
    for table in tables(run) {
        let _ = writeln!(text, "### {}\n", table.title);
        for (n, row) in table.rows.iter().enumerate() {
            let _ = writeln!(text, "| {} |", row.join(" | "));
            if n == 0 {
                let _ = writeln!(text, "|---|{}", "---:|".repeat(row.len() - 1));
            }
        }
        text.push('\n');
    }
    let failed: Vec<String> = order(run)
        .iter()
        .flat_map(|(name, figures)| {
            figures.failed.iter().map(move |reason| paragraph("- ", &format!("{name}: {}", reason.replace('|', "/"))))
        })
        .collect();
    if !failed.is_empty() {
        let _ = writeln!(text, "Not measured:\n\n{}", failed.concat());
    }
    text
}

/// Wraps a paragraph at [`COLUMNS`]. `marker` precedes its first line; later lines are indented by its width.
fn paragraph(marker: &str, text: &str) -> String {
    let (mut lines, mut line) = (vec![], marker.to_owned());
    for word in text.split_whitespace() {
        if line.len() > marker.len() {
            if line.len() + 1 + word.len() > COLUMNS {
                lines.push(std::mem::replace(&mut line, " ".repeat(marker.len())));
            } else {
                line.push(' ');
            }
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.join("\n") + "\n"
}
