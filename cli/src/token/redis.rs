//! Token management directly in the API's Redis, for operators and for the first token. Changes are in the audit log
//! too.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use stokehold_api::token::{Role, Scope, TokenKey, mint, rotated};
use stokehold_queue::registry::{Actor, Change, ChangeEnd, Eviction};
use stokehold_queue::requirements::Trust;
use stokehold_queue::{RedisConfig, RedisQueue, Registry, Shards, TokenKind, TokenRecord, nonce, now_ms};

use super::{CreateArgs, RedisSource, RotateArgs};
use crate::credentials::Credentials;
use crate::dev::secrets::{Secrets, TENANT};
use crate::dev::state::State;

pub(super) struct Redis {
    registry: Registry,
    place: RedisSource,
}

impl Redis {
    pub(super) async fn open(place: RedisSource) -> Result<Self> {
        Ok(Self { registry: place.registry().await?, place })
    }

    pub(super) async fn create(&self, args: CreateArgs) -> Result<Value> {
        let kind = args.kind();
        let scopes = match kind {
            TokenKind::Api if args.roles.is_empty() && args.scopes.is_empty() => Scope::ALL.to_vec(),
            _ => Role::union(&args.roles, &args.scopes),
        };
        let tenant = args.tenant.as_deref().unwrap_or(TENANT);
        let (mut record, token) = mint(kind, tenant, &scopes, &args.name, args.ttl, &self.place.token_key()?)?;
        record.user = args.user.unwrap_or_default();
        record.single_use = args.single_use;
        record.trust = args.trust.map_or(record.trust, Trust::from);
        record.region = args.region.unwrap_or_default();
        self.recorded("create", &record, async {
            self.registry.create_tenant(tenant).await?;
            Ok(self.registry.put_token(&record).await?)
        })
        .await?;
        Ok(made(&record, token.expose()))
    }

    pub(super) async fn rotate(&self, args: &RotateArgs) -> Result<Value> {
        let record = self.token(&args.id).await?;
        let (next, token) = rotated(&record, args.overlap, args.ttl, &self.place.token_key()?)?;
        self.recorded("rotate", &next, async {
            let swapped = self.registry.swap_token(&record.hash, &next).await?;
            ensure!(swapped, "token {} was rotated or revoked at the same time; check it, then try again", args.id);
            Ok(())
        })
        .await?;
        Ok(made(&next, token.expose()))
    }

    pub(super) async fn list(&self, tenant: Option<&str>) -> Result<Vec<Value>> {
        let mut tokens = match tenant {
            Some(tenant) => self.registry.tokens_of(tenant).await?,
            None => self.registry.tokens().await?,
        };
        tokens.sort_by_key(|token| token.created_ms);
        let uses = self.registry.uses(&tokens).await?;
        Ok(tokens.iter().map(|token| view(token, uses.get(&token.id).copied())).collect())
    }

    pub(super) async fn revoke(&self, id: &str, with_workers: bool) -> Result<()> {
        let record = self.token(id).await?;
        self.recorded("revoke", &record, async {
            self.registry.delete_token(id).await?;
            if with_workers {
                Box::pin(self.evict_joined(id)).await?;
            }
            Ok(())
        })
        .await
    }

    /// Evicts the workers that joined with a token. A lease that an API grants at this moment expires by itself.
    async fn evict_joined(&self, id: &str) -> Result<()> {
        let queue = Shards::connect(self.place.queue()?).await.context("cannot reach the queue")?;
        for worker in self.registry.workers().await? {
            if worker.joined_with.as_deref() == Some(id) {
                self.registry.evict(&Eviction::of(&worker)).await?;
                queue.evict(&worker.worker_id).await?;
            }
        }
        Ok(())
    }

    async fn token(&self, id: &str) -> Result<TokenRecord> {
        let found = self.registry.token(id).await?.filter(|token| token.kind != TokenKind::Worker);
        found.with_context(|| format!("no token {id}; list tokens with `stoke token list`"))
    }

    /// Runs a change between two entries in the audit log, like the API.
    async fn recorded(&self, verb: &str, token: &TokenRecord, change: impl Future<Output = Result<()>>) -> Result<()> {
        let begun = Change {
            id: nonce(),
            tenant: token.tenant.clone(),
            at_ms: now_ms(),
            actor: Actor { user: std::env::var("USER").unwrap_or_default(), ..Actor::default() },
            action: format!("stoke token {verb}"),
            object: format!("{} {}", token.id, token.name),
            address: String::new(),
            request_id: String::new(),
            end: None,
        };
        ensure!(self.registry.begin_change(&begun).await?, "too many changes are in progress; try again");
        let done = change.await;
        let end = if done.is_ok() { ChangeEnd::Done } else { ChangeEnd::Failed };
        self.registry.end_change(&Change { end: Some(end), ..begun }).await?;
        done
    }
}

fn made(record: &TokenRecord, token: &str) -> Value {
    let mut shown = view(record, None);
    shown["token"] = token.into();
    shown
}

/// A record without its hash.
fn view(record: &TokenRecord, used_ms: Option<u64>) -> Value {
    let joins = record.kind == TokenKind::Join;
    json!({
        "id": record.id,
        "kind": record.kind,
        "tenant": record.tenant,
        "name": record.name,
        "user": Some(&record.user).filter(|user| !user.is_empty()),
        "scopes": record.scopes,
        "created_ms": record.created_ms,
        "expires_ms": record.expires_ms,
        "last_used_ms": used_ms,
        "previous_until_ms": record.spent.as_ref().map(|spent| spent.until_ms),
        "single_use": record.single_use,
        "trust": joins.then(|| record.trust.as_str()),
        "region": joins.then_some(&record.region),
    })
}

impl RedisSource {
    pub(crate) async fn registry(&self) -> Result<Registry> {
        let queue = RedisQueue::connect(self.queue()?).await;
        Ok(queue.context("cannot reach Redis; check that the API or `stoke dev` is running")?.registry())
    }

    /// The Redis settings of the API.
    fn queue(&self) -> Result<RedisConfig> {
        Ok(match &self.redis {
            Some(url) => {
                let prefix = std::env::var("STOKE_REDIS_PREFIX").unwrap_or_else(|_| RedisConfig::default().prefix);
                let shards = std::env::var("STOKE_REDIS_SHARDS").ok().and_then(|shards| shards.parse().ok());
                let shards = shards.unwrap_or(RedisConfig::default().shards);
                RedisConfig { url: url.clone(), prefix, shards, ..RedisConfig::default() }
            }
            None => {
                let data = self.data()?;
                let Some(state) = State::load(&data)? else { return Err(never_run(&data)) };
                RedisConfig { url: state.redis_url, prefix: state.redis_prefix, ..RedisConfig::default() }
            }
        })
    }

    pub(crate) fn token_key(&self) -> Result<TokenKey> {
        if self.redis.is_none() {
            let data = self.data()?;
            return Secrets::load(&data)?.ok_or_else(|| never_run(&data))?.token_key();
        }
        match std::env::var("STOKE_TOKEN_KEY") {
            Ok(key) => Ok(key.parse()?),
            Err(_) => {
                bail!("--redis requires STOKE_TOKEN_KEY: set it to the API's token_key, which hashes tokens")
            }
        }
    }

    /// The data directory of `stoke dev`.
    fn data(&self) -> Result<PathBuf> {
        if let Some(data) = &self.data {
            return Ok(data.clone());
        }
        Ok(Credentials::load(None)?.and_then(|saved| saved.data).unwrap_or_else(|| PathBuf::from(".stoke")))
    }
}

fn never_run(data: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "{} is not a data directory of `stoke dev`; set the data directory with --data, or the API's Redis with --redis",
        data.display()
    )
}
