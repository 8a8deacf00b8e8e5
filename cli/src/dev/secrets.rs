//! Secrets of a data directory. They are generated once and kept, so that tokens stay valid across restarts.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use stokehold_api::token::{self, Scope, TokenKey};
use stokehold_queue::{TokenKind, TokenRecord};

use crate::credentials::{read_json, write_secret_json};

/// Tenant of the tokens of `stoke dev`.
pub(crate) const TENANT: &str = "default";

/// The contents of `secrets.json`.
#[derive(Serialize, Deserialize)]
pub(crate) struct Secrets {
    /// Key of token hashes.
    pub(crate) token_key: String,
    /// Password of the stack's Redis: a sandboxed handler at L1 can reach its socket. Empty in files of earlier
    /// releases.
    #[serde(default)]
    pub(crate) redis_password: String,
    pub(crate) s3_access_key_id: String,
    pub(crate) s3_secret_access_key: String,
    /// API token with every scope.
    pub(crate) api: SavedToken,
    /// Join token of the stack's workers.
    pub(crate) join: SavedToken,
}

/// A token and its record, which is stored again if Redis has lost it.
#[derive(Serialize, Deserialize)]
pub(crate) struct SavedToken {
    pub(crate) token: String,
    pub(crate) record: TokenRecord,
}

/// 256 random bits in hexadecimal.
fn password() -> String {
    hex::encode(rand::random::<[u8; 32]>())
}

impl Secrets {
    /// Loads the secrets of `data`, if they exist.
    pub(crate) fn load(data: &Path) -> Result<Option<Self>> {
        read_json(&data.join("secrets.json"))
    }

    /// Loads the secrets of `data`, or generates them.
    pub(crate) fn load_or_make(data: &Path) -> Result<Self> {
        if let Some(mut secrets) = Self::load(data)? {
            // The token gets the scopes that newer releases add.
            secrets.api.record.scopes = Scope::ALL.map(|scope| scope.as_str().to_owned()).to_vec();
            if secrets.redis_password.is_empty() {
                secrets.redis_password = password();
                write_secret_json(&data.join("secrets.json"), &secrets)?;
            }
            return Ok(secrets);
        }
        let secrets = Self::make()?;
        write_secret_json(&data.join("secrets.json"), &secrets)?;
        Ok(secrets)
    }

    pub(crate) fn token_key(&self) -> Result<TokenKey> {
        self.token_key.parse().context("secrets.json has no valid token key")
    }

    fn make() -> Result<Self> {
        let key = TokenKey::generate()?;
        let mint = |kind, scopes: &[Scope], name| -> Result<SavedToken> {
            let (record, token) = token::mint(kind, TENANT, scopes, name, None, &key)?;
            Ok(SavedToken { token: token.expose().to_owned(), record })
        };
        Ok(Self {
            token_key: key.to_secret().expose().to_owned(),
            redis_password: password(),
            s3_access_key_id: format!("stoke{:016x}", rand::random::<u64>()),
            s3_secret_access_key: password(),
            api: mint(TokenKind::Api, &Scope::ALL, "stoke dev")?,
            join: mint(TokenKind::Join, &[], "workers of stoke dev")?,
        })
    }
}
