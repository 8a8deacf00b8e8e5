//! A large input, which is kept as a file, and the files that an input names: fetched before the run begins.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::value::RawValue;
use stokehold_queue::job::JobError;
use tokio::fs;

use crate::failure::infra;
use crate::scratch::EndpointFolder;
use crate::transfer::Transfer;

/// The largest input: one job of a bulk submit, which is 8 MiB.
const INPUT_BYTES_MAX: usize = 8 << 20;

/// Fetches an input that is kept as a file. Into memory: its handler must not be able to change what it is given.
pub(crate) async fn fetch_input(transfer: &Transfer, url: Option<&str>) -> Result<Box<RawValue>, JobError> {
    let fetched = async {
        let url = url.ok_or_else(|| anyhow::anyhow!("the gateway gave no URL for it"))?;
        let bytes = transfer.get_bytes(url, INPUT_BYTES_MAX).await?;
        Ok::<_, anyhow::Error>(RawValue::from_string(String::from_utf8(bytes)?)?)
    };
    fetched.await.map_err(|error| infra(format!("the input cannot be fetched: {error}")))
}

/// Fetches each file, and gives them to the user that the endpoint's runners run as. Where each lies, by its id; it has the name that it was
/// uploaded with. `folder` is made, if there is any.
pub(crate) async fn fetch(
    transfer: &Transfer,
    urls: &BTreeMap<String, String>,
    endpoint: &EndpointFolder,
    folder: &Path,
) -> Result<BTreeMap<String, String>, JobError> {
    if urls.is_empty() {
        return Ok(BTreeMap::new());
    }
    let files = fetch_all(transfer, urls, folder).await;
    let files = files.and_then(|files| Ok(endpoint.hand_over(folder).map(|()| files)?));
    files.map_err(|error| infra(format!("an input file cannot be fetched: {error}")))
}

async fn fetch_all(
    transfer: &Transfer,
    urls: &BTreeMap<String, String>,
    folder: &Path,
) -> anyhow::Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    // Until it is complete, the worker's alone.
    fs::DirBuilder::new().mode(0o700).create(folder).await?;
    for (id, url) in urls {
        let fetched = folder.join(id);
        // A handler may go by the name that its user has given the file, or by how that ends.
        let path = match transfer.get(url, &fetched).await? {
            Some(name) => renamed(&fetched, &name).await?,
            None => fetched,
        };
        files.insert(id.clone(), path.to_string_lossy().into_owned());
    }
    Ok(files)
}

/// Gives a file its name, in a folder of its own: two inputs may be called the same.
async fn renamed(file: &Path, name: &str) -> std::io::Result<PathBuf> {
    let folder = file.with_extension("d");
    fs::create_dir(&folder).await?;
    let path = folder.join(name);
    fs::rename(file, &path).await?;
    Ok(path)
}
