//! Tokens in the registry: hashes, never secrets. This module cannot create a valid token.

use std::collections::HashMap;

use redis::AsyncCommands;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{LIST_MAX, Registry, from_json, owned, readable, to_json};
use crate::error::Error;
use crate::requirements::Trust;
use crate::scripts;

/// Number of records per round trip.
const RECORDS_AT_ONCE: usize = 1_000;

/// Retention of the last use of a token, seconds.
const USED_FOR_S: u64 = 400 * 24 * 3600;

/// A token, as it is stored: with a keyed hash of its secret instead of the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// The public part.
    pub id: String,
    /// Keyed hash of the secret part, hex.
    pub hash: String,
    /// The kind of token.
    pub kind: TokenKind,
    /// The tenant that owns it.
    pub tenant: String,
    /// The scopes of its bearer.
    pub scopes: Vec<String>,
    /// The name that its owner gave it.
    pub name: String,
    /// The user of the token; empty if not set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Time of the creation, Unix milliseconds.
    pub created_ms: u64,
    /// Time of the expiry, Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// Whether it is valid for one use only.
    #[serde(default)]
    pub single_use: bool,
    /// For a join token: the owner and the region of the hosts that join with it.
    #[serde(default = "owned")]
    pub trust: Trust,
    /// See `trust`; empty if not set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// For the tokens of a rented instance: the id of the instance. The token is valid until the instance is released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The previous token, while both are valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<SpentToken>,
}

/// The previous token, which stays valid for a while: for an instance that may not have received the next one, or for
/// clients that still use the one before a rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentToken {
    /// Keyed hash of its secret, like [`TokenRecord::hash`].
    pub hash: String,
    /// Time until which the token is valid, Unix milliseconds.
    pub until_ms: u64,
}

impl TokenRecord {
    /// The public part of a rented instance's join token, of which there is one at a time.
    #[must_use]
    pub fn id_of_machine(machine: &str) -> String {
        let digest = Sha256::digest(format!("join token of instance {machine}"));
        hex::encode(&digest[..8])
    }
}

/// The kinds of token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenKind {
    /// A token for the public API.
    Api,
    /// A token with which a worker joins.
    Join,
    /// The token of a worker that has joined.
    Worker,
}

impl Registry {
    /// Stores a token, which expires at `expires_ms`.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn put_token(&self, token: &TokenRecord) -> Result<(), Error> {
        let mut pipe = redis::pipe();
        pipe.atomic().set(self.keys.token(&token.id), to_json("store a token", token)?).ignore();
        if let Some(expires_ms) = token.expires_ms {
            pipe.cmd("PEXPIREAT").arg(self.keys.token(&token.id)).arg(expires_ms).ignore();
        }
        if token.kind != TokenKind::Worker {
            pipe.sadd(self.keys.tokens(), &token.id).ignore();
        }
        pipe.query_async(&mut self.connection.redis()).await.map_err(Error::redis("store a token"))
    }

    /// A token by its public part.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn token(&self, id: &str) -> Result<Option<TokenRecord>, Error> {
        let text: Option<String> =
            self.connection.redis().get(self.keys.token(id)).await.map_err(Error::redis("read a token"))?;
        text.map(|text| from_json("read a token", &text)).transpose()
    }

    /// Reads a token and deletes it in one step, so only one of several callers gets it.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown, and the token may be used up.
    pub async fn claim_token(&self, id: &str) -> Result<Option<TokenRecord>, Error> {
        let mut redis = self.connection.redis();
        let text: Option<String> = redis.get_del(self.keys.token(id)).await.map_err(Error::redis("claim a token"))?;
        text.map(|text| from_json("claim a token", &text)).transpose()
    }

    /// Replaces a token by `next` if it still has this hash; of two concurrent calls one succeeds. `false` if it has
    /// another hash, or no longer exists.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; if a retry returns `false`, the first call may have succeeded.
    pub async fn swap_token(&self, hash: &str, next: &TokenRecord) -> Result<bool, Error> {
        let mut call = scripts::TOKEN_SWAP.call(&[&self.keys.token(&next.id)]);
        call.arg(hash).arg(to_json("replace a token", next)?);
        call.arg(next.expires_ms.map_or(String::new(), |expires_ms| expires_ms.to_string()));
        self.connection.eval(&scripts::TOKEN_SWAP, &call).await
    }

    /// API and join tokens, by name. Worker tokens are not listed, because they are many and short-lived.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn tokens(&self) -> Result<Vec<TokenRecord>, Error> {
        self.tokens_where(|_| true).await
    }

    /// A tenant's API and join tokens, by name.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn tokens_of(&self, tenant: &str) -> Result<Vec<TokenRecord>, Error> {
        self.tokens_where(|token| token.tenant == tenant).await
    }

    /// The first [`LIST_MAX`] tokens that match; all are read. Tokens whose record has expired are dropped from the
    /// list.
    async fn tokens_where(&self, is_wanted: impl Fn(&TokenRecord) -> bool) -> Result<Vec<TokenRecord>, Error> {
        let (mut redis, step) = (self.connection.redis(), "list tokens");
        let ids: Vec<String> = redis.smembers(self.keys.tokens()).await.map_err(Error::redis(step))?;
        let mut tokens: Vec<TokenRecord> = Vec::new();
        for ids in ids.chunks(RECORDS_AT_ONCE) {
            let keys: Vec<String> = ids.iter().map(|id| self.keys.token(id)).collect();
            let texts: Vec<Option<String>> = redis.mget(&keys).await.map_err(Error::redis(step))?;
            let gone: Vec<&String> =
                ids.iter().zip(&texts).filter(|(_, text)| text.is_none()).map(|(id, _)| id).collect();
            if !gone.is_empty() {
                let _: u32 = redis.srem(self.keys.tokens(), gone).await.map_err(Error::redis(step))?;
            }
            for text in texts.iter().flatten() {
                let Some(token) = readable::<TokenRecord>(step, text) else { continue };
                if tokens.len() < LIST_MAX && is_wanted(&token) {
                    tokens.push(token);
                }
            }
        }
        tokens.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        Ok(tokens)
    }

    /// Revokes a token. `false` if it does not exist.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn delete_token(&self, id: &str) -> Result<bool, Error> {
        let (deleted, _): (bool, u32) = redis::pipe()
            .atomic()
            .del(self.keys.token(id))
            .srem(self.keys.tokens(), id)
            .del(self.keys.used(id))
            .ignore()
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("revoke a token"))?;
        Ok(deleted)
    }

    /// Records the times at which tokens were last used, Unix milliseconds by their public part.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: some may be recorded; the next use repeats it.
    pub async fn note_uses(&self, uses: &[(String, u64)]) -> Result<(), Error> {
        for uses in uses.chunks(RECORDS_AT_ONCE) {
            let mut pipe = redis::pipe();
            for (id, used_ms) in uses {
                pipe.set_ex(self.keys.used(id), used_ms, USED_FOR_S).ignore();
            }
            let () = pipe
                .query_async(&mut self.connection.redis())
                .await
                .map_err(Error::redis("record when tokens were last used"))?;
        }
        Ok(())
    }

    /// Times at which these tokens were last used, Unix milliseconds by their public part. Tokens that have not been
    /// used for 400 days are left out.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn uses(&self, tokens: &[TokenRecord]) -> Result<HashMap<String, u64>, Error> {
        let (mut redis, mut uses) = (self.connection.redis(), HashMap::new());
        for tokens in tokens.chunks(RECORDS_AT_ONCE) {
            let keys: Vec<String> = tokens.iter().map(|token| self.keys.used(&token.id)).collect();
            let used: Vec<Option<u64>> =
                redis.mget(&keys).await.map_err(Error::redis("read when tokens were last used"))?;
            uses.extend(tokens.iter().zip(used).filter_map(|(token, used)| Some((token.id.clone(), used?))));
        }
        Ok(uses)
    }
}
