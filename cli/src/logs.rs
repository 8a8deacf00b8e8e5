//! `stoke logs`.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use stokehold_client::events::{DoneEvent, Event, EventData, Events, GapEvent, LogEvent, StateEvent};
use stokehold_client::models::{JobError, Progress};

use crate::client::{Client, Problem, retry};
use crate::{Global, output};

/// Silence after which the kept events of a stream have been read. They arrive immediately.
const CAUGHT_UP: Duration = Duration::from_millis(700);

/// Print the logs, progress and partial outputs of a job
#[derive(Args)]
#[command(after_help = "Examples:\n  stoke logs 0192f0c1a2b37cde8f00112233445500 --follow")]
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
    match event.decode()? {
        // Standard output of the handler goes to standard output, so that it can be piped.
        EventData::Log(LogEvent { stream, text }) => {
            let text = text.trim_end_matches('\n');
            match (stream.as_str(), raw) {
                ("stderr", true) => output::unescaped(std::io::stderr(), &format!("{text}\n"))?,
                ("stderr", false) => output::note(output::plain(text)),
                (_, true) => output::unescaped(std::io::stdout(), &format!("{text}\n"))?,
                (_, false) => output::line(text)?,
            }
        }
        EventData::Output(value) => output::line(value)?,
        EventData::Gap(GapEvent { from, to }) => output::note(format_args!(
            "(outputs {from} to {} were skipped; the result contains them)",
            to.saturating_sub(1)
        )),
        EventData::Progress(Progress { fraction, message }) => {
            output::note(output::dim(format_args!("{:.0} % {message}", fraction * 100.0)));
        }
        EventData::State(StateEvent { state, attempt }) => {
            let attempt = attempt.filter(|attempt| *attempt > 1);
            let attempt = attempt.map_or(String::new(), |attempt| format!(", attempt {attempt}"));
            output::note(output::dim(format_args!("{state}{attempt}")));
        }
        EventData::Done(DoneEvent { error, .. }) => {
            if let Some(JobError { class, message, .. }) = error {
                let [class, message] = [class, message].map(|part| output::text(part.as_str()));
                output::note(format_args!("{class}: {message}"));
            }
        }
        EventData::Other => (),
    }
    Ok(())
}
