//! Validation of inputs before they are queued: the schema, and the files that they name.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt};
use serde_json::Value;
use stokehold_objects::{Error as ObjectsError, Objects};

use crate::endpoints::schema::Schema;
use crate::error::FieldError;
use crate::names;

/// Maximum number of places in one response.
const ERRORS_MAX: usize = 20;

/// Maximum length of one message, characters.
const MESSAGE_MAX: usize = 300;

/// Maximum number of files that one input names.
const FILES_MAX: usize = 100;

const HEADS_AT_ONCE: usize = 16;

/// The invalid places of an input, at least one.
#[derive(Debug, thiserror::Error)]
#[error("{}", first(.0))]
pub(crate) struct Error(pub(crate) Vec<FieldError>);

fn first(errors: &[FieldError]) -> String {
    errors.first().map_or(String::new(), |error| format!("{}: {}", error.path, error.message))
}

/// Reasons for which the files of an input cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// The object store failed.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// The file with this ID was not uploaded.
    #[error("file {0:?} was not uploaded; PUT its bytes to the upload_url that POST /v1/files returned")]
    Missing(String),
}

/// Checks an input against its endpoint's schema, and returns the IDs of the files that it names. `at` is its JSON
/// pointer.
pub(crate) fn check(schema: &Schema, input: &Value, at: &str) -> Result<Vec<String>, Error> {
    let misfits = schema.check(input, ERRORS_MAX).err().unwrap_or_default();
    let errors: Vec<FieldError> = misfits
        .into_iter()
        .map(|misfit| FieldError {
            path: format!("{at}{}", misfit.path),
            message: misfit.message.chars().take(MESSAGE_MAX).collect(),
        })
        .collect();
    if !errors.is_empty() {
        return Err(Error(errors));
    }
    files(input, at)
}

/// IDs of the files that an input names.
pub(crate) fn files(input: &Value, at: &str) -> Result<Vec<String>, Error> {
    let mut files = BTreeSet::new();
    named_files(input, at, &mut files)?;
    if files.len() > FILES_MAX {
        return Err(invalid(at, format!("names {} files, more than {FILES_MAX}", files.len())));
    }
    Ok(files.into_iter().collect())
}

/// IDs of the files that an already validated input names.
pub(crate) fn files_of(input: &str) -> Vec<String> {
    // Most inputs name no files, and are not parsed.
    if !input.contains("$file") && !input.contains("\\u") {
        return Vec::new();
    }
    let mut files = BTreeSet::new();
    match serde_json::from_str(input) {
        Ok(value) => drop(named_files(&value, "", &mut files)),
        Err(error) => tracing::error!(%error, "an input that passed validation cannot be parsed"),
    }
    files.into_iter().collect()
}

fn invalid(at: &str, message: String) -> Error {
    Error(vec![FieldError::new(at, message)])
}

/// Collects `{"$file": id}`. The nesting of the body is bounded.
fn named_files(value: &Value, at: &str, files: &mut BTreeSet<String>) -> Result<(), Error> {
    match value {
        Value::Object(members) => match members.get("$file") {
            Some(Value::String(id)) if names::is_file_id(id) => {
                files.insert(id.clone());
                Ok(())
            }
            Some(_) => Err(invalid(&format!("{at}/$file"), "is not a file id; POST /v1/files returns one".to_owned())),
            None => members.iter().try_for_each(|(name, value)| named_files(value, &format!("{at}/{name}"), files)),
        },
        Value::Array(items) => {
            items.iter().enumerate().try_for_each(|(n, item)| named_files(item, &format!("{at}/{n}"), files))
        }
        _ => Ok(()),
    }
}

/// Object key of an uploaded file.
pub(crate) fn file_key(tenant: &str, id: &str) -> String {
    format!("inputs/{tenant}/{id}")
}

/// Checks that every file was uploaded.
pub(crate) async fn require_files(objects: &Objects, tenant: &str, files: &BTreeSet<&String>) -> Result<(), FileError> {
    // Collected, because the compiler cannot check a borrowing stream of borrowing futures.
    let heads: Vec<_> = files
        .iter()
        .map(|id| {
            let (objects, key, id) = (objects.clone(), file_key(tenant, id), (*id).clone());
            async move {
                match objects.head(&key).await? {
                    Some(_) => Ok(()),
                    None => Err(FileError::Missing(id)),
                }
            }
        })
        .collect();
    futures::stream::iter(heads).buffer_unordered(HEADS_AT_ONCE).try_collect().await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_are_found_wherever_they_are_named_and_counted_once() {
        let any = Schema::compile(&json!(true)).unwrap();
        let (a, b) = (format!("file_{}", "a".repeat(32)), format!("file_{}", "b".repeat(32)));
        let input = json!({"x": [{"$file": b}, {"y": {"$file": a}}], "z": {"$file": a}});
        assert_eq!(check(&any, &input, "/input").unwrap(), [a, b]);
        let problem = check(&any, &json!({"x": {"$file": "../secret"}}), "/input").unwrap_err();
        assert!(format!("{problem:?}").contains("/input/x/$file"));
    }

    #[test]
    fn a_message_says_where_and_what_but_never_the_value() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["m"]});
        let schema = Schema::compile(&schema).unwrap();
        let problem = check(&schema, &json!({"n": "canary"}), "/input").unwrap_err();
        assert!(!format!("{problem:?}").contains("canary"));
        assert!(format!("{problem:?}").contains("/input/n"));
    }
}
