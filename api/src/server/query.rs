//! Query parameters: each is taken by name, and unknown ones are refused.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::error::Problem;

/// Longest time for which a request may be held open, seconds.
pub(crate) const WAIT_MAX_S: u64 = 60;

/// Default and maximum number of items on a page.
pub(crate) const LIMIT: u32 = 20;
pub(crate) const LIMIT_MAX: u32 = 100;

/// Parameters of a request that have not been taken yet.
pub(crate) struct Params(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        axum::extract::Query::from_request_parts(parts, state)
            .await
            .map(|axum::extract::Query(pairs)| Self(pairs))
            .map_err(|_| Problem::query("?", "the query string cannot be decoded; percent-encode it"))
    }
}

impl Params {
    /// Takes the parameter of this name, parsed by `read`; `wanted` completes "must be ...".
    pub(crate) fn take<T>(
        &mut self,
        name: &str,
        wanted: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let Some(place) = self.0.iter().position(|(key, _)| key == name) else {
            return Ok(None);
        };
        let (_, text) = self.0.swap_remove(place);
        if self.0.iter().any(|(key, _)| key == name) {
            return Err(Problem::query(name, "is given twice"));
        }
        read(&text).map(Some).ok_or_else(|| Problem::query(name, format!("must be {wanted}")))
    }

    /// Takes every parameter whose name starts with `prefix`, and removes the prefix.
    pub(crate) fn take_all(&mut self, prefix: &str) -> Vec<(String, String)> {
        let (taken, left) = std::mem::take(&mut self.0).into_iter().partition(|(name, _)| name.starts_with(prefix));
        self.0 = left;
        let strip = |(name, value): (String, String)| (name[prefix.len()..].to_owned(), value);
        Vec::into_iter(taken).map(strip).collect()
    }

    /// Takes `limit`, 1 to [`LIMIT_MAX`]: the number of items on a page.
    pub(crate) fn limit(&mut self) -> Result<u32, Problem> {
        let read = |text: &str| text.parse().ok().filter(|n| (1..=LIMIT_MAX).contains(n));
        Ok(self.take("limit", &format!("1 to {LIMIT_MAX}"), read)?.unwrap_or(LIMIT))
    }

    /// Takes `wait_s`, 0 to [`WAIT_MAX_S`].
    pub(crate) fn wait_s(&mut self) -> Result<u64, Problem> {
        let wanted = format!("a whole number of seconds from 0 to {WAIT_MAX_S}");
        let read = |text: &str| text.parse().ok().filter(|seconds| *seconds <= WAIT_MAX_S);
        Ok(self.take("wait_s", &wanted, read)?.unwrap_or(0))
    }

    /// Refuses unknown parameters.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(Problem::query(name, "is not a parameter of this route")),
        }
    }
}
