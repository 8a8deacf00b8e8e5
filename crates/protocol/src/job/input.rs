//! Large inputs: stored as files in S3, with a reference in the record.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// Maximum size of an input that is stored in the record, bytes of JSON: 64 KiB. Redis keeps every queued job in
/// memory; S3 does not.
pub const INLINE_INPUT_BYTES: usize = 64 << 10;

/// Maximum length of a reference, bytes.
const REFERENCE_BYTES_MAX: usize = 100;

/// The reference that a record stores in place of a large input: `{"$file": "file_...", "as": "input"}`. The file holds
/// the input as JSON.
///
/// An input that happens to look like this is stored as a file as well, so a reference in a record is always the
/// gateway's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputFile {
    /// The id of the file.
    #[serde(rename = "$file")]
    pub id: String,
    #[serde(rename = "as")]
    role: Role,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    Input,
}

impl InputFile {
    /// The reference to a file.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), role: Role::Input }
    }

    /// Parses a reference; `None` if the input is not one.
    #[must_use]
    pub fn of(input: &RawValue) -> Option<Self> {
        if input.get().len() > REFERENCE_BYTES_MAX {
            return None;
        }
        serde_json::from_str(input.get()).ok()
    }

    /// The form that the record stores.
    ///
    /// # Errors
    /// None in practice: two strings are always JSON.
    pub fn to_raw(&self) -> serde_json::Result<Box<RawValue>> {
        to_raw_value(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<InputFile> {
        InputFile::of(&RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn a_reference_is_read_back_and_nothing_else_is_taken_for_one() {
        let file = InputFile::new("file_0123456789abcdef0123456789abcdef");
        let raw = file.to_raw().unwrap();
        assert_eq!(raw.get(), r#"{"$file":"file_0123456789abcdef0123456789abcdef","as":"input"}"#);
        assert_eq!(InputFile::of(&raw), Some(file));
        for other in
            [r#"{"$file":"file_1"}"#, r#"{"$file":"f","as":"image"}"#, r#"{"$file":"f","as":"input","n":1}"#, "null"]
        {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(of(&format!(r#"{{"$file":"{}","as":"input"}}"#, "f".repeat(200))), None);
    }
}
