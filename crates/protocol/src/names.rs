//! Names that become part of URLs, Redis keys and S3 keys.

/// Returns whether a text is a tenant's or an endpoint's name: `[a-z0-9][a-z0-9-]{0,62}`.
#[must_use]
pub fn is_name(text: &str) -> bool {
    matches!(text.len(), 1..=63)
        && !text.starts_with('-')
        && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_key() {
        assert!(is_name("echo") && is_name("a") && is_name("4-bit") && is_name(&"a".repeat(63)));
        for wrong in ["", "-a", "A", "a b", "a:b", "a/b", "ä", &"a".repeat(64)] {
            assert!(!is_name(wrong), "{wrong}");
        }
    }
}
