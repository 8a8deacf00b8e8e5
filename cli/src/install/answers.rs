//! The operator's options of an installation. They are saved for later runs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// Path of the saved options, below the root.
pub(super) const PATH: &str = "etc/stokehold/install.toml";

/// Maximum length of a DNS name, bytes.
const NAME_BYTES_MAX: usize = 253;

const HTTPS: u16 = 443;

/// Command-line options. An option that is not given keeps its saved value.
#[derive(Args, Default)]
pub(super) struct Options {
    /// DNS name of this machine, for clients and workers
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// Source of the TLS certificate [default: auto]
    #[arg(long, value_enum)]
    tls: Option<Tls>,
    /// Certificate chain in PEM format (with --tls own)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key in PEM format (with --tls own)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Contact address for the certificate authority (with --tls auto)
    #[arg(long, value_name = "ADDRESS")]
    email: Option<String>,
    /// Port for clients and workers [default: 443]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Run Prometheus on this machine [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    monitoring: Option<bool>,
    /// Run the autoscaler; configure its providers in /etc/stokehold/autoscaler.toml [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    autoscaler: Option<bool>,
    /// Back up Redis every hour; see docs/how-to/backup.md for the settings [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    backup: Option<bool>,
}

/// Source of the TLS certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Tls {
    /// Get one from a public authority: the DNS name must point to this machine, with ports 80 and 443 open to the
    /// internet
    Auto,
    /// Use yours: --tls-cert and --tls-key; run again with both after a renewal
    Own,
    /// Create a local authority, which clients must trust: for networks without internet access
    Internal,
}

/// The options of an installation, complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answers {
    pub(super) domain: String,
    pub(super) tls: Tls,
    pub(super) email: Option<String>,
    pub(super) port: u16,
    pub(super) monitoring: bool,
    pub(super) autoscaler: bool,
    pub(super) backup: bool,
    /// Contents of the operator's certificate and key; not saved with the options.
    #[serde(skip)]
    pub(super) certificate: Option<(String, String)>,
}

impl Answers {
    /// Merges command-line options with the saved ones.
    pub(super) fn of(options: &Options, kept: Option<&str>) -> Result<Self> {
        let kept: Option<Self> =
            kept.map(toml::from_str).transpose().with_context(|| format!("cannot parse /{PATH}; fix it"))?;
        let domain = options.domain.clone().or_else(|| kept.as_ref().map(|kept| kept.domain.clone()));
        let Some(domain) = domain else {
            bail!("--domain is required: the DNS name of this machine, e.g. stokehold.example.com")
        };
        ensure!(
            is_name(&domain),
            "--domain {domain:?} is not a valid name: use lower-case letters, digits, dots and hyphens, e.g. stokehold.example.com"
        );
        let is_address =
            |text: &String| text.contains('@') && text.chars().all(|c| c.is_ascii_graphic() && !"{}\"`#".contains(c));
        ensure!(
            options.email.as_ref().is_none_or(is_address),
            "--email must be an e-mail address, e.g. ops@example.com"
        );
        let had = |of: fn(&Self) -> bool, default| kept.as_ref().map_or(default, of);
        let tls = options.tls.or(kept.as_ref().map(|kept| kept.tls)).unwrap_or(Tls::Auto);
        let certificate = match (tls, &options.tls_cert, &options.tls_key) {
            (Tls::Own, Some(certificate), Some(key)) => Some(pair(certificate, key)?),
            (Tls::Own, ..) if kept.as_ref().is_none_or(|kept| kept.tls != Tls::Own) => {
                bail!("--tls own requires --tls-cert FILE and --tls-key FILE")
            }
            (_, Some(_), _) if tls != Tls::Own => bail!("--tls-cert requires --tls own"),
            _ => None,
        };
        Ok(Self {
            domain,
            tls,
            email: options.email.clone().or_else(|| kept.as_ref().and_then(|kept| kept.email.clone())),
            port: options.port.or(kept.as_ref().map(|kept| kept.port)).unwrap_or(HTTPS),
            monitoring: options.monitoring.unwrap_or_else(|| had(|kept| kept.monitoring, true)),
            autoscaler: options.autoscaler.unwrap_or_else(|| had(|kept| kept.autoscaler, false)),
            backup: options.backup.unwrap_or_else(|| had(|kept| kept.backup, false)),
            certificate,
        })
    }

    /// URL for clients and workers.
    pub(super) fn url(&self) -> String {
        match self.port {
            HTTPS => format!("https://{}", self.domain),
            port => format!("https://{}:{port}", self.domain),
        }
    }
}

/// Returns whether a text is a DNS name. This also excludes characters with a meaning in the proxy's configuration.
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    text.len() <= NAME_BYTES_MAX && text.split('.').all(is_label)
}

fn pair(certificate: &Path, key: &Path) -> Result<(String, String)> {
    let read = |path: &Path, what: &str| {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(
            text.contains(what),
            "{} does not contain a {} in PEM format",
            path.display(),
            what.trim_end_matches('-').to_lowercase()
        );
        Ok(text)
    };
    Ok((read(certificate, "CERTIFICATE-----")?, read(key, "PRIVATE KEY-----")?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn options(domain: &str) -> Options {
        Options { domain: Some(domain.to_owned()), ..Options::default() }
    }

    #[test]
    fn what_is_not_said_is_as_it_was() {
        let first = Answers::of(&Options { autoscaler: Some(true), ..options("a.example.com") }, None).unwrap();
        assert_eq!((first.tls, first.monitoring, first.url().as_str()), (Tls::Auto, true, "https://a.example.com"));
        let kept = toml::to_string(&first).unwrap();
        assert_eq!(Answers::of(&Options::default(), Some(&kept)).unwrap(), first);
        let second =
            Answers::of(&Options { port: Some(8443), monitoring: Some(false), ..Options::default() }, Some(&kept));
        let second = second.unwrap();
        assert_eq!((second.autoscaler, second.monitoring), (true, false));
        assert_eq!(second.url(), "https://a.example.com:8443");
    }

    #[test]
    fn a_name_is_one_of_dns_and_nothing_more() {
        for wrong in ["", "A.example.com", "https://a", "a b", "a..b", "-a.b", "a.b {", "a/b", "a.b:443"] {
            let said = Answers::of(&options(wrong), None).unwrap_err().to_string();
            assert!(said.contains("--domain"), "{wrong:?}: {said}");
        }
        assert!(Answers::of(&Options::default(), None).unwrap_err().to_string().contains("--domain"));
        for wrong in ["ops", "ops@a b", "ops@a\n}", "ops@{$SECRET}"] {
            let options = Options { email: Some(wrong.to_owned()), ..options("a.example.com") };
            assert!(Answers::of(&options, None).unwrap_err().to_string().contains("--email"), "{wrong:?}");
        }
    }

    #[test]
    fn an_own_certificate_must_be_given_and_be_one() {
        let own = || Options { tls: Some(Tls::Own), ..options("a.example.com") };
        assert!(Answers::of(&own(), None).unwrap_err().to_string().contains("--tls-cert"));
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("c"), folder.path().join("k"));
        std::fs::write(&certificate, "-----BEGIN CERTIFICATE-----").unwrap();
        std::fs::write(&key, "-----BEGIN CERTIFICATE-----").unwrap();
        let given = Options { tls_cert: Some(certificate), tls_key: Some(key.clone()), ..own() };
        assert!(Answers::of(&given, None).unwrap_err().to_string().contains("private key"));
        std::fs::write(&key, "-----BEGIN PRIVATE KEY-----").unwrap();
        let first = Answers::of(&given, None).unwrap();
        assert!(first.certificate.is_some());
        let again = Answers::of(&Options::default(), Some(&toml::to_string(&first).unwrap())).unwrap();
        assert_eq!((again.tls, again.certificate), (Tls::Own, None), "the copies stay");
    }
}
