//! Files of a result as input of another job.

use std::future::Future;
use std::pin::Pin;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use stokehold_objects::Objects;
use stokehold_queue::job::Job;

use super::Error;
use crate::jobs::inputs::file_key;
use crate::names;
use crate::state::App;

/// Replaces each `{"$file": name, "url": ...}` of `job`'s result by `{"$file": id}` of a copy among the tenant's files.
/// The ID is derived from the job and the name, so that repeating it changes nothing.
pub(super) fn portable<'a>(
    app: &'a App,
    job: &'a Job,
    value: Value,
) -> Pin<Box<dyn Future<Output = Result<Value, Error>> + Send + 'a>> {
    Box::pin(async move {
        Ok(match value {
            Value::Object(members) => match members.get("$file") {
                Some(Value::String(name)) if names::is_file_name(name) => copied(&app.objects, job, name).await?,
                _ => {
                    let mut moved = Map::new();
                    for (name, value) in members {
                        moved.insert(name, portable(app, job, value).await?);
                    }
                    Value::Object(moved)
                }
            },
            Value::Array(items) => {
                let mut moved = Vec::with_capacity(items.len());
                for item in items {
                    moved.push(portable(app, job, item).await?);
                }
                Value::Array(moved)
            }
            plain => plain,
        })
    })
}

async fn copied(objects: &Objects, job: &Job, name: &str) -> Result<Value, Error> {
    let Some(winner) = job.winner() else {
        return Err(Error::Lost(format!("no attempt of job {} has the file {name:?}", job.id)));
    };
    let from = format!("{}{name}", Job::attempt_prefix(&job.spec.tenant, job.id, winner.attempt, &winner.fence));
    let digest = Sha256::new().chain_update(job.id.to_string()).chain_update("/").chain_update(name).finalize();
    let id = format!("file_{}", hex::encode(&digest[..16]));
    let to = file_key(&job.spec.tenant, &id);
    // The file may have been copied before, and the original deleted since.
    if !objects.copy(&from, &to).await? && objects.head(&to).await?.is_none() {
        return Err(Error::Lost(format!("the file {name:?} of job {} is missing from the object store", job.id)));
    }
    Ok(serde_json::json!({"$file": id}))
}
