//! Tokens in the registry: never their secrets. Nothing here can make one.

use std::collections::HashMap;

use redis::AsyncCommands;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{LIST_MAX, Registry, from_json, owned, readable, to_json};
use crate::demands::Trust;
use crate::error::Error;
use crate::scripts;

/// Records read in one round trip.
const RECORDS_AT_ONCE: usize = 1_000;

/// How long it is remembered when a token was last used.
const USED_FOR_S: u64 = 400 * 24 * 3600;

/// A token as it is stored: never its secret, only a keyed hash of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// The public part.
    pub id: String,
    /// Keyed hash of the secret part, hex.
    pub hash: String,
    /// What it is good for.
    pub kind: TokenKind,
    /// Whose it is.
    pub tenant: String,
    /// What its bearer may do.
    pub scopes: Vec<String>,
    /// What its owner calls it.
    pub name: String,
    /// The user of the token; empty if not set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// When it was made, unix milliseconds.
    pub created_ms: u64,
    /// When it ends, unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// Good for one use.
    #[serde(default)]
    pub single_use: bool,
    /// For a join token: the owner and the region of the machines that join with it.
    #[serde(default = "owned")]
    pub trust: Trust,
    /// See `trust`; empty if not set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// Of the tokens of a rented machine: which one, by its id in the ledger of machines. Good for as long as that wants it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The one before it, for as long as both are good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<SpentToken>,
}

/// The previous token, which stays valid for a while: for an instance that may not have received the next one, or for
/// clients that still use the one before a rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentToken {
    /// As [`TokenRecord::hash`].
    pub hash: String,
    /// Until when, unix milliseconds.
    pub until_ms: u64,
}

impl TokenRecord {
    /// The public part of the one join token that a rented machine has at a time.
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
    /// For the public API.
    Api,
    /// For a worker to join with.
    Join,
    /// A joined worker's own.
    Worker,
}

impl Registry {
    /// Stores a token; it goes by itself at `expires_ms`.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: unknown, repeat.
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

    /// Reads a token and deletes it in one step: of many callers one gets it.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: unknown, and then the token may be spent.
    pub async fn claim_token(&self, id: &str) -> Result<Option<TokenRecord>, Error> {
        let mut redis = self.connection.redis();
        let text: Option<String> = redis.get_del(self.keys.token(id)).await.map_err(Error::redis("claim a token"))?;
        text.map(|text| from_json("claim a token", &text)).transpose()
    }

    /// Puts what comes after a token in its place if it still is the one with this hash: of two at once one does. `false`: it is another one
    /// by now, or gone.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: unknown; a repeat that answers `false` may mean that it was done.
    pub async fn swap_token(&self, hash: &str, next: &TokenRecord) -> Result<bool, Error> {
        let mut call = scripts::TOKEN_SWAP.call(&[&self.keys.token(&next.id)]);
        call.arg(hash).arg(to_json("replace a token", next)?);
        call.arg(next.expires_ms.map_or(String::new(), |expires_ms| expires_ms.to_string()));
        self.connection.eval(&scripts::TOKEN_SWAP, &call).await
    }

    /// API and join tokens, by name. Worker tokens are many and short-lived and not listed.
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

    /// The first [`LIST_MAX`] of those that are wanted; all are looked at. Tokens whose record has expired are dropped from the list.
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

    /// Revokes a token. `false` when there was none.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: unknown, repeat.
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

    /// Notes when tokens were last used, unix milliseconds by their public part.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: some may be noted; the next use repeats it.
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

    /// When these tokens were last used, unix milliseconds by their public part; those that were not, for 400 days, are left out.
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
