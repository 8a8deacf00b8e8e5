//! Tokens: `<kind>_<id>_<secret>_<crc>`. Only a keyed hash of a token is ever stored, so a stolen backup gives no
//! access.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hmac::{Hmac, Mac};
use rand::TryRngCore;
use rand::rngs::OsRng;
use sha2::Sha256;
pub use stokehold_objects::Secret;
use stokehold_queue::requirements::Trust;
use stokehold_queue::{SpentToken, TokenKind, TokenRecord, now_ms};

pub use crate::tenants::scope::{Role, Scope, has};

/// Random bytes in the public and in the secret part.
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;

/// Validity of the first join token of a rented instance: the time that a slow host may take to start it.
const MACHINE_TTL: Duration = Duration::from_secs(45 * 60);

/// Time for which the used join token of an instance may be used again, milliseconds; see [`after_join`].
const REPEAT_MS: u64 = 10 * 60 * 1000;

/// Minimum length of the key for token hashes, bytes.
const KEY_BYTES_MIN: usize = 32;

/// The key that hashes tokens: with it and the records, tokens can be checked but not recovered.
#[derive(Clone)]
pub struct TokenKey(Vec<u8>);

impl TokenKey {
    /// Generates a random key.
    ///
    /// # Errors
    /// When the system's random generator fails.
    pub fn generate() -> Result<Self, Error> {
        Ok(Self(random::<KEY_BYTES_MIN>()?.to_vec()))
    }

    /// The key in the form used in a configuration: hex.
    #[must_use]
    pub fn to_secret(&self) -> Secret {
        hex::encode(&self.0).into()
    }

    /// The keyed hash of a token, hex.
    fn hash(&self, token: &Token<'_>) -> String {
        hex::encode(self.mac(token).finalize().into_bytes())
    }

    /// Compares a token with a hash, in constant time.
    fn matches(&self, token: &Token<'_>, hash: &str) -> bool {
        hex::decode(hash).is_ok_and(|hash| self.mac(token).verify_slice(&hash).is_ok())
    }

    /// Derives 32 bytes that require the key, different for each `label`. A label never looks like a token, so that
    /// nothing derived here reveals a token's hash.
    pub(crate) fn derive(&self, label: &str) -> [u8; 32] {
        debug_assert!(Token::parse(label).is_none());
        self.mac_of(label).finalize().into_bytes().into()
    }

    /// Derives the seal of a label, hex. It cannot be made without the key.
    pub(crate) fn seal(&self, label: &str) -> String {
        hex::encode(self.derive(label))
    }

    /// Returns whether a text is what [`Self::seal`] returns for this label. Compares in constant time.
    pub(crate) fn is_sealed(&self, label: &str, text: &str) -> bool {
        debug_assert!(Token::parse(label).is_none());
        hex::decode(text).is_ok_and(|seal| self.mac_of(label).verify_slice(&seal).is_ok())
    }

    fn mac(&self, token: &Token<'_>) -> Hmac<Sha256> {
        self.mac_of(token.body)
    }

    fn mac_of(&self, text: &str) -> Hmac<Sha256> {
        #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(text.as_bytes());
        mac
    }
}

impl FromStr for TokenKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let key = hex::decode(text.trim()).map_err(|_| Error::Key)?;
        if key.len() < KEY_BYTES_MIN { Err(Error::Key) } else { Ok(Self(key)) }
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Reasons for which a token cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The token key is invalid.
    #[error("the token key must be at least 64 hex digits; create one with: openssl rand -hex 32")]
    Key,
    /// The tenant name is invalid.
    #[error("a tenant's name is 1 to 63 of a-z, 0-9 and -, and does not start with -")]
    Tenant,
    /// The token name is invalid.
    #[error("a token's name is at most 64 printable characters")]
    Name,
    /// The scope does not exist.
    #[error("no such scope: {0:?}; the scopes are {list}", list = Scope::words())]
    Scope(String),
    /// The role does not exist.
    #[error("no such role: {0:?}; the roles are {list}", list = Role::ALL.map(Role::as_str).join(", "))]
    Role(String),
    /// The system's random generator failed.
    #[error("the system's random generator failed")]
    Random(#[source] rand::rand_core::OsError),
}

/// Makes a token: the record to store (`Registry::put_token`) and the text to show once. Without `ttl` it never
/// expires. For a join token of a single worker, the caller sets `single_use`.
///
/// # Errors
/// [`Error::Tenant`], [`Error::Name`], [`Error::Random`].
pub fn mint(
    kind: TokenKind,
    tenant: &str,
    scopes: &[Scope],
    name: &str,
    ttl: Option<Duration>,
    key: &TokenKey,
) -> Result<(TokenRecord, Secret), Error> {
    let id = hex::encode(random::<ID_BYTES>()?);
    mint_as(id, kind, tenant, scopes, name, ttl, key)
}

/// Makes the join token of an instance that is about to be rented. `machine` is the instance's ID in the rental ledger,
/// which is also the name of its worker. The token can be used once, within 45 minutes, and only while the ledger wants
/// the instance to run. An instance has one such token at a time: a new one replaces it when it is stored.
///
/// # Errors
/// [`Error::Tenant`], [`Error::Name`], [`Error::Random`].
pub fn for_machine(
    machine: &str,
    tenant: &str,
    (trust, region): (Trust, &str),
    key: &TokenKey,
) -> Result<(TokenRecord, Secret), Error> {
    let id = TokenRecord::id_of_machine(machine);
    let (record, secret) = mint_as(id, TokenKind::Join, tenant, &[], machine, Some(MACHINE_TTL), key)?;
    let (machine, region) = (Some(machine.to_owned()), region.to_owned());
    Ok((TokenRecord { single_use: true, trust, region, machine, ..record }, secret))
}

/// Makes the token with which an instance joins next time, after it has joined with the token of this hash. The new
/// token does not expire.
///
/// The used token stays valid, for an instance that did not receive or store the next one: the reply was lost, or the
/// instance stopped before it had written the token. The used token ends once the next one has been used, and after ten
/// minutes in any case: by then an instance that is still silent is being returned. A repeated use does not extend the
/// ten minutes.
pub(crate) fn after_join(record: &TokenRecord, used: &str, key: &TokenKey) -> Result<(TokenRecord, Secret), Error> {
    let (next, secret) = mint_as(record.id.clone(), TokenKind::Join, &record.tenant, &[], &record.name, None, key)?;
    let repeats = || record.spent.clone().filter(|spent| spent.hash == used);
    let first = || SpentToken { hash: used.to_owned(), until_ms: now_ms().saturating_add(REPEAT_MS) };
    let spent = Some(repeats().unwrap_or_else(first));
    Ok((
        TokenRecord { hash: next.hash, created_ms: next.created_ms, expires_ms: None, spent, ..record.clone() },
        secret,
    ))
}

/// Makes the replacement of a token. Only the secret and the expiry differ: the expiry is `ttl` from now, or else as
/// far away as the old token's was when it was made. The old token stays valid for `overlap`, but not beyond its own
/// expiry. The token before that ends now.
///
/// # Errors
/// [`Error::Random`].
pub fn rotated(
    record: &TokenRecord,
    overlap: Duration,
    ttl: Option<Duration>,
    key: &TokenKey,
) -> Result<(TokenRecord, Secret), Error> {
    let lasted = record.expires_ms.map(|end_ms| Duration::from_millis(end_ms.saturating_sub(record.created_ms)));
    let (id, ttl) = (record.id.clone(), ttl.or(lasted));
    let (next, secret) = mint_as(id, record.kind, &record.tenant, &[], &record.name, ttl, key)?;
    let until_ms = next.created_ms.saturating_add(u64::try_from(overlap.as_millis()).unwrap_or(u64::MAX));
    let until_ms = until_ms.min(record.expires_ms.unwrap_or(u64::MAX)).min(next.expires_ms.unwrap_or(u64::MAX));
    let spent = (!overlap.is_zero()).then(|| SpentToken { hash: record.hash.clone(), until_ms });
    let TokenRecord { hash, created_ms, expires_ms, .. } = next;
    Ok((TokenRecord { hash, created_ms, expires_ms, spent, ..record.clone() }, secret))
}

fn mint_as(
    id: String,
    kind: TokenKind,
    tenant: &str,
    scopes: &[Scope],
    name: &str,
    ttl: Option<Duration>,
    key: &TokenKey,
) -> Result<(TokenRecord, Secret), Error> {
    if !is_tenant(tenant) {
        return Err(Error::Tenant);
    }
    if name.chars().count() > 64 || name.chars().any(char::is_control) {
        return Err(Error::Name);
    }
    let secret = hex::encode(random::<SECRET_BYTES>()?);
    let body = format!("{}_{id}_{secret}", prefix(kind));
    let text = format!("{body}_{:08x}", crc32fast::hash(body.as_bytes()));
    let created_ms = now_ms();
    let record = TokenRecord {
        trust: Trust::Owned,
        region: String::new(),
        hash: key.hash(&Token { kind, id: &id, body: &body }),
        id,
        kind,
        tenant: tenant.to_owned(),
        scopes: scopes.iter().map(|scope| scope.as_str().to_owned()).collect(),
        name: name.to_owned(),
        user: String::new(),
        created_ms,
        expires_ms: ttl.map(|ttl| created_ms.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))),
        single_use: false,
        machine: None,
        spent: None,
    };
    Ok((record, text.into()))
}

/// Returns whether a text is a valid tenant name. Tenant names are part of Redis and S3 keys, between `:` and `/`.
#[must_use]
pub fn is_tenant(text: &str) -> bool {
    crate::names::is_name(text)
}

/// A token as its bearer sent it: well-formed, but not verified.
#[derive(Clone, Copy)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind,
    pub(crate) id: &'a str,
    /// The text without its checksum, which is what is hashed.
    body: &'a str,
}

impl<'a> Token<'a> {
    /// Parses a token. Returns `None` when the text is not a token. The checksum detects typing errors and guesses
    /// before any lookup.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        if text.len() != 2 + 1 + ID_BYTES * 2 + 1 + SECRET_BYTES * 2 + 1 + 8 {
            return None;
        }
        let (body, crc) = text.rsplit_once('_')?;
        let mut parts = body.split('_');
        let kind = kind(parts.next()?)?;
        let (id, secret) = (parts.next()?, parts.next()?);
        let is_hex = |text: &str, bytes: usize| {
            text.len() == bytes * 2 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let sound = parts.next().is_none()
            && is_hex(id, ID_BYTES)
            && is_hex(secret, SECRET_BYTES)
            && crc == format!("{:08x}", crc32fast::hash(body.as_bytes()));
        sound.then_some(Self { kind, id, body })
    }

    /// Returns whether `record` belongs to this token and has not expired.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn is_proven_by(&self, record: &TokenRecord, key: &TokenKey) -> bool {
        self.proof(record, key).is_some()
    }

    /// Returns the hash of the record that proves the token: its own, or that of the previous token while that one may
    /// be repeated.
    pub(crate) fn proof<'r>(&self, record: &'r TokenRecord, key: &TokenKey) -> Option<&'r str> {
        if record.kind != self.kind || record.expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms()) {
            return None;
        }
        let spent = record.spent.as_ref().filter(|spent| now_ms() < spent.until_ms).map(|spent| &spent.hash);
        [Some(&record.hash), spent].into_iter().flatten().find(|hash| key.matches(self, hash)).map(String::as_str)
    }
}

fn prefix(kind: TokenKind) -> &'static str {
    match kind {
        TokenKind::Api => "sk",
        TokenKind::Join => "jt",
        TokenKind::Worker => "wt",
    }
}

fn kind(prefix: &str) -> Option<TokenKind> {
    match prefix {
        "sk" => Some(TokenKind::Api),
        "jt" => Some(TokenKind::Join),
        "wt" => Some(TokenKind::Worker),
        _ => None,
    }
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    OsRng.try_fill_bytes(&mut bytes).map_err(Error::Random)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minted() -> (TokenRecord, Secret, TokenKey) {
        let key = TokenKey::generate().unwrap();
        let (record, secret) = mint(TokenKind::Api, "acme", &[Scope::JobsRead], "laptop", None, &key).unwrap();
        (record, secret, key)
    }

    #[test]
    fn a_minted_token_proves_itself_and_its_record_does_not_hold_it() {
        let (record, secret, key) = minted();
        let token = Token::parse(secret.expose()).unwrap();
        assert!(token.is_proven_by(&record, &key));
        assert!(!token.is_proven_by(&record, &TokenKey::generate().unwrap()));
        assert!(!token.is_proven_by(&TokenRecord { expires_ms: Some(1), ..record.clone() }, &key));
        assert!(!token.is_proven_by(&TokenRecord { kind: TokenKind::Join, ..record.clone() }, &key));
        let secret_part = secret.expose().split('_').nth(2).unwrap().to_owned();
        assert!(!serde_json::to_string(&record).unwrap().contains(&secret_part));
    }

    #[test]
    fn one_wrong_character_anywhere_is_no_token() {
        let (_, secret, _) = minted();
        for place in 0..secret.expose().len() {
            let mut wrong = secret.expose().as_bytes().to_vec();
            wrong[place] = if wrong[place] == b'0' { b'1' } else { b'0' };
            assert!(Token::parse(std::str::from_utf8(&wrong).unwrap()).is_none(), "{place}");
        }
        assert!(Token::parse("").is_none());
        assert!(Token::parse(&format!("{}é", &secret.expose()[..secret.expose().len() - 2])).is_none());
    }

    #[test]
    fn secrets_do_not_print() {
        let (_, secret, key) = minted();
        let printed = format!("{secret:?} {key:?}");
        assert!(!printed.contains(secret.expose()) && !printed.contains(key.to_secret().expose()));
        assert_eq!(key.to_secret().expose().parse::<TokenKey>().unwrap().0, key.0);
    }

    #[test]
    fn a_machine_that_did_not_hear_its_next_token_repeats_the_one_before_until_the_next_is_used() {
        let key = TokenKey::generate().unwrap();
        let (first, used) = for_machine("m-1", "acme", (Trust::Community, "eu"), &key).unwrap();
        assert!(first.single_use && first.expires_ms.is_some_and(|at| at > now_ms() + 44 * 60_000));
        assert_eq!((first.machine.as_deref(), first.region.as_str()), (Some("m-1"), "eu"));
        let proves =
            |secret: &Secret, record: &TokenRecord| Token::parse(secret.expose()).unwrap().is_proven_by(record, &key);
        let (second, next) = after_join(&first, &first.hash, &key).unwrap();
        assert_eq!((&second.id, second.expires_ms, second.trust), (&first.id, None, Trust::Community));
        assert!(proves(&used, &second) && proves(&next, &second));
        // The reply was lost, and another token is issued; the ten minutes continue.
        let (again, other) = after_join(&second, &first.hash, &key).unwrap();
        assert_eq!(again.spent, second.spent);
        assert!(proves(&used, &again) && proves(&other, &again) && !proves(&next, &again));
        let (third, last) = after_join(&again, &again.hash, &key).unwrap();
        assert!(!proves(&used, &third) && proves(&other, &third) && proves(&last, &third));
        let late = TokenRecord { spent: third.spent.map(|spent| SpentToken { until_ms: 1, ..spent }), ..again };
        assert!(!proves(&used, &late));
    }

    #[test]
    fn a_rotated_token_is_the_same_but_for_its_secret_and_the_one_before_is_good_for_a_while() {
        let key = TokenKey::generate().unwrap();
        let day = Duration::from_secs(24 * 3600);
        let (first, old) = mint(TokenKind::Api, "acme", &[Scope::JobsRead], "ci", Some(30 * day), &key).unwrap();
        let proves =
            |secret: &Secret, record: &TokenRecord| Token::parse(secret.expose()).unwrap().is_proven_by(record, &key);
        let (second, new) = rotated(&first, day, None, &key).unwrap();
        assert_eq!((&second.id, &second.scopes, &second.name), (&first.id, &first.scopes, &first.name));
        let lasts_ms = second.expires_ms.unwrap() - second.created_ms;
        assert_eq!(u128::from(lasts_ms), (30 * day).as_millis(), "as long again");
        assert!(proves(&old, &second) && proves(&new, &second));
        let (third, newest) = rotated(&second, day, Some(day), &key).unwrap();
        assert!(!proves(&old, &third) && proves(&new, &third) && proves(&newest, &third), "two are live, not three");
        let (at_once, _) = rotated(&third, Duration::ZERO, None, &key).unwrap();
        assert!(!proves(&newest, &at_once));
        // A rotation does not extend the validity of the old token.
        let (short, ends) = mint(TokenKind::Api, "acme", &[], "ci", Some(Duration::from_secs(60)), &key).unwrap();
        let (next, _) = rotated(&short, 7 * day, None, &key).unwrap();
        assert_eq!(next.spent.as_ref().map(|spent| spent.until_ms), short.expires_ms);
        assert!(proves(&ends, &next));
    }

    #[test]
    fn records_of_before_are_read() {
        let (record, ..) = minted();
        let mut text = serde_json::to_value(&record).unwrap();
        assert!(text.get("machine").is_none() && text.get("spent").is_none());
        text.as_object_mut().unwrap().remove("trust");
        assert_eq!(serde_json::from_value::<TokenRecord>(text).unwrap(), record);
    }

    #[test]
    fn a_tenant_must_fit_into_keys() {
        let key = TokenKey::generate().unwrap();
        for tenant in ["", "a:b", "a/b", "A", "-a"] {
            assert!(mint(TokenKind::Api, tenant, &[], "", None, &key).is_err(), "{tenant}");
        }
    }
}
