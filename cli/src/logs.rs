//! `stoke logs`.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use stokehold_client::events::{Event, Events};

use crate::client::{Client, Problem, retry};
use crate::{Global, output};

/// Silence after which the kept events of a stream have been read. They arrive immediately.
const CAUGHT_UP: Duration = Duration::from_millis(700);

/// Print the logs, progress and partial outputs of a job
#[derive(Args)]
pub(crate) struct LogsArgs {
    /// Job id
    id: String,
    /// Keep printing until the job ends
    #[arg(long, short)]
    follow: bool,
    /// Print control characters unescaped; by default they are escaped on a terminal
    #[arg(long)]
    raw: bool,
}

pub(crate) async fn run(global: &Global, args: LogsArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let (mut last_id, mut failures) = (String::new(), 0);
    loop {
        let ended = match read(&client, &args, &mut last_id, global.json, &mut failures).await {
            Ok(ended) => ended,
            // The API restarted or a proxy closed the connection: resume the stream after the last event.
            Err(error) if !args.follow || failures + 1 >= retry::TRIES || error.is::<Problem>() => {
                return Err(error);
            }
            Err(_) => false,
        };
        if ended {
            return Ok(());
        }
        failures += 1;
        tokio::time::sleep(retry::pause(failures, None)).await;
    }
}

/// Reads one stream to its end. Returns whether there is nothing more to read.
async fn read(client: &Client, args: &LogsArgs, last_id: &mut String, json: bool, failures: &mut u32) -> Result<bool> {
    let mut events = Events::open(client, &args.id, last_id).await?;
    loop {
        let next = if args.follow {
            events.next().await?
        } else {
            match tokio::time::timeout(CAUGHT_UP, events.next()).await {
                Ok(next) => next?,
                Err(_) => return Ok(true),
            }
        };
        let Some(event) = next else { return Ok(!args.follow) };
        *failures = 0;
        event.id.clone_into(last_id);
        show(&event, json, args.raw)?;
        if event.kind == "done" {
            return Ok(true);
        }
    }
}

fn show(event: &Event, json: bool, raw: bool) -> Result<()> {
    if json {
        return output::json_line(&json!({"event": event.kind, "data": event.data}));
    }
    let data = &event.data;
    match event.kind.as_str() {
        // Standard output of the handler goes to standard output, so that it can be piped.
        "log" => {
            let text = data["text"].as_str().unwrap_or_default().trim_end_matches('\n');
            match (data["stream"].as_str(), raw) {
                (Some("stderr"), true) => output::unescaped(std::io::stderr(), &format!("{text}\n"))?,
                (Some("stderr"), false) => output::note(output::plain(text)),
                (_, true) => output::unescaped(std::io::stdout(), &format!("{text}\n"))?,
                (_, false) => output::line(text)?,
            }
        }
        "output" => output::line(&data["value"])?,
        "gap" => output::note(format_args!(
            "(outputs {} to {} were skipped; the result contains them)",
            data["from"],
            data["to"].as_u64().unwrap_or_default().saturating_sub(1)
        )),
        "progress" => {
            let percent = data["fraction"].as_f64().unwrap_or_default() * 100.0;
            output::note(output::dim(format_args!("{percent:.0} % {}", data["message"].as_str().unwrap_or_default())));
        }
        "state" => {
            output::note(output::dim(format_args!("{}{}", data["state"].as_str().unwrap_or_default(), attempt(data))))
        }
        "done" => {
            let error = &data["error"];
            if !error.is_null() {
                output::note(format_args!("{}: {}", output::cell(&error["class"]), output::cell(&error["message"])));
            }
        }
        _ => (),
    }
    Ok(())
}

fn attempt(data: &Value) -> String {
    data["attempt"]
        .as_u64()
        .filter(|attempt| *attempt > 1)
        .map_or(String::new(), |attempt| format!(", attempt {attempt}"))
}
