//! Fuzz target for tokens: a token has one spelling, and a change in any place makes it invalid.

use stokehold_queue::requirements::Trust;
use stokehold_queue::{TokenKind, TokenRecord};

use crate::tenants::token::{Token, TokenKey};

/// Bytes of the public and of the secret part together.
const RANDOM_BYTES: usize = 40;

pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some(token) = Token::parse(&text) {
        assert_eq!(spelled(token.kind, token.id, secret_of(&text)), text, "a token has one spelling");
    }
    if let Ok(key) = text.parse::<TokenKey>() {
        assert_eq!(key.to_secret().expose(), text.trim().to_lowercase());
    }
    altered(data);
}

/// Builds a valid token from the input, and a copy with one byte changed as the rest of the input selects.
fn altered(data: &[u8]) {
    let Some((random, [kind, place, byte, hash @ ..])) = data.split_at_checked(RANDOM_BYTES) else {
        return;
    };
    let kind = [TokenKind::Api, TokenKind::Join, TokenKind::Worker][usize::from(*kind) % 3];
    let (id, secret) = (hex::encode(&random[..8]), hex::encode(&random[8..]));
    let text = spelled(kind, &id, &secret);
    let token = Token::parse(&text).unwrap();
    assert_eq!((token.kind, token.id), (kind, id.as_str()));

    let key: TokenKey = "5a".repeat(32).parse().unwrap();
    let record = TokenRecord {
        trust: Trust::Owned,
        region: String::new(),
        id: id.clone(),
        kind,
        hash: String::from_utf8_lossy(hash).into_owned(),
        tenant: "acme".to_owned(),
        scopes: Vec::new(),
        name: String::new(),
        user: String::new(),
        created_ms: 0,
        expires_ms: None,
        single_use: false,
        machine: None,
        spent: None,
    };
    assert!(!token.is_proven_by(&record, &key), "no hash but its own proves a token");

    let mut wrong = text.clone().into_bytes();
    let place = usize::from(*place) % wrong.len();
    if wrong[place] != *byte {
        wrong[place] = *byte;
        assert!(Token::parse(&String::from_utf8_lossy(&wrong)).is_none(), "place {place}, byte {byte}");
    }
}

fn spelled(kind: TokenKind, id: &str, secret: &str) -> String {
    let prefix = match kind {
        TokenKind::Api => "sk",
        TokenKind::Join => "jt",
        TokenKind::Worker => "wt",
    };
    let body = format!("{prefix}_{id}_{secret}");
    format!("{body}_{:08x}", crc32fast::hash(body.as_bytes()))
}

fn secret_of(token: &str) -> &str {
    token.split('_').nth(2).unwrap()
}
