//! The keys that seal backups. A backup without its key is useless; with it, it contains what Redis had: token hashes,
//! and secrets that are still sealed by the API's own key.

use std::fmt;

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use rand::TryRngCore;
use rand::rngs::OsRng;
use sha2::{Digest, Sha256};

use crate::Error;

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;

/// The most keys that can be configured.
const KEYS_MAX: usize = 8;

/// Bytes that the nonce and the tag add to a sealed text.
pub(crate) const SEAL_BYTES: usize = NONCE_BYTES + 16;

/// The keys of backups: the first one seals, any of them opens.
#[derive(Clone)]
pub struct BackupKeys(Vec<[u8; KEY_BYTES]>);

/// One key.
#[derive(Clone)]
pub(crate) struct BackupKey([u8; KEY_BYTES]);

impl BackupKeys {
    /// Parses the value of `STOKE_BACKUP_KEY`: keys of 64 hexadecimal digits, separated by commas.
    ///
    /// # Errors
    /// [`Error::Setting`], without the keys in its message.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::Setting(format!(
                "STOKE_BACKUP_KEY must be 64 hexadecimal digits (create them with `openssl rand -hex 32`), or up to {KEYS_MAX} such keys separated by commas"
            ))
        };
        let mut keys = Vec::new();
        for text in text.split(',') {
            let mut key = [0; KEY_BYTES];
            hex::decode_to_slice(text.trim(), &mut key).map_err(|_| wrong())?;
            keys.push(key);
        }
        (1..=KEYS_MAX).contains(&keys.len()).then_some(Self(keys)).ok_or_else(wrong)
    }

    /// The key that seals.
    pub(crate) fn current(&self) -> BackupKey {
        BackupKey(self.0[0])
    }

    /// The key with this fingerprint.
    pub(crate) fn of(&self, fingerprint: &str) -> Result<BackupKey, Error> {
        let mut keys = self.0.iter().map(|key| BackupKey(*key));
        keys.find(|key| key.fingerprint() == fingerprint)
            .ok_or_else(|| Error::WrongKey { wanted: fingerprint.to_owned(), held: self.fingerprints().join(", ") })
    }

    /// Fingerprints that identify the keys without revealing them.
    #[must_use]
    pub fn fingerprints(&self) -> Vec<String> {
        self.0.iter().map(|key| BackupKey(*key).fingerprint()).collect()
    }
}

impl fmt::Debug for BackupKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.fingerprints()).finish()
    }
}

impl BackupKey {
    pub(crate) fn fingerprint(&self) -> String {
        hex::encode(&Sha256::new().chain_update("stokehold backup key\0").chain_update(self.0).finalize()[..8])
    }

    /// Seals `msg`: returns the nonce followed by the sealed text. The cipher is XChaCha20-Poly1305, whose nonces may be
    /// random. `bound` identifies the content, so that it cannot be passed off as another.
    pub(crate) fn seal(&self, bound: &str, msg: &[u8]) -> Result<Vec<u8>, Error> {
        let mut nonce = [0; NONCE_BYTES];
        OsRng.try_fill_bytes(&mut nonce).map_err(|_| Error::Random)?;
        let payload = Payload { msg, aad: bound.as_bytes() };
        let text = XChaCha20Poly1305::new(&self.0.into()).encrypt(&nonce.into(), payload).map_err(|_| Error::Random)?;
        Ok([&nonce[..], &text].concat())
    }

    /// Opens what [`BackupKey::seal`] has sealed; `None` for anything else.
    pub(crate) fn open(&self, bound: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, msg) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload { msg, aad: bound.as_bytes() };
        XChaCha20Poly1305::new(&self.0.into()).decrypt(nonce.into(), payload).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_is_opened_as_what_it_is_and_with_its_key_alone() {
        let keys = BackupKeys::parse(&format!("{},{}", "11".repeat(32), "22".repeat(32))).unwrap();
        let sealed = keys.current().seal("part 1", b"canary").unwrap();
        assert!(!sealed.windows(6).any(|window| window == b"canary"));
        assert_eq!(keys.current().open("part 1", &sealed).unwrap(), b"canary");
        assert!(keys.current().open("part 2", &sealed).is_none());
        let other = keys.of(&keys.fingerprints()[1]).unwrap();
        assert!(other.open("part 1", &sealed).is_none());
        let mut changed = sealed.clone();
        changed[NONCE_BYTES] ^= 1;
        assert!(keys.current().open("part 1", &changed).is_none());
    }

    #[test]
    fn keys_do_not_print_and_wrong_ones_are_not_repeated() {
        let keys = BackupKeys::parse(&"ab".repeat(32)).unwrap();
        assert!(!format!("{keys:?}").contains("abab"));
        let wrong = BackupKeys::parse("canary").unwrap_err().to_string();
        assert!(wrong.contains("openssl rand -hex 32") && !wrong.contains("canary"), "{wrong}");
        let error = keys.of("0000").map(drop).unwrap_err().to_string();
        assert!(error.contains("0000") && error.contains(&keys.fingerprints()[0]), "{error}");
    }
}
