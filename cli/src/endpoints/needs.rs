//! `stoke endpoints needs` and `forget-needs`: the GPU memory that an endpoint was seen to need.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use reqwest::Method;

use crate::client::{Call, Client, segment};
use crate::{Global, output};

/// Show the GPU memory that an endpoint's versions were seen to need
///
/// By version and GPU model. It replaces `vram_gib` there.
#[derive(Args)]
pub(super) struct NeedsArgs {
    /// The endpoint
    name: String,
}

/// Forget the GPU memory that an endpoint was seen to need
///
/// Its versions then need what they declare, until they are seen to need something else.
#[derive(Args)]
pub(super) struct ForgetArgs {
    /// The endpoint
    name: String,
}

pub(super) async fn show(global: &Global, client: &Client, args: &NeedsArgs) -> Result<()> {
    let found = client.get(&path(&args.name)).await?;
    if global.json {
        return output::json(&found);
    }
    let mut table = output::table(["endpoint", "GPU", "MiB"]);
    for need in found["needs"].as_array().into_iter().flatten() {
        table.add_row([
            format!("{}@{}", args.name, output::cell(&need["version"])),
            need["gpu"].as_str().unwrap_or("any, at the least").to_owned(),
            output::cell(&need["need_mib"]),
        ]);
    }
    output::print_table(&table, "nothing was seen yet: it needs what it declares")
}

pub(super) async fn forget(global: &Global, client: &Client, args: &ForgetArgs) -> Result<()> {
    let path = path(&args.name);
    let call = Call { method: Method::DELETE, path: &path, body: None, headers: &[], hold: Duration::ZERO };
    let (_, done) = client.call(&call).await?;
    if global.json {
        return output::json(&done);
    }
    output::line(format!("forgot {} needs of {}", output::cell(&done["forgotten"]), args.name))
}

fn path(name: &str) -> String {
    format!("/v1/endpoints/{}/needs", segment(name))
}
