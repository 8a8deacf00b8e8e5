//! A trace and the settings of its simulation.

use std::path::Path;

use super::offers::Kind;
use super::rules::Rules;
use super::trace::{self, Job};

/// Settings of the simulation of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Settings {
    /// Length of the periods that are overlaid, seconds: see [`super::trace::fold`].
    pub fold_s: Option<f64>,
    /// Length of the initial part whose jobs the wait figures exclude, seconds.
    pub skip_s: f64,
    /// Maximum memory of the jobs that share a GPU, GB; `None`: one job at a time has a GPU.
    pub share_gb: Option<f64>,
    /// Jobs that one loaded model runs at once; `None`: 1.
    pub max_concurrency: Option<u32>,
}

/// A trace and the settings of its simulation.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name in tables.
    pub name: String,
    /// Jobs, in order of arrival.
    pub jobs: Vec<Job>,
    /// Settings of the simulation.
    pub settings: Settings,
}

impl Case {
    /// Creates a case from jobs. Their periods are overlaid if the settings require it.
    #[must_use]
    pub fn new(name: String, jobs: Vec<Job>, settings: Settings) -> Self {
        let jobs = match settings.fold_s {
            Some(period_s) => trace::fold(jobs, period_s),
            None => jobs,
        };
        Self { name, jobs, settings }
    }

    /// Reads a trace from a file.
    ///
    /// # Errors
    /// [`trace::Error`] with the position in the file.
    pub fn read(path: &Path, settings: Settings) -> Result<Self, trace::Error> {
        let jobs = trace::read(path)?;
        let stem = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let stem = stem.split('.').next().unwrap_or_default().to_owned();
        Ok(Self::new(stem, jobs, settings))
    }

    /// Rules of the simulation, with the settings of this case.
    #[must_use]
    pub fn rules(&self, rules: &Rules) -> Rules {
        let Settings { skip_s, share_gb, max_concurrency, .. } = self.settings;
        Rules { skip_s, share_gb, max_concurrency: max_concurrency.unwrap_or(1).max(1), ..rules.clone() }
    }

    /// The first endpoint that none of these kinds of machine can hold, and its memory, GB.
    #[must_use]
    pub fn too_large(&self, kinds: &[Kind]) -> Option<(String, f64)> {
        let most_gb = kinds.iter().filter(|kind| kind.max_count > 0).map(|kind| kind.vram_gb).fold(0.0, f64::max);
        let most_gb = self.settings.share_gb.map_or(most_gb, |share_gb| share_gb.min(most_gb));
        let found = self.jobs.iter().find(|job| job.vram_gb > most_gb);
        found.map(|job| (job.endpoint.to_string(), job.vram_gb))
    }
}
