//! `cog.yaml`: the manifest of a Cog model. Members about building an image are ignored.

use std::path::Path;

use serde::Deserialize;

use crate::error::Error;
use crate::files::read_if_there;
use crate::requirements::Declared;

/// File name.
pub(crate) const FILE: &str = "cog.yaml";

/// GPU memory if the model needs a GPU without saying how much, GiB.
pub(crate) const VRAM_GIB_ASSUMED: f64 = 16.0;

/// The members that are used; see https://cog.run/yaml.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct CogYaml {
    #[serde(default)]
    build: Build,
    /// `predict.py:Predictor`; newer versions call it `run`.
    predict: Option<String>,
    run: Option<String>,
    #[serde(default)]
    concurrency: Concurrency,
}

#[derive(Debug, Default, Deserialize)]
struct Build {
    #[serde(default)]
    gpu: bool,
    #[serde(default)]
    python_version: Option<PythonVersion>,
    #[serde(default)]
    python_packages: Vec<String>,
    python_requirements: Option<String>,
    #[serde(default)]
    system_packages: Vec<String>,
    /// Commands of the image build: strings, or tables with mounts.
    #[serde(default)]
    run: Vec<serde::de::IgnoredAny>,
}

/// A version. Without quotes, YAML reads 3.10 as a number.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum PythonVersion {
    Text(String),
    Number(f64),
}

#[derive(Debug, Default, Deserialize)]
struct Concurrency {
    max: Option<u32>,
}

impl CogYaml {
    /// Reads the file of a folder, if it exists.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, Error> {
        let path = folder.join(FILE);
        read_if_there(&path, Self::parse)
    }

    fn parse(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    }

    /// `predict.py:Predictor`.
    pub(crate) fn handler(&self) -> Result<&str, Error> {
        let named = self.predict.as_deref().or(self.run.as_deref());
        let missing = || Error::invalid(format!("{FILE} has no predictor: add predict: \"predict.py:Predictor\""));
        named.ok_or_else(missing)
    }

    /// Python version without patch level, e.g. `3.11`.
    pub(crate) fn python(&self) -> Option<String> {
        let text = match self.build.python_version.as_ref()? {
            PythonVersion::Text(text) => text.clone(),
            // YAML reads an unquoted 3.10 as 3.1.
            PythonVersion::Number(number) if (number - 3.1).abs() < 1e-9 => "3.10".to_owned(),
            PythonVersion::Number(number) => number.to_string(),
        };
        Some(text.split('.').take(2).collect::<Vec<_>>().join("."))
    }

    /// Requirements: those of a file, then the listed packages.
    pub(crate) fn requirements(&self) -> Vec<Declared> {
        let file = self.build.python_requirements.as_ref().map(|name| Declared::File(name.into()));
        let lines =
            (!self.build.python_packages.is_empty()).then(|| Declared::Lines(self.build.python_packages.clone()));
        file.into_iter().chain(lines).collect()
    }

    pub(crate) fn needs_gpu(&self) -> bool {
        self.build.gpu
    }

    pub(crate) fn max_concurrency(&self) -> Option<u32> {
        self.concurrency.max
    }

    /// Notes about members that are ignored.
    pub(crate) fn left_out(&self) -> Vec<String> {
        let mut said = Vec::new();
        if !self.build.system_packages.is_empty() {
            let packages = self.build.system_packages.join(", ");
            said.push(format!("{FILE} needs system packages, which must be installed on the workers: {packages}"));
        }
        if !self.build.run.is_empty() {
            said.push(format!("{FILE} has build.run commands, which are ignored because no image is built"));
        }
        said
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_a_model_needs_is_read_and_what_is_not_done_is_said() {
        let cog = CogYaml::parse(
            "build:\n  gpu: true\n  cuda: \"12.1\"\n  python_version: \"3.11.4\"\n  python_requirements: requirements.txt\n  python_packages:\n    - numpy==1.26.4\n  \
             system_packages:\n    - ffmpeg\n  run:\n    - echo built\n    - command: make\n      mounts: []\npredict: \"predict.py:Predictor\"\nconcurrency:\n  max: 8\nimage: r8.im/a/b\n",
        )
        .unwrap();
        assert_eq!(
            (cog.handler().unwrap(), cog.python().as_deref(), cog.needs_gpu()),
            ("predict.py:Predictor", Some("3.11"), true)
        );
        assert_eq!(cog.max_concurrency(), Some(8));
        let lines = Declared::Lines(vec!["numpy==1.26.4".to_owned()]);
        assert_eq!(cog.requirements(), [Declared::File("requirements.txt".into()), lines]);
        assert_eq!(cog.left_out().len(), 2);
    }

    #[test]
    fn the_smallest_file_and_a_bare_number_will_do() {
        let cog = CogYaml::parse("build:\n  python_version: 3.9\nrun: run.py\n").unwrap();
        assert_eq!((cog.handler().unwrap(), cog.python().as_deref(), cog.needs_gpu()), ("run.py", Some("3.9"), false));
        assert!(
            CogYaml::parse("build: {}\n").unwrap().handler().unwrap_err().to_string().contains("predict.py:Predictor")
        );
        assert!(CogYaml::parse("build: [\n").is_err());
    }
}
