//! `stoke token`: for operators, who reach the Redis that the API uses.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use stokehold_api::token::{Scope, TokenKey, mint};
use stokehold_queue::demands::Trust;
use stokehold_queue::{RedisConfig, RedisQueue, Registry, TokenKind, TokenRecord, now_ms};

use crate::credentials::Credentials;
use crate::dev::secrets::{Secrets, TENANT};
use crate::dev::state::State;
use crate::{Global, output};

/// Make, list and revoke tokens
///
/// Tokens are kept in the API's Redis: that of a `stoke dev` on this machine, or the one that --redis names.
#[derive(Args)]
pub(crate) struct TokenArgs {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Args)]
pub(crate) struct Place {
    /// The API's Redis; its token key is in STOKE_TOKEN_KEY [default: that of `stoke dev`]
    #[arg(long, global = true, value_name = "URL", env = "STOKE_REDIS_URL", hide_env_values = true)]
    redis: Option<String>,
    /// The data directory of a `stoke dev` [default: that of the last one]
    #[arg(long, global = true, value_name = "FOLDER", conflicts_with = "redis")]
    data: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a token and print it, this once
    Create(CreateArgs),
    /// List tokens; only hashes of them are kept
    List,
    /// Make a token worthless, within 5 seconds
    Revoke {
        /// Its id, the part after the first _
        id: String,
    },
}

#[derive(Args)]
struct CreateArgs {
    /// What to call it
    #[arg(long)]
    name: String,
    /// What it is good for
    #[arg(long, value_enum, default_value_t = Kind::Api)]
    kind: Kind,
    /// Whose it is
    #[arg(long, default_value = TENANT)]
    tenant: String,
    /// What it may do, as jobs:read,jobs:write [default: everything]
    #[arg(long = "scope", value_delimiter = ',', value_name = "SCOPE,...")]
    scopes: Vec<Scope>,
    /// How long it is good for, as 12h or 30d [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    ttl: Option<Duration>,
    /// Good for one worker only (with --kind join)
    #[arg(long)]
    single_use: bool,
    /// Whose machines join with it: jobs only run where their endpoint trusts the machine (with --kind join)
    #[arg(long, value_enum, value_name = "WHOSE")]
    trust: Option<TrustArg>,
    /// Where those machines stand, as endpoints name it in `regions` (with --kind join)
    #[arg(long)]
    region: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum TrustArg {
    /// Anybody's: a stranger, who can read the jobs
    Community,
    /// A provider's that is accountable
    Datacenter,
    /// Your own; the default
    Owned,
}

impl From<TrustArg> for Trust {
    fn from(trust: TrustArg) -> Self {
        match trust {
            TrustArg::Community => Self::Community,
            TrustArg::Datacenter => Self::Datacenter,
            TrustArg::Owned => Self::Owned,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// The public API
    Api,
    /// Workers joining
    Join,
}

pub(crate) async fn run(global: &Global, args: TokenArgs) -> Result<()> {
    match args.verb {
        Verb::Create(create) => make(global, &args.place, create).await,
        Verb::List => list(global, &args.place.registry().await?).await,
        Verb::Revoke { id } => revoke(global, &args.place.registry().await?, &id).await,
    }
}

async fn make(global: &Global, place: &Place, args: CreateArgs) -> Result<()> {
    let kind = match args.kind {
        Kind::Api => TokenKind::Api,
        Kind::Join => TokenKind::Join,
    };
    ensure!(
        kind == TokenKind::Api || args.scopes.is_empty(),
        "a join token has no scopes: it lets a worker join, and no more"
    );
    ensure!(kind == TokenKind::Join || !args.single_use, "--single-use is for --kind join");
    ensure!(
        kind == TokenKind::Join || (args.trust.is_none() && args.region.is_none()),
        "--trust and --region are for --kind join"
    );
    let scopes = match kind {
        TokenKind::Api if args.scopes.is_empty() => Scope::ALL.to_vec(),
        _ => args.scopes,
    };
    let registry = place.registry().await?;
    let (mut record, token) = mint(kind, &args.tenant, &scopes, &args.name, args.ttl, &place.token_key()?)?;
    record.single_use = args.single_use;
    record.trust = args.trust.map_or(record.trust, Trust::from);
    record.region = args.region.unwrap_or_default();
    registry.put_token(&record).await?;
    if global.json {
        let mut shown = view(&record);
        shown["token"] = token.expose().into();
        return output::json(&shown);
    }
    output::line(token.expose())?;
    output::note(output::dim(format_args!(
        "It is shown this once. `stoke token revoke {}` makes it worthless.",
        record.id
    )));
    Ok(())
}

async fn list(global: &Global, registry: &Registry) -> Result<()> {
    let mut tokens = registry.tokens().await?;
    // Each joined worker has one of its own, which comes and goes with it.
    tokens.retain(|token| token.kind != TokenKind::Worker);
    tokens.sort_by_key(|token| token.created_ms);
    if global.json {
        return output::json(&json!({"tokens": tokens.iter().map(view).collect::<Vec<_>>()}));
    }
    let mut table = output::table(["id", "kind", "tenant", "name", "for", "expires"]);
    for token in &tokens {
        let shown = view(token);
        table.add_row([
            token.id.clone(),
            output::cell(&shown["kind"]),
            token.tenant.clone(),
            token.name.clone(),
            good_for(token),
            token
                .expires_ms
                .map_or("never".to_owned(), |at| format!("in {}", output::millis(at.saturating_sub(now_ms())))),
        ]);
    }
    output::print_table(&table, "there are no tokens")
}

/// What an API token may do, and whose machines join with a join token, and where they stand.
fn good_for(token: &TokenRecord) -> String {
    match token.kind {
        TokenKind::Join => format!("{} {}", token.trust.as_str(), token.region).trim_end().to_owned(),
        TokenKind::Api | TokenKind::Worker if token.scopes.len() == Scope::ALL.len() => "all".to_owned(),
        TokenKind::Api | TokenKind::Worker => token.scopes.join(" "),
    }
}

async fn revoke(global: &Global, registry: &Registry, id: &str) -> Result<()> {
    // The whole token will do: whoever has it at hand means it.
    let id = id.split('_').nth(1).unwrap_or(id);
    ensure!(registry.delete_token(id).await?, "there is no token {id}; `stoke token list` shows those that are");
    if global.json {
        output::json(&json!({"revoked": id}))
    } else {
        output::line(format_args!("token {id} is revoked; every API refuses it within 5 s"))
    }
}

/// A record without its hash.
fn view(record: &TokenRecord) -> Value {
    json!({
        "id": record.id,
        "kind": record.kind,
        "tenant": record.tenant,
        "name": record.name,
        "scopes": record.scopes,
        "created_ms": record.created_ms,
        "expires_ms": record.expires_ms,
        "single_use": record.single_use,
        "trust": (record.kind == TokenKind::Join).then(|| record.trust.as_str()),
        "region": (record.kind == TokenKind::Join).then_some(&record.region),
    })
}

impl Place {
    pub(crate) async fn registry(&self) -> Result<Registry> {
        let config = match &self.redis {
            Some(url) => {
                let prefix = std::env::var("STOKE_REDIS_PREFIX").unwrap_or_else(|_| RedisConfig::default().prefix);
                RedisConfig { url: url.clone(), prefix, ..RedisConfig::default() }
            }
            None => {
                let data = self.data()?;
                let Some(state) = State::load(&data)? else { return Err(never_run(&data)) };
                RedisConfig { url: state.redis_url, prefix: state.redis_prefix, ..RedisConfig::default() }
            }
        };
        let queue = RedisQueue::connect(config).await;
        Ok(queue.context("Redis cannot be reached; does the API, or `stoke dev`, run?")?.registry())
    }

    pub(crate) fn token_key(&self) -> Result<TokenKey> {
        if self.redis.is_none() {
            let data = self.data()?;
            return Secrets::load(&data)?.ok_or_else(|| never_run(&data))?.token_key();
        }
        match std::env::var("STOKE_TOKEN_KEY") {
            Ok(key) => Ok(key.parse()?),
            Err(_) => bail!("with --redis, set STOKE_TOKEN_KEY to the API's token_key: tokens are hashed with it"),
        }
    }

    /// The data directory of the `stoke dev` that is meant.
    fn data(&self) -> Result<PathBuf> {
        if let Some(data) = &self.data {
            return Ok(data.clone());
        }
        Ok(Credentials::load()?.and_then(|saved| saved.data).unwrap_or_else(|| PathBuf::from(".stoke")))
    }
}

fn never_run(data: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "no `stoke dev` has run in {}; name its data directory with --data, or the API's Redis with --redis",
        data.display()
    )
}
