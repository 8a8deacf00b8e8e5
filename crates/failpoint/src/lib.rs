//! Failpoints: places between two awaits where a test makes this process exit or stall, named `<what>.<when>`. They
//! exist in debug builds and with the feature `failpoints`, and the environment sets them:
//! `STOKE_FAILPOINTS=finish.after=exit@20,submit.before=sleep:500@3` acts the 20th and the 3rd time. A release build
//! has none of them.
//!
//! The `fail` crate does not fit: its pauses block the thread, and with it all other tasks on it.

/// Does nothing in a release build.
#[cfg(not(any(debug_assertions, feature = "failpoints")))]
#[inline]
pub async fn reach(_place: &'static str) {}

#[cfg(any(debug_assertions, feature = "failpoints"))]
pub use armed::reach;

#[cfg(any(debug_assertions, feature = "failpoints"))]
mod armed {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// The action of a failpoint.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Action {
        /// The process exits without cleanup, like after kill -9.
        Exit,
        /// The task stalls.
        Sleep(Duration),
    }

    struct Point {
        place: String,
        action: Action,
        /// Number of passes before it acts.
        left: AtomicU64,
    }

    static POINTS: LazyLock<Vec<Point>> = LazyLock::new(|| {
        let text = std::env::var("STOKE_FAILPOINTS").unwrap_or_default();
        let points = text.split(',').filter(|point| !point.is_empty());
        points
            .map(|point| parse(point).unwrap_or_else(|| panic!("STOKE_FAILPOINTS: {point:?} is not a failpoint")))
            .collect()
    });

    fn parse(text: &str) -> Option<Point> {
        let (place, what) = text.split_once('=')?;
        let (action, times) = what.split_once('@')?;
        let action = match action.split_once(':') {
            None if action == "exit" => Action::Exit,
            Some(("sleep", ms)) => Action::Sleep(Duration::from_millis(ms.parse().ok()?)),
            _ => return None,
        };
        let left = times.parse::<u64>().ok()?.checked_sub(1)?.into();
        Some(Point { place: place.to_owned(), action, left })
    }

    /// Performs the action of a failpoint if one is set and due.
    pub async fn reach(place: &'static str) {
        for point in POINTS.iter().filter(|point| point.place == place) {
            // The counter wraps around after it acts; the next time is centuries away.
            if point.left.fetch_sub(1, Ordering::Relaxed) == 0 {
                match point.action {
                    // Drops nothing and logs nothing.
                    Action::Exit => std::process::abort(),
                    Action::Sleep(pause) => tokio::time::sleep(pause).await,
                }
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn failpoints_are_read_as_they_are_written() {
            let read = |text: &str| parse(text).map(|point| (point.place, point.action, point.left.into_inner()));
            assert_eq!(read("finish.after=exit@20"), Some(("finish.after".to_owned(), Action::Exit, 19)));
            assert_eq!(read("a=sleep:500@1"), Some(("a".to_owned(), Action::Sleep(Duration::from_millis(500)), 0)));
            for wrong in ["a", "a=exit", "a=exit@0", "a=die@1", "a=sleep@1", "a=sleep:soon@1"] {
                assert!(read(wrong).is_none(), "{wrong}");
            }
        }
    }
}
