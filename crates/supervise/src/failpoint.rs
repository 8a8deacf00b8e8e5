//! Panics that a test injects into duties. Only in builds with debug assertions.

use std::convert::Infallible;

#[cfg(debug_assertions)]
pub(crate) use armed::Failpoints;

/// No failpoints, in a build without debug assertions.
#[cfg(not(debug_assertions))]
#[derive(Default)]
pub(crate) struct Failpoints;

#[cfg(not(debug_assertions))]
impl Failpoints {
    pub(crate) fn reach(&self, _duty: &'static str) {}

    pub(crate) async fn armed(&self, _duty: &'static str) {
        std::future::pending().await
    }
}

impl Failpoints {
    /// Panics as soon as a panic is injected into the duty.
    pub(crate) async fn panic_when_armed(&self, duty: &'static str) -> Infallible {
        loop {
            self.armed(duty).await;
            self.reach(duty);
        }
    }
}

#[cfg(debug_assertions)]
mod armed {
    use std::collections::BTreeMap;

    use tokio::sync::watch;

    /// The panics that are left, by duty.
    pub(crate) struct Failpoints(watch::Sender<BTreeMap<String, u32>>);

    impl Default for Failpoints {
        fn default() -> Self {
            Self(watch::Sender::new(BTreeMap::new()))
        }
    }

    impl Failpoints {
        pub(crate) fn inject(&self, duty: &str, panics: u32) {
            self.0.send_modify(|left| {
                left.insert(duty.to_owned(), panics);
            });
        }

        /// Panics if a panic is left.
        pub(crate) fn reach(&self, duty: &'static str) {
            let is_taken = self.0.send_if_modified(|left| match left.get_mut(duty) {
                Some(panics) if *panics > 0 => {
                    *panics -= 1;
                    true
                }
                _ => false,
            });
            assert!(!is_taken, "injected into duty.{duty}");
        }

        /// Waits until a panic is left.
        pub(crate) async fn armed(&self, duty: &'static str) {
            let is_armed = |left: &BTreeMap<String, u32>| left.get(duty).is_some_and(|panics| *panics > 0);
            // The sender is part of `self`.
            let _ = self.0.subscribe().wait_for(is_armed).await;
        }
    }
}
