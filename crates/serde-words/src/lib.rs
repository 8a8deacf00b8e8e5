//! Rephrases serde's messages in terms of JSON and TOML.

use std::fmt::Display;

/// A message of serde, e.g. ``invalid type: string "soon", expected u32``, without Rust's names of types.
#[must_use]
pub fn in_words(message: &str) -> String {
    if message.starts_with("data did not match any variant of untagged enum") {
        return "does not have any of the allowed forms".to_owned();
    }
    let Some((found, expected)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    let found = ["invalid type: ", "invalid value: ", "invalid "].iter().find_map(|kind| found.strip_prefix(kind));
    let (Some(found), Some(expected)) = (found, kind_in_words(expected)) else { return message.to_owned() };
    let found = match found.split_once(' ').unwrap_or((found, "")) {
        ("integer", number) => number.trim_matches('`').to_owned(),
        ("floating", rest) => rest.trim_start_matches("point ").trim_matches('`').to_owned(),
        ("boolean", word) => word.trim_matches('`').to_owned(),
        ("string", text) => text.to_owned(),
        ("sequence", _) => "an array".to_owned(),
        ("map", _) => "an object".to_owned(),
        _ => found.to_owned(),
    };
    format!("must be {expected}, not {found}")
}

/// The type that serde expects, in JSON's terms; `None` if the message is Stokehold's own.
fn kind_in_words(expected: &str) -> Option<String> {
    let kind = expected.split(" with ").next().unwrap_or(expected);
    Some(match kind.split(' ').collect::<Vec<_>>().as_slice() {
        ["u8"] => format!("a whole number from 0 to {}", u8::MAX),
        ["u16"] => format!("a whole number from 0 to {}", u16::MAX),
        ["u32"] => format!("a whole number from 0 to {}", u32::MAX),
        ["u64" | "u128" | "usize"] => "a whole number of at least 0".to_owned(),
        ["i8" | "i16" | "i32" | "i64" | "i128" | "isize"] => "a whole number".to_owned(),
        ["f32" | "f64"] => "a number".to_owned(),
        ["a", "boolean"] | ["bool"] => "true or false".to_owned(),
        ["struct" | "map", ..] | ["a", "map"] | ["internally", "tagged", ..] => "an object".to_owned(),
        ["a", "sequence"] | ["tuple", ..] => "an array".to_owned(),
        ["a", "string" | "borrowed"] | ["string" | "str"] | ["enum" | "variant", ..] => "a string".to_owned(),
        ["unit"] | ["unit", "struct", ..] => "null".to_owned(),
        ["an", "array", "of", "length", ..] | ["a", "tuple", ..] => kind.to_owned(),
        _ => return None,
    })
}

/// The message of an error in a JSON document, [rephrased](in_words) and without its line and column.
#[must_use]
pub fn json_in_words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    in_words(text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]))
}

/// An error in a TOML document as displayed, with its position, and with its message [rephrased](in_words).
#[must_use]
pub fn shown_in_words(shown: &impl Display, message: &str) -> String {
    shown.to_string().replace(message, &in_words(message)).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_keeps_its_place() {
        let shown = "invalid type: string \"a\", expected u32\nin `limits.connections`\n";
        assert_eq!(
            shown_in_words(&shown, "invalid type: string \"a\", expected u32"),
            "must be a whole number from 0 to 4294967295, not \"a\"\nin `limits.connections`"
        );
    }
}
