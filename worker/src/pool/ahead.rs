//! Prepares models before their jobs arrive: models that stay loaded, and environments of models with waiting jobs.

use std::sync::atomic::Ordering;

use stokehold_protocol::gateway::{ModelRef, Secrets};
use stokehold_protocol::job::JobError;

use super::{NotReady, Pool};

impl Pool {
    /// Sets the models that stay loaded even without jobs.
    pub(crate) fn keep(&self, models: &[ModelRef]) {
        for endpoint in self.known_endpoints() {
            endpoint.kept.store(models.contains(&endpoint.named()), Ordering::SeqCst);
        }
    }

    /// Loads a model that should stay loaded, if there is room.
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

    /// Fetches a model's environment and package, so that only the model itself remains to be loaded.
    pub(crate) async fn fetch_ahead(&self, which: &ModelRef) -> Result<(), JobError> {
        let endpoint = self.endpoint(which).await?;
        if endpoint.models().is_empty() && !endpoint.is_fetched.load(Ordering::SeqCst) {
            // Without secrets, which require a lease of one of its jobs.
            self.fetch(&endpoint, Secrets::default(), None, &|| ()).await?;
            endpoint.is_fetched.store(true, Ordering::SeqCst);
        }
        Ok(())
    }
}
