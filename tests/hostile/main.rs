//! Attacks on a running stack in the roles of hostile tenants, handlers, packages, workers and hosts. Each surface has
//! a file; each attack is a function that returns its number of attempts and what they obtained. The run prints a table
//! of surfaces and levels, and fails if an attempt succeeded that is promised to fail: docs/explanation/security.md.
//!
//! `make hostile-tests` runs all of it at full size, `make test` a quick part. Arguments are the surfaces to run;
//! without arguments all run.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "tests print")]

#[path = "../it/api.rs"]
#[allow(dead_code, reason = "the end-to-end tests use the rest")]
mod api;
mod browser;
mod builds;
mod caches;
mod handlers;
mod host;
mod packages;
mod report;
mod schemas;
mod shares;
mod stage;
mod takes;
mod tenants;
mod terminal;
mod worker;

use std::process::ExitCode;

use crate::report::Report;

/// Runs attacks one after the other; each has the name of its function.
macro_rules! attacks {
    ($report:expr, $surface:expr, $level:expr, $promise:expr, $on:expr, [$($attack:ident),+ $(,)?]) => {
        $( $report.note($surface, $level, $promise, stringify!($attack), &$attack($on).await); )+
    };
}
pub(crate) use attacks;

/// Runs a surface. A panic in it is reported, and the other surfaces still run.
macro_rules! surface {
    ($report:ident, $wanted:ident, $surface:ident) => {
        let name = stringify!($surface);
        if $wanted.is_empty() || $wanted.iter().any(|wanted| wanted == name) {
            let mut mine = std::mem::take(&mut $report);
            let run = tokio::spawn(async move {
                // Results from before a panic are kept.
                let done =
                    futures::FutureExt::catch_unwind(std::panic::AssertUnwindSafe($surface::run(&mut mine))).await;
                (mine, done.is_ok())
            });
            let (mine, is_done) = run.await.expect("its panics are caught");
            $report = mine;
            if !is_done {
                $report.broke(name);
            }
        }
    };
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    if let [_, client, url] = std::env::args().collect::<Vec<_>>().as_slice()
        && client == tenants::flood::CLIENT
    {
        return tenants::flood::client(url).await;
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let mut report = Report::default();
    surface!(report, wanted, schemas);
    surface!(report, wanted, worker);
    surface!(report, wanted, tenants);
    surface!(report, wanted, terminal);
    surface!(report, wanted, browser);
    surface!(report, wanted, packages);
    surface!(report, wanted, handlers);
    surface!(report, wanted, host);
    surface!(report, wanted, builds);
    surface!(report, wanted, caches);
    surface!(report, wanted, takes);
    surface!(report, wanted, shares);
    println!("\n{}\n{}", report.table(), report.totals());
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
