//! Sets of traces to compare policies on.

use std::path::{Path, PathBuf};

use stokehold_planner::simulate::{Case, Settings, trace};

use super::generate::Shape;

/// A day, seconds. Image services are also simulated with all their days overlaid.
const DAY_S: f64 = 86_400.0;

/// Synthetic traces of every shape.
#[must_use]
pub fn synthetic(seed: u64) -> Vec<Case> {
    let case = |shape: Shape| Case::new(shape.name().to_owned(), shape.jobs(seed), shape.settings());
    Shape::ALL.into_iter().map(case).collect()
}

/// The traces of jobs in a folder, by name. The prefix of a name selects how it is simulated: with `task`, jobs
/// share GPUs up to 24 GB; with `llm`, the wait figures exclude the first ten minutes, since the trace begins at
/// full load; with `img`, the trace is added twice, the second time with all its days laid over each other. Errors
/// of malformed files are returned separately.
///
/// # Errors
/// The folder cannot be read.
pub fn of_folder(folder: &Path) -> std::io::Result<(Vec<Case>, Vec<trace::Error>)> {
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
        let case = match Case::read(&path, Settings { fold_s: None, skip_s, share_gb, ..Settings::default() }) {
            Ok(case) => case,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        if name.starts_with("img") {
            let settings = Settings { fold_s: Some(DAY_S), ..case.settings };
            let folded = Case::new(format!("{}, one day", case.name), case.jobs.clone(), settings);
            cases.extend([case, folded]);
        } else {
            cases.push(case);
        }
    }
    Ok((cases, errors))
}
