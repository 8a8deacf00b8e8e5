//! What the client needs to know, and a secret that does not print.

use std::fmt;

/// Where objects lie and who asks for them.
#[derive(Debug, Clone)]
pub struct ObjectsConfig {
    /// The S3 endpoint; `None` is AWS.
    pub endpoint_url: Option<String>,
    /// The endpoint that presigned URLs name, where workers and users reach it under another name. Default: `endpoint_url`.
    pub public_url: Option<String>,
    /// The region that requests are signed for.
    pub region: String,
    /// The one bucket everything lies in.
    pub bucket: String,
    /// With the secret: these credentials. Both absent: those of the environment, as every AWS tool finds them.
    pub access_key_id: Option<String>,
    /// See `access_key_id`.
    pub secret_access_key: Option<Secret>,
    /// Address the bucket in the path (`host/bucket/key`) and not in the host name. Nearly every server but AWS wants it.
    pub path_style: bool,
}

/// Text that must not be read by accident: printing it shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_print() {
        let secret = Secret::from("canary");
        assert_eq!(secret.expose(), "canary");
        assert!(!format!("{secret:?} {secret:#?}").contains("canary"));
    }
}
