//! `hf://`: one file or all files of a repository on a hub with huggingface.co's API, pinned to the current commit of a
//! revision.

use std::path::Path;

use serde::Deserialize;

use super::host::{Host, Method, Request, Response};
use super::{FILES_MAX, Pinned, check, is_pickle, web};
use crate::error::{Error, Step, invalid, require};
use crate::manifest::{WeightSource, is_sha256};

const HUB: &str = "https://huggingface.co";

/// Maximum number of pages of a listing; each has up to 1,000 files.
const PAGES_MAX: usize = 20;

/// Files that are never part of the weights.
const LEFT_OUT: [&str; 2] = [".gitattributes", ".gitignore"];

/// Repository `org/model`, revision, and file (`None` for all files).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ModelPath<'a> {
    pub(super) repository: String,
    pub(super) revision: &'a str,
    pub(super) file: Option<&'a str>,
}

impl<'a> ModelPath<'a> {
    pub(super) fn parse(rest: &'a str) -> Result<Self, Error> {
        let mut parts = rest.splitn(3, '/');
        let (owner, model, file) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        let (model, revision) = match model.unwrap_or_default().split_once('@') {
            Some((model, revision)) => (model, revision),
            None => (model.unwrap_or_default(), "main"),
        };
        require!(
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

pub(super) struct Hub<'a> {
    host: &'a dyn Host,
    pub(super) base: String,
    pub(super) headers: Vec<(&'static str, String)>,
}

/// Resolves `hf://<rest>` at the current commit of its revision.
pub(super) fn look(host: &dyn Host, rest: &str, declared: &WeightSource) -> Result<Vec<Pinned>, Error> {
    let place = ModelPath::parse(rest)?;
    let hub = Hub::of(host, |name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    match place.file {
        Some(file) => Ok(vec![hub.file(&place, file, declared)?]),
        None => {
            require!(
                declared.sha256.is_none(),
                "weights: {} is a whole repository, so it cannot have one sha256; name a single file",
                declared.source
            );
            hub.all(&place, declared)
        }
    }
}

impl<'a> Hub<'a> {
    pub(super) fn of(host: &'a dyn Host, env: impl Fn(&str) -> Option<String>) -> Self {
        let base = env("HF_ENDPOINT").unwrap_or_else(|| HUB.to_owned()).trim_end_matches('/').to_owned();
        let headers = env("HF_TOKEN").map(|token| ("authorization", format!("Bearer {token}")));
        Self { host, base, headers: headers.into_iter().collect() }
    }

    pub(super) fn url(&self, repository: &str, commit: &str, file: &str) -> String {
        let file: Vec<_> = file.split('/').map(segment).collect();
        format!("{}/{repository}/resolve/{commit}/{}", self.base, file.join("/"))
    }

    /// Resolves one file. The response has its commit and, for a large file, its hash and size.
    fn file(&self, place: &ModelPath<'_>, file: &str, declared: &WeightSource) -> Result<Pinned, Error> {
        let answer = self.send(Method::Head, file, &self.url(&place.repository, place.revision, file))?;
        let Some(commit) = answer.header("x-repo-commit") else {
            invalid!("{} did not return the commit of {file}", self.base)
        };
        let large = answer.header("x-linked-etag").map(|etag| etag.trim_matches('"').to_owned());
        let size = answer.header("x-linked-size").or(answer.header("content-length"));
        let known = large.filter(|etag| is_sha256(etag)).zip(size.and_then(|size| size.parse().ok()));
        let path = declared.path.clone().unwrap_or_else(|| file.to_owned());
        self.pinned(place, commit, file, path, known, declared)
    }

    /// Resolves all files, except duplicates of safetensors in other formats.
    fn all(&self, place: &ModelPath<'_>, declared: &WeightSource) -> Result<Vec<Pinned>, Error> {
        let api = format!("{}/api/models/{}", self.base, place.repository);
        let Revision { sha: commit } = self.ask(&format!("{api}/revision/{}", segment(place.revision)))?.0;
        let (mut files, mut next) = (Vec::new(), Some(format!("{api}/tree/{commit}?recursive=true")));
        for _ in 0..PAGES_MAX {
            let Some(url) = next.take() else { break };
            let (page, following): (Vec<Listed>, _) = self.ask(&url)?;
            files.extend(page.into_iter().filter(|one| one.kind == "file" && one.size > 0));
            next = following;
        }
        require!(
            next.is_none() && files.len() <= FILES_MAX,
            "{} has more than {FILES_MAX} files; declare only the files that you need",
            place.repository
        );
        let (files, skipped) = wanted(files);
        if !skipped.is_empty() {
            self.host.note(&format!("skipped, because the repository has safetensors: {}", skipped.join(", ")));
        }
        let mut pinned = Vec::new();
        for one in files {
            let path = match &declared.path {
                Some(folder) => format!("{}/{}", folder.trim_end_matches('/'), one.path),
                None => one.path.clone(),
            };
            let known = one.lfs.map(|large| large.oid).filter(|oid| is_sha256(oid)).zip(Some(one.size));
            pinned.push(self.pinned(place, &commit, &one.path, path, known, declared)?);
        }
        Ok(pinned)
    }

    fn pinned(
        &self,
        place: &ModelPath<'_>,
        commit: &str,
        file: &str,
        path: String,
        known: Option<(String, u64)>,
        declared: &WeightSource,
    ) -> Result<Pinned, Error> {
        let url = self.url(&place.repository, commit, file);
        let (sha256, size_bytes) = match known {
            Some(known) => known,
            None => web::measure(self.host, file, &url, &self.headers)?,
        };
        check(declared, file, &sha256)?;
        let source = format!("hf://{}@{commit}/{file}", place.repository);
        Ok(Pinned { path, source, url: Some(url), sha256, size_bytes, file: None })
    }

    /// Fetches a page of a listing. Returns it with the URL of the next page.
    fn ask<T: for<'de> Deserialize<'de>>(&self, url: &str) -> Result<(T, Option<String>), Error> {
        let answer = self.send(Method::Get, url.strip_prefix(&self.base).unwrap_or(url), url)?;
        let next = next_page(&answer).filter(|next| next.starts_with(&format!("{}/", self.base)));
        let page = serde_json::from_reader(answer.body);
        Ok((page.step(|| format!("{} did not return a listing", self.base))?, next))
    }

    /// Requests `what`. Returns the response if it is not an error.
    pub(super) fn send(&self, method: Method, what: &str, url: &str) -> Result<Response, Error> {
        let answer = self.host.send(&Request { method, url, headers: &self.headers });
        web::refused(what, answer.step(|| format!("cannot reach {}", self.base))?)
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
fn next_page(answer: &Response) -> Option<String> {
    let next = answer.header("link")?.split(',').find(|link| link.contains("rel=\"next\""))?;
    Some(next.split_once('<')?.1.split_once('>')?.0.to_owned())
}

/// Percent-encodes one segment of a path.
fn segment(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut path, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => path.push(char::from(byte)),
            _ => path.push_str(&format!("%{byte:02X}")),
        }
        path
    })
}
