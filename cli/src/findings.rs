//! Output of checks: a table, and an error if a check failed.

use anyhow::{Result, bail};
use comfy_table::Cell;
use serde_json::json;
use stokehold_worker::machine::{Finding, Verdict};

use crate::{Global, output};

/// Prints the findings. Returns an error if one of them is a failure.
pub(crate) fn tell(global: &Global, findings: &[Finding]) -> Result<()> {
    if global.json {
        output::json(&json!({"checks": findings}))?;
    } else {
        let mut table = output::table(["", "check", "result"]).wrapping(&["result"]);
        for Finding { what, verdict, found, fix } in findings {
            let word = match verdict {
                Verdict::Ok => "ok",
                Verdict::Warn => "warn",
                Verdict::Fail => "fail",
            };
            let fix = fix.as_ref().map_or(String::new(), |fix| format!("\n{fix}"));
            table.add_row([output::state_cell(word), Cell::new(what), Cell::new(format!("{found}{fix}"))]);
        }
        output::line(table.trim_fmt())?;
    }
    match failed(findings) {
        0 => Ok(()),
        failed => bail!("{failed} of {} failed", output::counted(findings.len() as u64, "check")),
    }
}

/// Number of failures.
pub(crate) fn failed(findings: &[Finding]) -> usize {
    findings.iter().filter(|finding| finding.verdict == Verdict::Fail).count()
}
