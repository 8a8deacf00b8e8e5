//! `stoke token`: manages tokens over the API (for tenant admins) or directly in the API's Redis (for operators). The
//! output is the same.

mod api;
mod redis;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use serde::Deserialize;
use serde_json::{Value, json};
use stokehold_api::token::{Role, Scope};
use stokehold_queue::requirements::Trust;
use stokehold_queue::{TokenKind, now_ms};

use self::api::Api;
use self::redis::Redis;
use crate::client::Client;
use crate::failure::require;
use crate::{Global, duration, output};

/// Maximum and default validity of the old token after a rotation.
const OVERLAP_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
const OVERLAP: &str = "24h";

/// Create, list, rotate and revoke tokens
///
/// With --url or --token, uses the API (tenant admins). Otherwise, works directly in the API's Redis (operators): the
/// one that --redis names, or the one of a `stoke dev` on this machine.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke token create --name app --role submit --ttl 90d
  stoke token create --name ci --role deploy,cancel --user ana
  stoke token rotate 0123456789abcdef --overlap 1h
  stoke token create --name ann --role admin --tenant acme --redis redis://10.0.0.1:6379")]
pub(crate) struct TokenArgs {
    #[command(flatten)]
    place: RedisSource,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Args)]
pub(crate) struct RedisSource {
    /// URL of the API's Redis; set STOKE_TOKEN_KEY to the API's token key [default: the Redis of `stoke dev`]
    #[arg(long, global = true, value_name = "URL", env = "STOKE_REDIS_URL", hide_env_values = true)]
    redis: Option<String>,
    /// Data directory of a `stoke dev` [default: the one started last]
    #[arg(long, global = true, value_name = "FOLDER", conflicts_with = "redis")]
    data: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Verb {
    /// Create a token and print it (it cannot be shown again)
    #[command(
        after_help = "Examples:\n  stoke token create --name app --role submit --ttl 90d\n  stoke token create --kind join --name box-1"
    )]
    Create(CreateArgs),
    /// List tokens, without their secrets
    #[command(after_help = "Examples:\n  stoke token list")]
    List {
        /// Tenant (operator only) [default: yours over the API, all in Redis]
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Give a token a new secret and print it; the old secret stays valid for --overlap
    #[command(after_help = "Examples:\n  stoke token rotate 0123456789abcdef --overlap 1h")]
    Rotate(RotateArgs),
    /// Revoke a token (takes effect within 5 s)
    #[command(
        after_help = "Examples:\n  stoke token revoke 0123456789abcdef\n  stoke token revoke 0123456789abcdef --with-workers"
    )]
    Revoke {
        /// Token id (the part after the first _), or the whole token
        id: String,
        /// For a join token: also evict the workers that joined with it, like `stoke worker evict`
        #[arg(long)]
        with_workers: bool,
    },
}

#[derive(Args)]
struct CreateArgs {
    /// Name of the token
    #[arg(long)]
    name: String,
    /// Person who uses the token, for the audit log
    #[arg(long)]
    user: Option<String>,
    /// Kind of token
    #[arg(long, value_enum, default_value_t = Kind::Api)]
    kind: Kind,
    /// Tenant of the token [default: yours over the API, `default` in Redis]
    #[arg(long)]
    tenant: Option<String>,
    /// Roles, which are common sets of scopes [default in Redis: every scope]
    #[arg(long = "role", value_delimiter = ',', value_name = "ROLE,...", value_parser = roles())]
    roles: Vec<Role>,
    /// Additional scopes, e.g. jobs:read,files:write
    #[arg(long = "scope", value_delimiter = ',', value_name = "SCOPE,...")]
    scopes: Vec<Scope>,
    /// Lifetime, e.g. 12h or 30d [default: no expiry]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// Allow only one worker to join (with --kind join)
    #[arg(long)]
    single_use: bool,
    /// Trust level of the machines that join with it; endpoints can require a minimum (with --kind join) [default:
    /// owned]
    #[arg(long, value_enum, value_name = "WHOSE")]
    trust: Option<TrustArg>,
    /// Region of these machines, which endpoints can require with `regions` (with --kind join)
    #[arg(long)]
    region: Option<String>,
}

#[derive(Args)]
struct RotateArgs {
    /// Token id (the part after the first _), or the whole token
    id: String,
    /// How long the old secret stays valid, at most 7d
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = OVERLAP)]
    overlap: Duration,
    /// Lifetime of the new secret [default: the lifetime of the old one]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    ttl: Option<Duration>,
}

#[derive(Clone, Copy, ValueEnum)]
enum TrustArg {
    /// Machines of unknown owners, who can read the jobs
    Community,
    /// Machines in data centres of accountable providers
    Datacenter,
    /// Your own machines
    Owned,
}

/// Parses the role of an API token. The role of workers is `--kind join`.
fn roles() -> impl TypedValueParser<Value = Role> {
    let words = Role::ALL.into_iter().filter(|role| *role != Role::Worker).map(Role::as_str);
    PossibleValuesParser::new(words).try_map(|word| word.parse::<Role>())
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

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Access to the public API
    Api,
    /// Joining workers
    Join,
}

/// Ways to manage tokens, selected by the options.
enum Way {
    Api(Api),
    Redis(Box<Redis>),
}

impl Way {
    async fn new(global: &Global, place: RedisSource) -> Result<Self> {
        let is_redis = place.redis.is_some() || place.data.is_some();
        if !is_redis && (global.url.is_some() || global.token.is_some()) {
            return Ok(Self::Api(Api(Client::connect(global)?)));
        }
        Ok(Self::Redis(Box::new(Redis::open(place).await?)))
    }
}

impl CreateArgs {
    fn kind(&self) -> TokenKind {
        match self.kind {
            Kind::Api => TokenKind::Api,
            Kind::Join => TokenKind::Join,
        }
    }

    fn checked(self) -> Result<Self> {
        let joins = self.kind() == TokenKind::Join;
        require!(
            !joins || (self.scopes.is_empty() && self.roles.is_empty()),
            "a join token cannot have roles or scopes; it only lets workers join"
        );
        require!(joins || !self.single_use, "--single-use requires --kind join");
        require!(joins || (self.trust.is_none() && self.region.is_none()), "--trust and --region require --kind join");
        Ok(self)
    }
}

pub(crate) async fn run(global: &Global, args: TokenArgs) -> Result<()> {
    let TokenArgs { place, verb } = args;
    match verb {
        Verb::Create(create) => {
            let create = create.checked()?;
            let made = match Way::new(global, place).await? {
                Way::Api(api) => api.create(create).await?,
                Way::Redis(redis) => redis.create(create).await?,
            };
            shown_once(global, &made)
        }
        Verb::Rotate(rotate) => {
            require!(rotate.overlap <= OVERLAP_MAX, "--overlap must be at most 7d");
            let rotate = RotateArgs { id: id_of(&rotate.id).to_owned(), ..rotate };
            let made = match Way::new(global, place).await? {
                Way::Api(api) => api.rotate(&rotate).await?,
                Way::Redis(redis) => redis.rotate(&rotate).await?,
            };
            shown_once(global, &made)
        }
        Verb::List { tenant } => {
            let tokens = match Way::new(global, place).await? {
                Way::Api(api) => api.list(tenant.as_deref()).await?,
                Way::Redis(redis) => redis.list(tenant.as_deref()).await?,
            };
            list(global, &tokens)
        }
        Verb::Revoke { id, with_workers } => {
            let id = id_of(&id);
            match Way::new(global, place).await? {
                Way::Api(api) => api.revoke(id, with_workers).await?,
                Way::Redis(redis) => redis.revoke(id, with_workers).await?,
            }
            if global.json {
                return output::json(&json!({"revoked": id, "with_workers": with_workers}));
            }
            let workers = if with_workers { "; the workers that joined with it are evicted" } else { "" };
            output::line(format_args!("revoked token {id} (takes effect within 5 s){workers}"))
        }
    }
}

/// Extracts the ID of a token from a token ID or a whole token.
fn id_of(text: &str) -> &str {
    text.split('_').nth(1).unwrap_or(text)
}

/// A token in the form that both ways share: the members that the tables use.
#[derive(Deserialize)]
struct Shown {
    id: String,
    kind: String,
    #[serde(default)]
    tenant: String,
    #[serde(default)]
    name: String,
    user: Option<String>,
    #[serde(default)]
    scopes: Vec<String>,
    last_used_ms: Option<u64>,
    expires_ms: Option<u64>,
    previous_until_ms: Option<u64>,
    trust: Option<String>,
    region: Option<String>,
    /// The token itself, which is shown once.
    token: Option<String>,
}

fn decode(token: &Value) -> Result<Shown> {
    Shown::deserialize(token).context("the API's response is not a token")
}

fn shown_once(global: &Global, made: &Value) -> Result<()> {
    if global.json {
        return output::json(made);
    }
    let made = decode(made)?;
    output::line(output::text(made.token.as_deref()))?;
    if let Some(until_ms) = made.previous_until_ms {
        output::note(format_args!("The old secret stays valid for {}.", from_now(until_ms)));
    }
    output::note(output::dim(format_args!(
        "The token cannot be shown again. To revoke it: `stoke token revoke {}`.",
        made.id
    )));
    Ok(())
}

fn list(global: &Global, tokens: &[Value]) -> Result<()> {
    if global.json {
        return output::json(&json!({"tokens": tokens}));
    }
    let mut table =
        output::table(["id", "kind", "tenant", "name", "user", "rights", "last used", "expires"]).wrapping(&["rights"]);
    for token in tokens {
        let token = decode(token)?;
        let used = token.last_used_ms;
        table.add_row([
            output::text(token.id.as_str()),
            output::text(token.kind.as_str()),
            output::text(token.tenant.as_str()),
            output::text(token.name.as_str()),
            token.user.clone().unwrap_or_default(),
            good_for(&token),
            used.map_or("-".to_owned(), |at| format!("{} ago", output::millis(now_ms().saturating_sub(at)))),
            token.expires_ms.map_or("never".to_owned(), |at| format!("in {}", from_now(at))),
        ]);
    }
    output::print_table(&table, "no tokens")
}

fn from_now(at_ms: u64) -> String {
    output::millis(at_ms.saturating_sub(now_ms()))
}

/// The rights of an API token, as a role if they match one; trust level and region of a join token.
fn good_for(token: &Shown) -> String {
    if token.kind == "join" {
        let words = [&token.trust, &token.region].map(|word| word.as_deref().unwrap_or_default());
        return words.join(" ").trim().to_owned();
    }
    let scopes = &token.scopes;
    let is_just = |role: &Role| role.scopes().into_iter().map(Scope::as_str).eq(scopes.iter().map(String::as_str));
    match Role::ALL.into_iter().filter(|role| *role != Role::Worker).find(is_just) {
        Some(role) => role.as_str().to_owned(),
        None => scopes.join(" "),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{Command, stub};

    fn create(line: &str) -> Result<CreateArgs> {
        let Command::Token(TokenArgs { verb: Verb::Create(args), .. }) = stub::parse(line).unwrap() else {
            panic!("is one")
        };
        args.checked()
    }

    #[test]
    fn every_verb_parses() {
        for line in [
            "list",
            "list --tenant acme",
            "rotate 00ff --overlap 1h --ttl 30d",
            "revoke sk_00ff_11_22",
            "revoke 00ff --with-workers",
        ] {
            assert!(stub::parse(&format!("token {line}")).is_ok(), "{line}");
        }
        assert!(stub::parse("token create --name a --role king").is_err());
        assert_eq!((id_of("sk_00ff_11_22"), id_of("00ff")), ("00ff", "00ff"));
    }

    #[test]
    fn a_workers_token_is_a_join_token_and_has_no_scopes() {
        assert!(create("token create --name a --role worker --single-use").unwrap().kind() == TokenKind::Join);
        assert!(create("token create --name a --role submit,cancel").unwrap().kind() == TokenKind::Api);
        for wrong in
            ["--kind join --role read", "--kind join --scope jobs:read", "--role read --region eu", "--single-use"]
        {
            assert!(create(&format!("token create --name a {wrong}")).is_err(), "{wrong}");
        }
        assert!(stub::parse("token create --name a --role worker,read").is_err());
    }

    #[test]
    fn what_is_just_a_role_is_called_so() {
        let token = |scopes: Vec<Scope>| {
            let words: Vec<&str> = scopes.into_iter().map(Scope::as_str).collect();
            decode(&json!({"id": "1", "kind": "api", "scopes": words})).unwrap()
        };
        assert_eq!(good_for(&token(Role::Deploy.scopes())), "deploy");
        assert_eq!(good_for(&token(vec![Scope::JobsRead])), "jobs:read");
        assert_eq!(
            good_for(&decode(&json!({"id": "1", "kind": "join", "trust": "owned", "region": ""})).unwrap()),
            "owned"
        );
    }
}
