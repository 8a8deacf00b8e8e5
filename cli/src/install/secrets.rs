//! Addresses and secrets of an installation. They are generated once and kept in a file that only root can read.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use stokehold_api::config::ENV;
use stokehold_api::token::TokenKey;

use super::answers::Answers;
use super::files::SETTINGS;
use crate::services::read_variables;

/// Environment variables of the services.
pub(super) type Settings = BTreeMap<String, String>;

/// Addresses of the installed Redis and object store.
pub(super) const OWN_REDIS: &str = "redis+unix:///run/stokehold/redis.sock";
pub(super) const OWN_STORE: &str = "http://127.0.0.1:7071";

/// Bucket of the installed object store.
const BUCKET: &str = "stokehold";

/// Settings that follow from the options or make no sense for a service. They are not taken from the environment.
const OF_THE_INSTALLATION: [&str; 3] = ["STOKE_LISTEN", "STOKE_PUBLIC_URL", "STOKE_EPHEMERAL"];

/// Settings of `stoke backup`.
const OF_BACKUPS: [&str; 6] = [
    "STOKE_BACKUP_KEY",
    "STOKE_BACKUP_URL",
    "STOKE_BACKUP_S3_ENDPOINT_URL",
    "STOKE_BACKUP_S3_REGION",
    "STOKE_BACKUP_S3_ACCESS_KEY_ID",
    "STOKE_BACKUP_S3_SECRET_ACCESS_KEY",
];

/// Builds the settings: saved values, overridden by the environment, and generated values for missing secrets.
pub(super) fn settings(
    answers: &Answers,
    kept: Option<&str>,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Settings> {
    let mut settings = kept
        .map(read_variables)
        .transpose()
        .with_context(|| {
            format!("cannot parse /{SETTINGS}; fix it, do not delete it: its secrets cannot be recreated")
        })?
        .unwrap_or_default();
    let names = ENV.iter().map(|(name, _)| *name).chain(OF_BACKUPS);
    for name in names.filter(|name| !OF_THE_INSTALLATION.contains(name)) {
        if let Some(value) = environment(name).filter(|value| !value.is_empty()) {
            settings.insert(name.to_owned(), value);
        }
    }
    let key = TokenKey::generate()?.to_secret().expose().to_owned();
    let mut set = |name: &str, value: String| settings.entry(name.to_owned()).or_insert(value).clone();
    set("STOKE_TOKEN_KEY", key);
    set("STOKE_BACKUP_KEY", random());
    set("STOKE_REDIS_URL", OWN_REDIS.to_owned());
    if set("STOKE_S3_ENDPOINT_URL", OWN_STORE.to_owned()) == OWN_STORE {
        set("STOKE_S3_ACCESS_KEY_ID", format!("stoke{:016x}", rand::random::<u64>()));
        set("STOKE_S3_SECRET_ACCESS_KEY", random());
        settings.insert("STOKE_S3_BUCKET".to_owned(), BUCKET.to_owned());
        settings.insert("STOKE_S3_PUBLIC_URL".to_owned(), answers.url());
    } else {
        let public = settings.get("STOKE_S3_PUBLIC_URL").map_or("", String::as_str);
        ensure!(
            settings.contains_key("STOKE_S3_BUCKET") && public != answers.url(),
            "with your own S3 server, set STOKE_S3_BUCKET and its keys, and STOKE_S3_PUBLIC_URL if clients reach it by another address"
        );
    }
    ensure!(
        !answers.backup || settings.contains_key("STOKE_BACKUP_URL"),
        "--backup needs a bucket, preferably on another machine: set STOKE_BACKUP_URL=s3://bucket/prefix, STOKE_BACKUP_S3_ENDPOINT_URL and its keys (see docs/how-to/backup.md)"
    );
    settings.insert("STOKE_LISTEN".to_owned(), "127.0.0.1:7070".to_owned());
    settings.insert("STOKE_PUBLIC_URL".to_owned(), answers.url());
    settings.insert("STOKE_GATEWAY_URL".to_owned(), answers.url());
    Ok(settings)
}

/// Returns whether the installed Redis is used.
pub(super) fn has_own_redis(settings: &Settings) -> bool {
    settings.get("STOKE_REDIS_URL").is_some_and(|url| url == OWN_REDIS)
}

/// Returns whether the installed object store is used.
pub(super) fn has_own_store(settings: &Settings) -> bool {
    settings.get("STOKE_S3_ENDPOINT_URL").is_some_and(|url| url == OWN_STORE)
}

fn random() -> String {
    hex::encode(rand::random::<[u8; 32]>())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::services::variables;

    fn answers() -> Answers {
        toml::from_str(
            "domain = 'a.example.com'\ntls = 'auto'\nport = 443\nmonitoring = true\nautoscaler = false\nbackup = false",
        )
        .unwrap()
    }

    #[test]
    fn secrets_are_made_once() {
        let first = settings(&answers(), None, |_| None).unwrap();
        assert!(has_own_redis(&first) && has_own_store(&first));
        let kept = variables("x", first.iter().map(|(name, value)| (name.as_str(), value.as_str()))).unwrap();
        let second = settings(&answers(), Some(&kept), |_| None).unwrap();
        assert_eq!(first, second);
        assert_ne!(settings(&answers(), None, |_| None).unwrap()["STOKE_TOKEN_KEY"], first["STOKE_TOKEN_KEY"]);
        assert!(settings(&answers(), Some("STOKE_TOKEN_KEY=torn"), |_| None).is_err(), "nothing is made anew over it");
    }

    #[test]
    fn what_the_environment_names_is_used_and_kept() {
        let named = |name: &str| match name {
            "STOKE_REDIS_URL" => Some("redis://:p@db:6379".to_owned()),
            "STOKE_S3_ENDPOINT_URL" => Some("https://s3.example.com".to_owned()),
            "STOKE_S3_BUCKET" => Some("jobs".to_owned()),
            "STOKE_PUBLIC_URL" => Some("http://elsewhere".to_owned()),
            _ => None,
        };
        let first = settings(&answers(), None, named).unwrap();
        assert!(!has_own_redis(&first) && !has_own_store(&first));
        assert_eq!((&*first["STOKE_S3_BUCKET"], &*first["STOKE_PUBLIC_URL"]), ("jobs", "https://a.example.com"));
        assert!(!first.contains_key("STOKE_S3_SECRET_ACCESS_KEY"), "keys of another server are not made up");
        let kept = variables("x", first.iter().map(|(name, value)| (name.as_str(), value.as_str()))).unwrap();
        assert_eq!(settings(&answers(), Some(&kept), |_| None).unwrap(), first);
    }

    #[test]
    fn backups_want_a_place() {
        let answers = Answers { backup: true, ..answers() };
        assert!(settings(&answers, None, |_| None).unwrap_err().to_string().contains("STOKE_BACKUP_URL"));
        let named = |name: &str| (name == "STOKE_BACKUP_URL").then(|| "s3://copies/here".to_owned());
        assert_eq!(settings(&answers, None, named).unwrap()["STOKE_BACKUP_URL"], "s3://copies/here");
    }

    #[test]
    fn an_s3_server_without_a_bucket_is_refused() {
        let named = |name: &str| (name == "STOKE_S3_ENDPOINT_URL").then(|| "https://s3.example.com".to_owned());
        assert!(settings(&answers(), None, named).unwrap_err().to_string().contains("STOKE_S3_BUCKET"));
        let own = settings(&answers(), None, |_| None).unwrap();
        let kept = variables("x", own.iter().map(|(name, value)| (name.as_str(), value.as_str()))).unwrap();
        let moved = settings(&answers(), Some(&kept), named).unwrap_err();
        assert!(moved.to_string().contains("STOKE_S3_PUBLIC_URL"), "the old store's address does not stay by accident");
    }
}
