//! `stoke bench load --demo`: 10,000 requests to the example endpoints on a temporary stack.

use std::fs::File;
use std::path::Path;

use anyhow::{Result, bail};
use stokehold_client::models::Job;

use super::load::{Load, LoadArgs};
use super::requests::Requests;
use crate::client::{Client, connect_to, decode};
use crate::deploy::Builder;
use crate::signals::StopSignals;
use crate::{Global, demo, logging, output, wait};

const REQUESTS: u64 = 10_000;

/// Mix of requests: of every 100, 96 go to `echo`, 3 to `embed` and 1 to `render`.
const MIX: &str = include_str!("mix.jsonl");

pub(super) async fn run(global: &Global, args: LoadArgs) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("stokehold-load-").tempdir()?;
    let log = folder.path().join("load.log");
    let log_file = File::create(&log)?;
    logging::to_file(log_file.try_clone()?);
    let mut stop = StopSignals::new()?;
    let mut stack = tokio::select! {
        started = demo::start(folder.path(), log_file) => started.map_err(|error| demo::with_log(error, &log))?,
        () = stop.recv() => bail!("stopped before the load began"),
    };
    let (url, token) = (stack.url.clone(), stack.token.clone());
    let work = async {
        let client = connect_to(url, token)?;
        let requests = tokio::select! {
            prepared = prepare(&client, folder.path()) => prepared?,
            () = stop.recv() => bail!("stopped before the load began"),
        };
        let load = args.load(client, requests, args.requests.or(Some(REQUESTS)))?;
        args.measure(global, Load { wait: true, ..load }).await
    };
    let work = Box::pin(work);
    let done = tokio::select! {
        done = work => done,
        broken = stack.supervise() => Err(broken),
    };
    stack.stop(std::future::pending()).await;
    done.map_err(|error| demo::with_log(error, &log))
}

/// Deploys the examples and runs one job of each, so that building environments and loading models is not part of the
/// measured load.
async fn prepare(client: &Client, folder: &Path) -> Result<Requests> {
    let builder = Builder::open().await?;
    demo::deploy_examples(client, &builder, folder, output::note).await?;
    let requests = Requests::from_lines(MIX, "echo")?;
    for endpoint in requests.endpoints() {
        let (_, accepted) = client.post("/v1/jobs", requests.first_of(endpoint)).await?;
        let id = decode::<Job>(&accepted)?.id;
        decode::<Job>(&wait::until_ended(client, &id, None).await?)?.succeeded()?;
    }
    Ok(requests)
}
