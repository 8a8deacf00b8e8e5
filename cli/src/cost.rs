//! `stoke cost`.

mod show;

use anyhow::{Result, bail};
use clap::Args;
use stokehold_client::models::{Costs, CostsBy};
use time::format_description::well_known::Iso8601;
use time::{Date, Duration, OffsetDateTime};

use crate::client::{Client, decode, segment};
use crate::submit::options::words;
use crate::{Global, output};

/// Show what jobs cost, and what the money was spent on
///
/// A job is charged for its run time and the load time of its model, plus its share of the overhead of the machines:
/// booting, idle time, disks and traffic. The rows add up to what the providers charge. Days are UTC.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke cost                                  the last 7 days by endpoint
  stoke cost --by day --from 30d
  stoke cost --by batch --from 2026-11-01 --to 2026-11-30 --csv
  stoke cost --by job --batch batch_0123      the newest jobs of a batch")]
pub(crate) struct CostArgs {
    /// Group by this; machine is operator only
    #[arg(long, value_parser = words::<CostsBy>(), default_value = "endpoint")]
    by: CostsBy,
    /// First day, or number of days up to and including the last
    #[arg(long, default_value = "7d", value_name = "DAYS|DATE", value_parser = from)]
    from: From,
    /// Last day [default: today]
    #[arg(long, value_name = "DATE", value_parser = date)]
    to: Option<Date>,
    /// Tenant (operator only) [default: yours; operators: all]
    #[arg(long)]
    tenant: Option<String>,
    /// With --by job: only jobs of this endpoint
    #[arg(long)]
    endpoint: Option<String>,
    /// With --by job: only jobs of this batch
    #[arg(long)]
    batch: Option<String>,
    /// Maximum number of rows, 1 to 1000
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Print CSV; amounts are in millionths of a US dollar
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Day(Date),
    /// Number of days up to and including the last.
    Days(i64),
}

fn date(text: &str) -> Result<Date> {
    match Date::parse(text, &Iso8601::DATE) {
        Ok(date) => Ok(date),
        Err(_) => bail!("must be a date, e.g. 2026-11-22"),
    }
}

fn from(text: &str) -> Result<From> {
    match text.strip_suffix('d').and_then(|days| days.parse().ok()) {
        Some(days @ 1..=800) => Ok(From::Days(days)),
        Some(_) => bail!("must be 1d to 800d"),
        None => match date(text) {
            Ok(date) => Ok(From::Day(date)),
            Err(_) => bail!("must be a number of days, e.g. 30d, or a date, e.g. 2026-11-22"),
        },
    }
}

pub(crate) async fn run(global: &Global, args: CostArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let told = client.get(&path(&args, OffsetDateTime::now_utc().date())?).await?;
    if global.json {
        return output::json(&told);
    }
    let costs: Costs = decode(&told)?;
    if args.csv {
        return output::raw(show::csv(&costs).as_bytes());
    }
    if costs.rows.is_empty() && costs.total.total_usd_micros == 0 {
        output::note("no costs and no ended jobs in this period");
        return Ok(());
    }
    output::line(show::table(&args.by, &costs).trim_fmt())?;
    output::note("");
    show::summary(&costs).into_iter().for_each(output::note);
    Ok(())
}

fn path(args: &CostArgs, today: Date) -> Result<String> {
    let to = args.to.unwrap_or(today);
    let from = match args.from {
        From::Day(day) => day,
        From::Days(days) => to.saturating_sub(Duration::days(days - 1)),
    };
    let mut path = format!("/v1/costs?by={}&from={from}&to={to}", args.by);
    for (name, value) in [("tenant", &args.tenant), ("endpoint", &args.endpoint), ("batch", &args.batch)] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", segment(value)));
        }
    }
    if let Some(limit) = args.limit {
        path.push_str(&format!("&limit={limit}"));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{Command, stub};

    fn asked(line: &str) -> String {
        let Command::Cost(args) = stub::parse(line).unwrap() else { panic!("is one") };
        path(&args, date("2026-11-22").unwrap()).unwrap()
    }

    #[test]
    fn days_are_counted_back_from_the_last() {
        assert_eq!(asked("costs"), "/v1/costs?by=endpoint&from=2026-11-16&to=2026-11-22");
        assert_eq!(asked("costs --by day --from 1d --to 2026-03-01"), "/v1/costs?by=day&from=2026-03-01&to=2026-03-01");
        assert_eq!(
            asked("costs --by job --from 2026-11-01 --batch batch_1 --limit 5"),
            "/v1/costs?by=job&from=2026-11-01&to=2026-11-22&batch=batch_1&limit=5"
        );
    }

    #[test]
    fn what_is_no_day_is_refused() {
        for line in ["costs --from 0d", "costs --from 801d", "costs --from soon", "costs --to 7d", "costs --csv --json"]
        {
            assert!(stub::parse(line).is_err(), "{line}");
        }
    }
}
