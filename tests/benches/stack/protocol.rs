//! The harness's line protocol, from the client's side (`lab/peers/README.md`), and the job that every system runs.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

pub(crate) use crate::program::{How, Job};

/// Number of submits in flight.
pub(crate) const SUBMITTERS: usize = 64;

/// 194 bytes as JSON.
pub(crate) fn payload() -> Value {
    json!({"text": "x".repeat(183)})
}

pub(crate) enum Request {
    Submit { how: How, job: Job, count: usize },
    RoundTrips { count: usize },
}

fn parse(line: &str) -> anyhow::Result<Request> {
    let words: Vec<&str> = line.split_whitespace().collect();
    Ok(match words[..] {
        ["submit", how, job, count] => Request::Submit {
            how: match how {
                "one" => How::One,
                "many" => How::Many,
                _ => How::Bulk,
            },
            job: if job == "noop" { Job::Noop } else { Job::Note },
            count: count.parse()?,
        },
        ["round_trips", count] => Request::RoundTrips { count: count.parse()? },
        _ => anyhow::bail!("not a request: {line}"),
    })
}

/// Answers the harness until it closes the pipe.
pub(crate) async fn serve(mut handle: impl AsyncFnMut(Request) -> anyhow::Result<Vec<f64>>) -> anyhow::Result<()> {
    println!("ready");
    // Not a blocking read: a connection that its server closes meanwhile must be noticed.
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match handle(parse(&line)?).await {
            Ok(samples_ms) => {
                let samples: String = samples_ms.iter().map(|ms| format!(" {ms}")).collect();
                println!("ok{samples}");
            }
            Err(error) => println!("error {}", format!("{error:#}").replace('\n', " ")),
        }
    }
    Ok(())
}
