//! Fuzz target for cursors: an accepted cursor is one that the API can issue, and Redis accepts it.

use stokehold_queue::JobId;

use crate::batches::routes::is_batch_id;
use crate::history::Cursor;
use crate::jobs::events::Seen;
use crate::jobs::routes::{PageStart, is_cursor};
use crate::names;
use crate::time_format;

pub fn check(data: &[u8]) {
    let text = &*String::from_utf8_lossy(data);
    if let Some(cursor) = Cursor::parse(text) {
        assert_eq!(cursor.to_string(), text);
    }
    match PageStart::parse(text) {
        Some(PageStart::Queue(place)) => is_stream_id(&place.unwrap()),
        Some(PageStart::Archive(cursor)) => assert_eq!(cursor.to_string(), text),
        None => assert!(!is_cursor(text)),
    }
    if let Some(seen) = Seen::parse(text) {
        assert_eq!(Seen::parse(&seen.to_string()), Some(seen));
        assert_eq!(Seen::parse(text).unwrap().to_string(), text, "an event's id has one spelling");
    }
    if let Ok(id) = text.parse::<JobId>() {
        assert_eq!(id.to_string(), text);
        assert!(id.created_ms() < 1 << 48);
    }
    if is_batch_id(text) || names::is_file_id(text) || names::is_schedule_id(text) {
        assert!(text.len() < 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
    }
    if names::is_file_name(text) {
        assert!(!text.contains(['/', '\\', '\0', '\n']) && text != "..");
    }
    if let Some(ms) = time_format::parse(text) {
        assert_eq!(time_format::parse(&time_format::rfc3339(ms)), Some(ms));
    }
}

/// Checks that Redis accepts a stream ID: two numbers of 64 bits. Pages are requested "after" and "before" it, which
/// the first and the last possible ID do not have.
fn is_stream_id(text: &str) {
    let (ms, number) = text.split_once('-').unwrap();
    let (ms, number): (u64, u64) = (ms.parse().unwrap(), number.parse().unwrap());
    assert_eq!(format!("{ms}-{number}"), text);
    assert!((ms, number) > (0, 0) && (ms, number) < (u64::MAX, u64::MAX), "Redis has nothing beyond {text}");
}
