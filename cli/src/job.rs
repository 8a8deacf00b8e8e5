//! The job object of the API, and its text forms.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::AsyncWriteExt;

use crate::client::{Client, segment};
use crate::output;
use crate::progress;

/// A job: the fields that the subcommands use.
#[derive(Debug, Deserialize)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) endpoint: String,
    #[serde(default)]
    pub(crate) version: Value,
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) created_at: Value,
    #[serde(default)]
    pub(crate) ended_at: Value,
    #[serde(default)]
    pub(crate) progress: Option<Progress>,
    #[serde(default)]
    pub(crate) attempts: Vec<Attempt>,
    #[serde(default)]
    pub(crate) timing: Option<Timing>,
    #[serde(default)]
    pub(crate) result: Value,
    #[serde(default)]
    pub(crate) result_url: Option<String>,
    #[serde(default)]
    pub(crate) error: Option<Failure>,
    #[serde(default)]
    pub(crate) deadline_at: Value,
    #[serde(default)]
    pub(crate) batch_id: Option<String>,
    #[serde(default)]
    pub(crate) line: Option<u64>,
    #[serde(default)]
    pub(crate) retry_of: Option<String>,
    #[serde(default)]
    pub(crate) schedule_id: Option<String>,
    #[serde(default)]
    pub(crate) depends_on: Vec<Dependency>,
    #[serde(default)]
    pub(crate) concurrency_key: Option<String>,
    #[serde(default)]
    pub(crate) webhook: Option<String>,
    #[serde(default)]
    pub(crate) steps: Vec<Step>,
    #[serde(default)]
    pub(crate) cost_usd_micros: Option<f64>,
    #[serde(default)]
    pub(crate) waiting: Option<Waiting>,
    #[serde(default)]
    pub(crate) oom_events: u32,
}

/// Why a job has not started.
#[derive(Debug, Deserialize)]
pub(crate) struct Waiting {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// A job that must end first.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) job: String,
    #[serde(default)]
    pub(crate) on: String,
}

/// A pipeline step before or after the job.
#[derive(Debug, Deserialize)]
pub(crate) struct Step {
    #[serde(default)]
    pub(crate) name: Value,
    pub(crate) stage: String,
    pub(crate) endpoint: String,
    #[serde(default)]
    pub(crate) job_id: Option<String>,
    #[serde(default)]
    pub(crate) state: Value,
    #[serde(default)]
    pub(crate) decision: Option<String>,
    #[serde(default)]
    pub(crate) reason: Option<String>,
    #[serde(default)]
    pub(crate) timing: Option<Timing>,
}

/// Progress reported by the handler.
#[derive(Debug, Deserialize)]
pub(crate) struct Progress {
    pub(crate) fraction: f64,
    #[serde(default)]
    pub(crate) message: String,
}

/// An attempt of a job.
#[derive(Debug, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) attempt: u32,
    pub(crate) worker_id: String,
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) started_at: Value,
    pub(crate) timing: Timing,
    #[serde(default)]
    pub(crate) error: Option<Failure>,
}

/// Duration of each phase, ms.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
pub(crate) struct Timing {
    pub(crate) queued_ms: u64,
    pub(crate) env_ms: u64,
    pub(crate) weights_ms: u64,
    pub(crate) boot_ms: u64,
    pub(crate) load_ms: u64,
    pub(crate) warmup_ms: u64,
    pub(crate) worker_wait_ms: u64,
    pub(crate) inputs_ms: u64,
    pub(crate) run_ms: u64,
    pub(crate) upload_ms: u64,
}

/// An error of a job or an attempt.
#[derive(Debug, Deserialize)]
pub(crate) struct Failure {
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) class: Option<String>,
    #[serde(default)]
    pub(crate) message: Option<String>,
    #[serde(default)]
    pub(crate) traceback: Option<String>,
    #[serde(default)]
    pub(crate) stderr: Option<String>,
}

impl Job {
    /// Decodes the API's JSON.
    pub(crate) fn decode(job: &Value) -> Result<Self> {
        Self::deserialize(job)
            .context("the API's response is not a job; check that `stoke` and the API have the same version")
    }

    /// Whether the job has ended.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state.as_str(), "succeeded" | "failed" | "cancelled" | "expired")
    }

    /// Endpoint with version, `NAME@VERSION`.
    pub(crate) fn endpoint(&self) -> String {
        format!("{}@{}", self.endpoint, output::cell(&self.version))
    }

    /// Returns an error with the outcome unless the job succeeded.
    pub(crate) fn succeeded(&self) -> Result<()> {
        match (&*self.state, &self.error) {
            ("succeeded", _) => Ok(()),
            (state, Some(error)) => bail!("job {} {state} after {} attempt(s): {error}", self.id, self.attempts.len()),
            (state, None) => bail!("job {} is {state}", self.id),
        }
    }
}

impl Failure {
    /// The first line of the error, for tables.
    pub(crate) fn in_short(&self) -> String {
        let parts = [self.class.as_deref(), self.message.as_deref().and_then(|message| message.lines().next())];
        parts
            .into_iter()
            .flatten()
            .filter(|part| !part.is_empty())
            .fold(self.code.clone(), |text, part| format!("{text}: {part}"))
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let given = |text: &Option<String>| {
            text.as_deref().map(str::trim_end).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        write!(f, "{}", self.code)?;
        for part in [given(&self.class), given(&self.message)].into_iter().flatten() {
            write!(f, ": {part}")?;
        }
        if let Some(traceback) = given(&self.traceback) {
            write!(f, "\n{traceback}")?;
        }
        if let Some(stderr) = given(&self.stderr) {
            write!(f, "\nlast lines on stderr:\n{stderr}")?;
        }
        Ok(())
    }
}

/// Returns the result of a successful job, downloading it if it is not inline.
pub(crate) async fn result(client: &Client, job: &Job) -> Result<Value> {
    if !job.result.is_null() || job.result_url.is_none() {
        return Ok(job.result.clone());
    }
    let answer = client.stream(&format!("/v1/jobs/{}/result", segment(&job.id)), &[]).await?;
    answer.json().await.context("the result is not valid JSON")
}

/// Downloads the files of a result to `folder`. Returns their paths.
pub(crate) async fn save_files(client: &Client, result: &Value, folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut files = Vec::new();
    find_files(result, &mut files);
    let mut saved = Vec::with_capacity(files.len());
    for (name, url) in files {
        // The worker chose the name, so only its last component is used.
        let name = Path::new(name)
            .file_name()
            .with_context(|| format!("the result has a file with the invalid name {name:?}"))?;
        let path = folder.join(name);
        download(client, url, &path).await.with_context(|| format!("cannot save {}", path.display()))?;
        saved.push(path);
    }
    Ok(saved)
}

fn find_files<'a>(value: &'a Value, found: &mut Vec<(&'a str, &'a str)>) {
    match value {
        Value::Object(members) => match (members.get("$file"), members.get("url")) {
            (Some(Value::String(name)), Some(Value::String(url))) => found.push((name, url)),
            _ => members.values().for_each(|value| find_files(value, found)),
        },
        Value::Array(items) => items.iter().for_each(|value| find_files(value, found)),
        _ => (),
    }
}

async fn download(client: &Client, path: &str, to: &Path) -> Result<()> {
    let answer = client.stream(path, &[]).await?;
    let bar = progress::transfer(format!("saving {}", to.display()), answer.content_length().unwrap_or_default());
    let mut place = Beside::create(to).await?;
    let mut body = answer.bytes_stream();
    while let Some(piece) = body.next().await {
        let piece = piece?;
        place.file.write_all(&piece).await?;
        bar.inc(piece.len() as u64);
    }
    place.keep().await?;
    bar.finish_and_clear();
    Ok(())
}

/// A file that is written to a temporary name and then renamed, so that it is never incomplete.
pub(crate) struct Beside<'a> {
    pub(crate) file: tokio::fs::File,
    beside: tempfile::TempPath,
    to: &'a Path,
}

impl<'a> Beside<'a> {
    pub(crate) async fn create(to: &'a Path) -> Result<Self> {
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        tokio::fs::create_dir_all(folder).await?;
        // Results are not secret: use the user's umask, not the private mode of temporary files.
        let mode = std::fs::Permissions::from_mode(0o666);
        let (file, beside) = tempfile::Builder::new().permissions(mode).tempfile_in(folder)?.into_parts();
        Ok(Self { file: tokio::fs::File::from_std(file), beside, to })
    }

    pub(crate) async fn keep(mut self) -> Result<()> {
        self.file.flush().await?;
        self.beside.persist(self.to)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_wherever_they_are() {
        let result =
            serde_json::json!({"a": [{"$file": "x.png", "url": "/v1/x"}], "b": {"$file": "y", "url": "/v1/y"}, "c": 1});
        let mut found = Vec::new();
        find_files(&result, &mut found);
        assert_eq!(found, [("x.png", "/v1/x"), ("y", "/v1/y")]);
    }

    #[test]
    fn a_failed_job_is_an_error_that_says_why() {
        let job = serde_json::json!({"id": "1", "endpoint": "e", "state": "failed",
            "error": {"code": "handler_error", "class": "LookupError", "message": "no such thing", "traceback": "at line 1\n", "stderr": null}});
        let said = Job::decode(&job).and_then(|job| job.succeeded()).expect_err("it failed").to_string();
        assert_eq!(said, "job 1 failed after 0 attempt(s): handler_error: LookupError: no such thing\nat line 1");
    }
}
