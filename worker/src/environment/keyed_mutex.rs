//! Mutual exclusion by key, within this process.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// A mutex per key. A key uses memory only while it is locked or awaited.
#[derive(Default)]
pub(crate) struct KeyedMutex(Mutex<HashMap<String, Weak<AsyncMutex<()>>>>);

impl KeyedMutex {
    /// Locks a key; calls `waiting` first if it is locked. Dropping the guard unlocks it.
    pub(crate) async fn lock(&self, key: &str, waiting: impl FnOnce()) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock();
            locks.retain(|_, lock| lock.strong_count() > 0);
            let known = locks.get(key).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let new = Arc::new(AsyncMutex::new(()));
                locks.insert(key.to_owned(), Arc::downgrade(&new));
                new
            })
        };
        if let Ok(at_once) = Arc::clone(&lock).try_lock_owned() {
            return at_once;
        }
        waiting();
        lock.lock_owned().await
    }
}
