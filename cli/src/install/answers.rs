//! What the operator wants of an installation: said by options, and kept for the next time.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// Where they are kept, below the root.
pub(super) const PATH: &str = "etc/stokehold/install.toml";

/// A name in DNS is no longer.
const NAME_BYTES_MAX: usize = 253;

const HTTPS: u16 = 443;

/// What can be said; what is not said is as it was the last time.
#[derive(Args, Default)]
pub(super) struct Options {
    /// The name in DNS by which clients and workers reach this machine
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// Where the certificate comes from [default: auto]
    #[arg(long, value_enum)]
    tls: Option<Tls>,
    /// The certificate and those between it and its root, PEM (with --tls own)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, PEM (with --tls own)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Whom the certificate authority writes to when it must (with --tls auto)
    #[arg(long, value_name = "ADDRESS")]
    email: Option<String>,
    /// The port that clients and workers reach [default: 443]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Whether Prometheus runs here [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    monitoring: Option<bool>,
    /// Whether the autoscaler runs here; /etc/stokehold/autoscaler.toml says where machines come from [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    autoscaler: Option<bool>,
    /// Whether records are backed up every hour; docs/backup.md says where to [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    backup: Option<bool>,
}

/// Where the certificate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Tls {
    /// From a public authority, by itself: the name must lead here from the internet, to ports 80 and 443
    Auto,
    /// Yours: --tls-cert and --tls-key; give them again when they are renewed
    Own,
    /// From an authority of this machine, which clients must be told to trust: for networks without the internet
    Internal,
}

/// What is wanted.
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
    /// An own certificate and its key, read now to be copied; not kept here.
    #[serde(skip)]
    pub(super) certificate: Option<(String, String)>,
}

impl Answers {
    /// What `options` say, in the place of what was `kept`.
    pub(super) fn of(options: &Options, kept: Option<&str>) -> Result<Self> {
        let kept: Option<Self> =
            kept.map(toml::from_str).transpose().with_context(|| format!("/{PATH} cannot be understood; repair it"))?;
        let domain = options.domain.clone().or_else(|| kept.as_ref().map(|kept| kept.domain.clone()));
        let Some(domain) = domain else {
            bail!("say by which name clients reach this machine: --domain stokehold.example.com")
        };
        ensure!(
            is_name(&domain),
            "--domain {domain:?}: give a name as stokehold.example.com, of small letters, digits, dots and hyphens"
        );
        let is_address =
            |text: &String| text.contains('@') && text.chars().all(|c| c.is_ascii_graphic() && !"{}\"`#".contains(c));
        ensure!(options.email.as_ref().is_none_or(is_address), "--email: give an address as ops@example.com");
        let had = |of: fn(&Self) -> bool, default| kept.as_ref().map_or(default, of);
        let tls = options.tls.or(kept.as_ref().map(|kept| kept.tls)).unwrap_or(Tls::Auto);
        let certificate = match (tls, &options.tls_cert, &options.tls_key) {
            (Tls::Own, Some(certificate), Some(key)) => Some(pair(certificate, key)?),
            (Tls::Own, ..) if kept.as_ref().is_none_or(|kept| kept.tls != Tls::Own) => {
                bail!("--tls own needs the certificate: --tls-cert FILE --tls-key FILE")
            }
            (_, Some(_), _) if tls != Tls::Own => bail!("--tls-cert is for --tls own"),
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

    /// What clients and workers reach it by.
    pub(super) fn url(&self) -> String {
        match self.port {
            HTTPS => format!("https://{}", self.domain),
            port => format!("https://{}:{port}", self.domain),
        }
    }
}

/// A name, and nothing that means something to the proxy's settings.
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
        ensure!(text.contains(what), "{} holds no PEM of a {}", path.display(), what.to_lowercase());
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
