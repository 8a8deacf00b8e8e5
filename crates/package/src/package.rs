//! Reads the source of an endpoint, a folder or a file: its kind, handler and requirements.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::cog::{self, CogYaml};
use crate::error::{Error, Step, invalid, require};
use crate::kind::Kind;
use crate::manifest::{self, Manifest, Overlay, WeightSource};
use crate::requirements::{self, Declared, Requirements};
use crate::weights::{self, Host, Pinned};
use crate::{archive, describe};

/// The source of an endpoint.
#[derive(Debug)]
pub struct Package {
    /// The folder or file to pack.
    pub source: PathBuf,
    /// Kind of endpoint.
    pub kind: Kind,
    /// Name of the endpoint; `None` uses the name of the handler or the folder.
    pub name: Option<String>,
    /// Python version, e.g. `3.11`.
    pub python: Option<String>,
    /// Whether another Python may be used if this version is not available.
    pub is_python_optional: bool,
    /// Declared weights.
    pub weights: Vec<WeightSource>,
    /// Notes for the author.
    pub notes: Vec<String>,
    /// Python handler to describe: a folder, a `.py` file, or `file.py:object`; `None` for other kinds.
    pub(crate) target: Option<String>,
    /// Members of the deploy request that override the handler's description.
    pub(crate) members: Map<String, Value>,
    requirements: Vec<Declared>,
    allow_pickle: bool,
}

impl Package {
    /// Opens a folder, a `.py` file or `file.py:object`. `overlay` overrides the folder's files.
    ///
    /// # Errors
    /// If the target does not exist, or `stoke.toml`, `cog.yaml` or a schema is wrong.
    pub fn open(target: &str, overlay: Overlay) -> Result<Self, Error> {
        let (path, object) = parted(target);
        require!(Path::new(path).exists(), "{path} does not exist; pass a folder or a .py file");
        let source = std::fs::canonicalize(path).step(|| format!("cannot find {path}"))?;
        let folder = if source.is_dir() { source.clone() } else { parent(&source) };
        // A file is deployed alone, without the files next to it.
        let file = if source.is_dir() { Manifest::read(&folder)?.unwrap_or_default() } else { Manifest::default() };
        let cog = if source.is_dir() { CogYaml::read(&folder)? } else { None };
        let kind = overlay.manifest.kind.or(file.kind).unwrap_or(match (&cog, &file.handler) {
            (Some(_), None) => Kind::Cog,
            _ => Kind::Python,
        });
        let cog = cog.filter(|_| kind == Kind::Cog);
        let mut manifest = overlay.manifest.over(file);
        let asked = handler(kind, &manifest, cog.as_ref(), &source, target, object)?;

        let mut members = manifest.members()?;
        members.insert("runner".to_owned(), manifest.runner(kind)?);
        let mut notes: Vec<String> =
            manifest.env.keys().filter(|name| sounds_secret(name)).map(|name| shown_to_all(name)).collect();
        if let Some(cog) = &cog {
            notes.extend(cog.left_out());
            if let Some(max) = cog.max_concurrency() {
                members.entry("max_concurrency").or_insert(json!(max));
            }
            if cog.needs_gpu() && !members.contains_key("vram_gib") {
                let assumed = cog::VRAM_GIB_ASSUMED;
                members.insert("vram_gib".to_owned(), json!(assumed));
                notes.push(format!(
                    "{} needs a GPU but has no memory size: assuming {assumed} GiB until it has run; set vram_gib, e.g. with --vram-gib",
                    cog::FILE
                ));
            }
        }
        if matches!(kind, Kind::Cog | Kind::Runpod) && !members.contains_key("network") {
            notes.push(format!(
                "a {kind} endpoint has no network, not even for weights; enable it with network = true or --network"
            ));
        }
        for (member, file) in [("input_schema", &manifest.input_schema), ("output_schema", &manifest.output_schema)] {
            if let Some(file) = file {
                members.insert(member.to_owned(), read_schema(&folder.join(file))?);
            }
        }
        let python = overlay.python.or_else(|| manifest.python.take().map(|version| version.0));
        Ok(Self {
            is_python_optional: python.is_none(),
            python: python.or(cog.as_ref().and_then(CogYaml::python)),
            requirements: match (manifest.requirements, &cog) {
                (Some(named), _) => vec![named],
                (None, Some(cog)) => cog.requirements(),
                (None, None) => requirements::usual(&folder),
            },
            name: manifest.name,
            weights: manifest.weights.unwrap_or_default(),
            allow_pickle: manifest.allow_pickle.unwrap_or(false),
            target: asked,
            members,
            notes,
            source,
            kind,
        })
    }

    /// Name for display.
    #[must_use]
    pub fn shown(&self) -> String {
        self.source.file_name().unwrap_or(self.source.as_os_str()).to_string_lossy().into_owned()
    }

    /// Base folder of relative paths.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        if self.source.is_dir() { self.source.clone() } else { parent(&self.source) }
    }

    /// The requirements of its environment.
    ///
    /// # Errors
    /// If a requirements file cannot be read.
    pub fn requirements(&self) -> Result<Requirements, Error> {
        requirements::read(&self.requirements, self.kind, &self.folder())
    }

    /// The arguments of the Python that describes the handler; `None` for a program, which has
    /// [`Package::description_of_program`].
    #[must_use]
    pub fn describe_arguments(&self) -> Option<Vec<String>> {
        self.target.as_deref().map(|target| describe::arguments(self.kind, target))
    }

    /// Name of the handler for messages.
    #[must_use]
    pub fn handler(&self) -> &str {
        self.target.as_deref().unwrap_or_default()
    }

    /// Parses what Python printed about the handler. `ended` is its exit status as text.
    ///
    /// # Errors
    /// If the handler cannot be imported or described.
    pub fn parse_description(&self, stdout: &[u8], stderr: &[u8], ended: &str) -> Result<Value, Error> {
        describe::parse(self.handler(), stdout, stderr, ended)
    }

    /// The description of a program, which has no Python handler.
    #[must_use]
    pub fn description_of_program() -> Value {
        describe::of_program()
    }

    /// Packs the folder or file into `archive`, without `weights`, which are uploaded separately.
    ///
    /// # Errors
    /// If a file cannot be packed, or the folder is too large.
    pub fn pack(&self, weights: &[Pinned], archive: &std::fs::File) -> Result<archive::Archive, Error> {
        let left_out: Vec<_> = weights.iter().filter_map(|one| one.file.clone()).collect();
        archive::pack(&self.source, &left_out, archive)
    }

    /// The sources in buckets that are not pinned yet. [`Package::pin`] needs a presigned URL for each.
    ///
    /// # Errors
    /// If a source or `weights.lock` is wrong.
    pub fn sources_to_sign(&self) -> Result<Vec<&str>, Error> {
        weights::sources_to_sign(&self.weights, &self.folder())
    }

    /// Returns all files of the declared weights. Files that are not in `weights.lock` are resolved now and added to
    /// it. `signed` has the presigned URL of each source in a bucket.
    ///
    /// # Errors
    /// If a source is wrong, cannot be reached, or does not have its declared hash.
    pub fn pin(&self, host: &dyn Host, signed: &BTreeMap<String, String>) -> Result<Vec<Pinned>, Error> {
        weights::pin(&self.weights, &self.folder(), host, signed)
    }

    /// A warning if there are pickles, which workers would refuse.
    #[must_use]
    pub fn pickle_note(&self, weights: &[Pinned]) -> Option<String> {
        if self.allow_pickle { None } else { weights::pickles_among(weights) }
    }
}

/// The Python handler to describe.
fn handler(
    kind: Kind,
    manifest: &Manifest,
    cog: Option<&CogYaml>,
    source: &Path,
    target: &str,
    object: Option<&str>,
) -> Result<Option<String>, Error> {
    let (path, handler) = (parted(target).0, manifest.handler.as_deref());
    Ok(match kind {
        Kind::Python => Some(in_folder(source, handler).unwrap_or_else(|| target.to_owned())),
        Kind::Cog => {
            let named = match (handler, cog) {
                (Some(handler), _) => Some(handler.to_owned()),
                (None, Some(cog)) => Some(cog.handler()?.to_owned()),
                (None, None) => object.map(|_| target.to_owned()),
            };
            let Some(named) = named else {
                invalid!("{path} has no {}; set the predictor with --handler predict.py:Predictor", cog::FILE)
            };
            Some(in_folder(source, Some(&named)).unwrap_or(named))
        }
        Kind::Runpod if source.is_file() => Some(path.to_owned()),
        Kind::Runpod => {
            let Some(handler) = handler else {
                invalid!("no script given for {path}; set handler in {}, or --handler handler.py", manifest::FILE)
            };
            in_folder(source, Some(handler))
        }
        Kind::Server | Kind::Command => None,
    })
}

fn sounds_secret(variable: &str) -> bool {
    let variable = variable.to_ascii_uppercase();
    ["TOKEN", "SECRET", "PASSWORD", "API_KEY", "PRIVATE_KEY"].iter().any(|part| variable.contains(part))
}

fn shown_to_all(variable: &str) -> String {
    format!(
        "{variable} in [env] is visible to everyone who can list the endpoint; to hide it, use `stoke secret set {variable}` and secrets = [\"{variable}\"]"
    )
}

/// Splits a target into path and object. An existing path may contain a colon.
pub(crate) fn parted(target: &str) -> (&str, Option<&str>) {
    if Path::new(target).exists() {
        return (target, None);
    }
    target.split_once(':').map_or((target, None), |(path, object)| (path, Some(object)))
}

fn parent(file: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("/")).to_owned()
}

/// The full path of a handler that is relative to the folder.
fn in_folder(source: &Path, handler: Option<&str>) -> Option<String> {
    source.is_dir().then_some(())?;
    Some(source.join(handler?).to_string_lossy().into_owned())
}

fn read_schema(path: &Path) -> Result<Value, Error> {
    let text = std::fs::read_to_string(path).reading(path)?;
    serde_json::from_str(&text).step(|| format!("{} is not valid JSON", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;

    use super::*;
    use crate::Unlocked;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    /// Opens a folder with these options.
    fn open(folder: &tempfile::TempDir, options: Value) -> Result<Package, Error> {
        Package::open(&folder.path().to_string_lossy(), Overlay::parse(options).unwrap())
    }

    #[test]
    fn a_folder_with_a_cog_yaml_needs_no_other_file() {
        let cog = "build:\n  gpu: true\n  python_version: \"3.12\"\n  python_packages: [\"pillow\"]\npredict: \"predict.py:Predictor\"\n";
        let folder = folder(&[("cog.yaml", cog), ("predict.py", "")]);
        let package = open(&folder, json!({})).unwrap();
        assert_eq!(
            (package.kind, package.python.as_deref(), package.is_python_optional),
            (Kind::Cog, Some("3.12"), true)
        );
        assert!(package.target.as_deref().unwrap().ends_with("/predict.py:Predictor"));
        let lines = vec!["pillow".to_owned(), "cog>=0.17".to_owned()];
        let unlocked = Unlocked { files: vec![], lines };
        assert_eq!(package.requirements().unwrap(), Requirements::Unlocked(unlocked));
        assert_eq!(package.members["vram_gib"], 16.0);
        assert_eq!(package.notes.len(), 2);
        assert_eq!(open(&folder, json!({"vram_gib": 4})).unwrap().members["vram_gib"], 4.0);
    }

    #[test]
    fn a_variable_that_sounds_secret_is_not_taken_without_a_word() {
        let folder = folder(&[("main.py", ""), ("stoke.toml", "[env]\nHF_TOKEN = \"x\"\nMODE = \"fast\"\n")]);
        let notes = open(&folder, json!({})).unwrap().notes;
        assert!(notes.len() == 1 && notes[0].contains("stoke secret set HF_TOKEN"), "{notes:?}");
    }

    #[test]
    fn a_runpod_script_is_named() {
        let folder = folder(&[("handler.py", ""), ("requirements.txt", "RunPod == 1.7.9\n")]);
        let error = open(&folder, json!({"kind": "runpod"})).err().unwrap().to_string();
        assert!(error.contains("--handler handler.py"), "{error}");
        let package = open(&folder, json!({"kind": "runpod", "handler": "handler.py"})).unwrap();
        let Requirements::Unlocked(unlocked) = package.requirements().unwrap() else { panic!("they are locked") };
        assert_eq!((unlocked.files.len(), unlocked.lines.len()), (1, 0), "it names its own version");
        assert_eq!(package.members["runner"], json!({"kind": "runpod"}));
    }

    #[test]
    fn the_file_overrules_the_handler_and_the_command_line_both() {
        let toml = "name = \"mine\"\nhandler = \"main.py:f\"\nvram_gib = 8\nmin_cuda = \"12.0\"\ntimeout_s = 60\n";
        let folder = folder(&[("stoke.toml", toml), ("main.py", ""), ("requirements.lock", "six==1.17.0\n")]);
        let package = open(&folder, json!({"name": "yours", "vram_gib": 4, "env": null})).unwrap();
        assert_eq!(package.requirements().unwrap(), Requirements::Locked("six==1.17.0\n".to_owned()));
        let described = json!({
            "name": "theirs", "kind": "python", "entry": "main.py:f", "input_schema": {}, "output_schema": {},
            "options": {"vram_gib": 2.0, "timeout_s": 10, "max_attempts": 5, "demands": {"gpus": 2, "min_cuda": "11.0"}},
        });
        let body = package.version(described).unwrap();
        assert_eq!(
            Value::Object(body),
            json!({
                "name": "yours", "entry": "main.py:f", "input_schema": {}, "output_schema": {}, "vram_gib": 4.0, "timeout_s": 60,
                "max_attempts": 5, "demands": {"gpus": 2, "min_cuda": "12.0"}, "runner": {"kind": "python"},
            })
        );
    }

    #[test]
    fn a_handler_may_lie_deeper_in_the_folder() {
        let folder = folder(&[("stoke.toml", "handler = \"src/main.py:f\"\n")]);
        fs::create_dir(folder.path().join("src")).unwrap();
        fs::write(folder.path().join("src/main.py"), "").unwrap();
        let package = open(&folder, json!({})).unwrap();
        assert_eq!(package.version(json!({"entry": "main.py:f"})).unwrap()["entry"], "src/main.py:f");
    }
}
