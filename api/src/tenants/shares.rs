//! Fair shares of a common resource: no tenant can take all of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The same maximum number of shares for each tenant.
#[derive(Debug, Clone)]
pub(crate) struct Shares {
    taken: Arc<Mutex<HashMap<String, usize>>>,
    most: usize,
}

/// One share of a tenant, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    taken: Arc<Mutex<HashMap<String, usize>>>,
    tenant: String,
}

impl Shares {
    /// Creates shares: each tenant may take `most`, but at least one.
    pub(crate) fn new(most: usize) -> Self {
        Self { taken: Arc::default(), most: most.max(1) }
    }

    /// Takes one more share for a tenant; `None` when it has the maximum.
    pub(crate) fn take(&self, tenant: &str) -> Option<Share> {
        let mut taken = lock(&self.taken);
        let its = taken.entry(tenant.to_owned()).or_default();
        if *its >= self.most {
            return None;
        }
        *its += 1;
        Some(Share { taken: self.taken.clone(), tenant: tenant.to_owned() })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        if let Some(its) = taken.get_mut(&self.tenant) {
            *its -= 1;
            if *its == 0 {
                taken.remove(&self.tenant);
            }
        }
    }
}

/// Locks the counts. A poisoned lock is safe to use: no holder leaves them half changed.
fn lock(taken: &Mutex<HashMap<String, usize>>) -> MutexGuard<'_, HashMap<String, usize>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_its_share_and_leaves_the_others_theirs() {
        let shares = Shares::new(2);
        let (first, second) = (shares.take("a").unwrap(), shares.take("a").unwrap());
        assert!(shares.take("a").is_none());
        let other = shares.take("b").unwrap();
        drop(first);
        assert!(shares.take("a").is_some(), "given back");
        drop((second, other));
        assert!(lock(&shares.taken).is_empty(), "who has nothing is not remembered");
    }
}
