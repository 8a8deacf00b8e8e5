//! Tenants' secrets in the registry. The API seals them and has the keys; this module cannot read them.

use std::collections::HashMap;

use redis::AsyncCommands;
use serde::{Deserialize, Serialize};

use super::{LIST_MAX, Registry, readable, to_json};
use crate::error::Error;
use crate::scripts;

/// Maximum number of secrets of one tenant.
pub const SECRETS_MAX: usize = 200;

/// A secret, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedSecret {
    /// Id of the key that seals the secret's own key.
    pub key_id: String,
    /// The secret's own key, sealed, base64.
    pub sealed_key: String,
    /// The value, sealed with the secret's own key, base64.
    pub sealed_value: String,
    /// Time of the last change, Unix milliseconds.
    pub updated_ms: u64,
}

/// The outcome of storing a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretPut {
    /// A secret with this name did not exist.
    Created,
    /// An existing secret was replaced.
    Replaced,
    /// The tenant has [`SECRETS_MAX`] other secrets; nothing was changed.
    TooMany,
}

impl Registry {
    /// Stores a tenant's secret under a name.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn put_secret(&self, tenant: &str, name: &str, secret: &SealedSecret) -> Result<SecretPut, Error> {
        let (key, step) = (self.keys.secrets(tenant), "store a secret");
        let mut redis = self.connection.redis();
        let counted = redis::pipe().hlen(&key).hexists(&key, name).query_async(&mut redis).await;
        let (known, is_there): (usize, bool) = counted.map_err(Error::redis(step))?;
        // Two concurrent calls can exceed the limit by one, which is harmless.
        if known >= SECRETS_MAX && !is_there {
            return Ok(SecretPut::TooMany);
        }
        let mut pipe = redis::pipe();
        pipe.atomic()
            .hset(&key, name, to_json(step, secret)?)
            .ignore()
            .sadd(self.keys.secret_tenants(), tenant)
            .ignore();
        let () = pipe.query_async(&mut redis).await.map_err(Error::redis(step))?;
        Ok(if is_there { SecretPut::Replaced } else { SecretPut::Created })
    }

    /// A tenant's secrets by name: at most [`SECRETS_MAX`].
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn secrets(&self, tenant: &str) -> Result<HashMap<String, SealedSecret>, Error> {
        let step = "read secrets";
        let all: HashMap<String, String> =
            self.connection.redis().hgetall(self.keys.secrets(tenant)).await.map_err(Error::redis(step))?;
        Ok(all.into_iter().filter_map(|(name, text)| Some((name, readable(step, &text)?))).collect())
    }

    /// Deletes a secret. `false` if it does not exist.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn delete_secret(&self, tenant: &str, name: &str) -> Result<bool, Error> {
        let mut redis = self.connection.redis();
        redis.hdel(self.keys.secrets(tenant), name).await.map_err(Error::redis("delete a secret"))
    }

    /// The tenants that have or had secrets.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn secret_tenants(&self) -> Result<Vec<String>, Error> {
        let mut redis = self.connection.redis();
        let tenants: Vec<String> =
            redis.smembers(self.keys.secret_tenants()).await.map_err(Error::redis("list the tenants with secrets"))?;
        Ok(tenants.into_iter().take(LIST_MAX).collect())
    }

    /// Replaces the stored secret by `new` if it equals `old`. `false` if it was changed or deleted in the meantime;
    /// then nothing is changed.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn swap_secret(
        &self,
        tenant: &str,
        name: &str,
        old: &SealedSecret,
        new: &SealedSecret,
    ) -> Result<bool, Error> {
        let mut call = scripts::SECRET_SWAP.call(&[&self.keys.secrets(tenant)]);
        call.arg(name).arg(to_json("replace a secret", old)?).arg(to_json("replace a secret", new)?);
        self.connection.eval(&scripts::SECRET_SWAP, &call).await
    }
}
