//! The providers of machines.

pub mod bootstrap;
pub mod kubernetes;
pub mod local;
pub mod owned;
pub mod vast;

use std::sync::Arc;

use crate::provider::Provider;

/// The configured providers.
#[derive(Clone, Default)]
pub struct Providers(Vec<Arc<dyn Provider>>);

impl Providers {
    /// Returns the provider of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&dyn Provider> {
        self.iter().find(|provider| provider.name() == name)
    }

    /// Iterates in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Provider> {
        self.0.iter().map(|provider| &**provider)
    }
}

impl FromIterator<Arc<dyn Provider>> for Providers {
    fn from_iter<I: IntoIterator<Item = Arc<dyn Provider>>>(providers: I) -> Self {
        Self(providers.into_iter().collect())
    }
}
