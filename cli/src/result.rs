//! Results of jobs, and files.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use futures::StreamExt;
use serde_json::Value;
use stokehold_client::models::Job;
use tokio::io::AsyncWriteExt;

use crate::client::{Client, segment};
use crate::progress;

/// Returns the result of a successful job, downloading it if it is not inline.
pub(crate) async fn fetch(client: &Client, job: &Job) -> Result<Value> {
    if job.result.is_some() || job.result_url.is_none() {
        return Ok(job.result.clone().unwrap_or_default());
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
}
