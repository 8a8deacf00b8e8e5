//! `stoke dashboard`: prints a single-use log-in link.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;
use stokehold_api::token::{Scope, TokenKey, mint};
use stokehold_queue::{Registry, TokenKind};

use crate::credentials::Credentials;
use crate::dev::secrets::TENANT;
use crate::token::RedisSource;
use crate::{Global, client, output};

/// Lifetime of the link. It is short because terminals keep what they print.
const LINK_TTL: Duration = Duration::from_secs(10 * 60);

/// Print a single-use log-in link for the dashboard
///
/// Needs access to the API's Redis: the one of `stoke dev` on this machine, or the one that --redis names.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke dashboard
  stoke dashboard --tenant acme --scope jobs:read,workers:read")]
pub(crate) struct DashboardArgs {
    #[command(flatten)]
    place: RedisSource,
    /// Tenant whose jobs, endpoints and files the dashboard shows
    #[arg(long, default_value = TENANT)]
    tenant: String,
    /// Scopes of the session, e.g. jobs:read,workers:read [default: all]
    #[arg(long = "scope", value_delimiter = ',', value_name = "SCOPE,...")]
    scopes: Vec<Scope>,
}

pub(crate) async fn run(global: &Global, args: DashboardArgs) -> Result<()> {
    let scopes = if args.scopes.is_empty() { Scope::ALL.to_vec() } else { args.scopes };
    let url = client::address(global, Credentials::load(global.profile.as_deref())?.as_ref());
    let link = link(&url, &args.place.registry().await?, &args.place.token_key()?, &args.tenant, &scopes).await?;
    if global.json {
        return output::json(&json!({ "url": link, "lasts_s": LINK_TTL.as_secs() }));
    }
    output::line(&link)?;
    output::note(output::dim(about()));
    Ok(())
}

/// A note on the lifetime of a link.
pub(crate) fn about() -> String {
    format!("The link works once, within {} minutes; `stoke dashboard` prints a new one.", LINK_TTL.as_secs() / 60)
}

/// Creates a log-in link for the dashboard at `url`. The token is in the fragment, which browsers do not send and
/// servers do not log. The page removes it from the address before its first request.
pub(crate) async fn link(
    url: &str,
    registry: &Registry,
    key: &TokenKey,
    tenant: &str,
    scopes: &[Scope],
) -> Result<String> {
    let (mut record, token) = mint(TokenKind::Api, tenant, scopes, "dashboard", Some(LINK_TTL), key)?;
    record.single_use = true;
    registry.put_token(&record).await.context("cannot store the log-in token in Redis")?;
    Ok(format!("{url}/dashboard#{}", token.expose()))
}
