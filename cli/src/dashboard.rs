//! `stoke dashboard`: an address that logs a browser in, once.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;
use stokehold_api::token::{Scope, TokenKey, mint};
use stokehold_queue::{Registry, TokenKind};

use crate::credentials::Credentials;
use crate::dev::secrets::TENANT;
use crate::token::Place;
use crate::{Global, client, output};

/// How long the address is good for. It stands on a screen, and in whatever keeps what was there.
const LINK_TTL: Duration = Duration::from_secs(10 * 60);

/// Print the dashboard's address, with a log-in that is good once
///
/// For whoever can reach the API's Redis: that of a `stoke dev` on this machine, or the one that --redis names.
#[derive(Args)]
pub(crate) struct DashboardArgs {
    #[command(flatten)]
    place: Place,
    /// Whose jobs, endpoints and files it shows
    #[arg(long, default_value = TENANT)]
    tenant: String,
    /// What may be done there, as jobs:read,workers:read [default: everything]
    #[arg(long = "scope", value_delimiter = ',', value_name = "SCOPE,...")]
    scopes: Vec<Scope>,
}

pub(crate) async fn run(global: &Global, args: DashboardArgs) -> Result<()> {
    let scopes = if args.scopes.is_empty() { Scope::ALL.to_vec() } else { args.scopes };
    let url = client::address(global, Credentials::load()?.as_ref());
    let link = link(&url, &args.place.registry().await?, &args.place.token_key()?, &args.tenant, &scopes).await?;
    if global.json {
        return output::json(&json!({ "url": link, "lasts_s": LINK_TTL.as_secs() }));
    }
    output::line(&link)?;
    output::note(output::dim(about()));
    Ok(())
}

/// What is to be known of such an address.
pub(crate) fn about() -> String {
    format!("It logs in once, within {} minutes; `stoke dashboard` prints another.", LINK_TTL.as_secs() / 60)
}

/// The dashboard's address at `url`. The log-in is its fragment, which no browser sends and no server logs; the page takes it out of the
/// address before it asks for anything.
pub(crate) async fn link(
    url: &str,
    registry: &Registry,
    key: &TokenKey,
    tenant: &str,
    scopes: &[Scope],
) -> Result<String> {
    let (mut record, token) = mint(TokenKind::Api, tenant, scopes, "dashboard", Some(LINK_TTL), key)?;
    record.single_use = true;
    registry.put_token(&record).await.context("Redis did not take the log-in")?;
    Ok(format!("{url}/dashboard#{}", token.expose()))
}
