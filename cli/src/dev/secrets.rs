//! The secrets of one data directory: made once, kept for as long as it is, so that clients stay known after a restart.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use stokehold_api::token::{self, Scope, TokenKey};
use stokehold_queue::{TokenKind, TokenRecord};

use crate::credentials::{read_json, write_secret_json};

/// Whose tokens `stoke dev` makes.
pub(crate) const TENANT: &str = "default";

/// What `secrets.json` holds.
#[derive(Serialize, Deserialize)]
pub(crate) struct Secrets {
    /// What token hashes are made with.
    pub(crate) token_key: String,
    /// Of our own Redis: whoever reaches its socket, as a handler may that is shut in at L1, is not yet its client. Releases before had none.
    #[serde(default)]
    pub(crate) redis_password: String,
    pub(crate) s3_access_key_id: String,
    pub(crate) s3_secret_access_key: String,
    /// May do everything.
    pub(crate) api: SavedToken,
    /// What our own workers join with.
    pub(crate) join: SavedToken,
}

/// A token with the record that proves it, which is put back into a Redis that has lost it.
#[derive(Serialize, Deserialize)]
pub(crate) struct SavedToken {
    pub(crate) token: String,
    pub(crate) record: TokenRecord,
}

/// 256 random bits, in hexadecimal.
fn password() -> String {
    hex::encode(rand::random::<[u8; 32]>())
}

impl Secrets {
    /// Those of `data`, if they were made.
    pub(crate) fn load(data: &Path) -> Result<Option<Self>> {
        read_json(&data.join("secrets.json"))
    }

    /// Those of `data`, made now if there are none.
    pub(crate) fn load_or_make(data: &Path) -> Result<Self> {
        if let Some(mut secrets) = Self::load(data)? {
            // What a newer release can do, this machine's own token may do.
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
        self.token_key.parse().context("secrets.json holds no usable token key")
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
