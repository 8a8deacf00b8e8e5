//! The API client of `stoke`: address and token from options, environment or `stoke dev`, and errors with advice.

use anyhow::Result;
pub(crate) use stokehold_client::{
    Call, Client, Problem, RequestError, decode, may_pass, pages, query, retry, segment,
};
use stokehold_client::{Hints, Settings};

use crate::Global;
use crate::credentials::Credentials;
use crate::failure::Failure;

const DEFAULT_URL: &str = "http://127.0.0.1:7070";

const HINTS: Hints = Hints {
    unreachable: ": start it with `stoke dev`, or set its address with --url or STOKE_URL",
    invalid_url: "; expected e.g. http://127.0.0.1:7070 (--url or STOKE_URL)",
    problem: Some(advice),
};

/// Advice for a problem, by its code.
fn advice(code: &str) -> Option<&'static str> {
    Some(match code {
        "unauthorized" => {
            "Save a token with `stoke login`, or pass one with --token or STOKE_TOKEN; create one with `stoke token create`."
        }
        "unknown_endpoint" => "Run `stoke endpoint list` to list the endpoints.",
        "not_retryable" => {
            "Only failed, expired or cancelled jobs can be retried; `stoke job dead list` lists failed and expired ones."
        }
        "storage_exceeded" | "rate_limited" => "Run `stoke limit get` to see your limits and usage.",
        "nothing_to_retry" => "The batch has no failed or expired lines.",
        "forbidden" => "Create a token with more rights: `stoke token create --role ROLE,...`.",
        _ => return None,
    })
}

/// The URL of the API: the given one, else the saved one, else the default.
pub(crate) fn address(global: &Global, saved: Option<&Credentials>) -> String {
    let url = global.url.as_deref().or(saved.map(|saved| &*saved.url)).unwrap_or(DEFAULT_URL);
    url.trim_end_matches('/').to_owned()
}

impl Settings for Global {
    fn url(&self) -> Result<String> {
        Ok(address(self, Credentials::load(self.profile.as_deref())?.as_ref()))
    }

    /// The given token, else the saved one, which is used only for the URL it was saved with.
    fn token(&self, url: &str) -> Result<String> {
        let saved = Credentials::load(self.profile.as_deref())?.filter(|saved| saved.url.trim_end_matches('/') == url);
        let given = self.token.clone().filter(|token| !token.is_empty());
        let Some(token) = given.or(saved.map(|saved| saved.token)) else {
            let hint = format!(
                "Start `stoke dev` on this machine, or create a token with `stoke token create` and save it with \
                 `stoke login --url {url}`, or pass it with --token or STOKE_TOKEN."
            );
            return Err(Failure::no_token(format!("no token for {url}")).hint(hint).into());
        };
        Ok(token)
    }

    fn hints(&self) -> Hints {
        HINTS
    }
}

/// Connects to `url` with `token`.
pub(crate) fn connect_to(url: String, token: String) -> Result<Client> {
    Client::new(url, token, HINTS)
}
