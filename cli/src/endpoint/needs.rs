//! `stoke endpoint needs` and `forget-needs`: measured GPU memory of an endpoint.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use reqwest::Method;
use stokehold_client::models::{ForgottenNeeds, Needs};

use crate::client::{Call, Client, decode, segment};
use crate::{Global, completions, output};

/// Show the measured GPU memory of an endpoint's versions
///
/// Lists MiB by version and GPU model. A measurement overrides `vram_gib` on that GPU model.
#[derive(Args)]
#[command(after_help = "Examples:\n  stoke endpoint needs render")]
pub(super) struct NeedsArgs {
    /// Endpoint name
    #[arg(add = completions::endpoints())]
    name: String,
}

/// Forget the measured GPU memory of an endpoint
///
/// Its versions then need what they declare, until they are measured again.
#[derive(Args)]
#[command(after_help = "Examples:\n  stoke endpoint forget-needs render")]
pub(super) struct ForgetArgs {
    /// Endpoint name
    #[arg(add = completions::endpoints())]
    name: String,
}

pub(super) async fn show(global: &Global, client: &Client, args: &NeedsArgs) -> Result<()> {
    let found = client.get(&path(&args.name)).await?;
    if global.json {
        return output::json(&found);
    }
    let mut table = output::table(["endpoint", "GPU", "MiB"]);
    for need in decode::<Needs>(&found)?.needs {
        table.add_row([
            format!("{}@{}", args.name, need.version),
            need.gpu.unwrap_or_else(|| "any (minimum)".to_owned()),
            need.need_mib.to_string(),
        ]);
    }
    output::print_table(&table, "nothing measured yet: the declared `vram_gib` applies")
}

pub(super) async fn forget(global: &Global, client: &Client, args: &ForgetArgs) -> Result<()> {
    let path = path(&args.name);
    let call = Call { method: Method::DELETE, path: &path, body: None, headers: &[], hold: Duration::ZERO };
    let (_, done) = client.call(&call).await?;
    if global.json {
        return output::json(&done);
    }
    let ForgottenNeeds { forgotten } = decode(&done)?;
    output::line(format_args!("forgot {} of {}", output::counted(forgotten, "measurement"), args.name))
}

fn path(name: &str) -> String {
    format!("/v1/endpoints/{}/needs", segment(name))
}
