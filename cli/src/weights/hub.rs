//! `hf://`: one file or all files of a repository on a hub with huggingface.co's API, pinned to the current commit of a
//! revision.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use reqwest::header::{CONTENT_LENGTH, HeaderMap, LINK};
use reqwest::redirect::Policy;
use serde::Deserialize;

use super::{FILES_MAX, Pinned, check, is_pickle, web};
use crate::output;
use crate::package::{WeightSource, is_sha256};

const HUB: &str = "https://huggingface.co";

/// Maximum number of pages of a listing; each has up to 1,000 files.
const PAGES_MAX: usize = 20;

/// Files that are never part of the weights.
const LEFT_OUT: [&str; 2] = [".gitattributes", ".gitignore"];

/// Repository `org/model`, revision, and file (`None` for all files).
#[derive(Debug, PartialEq, Eq)]
struct Place<'a> {
    repository: String,
    revision: &'a str,
    file: Option<&'a str>,
}

impl<'a> Place<'a> {
    fn parse(rest: &'a str) -> Result<Self> {
        let mut parts = rest.splitn(3, '/');
        let (owner, model, file) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        let (model, revision) = match model.unwrap_or_default().split_once('@') {
            Some((model, revision)) => (model, revision),
            None => (model.unwrap_or_default(), "main"),
        };
        ensure!(
            !owner.is_empty() && !model.is_empty() && !revision.is_empty(),
            "weights: hf://{rest} has no repository; use hf://org/model@revision or hf://org/model@revision/file"
        );
        let file = file.filter(|file| !file.is_empty());
        Ok(Self { repository: format!("{owner}/{model}"), revision, file })
    }
}

/// One file in a listing.
#[derive(Debug, Deserialize)]
struct Listed {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
    lfs: Option<Large>,
}

/// The LFS pointer of a large file.
#[derive(Debug, Deserialize)]
struct Large {
    oid: String,
}

#[derive(Deserialize)]
struct Revision {
    sha: String,
}

struct Hub {
    base: String,
    headers: Vec<(&'static str, String)>,
}

/// Resolves `hf://<rest>` at the current commit of its revision.
pub(super) async fn look(rest: &str, declared: &WeightSource) -> Result<Vec<Pinned>> {
    let place = Place::parse(rest)?;
    let hub = Hub::of(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    match place.file {
        Some(file) => Ok(vec![hub.file(&place, file, declared).await?]),
        None => {
            ensure!(
                declared.sha256.is_none(),
                "weights: {} is a whole repository, so it cannot have one sha256; name a single file",
                declared.source
            );
            hub.all(&place, declared).await
        }
    }
}

impl Hub {
    fn of(env: impl Fn(&str) -> Option<String>) -> Self {
        let base = env("HF_ENDPOINT").unwrap_or_else(|| HUB.to_owned()).trim_end_matches('/').to_owned();
        let headers = env("HF_TOKEN").map(|token| ("authorization", format!("Bearer {token}")));
        Self { base, headers: headers.into_iter().collect() }
    }

    fn url(&self, repository: &str, commit: &str, file: &str) -> String {
        let file: Vec<_> = file.split('/').map(crate::client::segment).collect();
        format!("{}/{repository}/resolve/{commit}/{}", self.base, file.join("/"))
    }

    /// Resolves one file. The response has its commit and, for a large file, its hash and size.
    async fn file(&self, place: &Place<'_>, file: &str, declared: &WeightSource) -> Result<Pinned> {
        let http =
            reqwest::Client::builder().redirect(Policy::none()).timeout(std::time::Duration::from_secs(60)).build()?;
        let mut request = http.head(self.url(&place.repository, place.revision, file));
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let answer = request.send().await.map_err(reqwest::Error::without_url);
        let answer = web::refused(file, answer.with_context(|| format!("cannot reach {}", self.base))?)?;
        let said = answer.headers();
        let commit = text(said, "x-repo-commit")
            .with_context(|| format!("{} did not return the commit of {file}", self.base))?;
        let large = text(said, "x-linked-etag").map(|etag| etag.trim_matches('"').to_owned());
        let size =
            text(said, "x-linked-size").or(text(said, CONTENT_LENGTH.as_str())).and_then(|size| size.parse().ok());
        let known = large.filter(|etag| is_sha256(etag)).zip(size);
        let path = declared.path.clone().unwrap_or_else(|| file.to_owned());
        self.pinned(place, &commit, file, path, known, declared).await
    }

    /// Resolves all files, except duplicates of safetensors in other formats.
    async fn all(&self, place: &Place<'_>, declared: &WeightSource) -> Result<Vec<Pinned>> {
        let api = format!("{}/api/models/{}", self.base, place.repository);
        let Revision { sha: commit } =
            self.ask(&format!("{api}/revision/{}", crate::client::segment(place.revision))).await?.0;
        let (mut files, mut next) = (Vec::new(), Some(format!("{api}/tree/{commit}?recursive=true")));
        for _ in 0..PAGES_MAX {
            let Some(url) = next.take() else { break };
            let (page, following): (Vec<Listed>, _) = self.ask(&url).await?;
            files.extend(page.into_iter().filter(|one| one.kind == "file" && one.size > 0));
            next = following;
        }
        ensure!(
            next.is_none() && files.len() <= FILES_MAX,
            "{} has more than {FILES_MAX} files; declare only the files that you need",
            place.repository
        );
        let (files, skipped) = wanted(files);
        if !skipped.is_empty() {
            output::note(format_args!("skipped, because the repository has safetensors: {}", skipped.join(", ")));
        }
        let mut pinned = Vec::new();
        for one in files {
            let path = match &declared.path {
                Some(folder) => format!("{}/{}", folder.trim_end_matches('/'), one.path),
                None => one.path.clone(),
            };
            let known = one.lfs.map(|large| large.oid).filter(|oid| is_sha256(oid)).zip(Some(one.size));
            pinned.push(self.pinned(place, &commit, &one.path, path, known, declared).await?);
        }
        Ok(pinned)
    }

    async fn pinned(
        &self,
        place: &Place<'_>,
        commit: &str,
        file: &str,
        path: String,
        known: Option<(String, u64)>,
        declared: &WeightSource,
    ) -> Result<Pinned> {
        let url = self.url(&place.repository, commit, file);
        let (sha256, size_bytes) = match known {
            Some(known) => known,
            None => web::measure(file, &url, &self.headers).await?,
        };
        check(declared, file, &sha256)?;
        let source = format!("hf://{}@{commit}/{file}", place.repository);
        Ok(Pinned { path, source, url: Some(url), sha256, size_bytes, file: None })
    }

    /// Fetches a page of a listing. Returns it with the URL of the next page.
    async fn ask<T: for<'de> Deserialize<'de>>(&self, url: &str) -> Result<(T, Option<String>)> {
        let mut request = web::http()?.get(url);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let answer = request.send().await.map_err(reqwest::Error::without_url);
        let answer = answer.with_context(|| format!("cannot reach {}", self.base))?;
        let what = url.strip_prefix(&self.base).unwrap_or(url).to_owned();
        let answer = web::refused(&what, answer)?;
        let next = next_page(answer.headers()).filter(|next| next.starts_with(&format!("{}/", self.base)));
        Ok((answer.json().await.with_context(|| format!("{} did not return a listing", self.base))?, next))
    }
}

/// Splits files into wanted ones and names of skipped ones: if there are safetensors, pickles and other formats are
/// skipped.
fn wanted(files: Vec<Listed>) -> (Vec<Listed>, Vec<String>) {
    let has_safetensors = files.iter().any(|one| one.path.ends_with(".safetensors"));
    let is_other = |path: &str| {
        let ending = Path::new(path).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        is_pickle(path) || matches!(ending, "h5" | "msgpack" | "onnx" | "ot" | "gguf")
    };
    let (skipped, files): (Vec<_>, Vec<_>) = files
        .into_iter()
        .filter(|one| !LEFT_OUT.contains(&one.path.as_str()))
        .partition(|one| has_safetensors && is_other(&one.path));
    (files, skipped.into_iter().map(|one| one.path).collect())
}

/// Parses the header `Link: <url>; rel="next"`.
fn next_page(headers: &HeaderMap) -> Option<String> {
    let links = headers.get(LINK)?.to_str().ok()?;
    let next = links.split(',').find(|link| link.contains("rel=\"next\""))?;
    Some(next.split_once('<')?.1.split_once('>')?.0.to_owned())
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}
