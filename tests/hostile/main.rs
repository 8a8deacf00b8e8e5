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

/// Runs the wanted of these surfaces one after the other, in a task of its own. A panic in a surface is reported, and
/// the other surfaces still run.
macro_rules! lane {
    ($wanted:ident, [$($surface:ident),+ $(,)?]) => {{
        let wanted = $wanted.clone();
        tokio::spawn(async move {
            let mut report = Report::default();
            $(
                let name = stringify!($surface);
                if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
                    // Results from before a panic are kept.
                    let run = std::panic::AssertUnwindSafe($surface::run(&mut report));
                    if futures::FutureExt::catch_unwind(run).await.is_err() {
                        report.broke(name);
                    }
                }
            )+
            report
        })
    }};
}

// Attacks block threads.
#[tokio::main(flavor = "multi_thread", worker_threads = 4)]
async fn main() -> ExitCode {
    if let [_, client, url] = std::env::args().collect::<Vec<_>>().as_slice()
        && client == tenants::flood::CLIENT
    {
        return tenants::flood::client(url).await;
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    // Its floods compare times.
    let alone = lane!(wanted, [tenants]).await;
    // The first lane has the surfaces whose attackers run on workers: they share caches and users.
    let lanes = [
        lane!(wanted, [packages, handlers, host, builds, caches]),
        lane!(wanted, [schemas, worker, terminal, browser, takes, shares]),
    ];
    let mut report = alone.expect("panics of attacks are caught");
    for lane in lanes {
        report.add(lane.await.expect("panics of attacks are caught"));
    }
    println!("\n{}\n{}", report.table(), report.totals());
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
