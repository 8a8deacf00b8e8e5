//! A model repository on the hub, for callers that read a small file of it before they declare it as weights.

use std::io::Read;

use super::host::{Host, Method, Response};
use super::hub::{Hub, ModelPath};
use crate::error::{Error, invalid};

/// A repository or one of its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubModel {
    /// `org/model`.
    pub repository: String,
    /// Branch, tag or commit.
    pub revision: String,
    /// A file; `None` for the whole repository.
    pub file: Option<String>,
}

/// An open file of a repository.
pub struct HubFile {
    /// The commit of the revision.
    pub commit: String,
    /// Whether the file was only available with the token in `HF_TOKEN`.
    pub is_gated: bool,
    /// The contents.
    pub body: Box<dyn Read>,
}

/// The response to a HEAD request, and the headers that it needed.
struct Found<'a> {
    answer: Response,
    hub: Hub<'a>,
    is_gated: bool,
}

impl HubModel {
    /// Parses what follows `hf://`: `org/model`, `org/model@revision` or `org/model@revision/file`.
    ///
    /// # Errors
    /// If there is no repository.
    pub fn parse(rest: &str) -> Result<Self, Error> {
        let ModelPath { repository, revision, file } = ModelPath::parse(rest)?;
        Ok(Self { repository, revision: revision.to_owned(), file: file.map(str::to_owned) })
    }

    /// The name of the model without its owner.
    #[must_use]
    pub fn name(&self) -> &str {
        self.repository.rsplit('/').next().unwrap_or(&self.repository)
    }

    /// The source for `[[weights]]`, at `commit` or at the revision.
    #[must_use]
    pub fn source(&self, commit: Option<&str>) -> String {
        let revision = commit.unwrap_or(&self.revision);
        let file = self.file.as_ref().map_or(String::new(), |file| format!("/{file}"));
        format!("hf://{}@{revision}{file}", self.repository)
    }

    /// Opens a file of the repository; `None` if it does not exist.
    ///
    /// # Errors
    /// If the hub cannot be reached, or refuses the request.
    pub fn file(&self, host: &dyn Host, file: &str) -> Result<Option<HubFile>, Error> {
        let Some(Found { answer, hub, is_gated }) = self.find(host, file)? else { return Ok(None) };
        let Some(commit) = answer.header("x-repo-commit").map(str::to_owned) else {
            invalid!("{} did not return the commit of {file}", hub.base)
        };
        let answer = hub.send(Method::Get, file, &hub.url(&self.repository, &commit, file))?;
        Ok(Some(HubFile { commit, is_gated, body: answer.body }))
    }

    /// The size of a file in bytes; `None` if it does not exist, or the hub does not say.
    ///
    /// # Errors
    /// If the hub cannot be reached, or refuses the request.
    pub fn size(&self, host: &dyn Host, file: &str) -> Result<Option<u64>, Error> {
        let Some(Found { answer, .. }) = self.find(host, file)? else { return Ok(None) };
        Ok(answer.header("x-linked-size").or(answer.header("content-length")).and_then(|size| size.parse().ok()))
    }

    /// Asks for a file without a token first, so that the answer shows whether workers need one.
    fn find<'a>(&self, host: &'a dyn Host, file: &str) -> Result<Option<Found<'a>>, Error> {
        let mut hub = Hub::of(host, |name| std::env::var(name).ok().filter(|value| !value.is_empty()));
        let token = std::mem::take(&mut hub.headers);
        let url = hub.url(&self.repository, &self.revision, file);
        match hub.send(Method::Head, file, &url) {
            Ok(answer) => Ok(Some(Found { answer, hub, is_gated: false })),
            Err(Error::Refused { status: 404, .. }) => Ok(None),
            Err(Error::Refused { status: 401 | 403, .. }) if !token.is_empty() => {
                hub.headers = token;
                let answer = hub.send(Method::Head, file, &url)?;
                Ok(Some(Found { answer, hub, is_gated: true }))
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::error::BoxError;
    use crate::weights::host::Request;

    /// A hub with one file, `config.json`, at the commit `c0ffee`.
    struct OneFile;

    impl Host for OneFile {
        fn send(&self, request: &Request<'_>) -> Result<Response, BoxError> {
            let is_there = request.url.ends_with("/config.json");
            let revision = if request.method == Method::Get { "c0ffee" } else { "main" };
            assert!(request.url.contains(&format!("/org/model/resolve/{revision}/")), "{}", request.url);
            Ok(Response {
                status: if is_there { 200 } else { 404 },
                headers: vec![
                    ("X-Repo-Commit".to_owned(), "c0ffee".to_owned()),
                    ("Content-Length".to_owned(), "2".to_owned()),
                ],
                body: Box::new(&b"{}"[..]),
            })
        }

        fn note(&self, _: &str) {}

        fn hashing(&self, _: &str, _: u64, _: u64) -> Result<(), Error> {
            Ok(())
        }
    }

    #[test]
    fn a_file_is_read_at_the_commit_of_its_revision() {
        let model = HubModel::parse("org/model").unwrap();
        assert_eq!((model.name(), model.revision.as_str()), ("model", "main"));
        let mut file = model.file(&OneFile, "config.json").unwrap().unwrap();
        let mut text = String::new();
        file.body.read_to_string(&mut text).unwrap();
        assert_eq!((file.commit.as_str(), file.is_gated, text.as_str()), ("c0ffee", false, "{}"));
        assert_eq!(model.size(&OneFile, "config.json").unwrap(), Some(2));
        assert!(model.file(&OneFile, "model.safetensors.index.json").unwrap().is_none());
        assert_eq!(model.source(Some(&file.commit)), "hf://org/model@c0ffee");
        let one = HubModel::parse("org/model@v1/a/b.gguf").unwrap();
        assert_eq!(one.source(None), "hf://org/model@v1/a/b.gguf");
    }
}
