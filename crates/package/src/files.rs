//! Reads files that a folder may have.

use std::path::Path;

use crate::error::{Error, Step};

/// Reads and parses a file; `None` if it does not exist.
pub(crate) fn read_if_there<T>(path: &Path, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, Error> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&text).map(Some).map_err(|why| Error::invalid(format!("{}: {why}", path.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).reading(path),
    }
}
