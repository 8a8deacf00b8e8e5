//! Mutual exclusion by key, within this process.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Turns by key. A key uses memory only while a turn is held or awaited.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<String, Weak<AsyncMutex<()>>>>);

impl Turns {
    /// Waits for the turn of a key; calls `waiting` first if it is taken. Dropping the guard ends the turn.
    pub(crate) async fn take(&self, key: &str, waiting: impl FnOnce()) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock();
            turns.retain(|_, turn| turn.strong_count() > 0);
            let known = turns.get(key).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let new = Arc::new(AsyncMutex::new(()));
                turns.insert(key.to_owned(), Arc::downgrade(&new));
                new
            })
        };
        if let Ok(at_once) = Arc::clone(&turn).try_lock_owned() {
            return at_once;
        }
        waiting();
        turn.lock_owned().await
    }
}
