//! Output of `stoke cost`: a table, a summary and CSV.

use comfy_table::CellAlignment;
use serde_json::Value;
use stokehold_client::models::{CostRow, Costs, CostsBy};

use crate::{output, tokens};

/// Width of the cost bar, characters.
const BAR: u64 = 24;

/// The column of the price of a million tokens, which is shown only where some jobs had tokens.
const PER_TOKENS: &str = "per 1M tokens";

/// Reads a value of a row.
type Read<T> = fn(&CostRow) -> T;

/// The parts of a cost: the sign in the bar, the heading, and the micro-dollars of a row.
const PARTS: [(&str, &str, Read<u64>); 6] = [
    ("#", "run", |row| row.run_usd_micros),
    ("=", "load", |row| row.load_usd_micros),
    ("+", "boot", |row| row.boot_usd_micros.unwrap_or_default()),
    (".", "idle", |row| row.idle_usd_micros.unwrap_or_default()),
    ("o", "disk", |row| row.disk_usd_micros.unwrap_or_default() + row.stopped_usd_micros.unwrap_or_default()),
    ("~", "traffic", |row| row.traffic_usd_micros.unwrap_or_default()),
];

/// The CSV columns, in order.
const COLUMNS: [(&str, Read<Value>); 25] = [
    ("name", |row| row.name.as_str().into()),
    ("tenant", |row| row.tenant.as_deref().into()),
    ("endpoint", |row| row.endpoint.as_deref().into()),
    ("batch_id", |row| row.batch_id.as_deref().into()),
    ("machine", |row| row.machine.as_deref().into()),
    ("day", |row| row.day.as_deref().into()),
    ("job_id", |row| row.job_id.as_deref().into()),
    ("jobs", |row| row.jobs.into()),
    ("run_s", |row| row.run_s.into()),
    ("run_usd_micros", |row| row.run_usd_micros.into()),
    ("load_usd_micros", |row| row.load_usd_micros.into()),
    ("boot_usd_micros", |row| row.boot_usd_micros.into()),
    ("idle_usd_micros", |row| row.idle_usd_micros.into()),
    ("stopped_usd_micros", |row| row.stopped_usd_micros.into()),
    ("disk_usd_micros", |row| row.disk_usd_micros.into()),
    ("traffic_usd_micros", |row| row.traffic_usd_micros.into()),
    ("overhead_usd_micros", |row| row.overhead_usd_micros.into()),
    ("total_usd_micros", |row| row.total_usd_micros.into()),
    ("per_job_usd_micros", |row| row.per_job_usd_micros.into()),
    ("per_1000_jobs_usd_micros", |row| row.per_1000_jobs_usd_micros.into()),
    ("is_estimate", |row| row.is_estimate.into()),
    ("prompt_tokens", |row| row.usage.map(|usage| usage.prompt_tokens).into()),
    ("cached_tokens", |row| row.usage.map(|usage| usage.cached_tokens).into()),
    ("completion_tokens", |row| row.usage.map(|usage| usage.completion_tokens).into()),
    ("usd_micros_per_million_tokens", |row| row.usd_micros_per_million_tokens.into()),
];

pub(super) fn table(by: &CostsBy, costs: &Costs) -> output::Table {
    let is_by_job = *by == CostsBy::Job;
    let has_tokens = costs.total.usage.is_some();
    let per_tokens = |row: &CostRow| has_tokens.then(|| known(row.usd_micros_per_million_tokens));
    let mut headings = vec![by.as_str(), "jobs"];
    if is_by_job {
        headings.extend(["run", "load", "overhead", "total"]);
        headings.extend(has_tokens.then_some(PER_TOKENS));
    } else {
        headings.extend(PARTS.map(|(_, word, _)| word));
        headings.extend(["total", "per job", "per 1,000"]);
        headings.extend(has_tokens.then_some(PER_TOKENS));
        headings.push("breakdown");
    }
    let mut table = output::table(&headings);
    for (n, column) in table.column_iter_mut().enumerate() {
        // All columns but the first and the bar hold numbers.
        if n > 0 && headings[n] != "breakdown" {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for row in costs.rows.iter().chain((!is_by_job).then_some(&costs.total)) {
        let mut cells = vec![output::text(row.name.as_str()), output::count(row.jobs)];
        if is_by_job {
            let parts = [row.run_usd_micros, row.load_usd_micros, row.overhead_usd_micros, row.total_usd_micros];
            cells.extend(parts.map(dollars));
            cells.extend(per_tokens(row));
        } else {
            cells.extend(PARTS.map(|(_, _, part)| match part(row) {
                0 => "-".to_owned(),
                micros => dollars(micros),
            }));
            let about = if row.is_estimate { "~" } else { "" };
            cells.push(format!("{about}{}", dollars(row.total_usd_micros)));
            cells.extend([row.per_job_usd_micros, row.per_1000_jobs_usd_micros].map(known));
            cells.extend(per_tokens(row));
            cells.push(bar(row));
        }
        table.add_row(cells);
    }
    table
}

/// The lines below the table: totals, savings and the legend.
pub(super) fn summary(costs: &Costs) -> Vec<String> {
    let total = &costs.total;
    let paid = total.total_usd_micros;
    let mut lines = vec![format!(
        "{} to {}: {} for {}, {} per job, idle {:.0} %",
        output::text(costs.from.as_str()),
        output::text(costs.to.as_str()),
        dollars(paid),
        output::counted(total.jobs, "job"),
        known(total.per_job_usd_micros),
        costs.idle_share * 100.0,
    )];
    lines.extend(total.usage.map(|usage| {
        let price = total.usd_micros_per_million_tokens.map(dollars).map(|price| format!(", {price} per 1M"));
        format!("tokens: {}{}", tokens::counts(usage), price.unwrap_or_default())
    }));
    lines.extend(saved(paid, costs.savings.on_demand_usd_micros, "on-demand"));
    for hosted in &costs.savings.hosted {
        lines.extend(saved(hosted.ours_usd_micros, hosted.usd_micros, &output::text(hosted.service.as_str())));
    }
    if costs.left_off > 0 {
        lines.push(format!("the total includes {}; --limit shows more", output::counted(costs.left_off, "other row")));
    }
    if total.is_estimate {
        lines.push("~ marks an estimate: not every provider has sent its final bill".to_owned());
    }
    let signs: Vec<String> = PARTS.iter().map(|(sign, word, _)| format!("{sign} {word}")).collect();
    lines.push(signs.join("  "));
    lines
}

fn saved(ours: u64, theirs: u64, what: &str) -> Option<String> {
    let share = ours.abs_diff(theirs) as f64 / theirs.max(1) as f64 * 100.0;
    let word = if ours < theirs { "saved" } else { "overspent" };
    let differs = theirs > 0 && ours != theirs;
    differs.then(|| format!("{word} {} ({share:.0} %) compared with {what}", dollars(ours.abs_diff(theirs))))
}

pub(super) fn csv(costs: &Costs) -> String {
    let mut text = format!("{}\n", COLUMNS.map(|(name, _)| name).join(","));
    for row in &costs.rows {
        let cells = COLUMNS.map(|(_, column)| match column(row) {
            Value::Null => String::new(),
            Value::String(text) => quoted(&text),
            other => other.to_string(),
        });
        text.push_str(&cells.join(","));
        text.push('\n');
    }
    text
}

/// Quotes a field according to RFC 4180. A leading quote keeps spreadsheets from reading it as a formula.
fn quoted(text: &str) -> String {
    let text = if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

fn known(micros: Option<u64>) -> String {
    micros.map_or("-".to_owned(), dollars)
}

/// Formats an amount with as many digits as it needs: $12.34, $0.0042, $0.000005.
fn dollars(micros: u64) -> String {
    let usd = micros as f64 / 1e6;
    match micros {
        0 => "$0".to_owned(),
        1..1_000 => format!("${usd:.6}"),
        1_000..1_000_000 => format!("${usd:.4}"),
        _ => format!("${usd:.2}"),
    }
}

/// The parts of a row's cost as a bar.
fn bar(row: &CostRow) -> String {
    let total: u64 = PARTS.iter().map(|(_, _, part)| part(row)).sum();
    if total == 0 {
        return String::new();
    }
    // Boundaries are rounded, not widths, so that the parts fill the bar exactly.
    let (mut text, mut so_far, mut drawn) = (String::new(), 0_u64, 0);
    for (sign, _, part) in PARTS {
        so_far += part(row);
        let ends = u64::try_from((u128::from(so_far) * u128::from(BAR) + u128::from(total) / 2) / u128::from(total));
        let ends = ends.unwrap_or(BAR);
        (drawn..ends).for_each(|_| text.push_str(sign));
        drawn = drawn.max(ends);
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;
    use crate::client::decode;

    fn told() -> Value {
        let row = |name: &str, jobs: u64, [run, load, boot, idle, disk]: [u64; 5]| {
            let total = run + load + boot + idle + disk;
            json!({"name": name, "tenant": "acme", "jobs": jobs, "run_s": 12.5, "run_usd_micros": run, "load_usd_micros": load,
                "boot_usd_micros": boot, "idle_usd_micros": idle, "stopped_usd_micros": 0, "disk_usd_micros": disk,
                "traffic_usd_micros": 0, "overhead_usd_micros": boot + idle + disk, "total_usd_micros": total,
                "per_job_usd_micros": total.checked_div(jobs), "per_1000_jobs_usd_micros": (1_000 * total).checked_div(jobs),
                "is_estimate": name == "acme/write"})
        };
        json!({"by": "endpoint", "from": "2026-11-16", "to": "2026-11-22", "left_off": 0, "idle_share": 0.125,
            "rows": [
                row("acme/draw", 1_200, [3_000_000, 500_000, 250_000, 1_000_000, 250_000]),
                row("acme/write", 9, [42, 0, 0, 0, 0]),
                row("(nothing served)", 0, [0, 0, 300_000, 0, 0]),
            ],
            "total": row("total", 1_209, [3_000_042, 500_000, 550_000, 1_000_000, 250_000]),
            "savings": {"on_demand_usd_micros": 10_000_000,
                "hosted": [{"service": "somebody", "usd_micros": 4_000_000, "ours_usd_micros": 5_000_000}]}})
    }

    #[test]
    fn a_table_shows_what_everything_cost_and_where_the_money_went() {
        let shown = table(&CostsBy::Endpoint, &decode(&told()).unwrap()).trim_fmt();
        let expected = "\
endpoint           jobs        run     load     boot   idle     disk  traffic       total    per job  per 1,000  breakdown
acme/draw         1,200      $3.00  $0.5000  $0.2500  $1.00  $0.2500        -       $5.00    $0.0042      $4.17  ##############===+.....o
acme/write            9  $0.000042        -        -      -        -        -  ~$0.000042  $0.000004    $0.0047  ########################
(nothing served)      0          -        -  $0.3000      -        -        -     $0.3000          -          -  ++++++++++++++++++++++++
total             1,209      $3.00  $0.5000  $0.5500  $1.00  $0.2500        -       $5.30    $0.0044      $4.38  ##############==++.....o";
        assert_eq!(shown, expected);
    }

    #[test]
    fn tokens_and_their_price_are_shown_where_there_are_some() {
        let mut told = told();
        let usage = json!({"prompt_tokens": 40_000_000, "cached_tokens": 10_000_000, "completion_tokens": 5_000_000});
        for row in ["/rows/0", "/total"] {
            let row = told.pointer_mut(row).unwrap();
            row["usage"] = usage.clone();
            row["usd_micros_per_million_tokens"] = json!(111_111);
        }
        let costs = decode(&told).unwrap();
        let shown = table(&CostsBy::Endpoint, &costs).trim_fmt();
        let ends: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        assert_eq!(ends[0][11..], ["per 1M tokens", "breakdown"], "{shown}");
        assert_eq!((ends[1][11], ends[2][11]), ("$0.1111", "-"), "{shown}");
        let by_job = table(&CostsBy::Job, &costs).trim_fmt();
        assert!(by_job.lines().all(|line| line.trim_end().ends_with(['s', '1', '-'])), "{by_job}");
        let said = summary(&costs);
        assert_eq!(said[1], "tokens: 40,000,000 prompt (10,000,000 cached), 5,000,000 completion, $0.1111 per 1M");
        let text = csv(&costs);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].ends_with(",false,40000000,10000000,5000000,111111"), "{}", lines[1]);
        assert!(lines[2].ends_with(",true,,,,"), "{}", lines[2]);
    }

    #[test]
    fn what_was_saved_is_said_in_words() {
        let said = summary(&decode(&told()).unwrap());
        assert_eq!(said[0], "2026-11-16 to 2026-11-22: $5.30 for 1,209 jobs, $0.0044 per job, idle 12 %");
        assert_eq!(said[1], "saved $4.70 (47 %) compared with on-demand");
        assert_eq!(said[2], "overspent $1.00 (25 %) compared with somebody");
        assert_eq!(said.last().map(String::as_str), Some("# run  = load  + boot  . idle  o disk  ~ traffic"));
    }

    #[test]
    fn a_spreadsheet_gets_every_row_whole() {
        let mut told = told();
        told["rows"][1]["name"] = json!("=HYPERLINK(\"x\"), y");
        let text = csv(&decode(&told).unwrap());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[0].starts_with("name,tenant,endpoint"));
        assert!(lines[1].starts_with("acme/draw,acme,,,,,,1200,12.5,3000000,500000,"), "{}", lines[1]);
        assert!(lines[2].starts_with("\"'=HYPERLINK(\"\"x\"\"), y\",acme"), "{}", lines[2]);
    }

    #[test]
    fn dollars_have_as_many_digits_as_there_is_to_see() {
        let said = [0, 5, 4_167, 250_000, 12_345_678].map(dollars);
        assert_eq!(said, ["$0", "$0.000005", "$0.0042", "$0.2500", "$12.35"]);
    }

    #[test]
    fn a_bar_is_always_as_wide() {
        let row = CostRow {
            run_usd_micros: 1,
            load_usd_micros: 1,
            idle_usd_micros: Some(1),
            traffic_usd_micros: Some(7),
            ..CostRow::default()
        };
        assert_eq!(bar(&row), "##===..~~~~~~~~~~~~~~~~~");
        assert_eq!(bar(&CostRow::default()), "");
    }
}
