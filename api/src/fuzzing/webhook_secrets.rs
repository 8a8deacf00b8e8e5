//! Fuzz target for signatures: the official library verifies what this code signs, and nothing else.

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use standardwebhooks::Webhook;
use stokehold_queue::WebhookGeneration;

use crate::tenants::token::TokenKey;
use crate::webhooks::sign::Secrets;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

pub fn check(data: &[u8]) {
    let Some((numbers, rest)) = data.split_first_chunk::<23>() else {
        return;
    };
    let number = |at: usize| u64::from_le_bytes(numbers[at..at + 8].try_into().unwrap());
    let (now_ms, rotated_ms) = (number(0), number(8));
    let generation = u32::from_le_bytes(numbers[16..20].try_into().unwrap());
    let [place, byte, flags] = [numbers[20], numbers[21], numbers[22]];
    let at = WebhookGeneration { generation, rotated_ms: (flags & 1 == 1).then_some(rotated_ms) };
    let key: TokenKey = "5a".repeat(32).parse().unwrap();
    let (id, body) = rest.split_at(rest.len().min(usize::from(flags >> 1)));
    let (id, body) = (hex::encode(id), String::from_utf8_lossy(body));

    let secrets = Secrets::of(&key, "acme", at, now_ms);
    // The library accepts a time within five minutes of its own clock.
    let timestamp_s = stokehold_queue::now_ms() / 1_000;
    let signature = secrets.sign(&id, timestamp_s, &body);
    let current = secrets.current();
    assert!(verifies(current.expose(), &id, timestamp_s, &body, &signature));
    match secrets.previous() {
        None => assert_eq!(signature.split(' ').count(), 1),
        Some((previous, until_ms)) => {
            assert!(now_ms < until_ms && until_ms <= rotated_ms.saturating_add(DAY_MS) && generation > 0);
            assert_ne!(previous.expose(), current.expose());
            assert!(verifies(previous.expose(), &id, timestamp_s, &body, &signature));
        }
    }
    let secret = STANDARD.decode(current.expose().strip_prefix("whsec_").unwrap()).unwrap();
    assert_eq!(secret.len(), 32);

    let other = Secrets::of(&key, "globex", at, now_ms).current();
    assert!(!verifies(other.expose(), &id, timestamp_s, &body, &signature), "a tenant's secret is its own");
    assert!(!verifies(current.expose(), &id, timestamp_s ^ 1, &body, &signature), "the time is signed");
    assert!(!verifies(current.expose(), &format!("{id}0"), timestamp_s, &body, &signature), "the id is signed");
    assert!(!verifies(current.expose(), &id, timestamp_s, &format!("{body} "), &signature), "the body is signed");
    let first = signature.split(' ').next().unwrap();
    let mut wrong = first.as_bytes().to_vec();
    let place = usize::from(place) % wrong.len();
    if wrong[place] != byte && byte.is_ascii_graphic() {
        wrong[place] = byte;
        let wrong = String::from_utf8(wrong).unwrap();
        assert!(!verifies(current.expose(), &id, timestamp_s, &body, &wrong), "{first} and {wrong}");
    }
    // A message from a sender without the secret.
    assert!(!verifies(current.expose(), &id, timestamp_s, &body, &body), "only the holder of the secret can sign");
}

fn verifies(secret: &str, id: &str, timestamp_s: u64, body: &str, signature: &str) -> bool {
    let mut headers = HeaderMap::new();
    let values =
        [("webhook-id", id), ("webhook-timestamp", &timestamp_s.to_string()), ("webhook-signature", signature)];
    for (name, value) in values {
        let Ok(value) = value.parse() else { return false };
        headers.insert(name, value);
    }
    Webhook::new(secret).unwrap().verify(body.as_bytes(), &headers).is_ok()
}
