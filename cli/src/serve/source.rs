//! What models and adapters have in common: their files, and the errors of reading them.

use std::io::Read;
use std::path::Path;

use stokehold_package::Error as HubError;

use crate::exit::NOT_ALLOWED;
use crate::failure::Failure;

/// Maximum size of a configuration or an index.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// An error of the options or of a file that they name.
pub(super) fn usage(text: impl ToString) -> anyhow::Error {
    Failure::usage(text.to_string()).into()
}

/// Whether this is the name of a .gguf file.
pub(super) fn is_gguf(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"))
}

/// Adds to an error of the hub what to do. `name` is the model or the adapter.
pub(super) fn explained(error: anyhow::Error, name: &str) -> anyhow::Error {
    match error.downcast_ref() {
        Some(HubError::Refused { status: 401 | 403, .. }) => {
            Failure::new("not_allowed", NOT_ALLOWED, format!("{error:#}")).into()
        }
        Some(HubError::Failed { .. }) => {
            let advice = "download the model's config.json by other means and name it with --config";
            error.context(format!("cannot read {name} from the hub; {advice}"))
        }
        _ => error,
    }
}

/// Reads a configuration or an index, up to a maximum size.
pub(super) fn text(body: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    body.take(TEXT_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}
