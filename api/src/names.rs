//! Checks of texts that become part of URLs, Redis keys and S3 keys.

pub(crate) use stokehold_queue::names::is_name;

/// Returns whether a text is a file's name below an attempt's prefix: 1 to 200 bytes of any script, without separators,
/// control characters and references to the parent folder.
pub(crate) fn is_file_name(text: &str) -> bool {
    matches!(text.len(), 1..=200)
        && !matches!(text, "." | "..")
        && !text.chars().any(|c| c.is_control() || matches!(c, '/' | '\\'))
}

/// Returns whether a text is a SHA-256 in lower-case hex.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && is_lower_hex(text)
}

/// Returns whether a text is the ID of an uploaded file: `file_` and 32 hex digits.
pub(crate) fn is_file_id(text: &str) -> bool {
    text.strip_prefix("file_").is_some_and(|digits| digits.len() == 32 && is_lower_hex(digits))
}

/// Returns whether a text is the ID of a schedule: `sch_` and 32 hex digits.
pub(crate) fn is_schedule_id(text: &str) -> bool {
    text.strip_prefix("sch_").is_some_and(|digits| digits.len() == 32 && is_lower_hex(digits))
}

/// Returns whether a text is roughly a MIME type: allowed in a header, and suitable for a signature.
pub(crate) fn is_content_type(text: &str) -> bool {
    matches!(text.len(), 3..=200) && text.contains('/') && text.bytes().all(|b| (0x20..0x7f).contains(&b))
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_cannot_leave_their_key() {
        for good in ["out_1.png", "Bericht für März.pdf", "図 1.png", "a:b?*", "..."] {
            assert!(is_file_name(good), "{good}");
        }
        for wrong in ["", ".", "..", "a/b", "a\\b", "a\nb", "a\0", &"a".repeat(201), &"ä".repeat(101)] {
            assert!(!is_file_name(wrong), "{wrong}");
        }
        assert!(is_file_id(&format!("file_{}", "0f".repeat(16))));
        assert!(!is_file_id("file_../../packages") && !is_file_id("0f"));
    }
}
