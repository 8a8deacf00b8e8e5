//! `--check`: a user-supplied command rates the results. Its ratings are stored as feedback on the jobs.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::TryStreamExt;
use serde::Deserialize;
use serde_json::Value;
use stokehold_client::models::FeedbackRequest;
use stokehold_queue::json_in_words;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncSeekExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};

use super::verdict::Measured;
use crate::client::{Client, segment};
use crate::{duration, progress};

/// Maximum length of a line from the command, bytes.
const ANSWER_MAX: u64 = 64 << 10;

/// Maximum concurrent feedback requests.
const RATINGS_AT_ONCE: usize = 8;

/// The command's rating of a line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Judged {
    line: u64,
    accepted: bool,
    #[serde(default)]
    score: Option<u8>,
    #[serde(default)]
    comment: Option<String>,
}

/// The identifying members of a line of results.
#[derive(Deserialize)]
struct Done<'a> {
    line: u64,
    job_id: &'a str,
}

/// Runs the command on all results. A rejected line does not pass. A line without a rating is an error, as is a command
/// that fails or takes longer than `patience`.
pub(super) async fn judge(
    client: &Client,
    command: &str,
    cases: &Path,
    results: &Path,
    patience: Duration,
    measured: &mut Measured,
) -> Result<()> {
    let judged = tokio::time::timeout(patience, asked(command, cases, results)).await;
    let (judged, jobs) =
        judged.with_context(|| format!("the check did not finish within {}", duration::words(patience)))??;
    let missing: Vec<u64> = jobs.keys().filter(|line| !judged.contains_key(*line)).copied().take(3).collect();
    ensure!(
        missing.is_empty(),
        "the check wrote no rating for lines {missing:?} and possibly others; it must rate every line"
    );
    rate(client, &judged, &jobs).await?;
    for (line, said) in judged.into_iter().filter(|(_, said)| !said.accepted) {
        measured.fail(line, said.comment.map_or("not accepted".to_owned(), |why| format!("not accepted: {why}")));
    }
    Ok(())
}

/// Runs the command. Returns its ratings and the job id of each line.
async fn asked(command: &str, cases: &Path, results: &Path) -> Result<(HashMap<u64, Judged>, HashMap<u64, String>)> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot run the check {command:?}"))?;
    let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        bail!("cannot open the pipes of the check")
    };
    // Concurrently: a command that writes while it reads would block on a full pipe.
    let (jobs, judged) = tokio::join!(hand(input, cases, results), answers(output));
    let status = child.wait().await?;
    ensure!(
        status.success(),
        "the check failed ({status}); a check must reject results with \"accepted\": false, not with its exit status"
    );
    let (jobs, judged) = (jobs?, judged?);
    if let Some(line) = judged.keys().find(|line| !jobs.contains_key(*line)) {
        bail!("the check wrote a rating for line {line}, which is not in its input");
    }
    Ok((judged, jobs))
}

/// Writes the results to the command, each with its input line.
async fn hand(mut to: ChildStdin, cases: &Path, results: &Path) -> Result<HashMap<u64, String>> {
    let cases = Cases::open(cases).await?;
    let mut jobs = HashMap::new();
    let mut lines = BufReader::new(tokio::fs::File::open(results).await?).lines();
    while let Some(text) = lines.next_line().await? {
        let done: Done<'_> = serde_json::from_str(&text).context("the API's response is not a line of a batch")?;
        let mut whole: serde_json::Map<String, Value> = serde_json::from_str(&text)?;
        whole.insert("case".to_owned(), cases.get(done.line).await?);
        let mut text = serde_json::to_vec(&whole)?;
        text.push(b'\n');
        jobs.insert(done.line, done.job_id.to_owned());
        match to.write_all(&text).await {
            // The command exited; its status is reported.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => break,
            written => written?,
        }
    }
    Ok(jobs)
}

async fn answers(from: ChildStdout) -> Result<HashMap<u64, Judged>> {
    let mut lines = Bounded(BufReader::new(from));
    let mut judged = HashMap::new();
    while let Some(text) = lines.next().await? {
        let said: Judged = serde_json::from_slice(&text).map_err(|error| {
            let shown = String::from_utf8_lossy(&text);
            anyhow::anyhow!(
                "the check wrote an invalid line {shown:?} ({}); expected e.g. {{\"line\": 3, \"accepted\": false, \"comment\": \"blurred\"}}",
                json_in_words(&error)
            )
        })?;
        judged.insert(said.line, said);
    }
    Ok(judged)
}

/// A reader of lines of bounded length.
struct Bounded(BufReader<ChildStdout>);

impl Bounded {
    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let mut text = Vec::new();
        let read = (&mut self.0).take(ANSWER_MAX).read_until(b'\n', &mut text).await?;
        ensure!(
            text.ends_with(b"\n") || (read as u64) < ANSWER_MAX,
            "the check wrote a line of more than {ANSWER_MAX} bytes"
        );
        Ok((read > 0).then_some(text))
    }
}

/// Random access to the submitted lines by number.
struct Cases {
    path: std::path::PathBuf,
    /// Start offset of each line, and the end of the last.
    starts: Vec<u64>,
}

impl Cases {
    async fn open(path: &Path) -> Result<Self> {
        let mut lines = BufReader::new(tokio::fs::File::open(path).await?);
        let (mut starts, mut at, mut text) = (vec![0], 0, Vec::new());
        loop {
            text.clear();
            let read = lines.read_until(b'\n', &mut text).await? as u64;
            if read == 0 {
                return Ok(Self { path: path.to_owned(), starts });
            }
            at += read;
            starts.push(at);
        }
    }

    /// Reads a line.
    async fn get(&self, line: u64) -> Result<Value> {
        let place = usize::try_from(line)?;
        let changed = || format!("{} has changed: line {line} is missing or invalid", self.path.display());
        let (Some(&from), Some(&to)) = (self.starts.get(place - 1), self.starts.get(place)) else { bail!(changed()) };
        let mut file = tokio::fs::File::open(&self.path).await?;
        file.seek(std::io::SeekFrom::Start(from)).await?;
        let mut text = Vec::new();
        file.take(to - from).read_to_end(&mut text).await?;
        serde_json::from_slice(&text).with_context(changed)
    }
}

/// Stores the ratings as feedback on the jobs.
async fn rate(client: &Client, judged: &HashMap<u64, Judged>, jobs: &HashMap<u64, String>) -> Result<()> {
    let bar = progress::spinner("storing the ratings of the check");
    let ratings = judged.values().filter_map(|said| Some((jobs.get(&said.line)?, said)));
    futures::stream::iter(ratings.map(Ok::<_, anyhow::Error>))
        .try_for_each_concurrent(RATINGS_AT_ONCE, |(job, said)| async move {
            let request = FeedbackRequest {
                accepted: Some(said.accepted),
                score: said.score,
                comment: said.comment.clone(),
                labels: None,
            };
            let path = format!("/v1/jobs/{}/feedback", segment(job));
            client.post(&path, Some(&serde_json::to_value(request)?)).await?;
            Ok(())
        })
        .await?;
    bar.finish_and_clear();
    Ok(())
}
