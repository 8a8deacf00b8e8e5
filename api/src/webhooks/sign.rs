//! Standard Webhooks signatures. A tenant's secret is derived from the token key and the number of its generation, so
//! that no secret is stored. A rotation increments the number, and for a day both secrets sign.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use stokehold_objects::Secret;
use stokehold_queue::WebhookGeneration;

use crate::tenants::token::TokenKey;

/// Time for which the secret before a rotation also signs, milliseconds.
const OVERLAP_MS: u64 = 24 * 60 * 60 * 1000;

/// Secrets with which a tenant's webhooks are signed now.
pub(crate) struct Secrets {
    current: [u8; 32],
    /// Secret before the last rotation, and the time until which it signs, Unix milliseconds.
    previous: Option<([u8; 32], u64)>,
}

impl Secrets {
    pub(crate) fn of(key: &TokenKey, tenant: &str, at: WebhookGeneration, now_ms: u64) -> Self {
        let secret = |generation: u32| key.derive(&format!("webhook:{tenant}:{generation}"));
        let until_ms = at.rotated_ms.map(|rotated_ms| rotated_ms.saturating_add(OVERLAP_MS));
        let previous = at.generation.checked_sub(1).zip(until_ms.filter(|until_ms| now_ms < *until_ms));
        Self {
            current: secret(at.generation),
            previous: previous.map(|(generation, until_ms)| (secret(generation), until_ms)),
        }
    }

    /// The current secret in the form for receivers: `whsec_...`.
    pub(crate) fn current(&self) -> Secret {
        text(&self.current)
    }

    /// The previous secret while it still signs, and the time until which it does.
    pub(crate) fn previous(&self) -> Option<(Secret, u64)> {
        self.previous.as_ref().map(|(secret, until_ms)| (text(secret), *until_ms))
    }

    /// Value of the header `webhook-signature`: one signature per secret, the current one's first.
    pub(crate) fn sign(&self, id: &str, timestamp_s: u64, body: &str) -> String {
        let secrets = std::iter::once(&self.current).chain(self.previous.as_ref().map(|(secret, _)| secret));
        let signed = secrets.map(|secret| format!("v1,{}", STANDARD.encode(mac(secret, id, timestamp_s, body))));
        signed.collect::<Vec<_>>().join(" ")
    }
}

fn text(secret: &[u8; 32]) -> Secret {
    format!("whsec_{}", STANDARD.encode(secret)).into()
}

fn mac(secret: &[u8; 32], id: &str, timestamp_s: u64, body: &str) -> impl AsRef<[u8]> {
    #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
    mac.update(format!("{id}.{timestamp_s}.{body}").as_bytes());
    mac.finalize().into_bytes()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;
    use standardwebhooks::Webhook;
    use stokehold_queue::now_ms;

    use super::*;

    const BODY: &str = r#"{"type":"job.completed"}"#;

    fn generation(generation: u32, rotated_ms: Option<u64>) -> WebhookGeneration {
        WebhookGeneration { generation, rotated_ms }
    }

    fn verifies(secret: &Secret, signature: &str, timestamp_s: u64) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", "msg_1".parse().unwrap());
        headers.insert("webhook-timestamp", timestamp_s.to_string().parse().unwrap());
        headers.insert("webhook-signature", signature.parse().unwrap());
        Webhook::new(secret.expose()).unwrap().verify(BODY.as_bytes(), &headers).is_ok()
    }

    #[test]
    fn the_official_library_accepts_what_is_signed_here() {
        let (key, now_ms) = (TokenKey::generate().unwrap(), now_ms());
        let secrets = Secrets::of(&key, "acme", generation(0, None), now_ms);
        let signature = secrets.sign("msg_1", now_ms / 1_000, BODY);
        assert!(verifies(&secrets.current(), &signature, now_ms / 1_000));
        assert!(!verifies(&secrets.current(), &signature, now_ms / 1_000 - 1), "the time is signed too");
        let other = Secrets::of(&key, "globex", generation(0, None), now_ms);
        assert!(!verifies(&other.current(), &signature, now_ms / 1_000));
        assert!(secrets.previous().is_none());
    }

    #[test]
    fn for_a_day_after_a_rotation_both_secrets_verify() {
        let (key, now_ms) = (TokenKey::generate().unwrap(), now_ms());
        let old = Secrets::of(&key, "acme", generation(0, None), now_ms).current();
        let rotated = Secrets::of(&key, "acme", generation(1, Some(now_ms)), now_ms);
        let signature = rotated.sign("msg_1", now_ms / 1_000, BODY);
        assert!(verifies(&rotated.current(), &signature, now_ms / 1_000));
        assert!(verifies(&old, &signature, now_ms / 1_000));
        let (previous, until_ms) = rotated.previous().unwrap();
        assert_eq!((previous.expose(), until_ms), (old.expose(), now_ms + OVERLAP_MS));

        let later = Secrets::of(&key, "acme", generation(1, Some(now_ms - OVERLAP_MS)), now_ms);
        let signature = later.sign("msg_1", now_ms / 1_000, BODY);
        assert!(later.previous().is_none());
        assert!(verifies(&later.current(), &signature, now_ms / 1_000) && !verifies(&old, &signature, now_ms / 1_000));
    }

    #[test]
    fn a_secret_is_32_bytes_in_the_form_that_receivers_know() {
        let secrets = Secrets::of(&TokenKey::generate().unwrap(), "acme", generation(0, None), 0);
        let text = secrets.current();
        assert_eq!(STANDARD.decode(text.expose().strip_prefix("whsec_").unwrap()).unwrap().len(), 32);
    }
}
