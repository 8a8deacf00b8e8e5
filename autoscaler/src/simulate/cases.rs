//! Traces and how each is meant to be simulated.

use std::path::{Path, PathBuf};

use super::generate::{Settings, Shape};
use super::offers::Kind;
use super::rules::Rules;
use super::trace::{self, Job};

/// A day, seconds: image services are also simulated with all their days laid over each other.
const DAY_S: f64 = 86_400.0;

/// A trace, and how it is simulated.
#[derive(Debug, Clone)]
pub struct Case {
    /// What it is called in tables.
    pub name: String,
    /// Its jobs, in order of arrival.
    pub jobs: Vec<Job>,
    /// How it is simulated.
    pub settings: Settings,
}

impl Case {
    /// A trace from a file. Its periods are laid over each other if the settings say so.
    ///
    /// # Errors
    /// What is wrong with the file, and where.
    pub fn read(path: &Path, settings: Settings) -> Result<Self, trace::Error> {
        let jobs = trace::read(path)?;
        let stem = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let stem = stem.split('.').next().unwrap_or_default().to_owned();
        Ok(Self::new(stem, jobs, settings))
    }

    fn new(name: String, jobs: Vec<Job>, settings: Settings) -> Self {
        let jobs = settings.fold_s.map_or_else(|| jobs.clone(), |period_s| trace::fold(jobs.clone(), period_s));
        Self { name, jobs, settings }
    }

    /// The traces of every shape that can be made up.
    #[must_use]
    pub fn made_up(seed: u64) -> Vec<Self> {
        let made_up = |shape: Shape| Self::new(shape.name().to_owned(), shape.jobs(seed), shape.settings());
        Shape::ALL.into_iter().map(made_up).collect()
    }

    /// The traces of jobs in a folder, by name. The prefix of a name selects how it is simulated: with `task`, jobs
    /// share cards up to 24 GB; with `llm`, the wait figures exclude the first ten minutes, since the trace begins at
    /// full load; with `img`, the trace is added twice, the second time with all its days laid over each other. Errors
    /// of malformed files are returned separately.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn of_folder(folder: &Path) -> std::io::Result<(Vec<Self>, Vec<trace::Error>)> {
        let is_trace = |path: &PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            name.ends_with(".csv.gz") || name.ends_with(".csv")
        };
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
        paths.retain(is_trace);
        paths.sort();
        let (mut cases, mut errors) = (Vec::new(), Vec::new());
        for path in paths {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let share_gb = name.starts_with("task").then_some(24.0);
            let skip_s = if name.starts_with("llm") { 600.0 } else { 0.0 };
            let case = match Self::read(&path, Settings { fold_s: None, skip_s, share_gb }) {
                Ok(case) => case,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };
            if name.starts_with("img") {
                let settings = Settings { fold_s: Some(DAY_S), ..case.settings };
                let folded = Self::new(format!("{}, one day", case.name), case.jobs.clone(), settings);
                cases.extend([case, folded]);
            } else {
                cases.push(case);
            }
        }
        Ok((cases, errors))
    }

    /// The rules of the world for it.
    #[must_use]
    pub fn rules(&self, rules: &Rules) -> Rules {
        Rules { skip_s: self.settings.skip_s, share_gb: self.settings.share_gb, ..rules.clone() }
    }

    /// The first endpoint that none of these kinds of machine can hold, and what it takes, GB.
    #[must_use]
    pub fn too_large(&self, kinds: &[Kind]) -> Option<(String, f64)> {
        let most_gb = kinds.iter().filter(|kind| kind.max_count > 0).map(|kind| kind.vram_gb).fold(0.0, f64::max);
        let most_gb = self.settings.share_gb.map_or(most_gb, |share_gb| share_gb.min(most_gb));
        let found = self.jobs.iter().find(|job| job.vram_gb > most_gb);
        found.map(|job| (job.endpoint.to_string(), job.vram_gb))
    }
}
