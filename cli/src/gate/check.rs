//! `--check`: a command of the caller's judges what came of the lines, and what it says is kept as feedback on their jobs.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::TryStreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use stokehold_queue::json_in_words;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncSeekExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};

use super::verdict::Measured;
use crate::client::{Client, segment};
use crate::progress;

/// The longest line that a command may answer.
const ANSWER_MAX: u64 = 64 << 10;

/// Ratings on their way at a time.
const RATINGS_AT_ONCE: usize = 8;

/// What the command says of a line.
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

/// A line of the results, whatever it holds.
#[derive(Deserialize)]
struct Done<'a> {
    line: u64,
    job_id: &'a str,
}

/// Has the command judge every result. A line that it rejects has not passed; one that it says nothing of is an error,
/// as is a command that fails or is not done within `patience`.
pub(super) async fn judge(
    client: &Client,
    command: &str,
    cases: &Path,
    results: &Path,
    patience: Duration,
    measured: &mut Measured,
) -> Result<()> {
    let judged = tokio::time::timeout(patience, asked(command, cases, results)).await;
    let (judged, jobs) = judged.with_context(|| format!("the check was not done within {}", words(patience)))??;
    let missing: Vec<u64> = jobs.keys().filter(|line| !judged.contains_key(*line)).copied().take(3).collect();
    ensure!(
        missing.is_empty(),
        "the check said nothing of line {missing:?} and maybe others; it must answer for each line"
    );
    rate(client, &judged, &jobs).await?;
    for (line, said) in judged.into_iter().filter(|(_, said)| !said.accepted) {
        measured.fail(line, said.comment.map_or("not accepted".to_owned(), |why| format!("not accepted: {why}")));
    }
    Ok(())
}

fn words(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}

/// Runs the command; what it said by line, and the job of each line that it was asked about.
async fn asked(command: &str, cases: &Path, results: &Path) -> Result<(HashMap<u64, Judged>, HashMap<u64, String>)> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot run the check {command:?}"))?;
    let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        bail!("the check has no pipes")
    };
    // Both at once: a command that answers as it reads would stand still with its pipe full.
    let (jobs, judged) = tokio::join!(hand(input, cases, results), answers(output));
    let status = child.wait().await?;
    ensure!(
        status.success(),
        "the check failed ({status}); it says what is wrong with a result by `accepted`, not by its status"
    );
    let (jobs, judged) = (jobs?, judged?);
    if let Some(line) = judged.keys().find(|line| !jobs.contains_key(*line)) {
        bail!("the check answered for line {line}, which it was not asked about");
    }
    Ok((judged, jobs))
}

/// Hands the results over, each with the line that it came of.
async fn hand(mut to: ChildStdin, cases: &Path, results: &Path) -> Result<HashMap<u64, String>> {
    let cases = Cases::open(cases).await?;
    let mut jobs = HashMap::new();
    let mut lines = BufReader::new(tokio::fs::File::open(results).await?).lines();
    while let Some(text) = lines.next_line().await? {
        let done: Done<'_> = serde_json::from_str(&text).context("the API's answer is no line of a batch")?;
        let mut whole: serde_json::Map<String, Value> = serde_json::from_str(&text)?;
        whole.insert("case".to_owned(), cases.get(done.line).await?);
        let mut text = serde_json::to_vec(&whole)?;
        text.push(b'\n');
        jobs.insert(done.line, done.job_id.to_owned());
        match to.write_all(&text).await {
            // It has ended; its status tells why.
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
                "the check's {shown:?} is no answer ({}); one looks like {{\"line\": 3, \"accepted\": false, \"comment\": \"blurred\"}}",
                json_in_words(&error)
            )
        })?;
        judged.insert(said.line, said);
    }
    Ok(judged)
}

/// Lines of a bounded length.
struct Bounded(BufReader<ChildStdout>);

impl Bounded {
    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let mut text = Vec::new();
        let read = (&mut self.0).take(ANSWER_MAX).read_until(b'\n', &mut text).await?;
        ensure!(
            text.ends_with(b"\n") || (read as u64) < ANSWER_MAX,
            "the check wrote a line of over {ANSWER_MAX} bytes"
        );
        Ok((read > 0).then_some(text))
    }
}

/// The lines that were handed in, found by their number without holding them.
struct Cases {
    path: std::path::PathBuf,
    /// Where each begins, and where the last ends.
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

    /// The line as it stands there.
    async fn get(&self, line: u64) -> Result<Value> {
        let place = usize::try_from(line)?;
        let changed = || format!("{} has no line {line} any more", self.path.display());
        let (Some(&from), Some(&to)) = (self.starts.get(place - 1), self.starts.get(place)) else { bail!(changed()) };
        let mut file = tokio::fs::File::open(&self.path).await?;
        file.seek(std::io::SeekFrom::Start(from)).await?;
        let mut text = Vec::new();
        file.take(to - from).read_to_end(&mut text).await?;
        serde_json::from_slice(&text).with_context(changed)
    }
}

/// Keeps what was said with the jobs, so that the endpoint's task success tells of it.
async fn rate(client: &Client, judged: &HashMap<u64, Judged>, jobs: &HashMap<u64, String>) -> Result<()> {
    let bar = progress::spinner("keeping what the check said");
    let ratings = judged.values().filter_map(|said| Some((jobs.get(&said.line)?, said)));
    futures::stream::iter(ratings.map(Ok::<_, anyhow::Error>))
        .try_for_each_concurrent(RATINGS_AT_ONCE, |(job, said)| async move {
            let mut body = json!({"accepted": said.accepted});
            if let Some(score) = said.score {
                body["score"] = score.into();
            }
            if let Some(comment) = &said.comment {
                body["comment"] = comment.as_str().into();
            }
            client.post(&format!("/v1/jobs/{}/feedback", segment(job)), Some(&body)).await?;
            Ok(())
        })
        .await?;
    bar.finish_and_clear();
    Ok(())
}
