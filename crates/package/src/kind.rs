//! Kinds of endpoints.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Kind of program that a worker starts for an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A function or class with the `@endpoint` decorator.
    Python,
    /// A Cog predictor, named in cog.yaml.
    Cog,
    /// A script that calls `runpod.serverless.start`.
    Runpod,
    /// A program that serves HTTP.
    Server,
    /// A program that runs once per job.
    Command,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Python, Self::Cog, Self::Runpod, Self::Server, Self::Command];

    /// Name of the kind in `stoke.toml` and in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Cog => "cog",
            Self::Runpod => "runpod",
            Self::Server => "server",
            Self::Command => "command",
        }
    }

    /// The default requirement of a kind, unless the requirements name that package.
    pub(crate) fn requirement(self) -> Option<&'static str> {
        match self {
            Self::Cog => Some("cog>=0.17"),
            Self::Runpod => Some("runpod>=1.7"),
            Self::Python | Self::Server | Self::Command => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::as_str).join(", ");
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| format!("use one of {}", known()))
    }
}
