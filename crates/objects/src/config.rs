//! Configuration of the client, and a secret that is never printed.

use std::fmt;

/// Location of the objects, and the credentials.
#[derive(Debug, Clone)]
pub struct ObjectsConfig {
    /// The S3 endpoint; `None` is AWS.
    pub endpoint_url: Option<String>,
    /// The endpoint in presigned URLs, if workers and users reach the store under another name. Default:
    /// `endpoint_url`.
    pub public_url: Option<String>,
    /// The region that requests are signed for.
    pub region: String,
    /// The bucket that holds all objects.
    pub bucket: String,
    /// Access key; set together with the secret. If both are absent, the environment's credentials are used, like in
    /// other AWS tools.
    pub access_key_id: Option<String>,
    /// See `access_key_id`.
    pub secret_access_key: Option<Secret>,
    /// Whether the bucket is in the path (`host/bucket/key`) rather than in the host name. Nearly every server but AWS
    /// needs it.
    pub path_style: bool,
}

/// Text that must not be revealed by accident: printing it shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text.
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
