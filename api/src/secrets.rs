//! Tenants' secrets, sealed before they are stored: a stolen backup reveals nothing without the keys in the API's
//! configuration.
//!
//! Envelope encryption: each value is sealed with a key of its own, and that key with the first key of the
//! configuration. Therefore a change of keys reseals 32 bytes per secret, and no values. XChaCha20-Poly1305
//! (draft-irtf-cfrg-xchacha) has nonces of 24 bytes, which may be random. Sealed text is bound to its tenant, its name
//! and its key, so that no record can be passed off as another.

pub(crate) mod routes;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use stokehold_queue::now_ms;
use stokehold_queue::registry::SealedSecret;

use crate::tenants::token::{Error as RandomError, TokenKey, random};

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;

/// Maximum number of keys in the keyring.
const KEYS_MAX: usize = 8;

/// ID of the default key, which is derived from the token key without any configuration.
const DERIVED: &str = "token-key";

/// The keys for secrets. The first one seals; any of them opens.
#[derive(Clone)]
pub struct Keyring(Vec<(String, [u8; KEY_BYTES])>);

/// Reasons for which a secret cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Its key is not configured here.
    #[error(
        "it is sealed with the key {0:?}, which is not among the API's secret_keys; set the secret again, or add the key back"
    )]
    UnknownKey(String),
    /// The sealed text is not authentic: it was changed or moved, or another key has this name.
    #[error("its record in Redis was altered, or its key was replaced; set the secret again")]
    Forged,
    #[error(transparent)]
    Random(#[from] RandomError),
}

impl Keyring {
    /// Parses the form of the configuration: `<id>:<64 hex digits>`, separated by commas, the key for sealing first. An
    /// empty text yields the key derived from the token key, which is always the last one in the keyring.
    #[must_use]
    pub fn parse(text: &str, token_key: &TokenKey) -> Option<Self> {
        let mut keys = Vec::new();
        for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            let (id, key) = one.split_once(':')?;
            let is_known = |(known, _): &(String, _)| known == id;
            if !is_id(id) || id == DERIVED || keys.iter().any(is_known) || keys.len() == KEYS_MAX {
                return None;
            }
            let mut bytes = [0; KEY_BYTES];
            hex::decode_to_slice(key.trim(), &mut bytes).ok()?;
            keys.push((id.to_owned(), bytes));
        }
        keys.push((DERIVED.to_owned(), token_key.derive("secrets")));
        Some(Self(keys))
    }

    /// ID of the key that seals.
    pub(crate) fn current(&self) -> &str {
        &self.0[0].0
    }

    /// Seals a value for this tenant and name.
    pub(crate) fn seal(&self, tenant: &str, name: &str, value: &[u8]) -> Result<SealedSecret, Error> {
        let own = random::<KEY_BYTES>()?;
        let (key_id, key) = &self.0[0];
        Ok(SealedSecret {
            sealed_key: seal(key, &bound("key", tenant, name, key_id), &own)?,
            sealed_value: seal(&own, &bound("value", tenant, name, ""), value)?,
            key_id: key_id.clone(),
            updated_ms: now_ms(),
        })
    }

    /// Opens a value that was sealed for this tenant and name.
    pub(crate) fn open(&self, tenant: &str, name: &str, secret: &SealedSecret) -> Result<Vec<u8>, Error> {
        let own = self.own_key(tenant, name, secret)?;
        open(&own, &bound("value", tenant, name, ""), &secret.sealed_value)
    }

    /// Reseals the value's key with the current key; `None` when it already is.
    pub(crate) fn reseal(
        &self,
        tenant: &str,
        name: &str,
        secret: &SealedSecret,
    ) -> Result<Option<SealedSecret>, Error> {
        let (key_id, key) = &self.0[0];
        if *key_id == secret.key_id {
            return Ok(None);
        }
        let own = self.own_key(tenant, name, secret)?;
        let sealed_key = seal(key, &bound("key", tenant, name, key_id), &own)?;
        Ok(Some(SealedSecret { key_id: key_id.clone(), sealed_key, ..secret.clone() }))
    }

    fn own_key(&self, tenant: &str, name: &str, secret: &SealedSecret) -> Result<[u8; KEY_BYTES], Error> {
        let named = self.0.iter().find(|(id, _)| *id == secret.key_id);
        let (id, key) = named.ok_or_else(|| Error::UnknownKey(secret.key_id.clone()))?;
        let own = open(key, &bound("key", tenant, name, id), &secret.sealed_key)?;
        own.try_into().map_err(|_| Error::Forged)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(id, _)| id)).finish()
    }
}

fn is_id(id: &str) -> bool {
    (1..=32).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Context to which a sealed text is bound. Zero bytes separate the fields: none of them can contain one.
fn bound(what: &str, tenant: &str, name: &str, key_id: &str) -> Vec<u8> {
    ["stokehold secret 1", what, tenant, name, key_id].join("\0").into_bytes()
}

/// Seals a text. Returns nonce and sealed text, base64.
pub(crate) fn seal(key: &[u8; KEY_BYTES], aad: &[u8], msg: &[u8]) -> Result<String, Error> {
    let nonce = random::<NONCE_BYTES>()?;
    let text = XChaCha20Poly1305::new(key.into()).encrypt(&nonce.into(), Payload { msg, aad });
    let text = text.map_err(|_| Error::Forged)?;
    Ok(STANDARD.encode([&nonce[..], &text].concat()))
}

/// Opens the output of [`seal`].
pub(crate) fn open(key: &[u8; KEY_BYTES], aad: &[u8], sealed: &str) -> Result<Vec<u8>, Error> {
    let sealed = STANDARD.decode(sealed).map_err(|_| Error::Forged)?;
    let (nonce, msg) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(Error::Forged)?;
    XChaCha20Poly1305::new(key.into()).decrypt(nonce.into(), Payload { msg, aad }).map_err(|_| Error::Forged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(text: &str) -> Keyring {
        Keyring::parse(text, &"ab".repeat(32).parse().unwrap()).unwrap()
    }

    fn key(id: &str, digit: char) -> String {
        format!("{id}:{}", digit.to_string().repeat(64))
    }

    #[test]
    fn what_is_sealed_is_opened_and_its_record_does_not_say_it() {
        let ring = ring("");
        let sealed = ring.seal("acme", "HF_TOKEN", b"hf_canary").unwrap();
        assert_eq!(ring.open("acme", "HF_TOKEN", &sealed).unwrap(), b"hf_canary");
        let again = ring.seal("acme", "HF_TOKEN", b"hf_canary").unwrap();
        assert!(again.sealed_value != sealed.sealed_value && again.sealed_key != sealed.sealed_key);
        let record = serde_json::to_string(&sealed).unwrap();
        assert!(!record.contains("canary") && !record.contains(&STANDARD.encode("hf_canary")));
    }

    #[test]
    fn a_record_is_good_for_its_own_tenant_and_name_alone() {
        let ring = ring("");
        let sealed = ring.seal("acme", "A", b"value").unwrap();
        for (tenant, name) in [("other", "A"), ("acme", "B"), ("acm", "eA")] {
            assert!(matches!(ring.open(tenant, name, &sealed), Err(Error::Forged)), "{tenant} {name}");
        }
        let mixed = SealedSecret { sealed_value: ring.seal("acme", "A", b"other").unwrap().sealed_value, ..sealed };
        assert!(matches!(ring.open("acme", "A", &mixed), Err(Error::Forged)));
    }

    #[test]
    fn keys_change_without_a_value_being_sealed_anew() {
        let old = ring(&key("2025", '1')).seal("acme", "A", b"value").unwrap();
        let both = ring(&format!("{}, {}", key("2026", '2'), key("2025", '1')));
        let new = both.reseal("acme", "A", &old).unwrap().unwrap();
        assert_eq!((new.key_id.as_str(), &new.sealed_value), ("2026", &old.sealed_value));
        assert!(both.reseal("acme", "A", &new).unwrap().is_none());
        let later = ring(&key("2026", '2'));
        assert_eq!(later.open("acme", "A", &new).unwrap(), b"value");
        assert!(matches!(later.open("acme", "A", &old), Err(Error::UnknownKey(id)) if id == "2025"));
        let derived = ring("").seal("acme", "B", b"before there were any").unwrap();
        assert_eq!(later.open("acme", "B", &derived).unwrap(), b"before there were any");
        let another = ring(&key("2026", '3'));
        assert!(matches!(another.open("acme", "A", &new), Err(Error::Forged)));
    }

    #[test]
    fn a_ring_that_cannot_be_meant_is_none() {
        let long: Vec<String> = (0..9).map(|n| key(&n.to_string(), '1')).collect();
        let cases = ["a", "a:12", ":1", &key("to:ken", '1'), &key("token-key", '1'), &key("a", 'x'), &long.join(",")];
        for wrong in cases.into_iter().chain([format!("{},{}", key("a", '1'), key("a", '2')).as_str()]) {
            assert!(Keyring::parse(wrong, &"ab".repeat(32).parse().unwrap()).is_none(), "{wrong}");
        }
        assert!(!format!("{:?}", ring(&key("a", '1'))).contains("1111"));
    }
}
