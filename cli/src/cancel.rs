//! `stoke cancel`.

use anyhow::Result;
use clap::Args;

use crate::client::{Client, segment};
use crate::job::Job;
use crate::{Global, output};

/// Cancel a job
#[derive(Args)]
pub(crate) struct CancelArgs {
    /// The job's id
    id: String,
}

pub(crate) async fn run(global: &Global, args: CancelArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let (_, cancelled) = client.post(&format!("/v1/jobs/{}/cancel", segment(&args.id)), None).await?;
    if global.json {
        return output::json(&cancelled);
    }
    let job = Job::decode(&cancelled)?;
    if job.has_ended() {
        output::line(format_args!("job {} is {}", job.id, job.state))
    } else {
        output::line(format_args!("job {} is {}; its worker has been told to stop it", job.id, job.state))
    }
}
