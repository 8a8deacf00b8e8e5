//! Fetches large inputs, which are stored as files, and the files that an input names, before the run starts.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use serde_json::value::RawValue;
use stokehold_protocol::job::JobError;

use crate::failure::infra;
use crate::scratch::{EndpointFolder, RunFolder};
use crate::transfer::Transfer;

/// Maximum size of an input: one job of a bulk submit, which is 8 MiB.
const INPUT_BYTES_MAX: usize = 8 << 20;

/// Fetches an input that is stored as a file into memory, so that its handler cannot change it.
pub(crate) async fn fetch_input(transfer: &Transfer, url: Option<&str>) -> Result<Box<RawValue>, JobError> {
    let fetched = async {
        let url = url.ok_or_else(|| anyhow::anyhow!("the gateway sent no URL for it"))?;
        let bytes = transfer.get_bytes(url, INPUT_BYTES_MAX).await?;
        Ok::<_, anyhow::Error>(RawValue::from_string(String::from_utf8(bytes)?)?)
    };
    fetched.await.map_err(|error| infra(format!("cannot fetch the input: {error}")))
}

/// Fetches each file for the user that the endpoint's runners run as. Returns the path of each file id, with the file's
/// uploaded name, and the folder that contains them, which is removed on drop.
pub(crate) async fn fetch(
    transfer: &Transfer,
    urls: &BTreeMap<String, String>,
    endpoint: &EndpointFolder,
) -> Result<(BTreeMap<String, String>, Option<RunFolder>), JobError> {
    if urls.is_empty() {
        return Ok((BTreeMap::new(), None));
    }
    let fetched = fetch_all(transfer, urls, endpoint).await;
    let (files, folder) = fetched.map_err(|error| infra(format!("cannot fetch an input file: {error}")))?;
    Ok((files, Some(folder)))
}

async fn fetch_all(
    transfer: &Transfer,
    urls: &BTreeMap<String, String>,
    endpoint: &EndpointFolder,
) -> anyhow::Result<(BTreeMap<String, String>, RunFolder)> {
    let (staged, mut files) = (endpoint.stage()?, BTreeMap::new());
    for (id, url) in urls {
        // The id comes from the gateway and becomes part of a path.
        anyhow::ensure!(is_name(id), "{id:?} is not a file id");
        // A handler may depend on the file's name or its extension.
        let path = match transfer.get(url, &staged.create(id)?).await? {
            Some(name) => {
                let folder = format!("{id}.d");
                staged.rename(id, &folder, &name)?;
                staged.path().join(folder).join(name)
            }
            None => staged.path().join(id),
        };
        files.insert(id.clone(), path.to_string_lossy().into_owned());
    }
    Ok((files, staged.place()?))
}

fn is_name(text: &str) -> bool {
    matches!(Path::new(text).components().collect::<Vec<_>>()[..], [Component::Normal(name)] if name == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_name() {
        assert!(is_name("file_0192") && is_name("a.b"));
        for no in ["", ".", "..", "a/b", "/a", "a/", "../a"] {
            assert!(!is_name(no), "{no:?}");
        }
    }
}
