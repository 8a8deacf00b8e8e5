//! What is to be ready before there is a job for it: models that stay loaded, and environments of models whose jobs wait.

use std::sync::atomic::Ordering;

use stokehold_queue::gateway::{ModelRef, Secrets};
use stokehold_queue::job::JobError;

use super::{NotReady, Pool};

impl Pool {
    /// From now on these stay loaded, jobs or not, and no others.
    pub(crate) fn keep(&self, models: &[ModelRef]) {
        for endpoint in self.known_endpoints() {
            endpoint.kept.store(models.contains(&endpoint.named()), Ordering::SeqCst);
        }
    }

    /// Loads a model that is to stay loaded, if there is room for it now.
    pub(crate) async fn load(&self, which: &ModelRef) -> Result<(), JobError> {
        let endpoint = self.endpoint(which).await?;
        endpoint.kept.store(true, Ordering::SeqCst);
        if endpoint.models().iter().any(|model| model.is_loaded()) {
            return Ok(());
        }
        match self.ready(&endpoint.model(), None, None).await {
            Ok(_) | Err(NotReady::NoRoom | NotReady::Closed) => Ok(()),
            Err(NotReady::Job(error) | NotReady::Outgrown(error, _)) => Err(error),
        }
    }

    /// Fetches a model's environment and package, so that only the model itself is left to load once it has room.
    pub(crate) async fn fetch_ahead(&self, which: &ModelRef) -> Result<(), JobError> {
        let endpoint = self.endpoint(which).await?;
        if endpoint.models().is_empty() && !endpoint.is_fetched.load(Ordering::SeqCst) {
            // Without secrets: those are for whoever has a job of it.
            self.fetch(&endpoint, Secrets::default(), None).await?;
            endpoint.is_fetched.store(true, Ordering::SeqCst);
        }
        Ok(())
    }
}
