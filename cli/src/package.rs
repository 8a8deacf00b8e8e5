//! Reads the source of an endpoint, a folder or a file: its kind, handler and requirements.

mod cog;
mod describe;
mod manifest;
mod pack;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Map, Value, json};

use self::cog::CogYaml;
pub(crate) use self::describe::{Described, describe};
pub(crate) use self::manifest::{Kind, WeightSource, is_sha256};
use self::manifest::{Manifest, Requirements};
pub(crate) use self::pack::pack;

/// Command-line options that override a folder's files.
#[derive(Default, Clone)]
pub(crate) struct Overrides<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) kind: Option<Kind>,
    pub(crate) handler: Option<&'a str>,
    pub(crate) python: Option<&'a str>,
    pub(crate) vram_gib: Option<f64>,
    pub(crate) network: bool,
}

/// The source of an endpoint.
pub(crate) struct Package {
    /// The folder or file to pack.
    pub(crate) source: PathBuf,
    pub(crate) kind: Kind,
    pub(crate) name: Option<String>,
    /// Python handler to describe: a folder, a `.py` file, or `file.py:object`; `None` for other kinds.
    target: Option<String>,
    /// Python version, e.g. `3.11`.
    pub(crate) python: Option<String>,
    /// Whether another Python may be used if this version is not available.
    pub(crate) is_python_a_wish: bool,
    requirements: Vec<Requirements>,
    /// Declared weights.
    pub(crate) weights: Vec<WeightSource>,
    pub(crate) allow_pickle: bool,
    /// Members of the deploy request that override the handler's description.
    members: Map<String, Value>,
    /// Notes for the author.
    pub(crate) notes: Vec<String>,
}

/// The requirements of an environment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// A lock file's text.
    Exact(String),
    /// Requirement files and lines to resolve.
    Loose { files: Vec<PathBuf>, lines: Vec<String> },
}

impl Package {
    /// Opens a folder, a `.py` file or `file.py:object`.
    pub(crate) fn open(target: &str, overrides: &Overrides<'_>) -> Result<Self> {
        let (path, object) = parted(target);
        ensure!(Path::new(path).exists(), "{path} does not exist; pass a folder or a .py file");
        let source = std::fs::canonicalize(path).with_context(|| format!("cannot find {path}"))?;
        let folder = if source.is_dir() { source.clone() } else { parent(&source) };
        // A file is deployed alone, without the files next to it.
        let manifest = if source.is_dir() { Manifest::read(&folder)?.unwrap_or_default() } else { Manifest::default() };
        let cog = if source.is_dir() { CogYaml::read(&folder)? } else { None };
        let kind = overrides.kind.or(manifest.kind).unwrap_or(match (&cog, &manifest.handler) {
            (Some(_), None) => Kind::Cog,
            _ => Kind::Python,
        });
        let cog = cog.filter(|_| kind == Kind::Cog);
        let handler = overrides.handler.or(manifest.handler.as_deref());
        let asked = match kind {
            Kind::Python => Some(in_folder(&source, handler).unwrap_or_else(|| target.to_owned())),
            Kind::Cog => {
                let named = match (handler, &cog) {
                    (Some(handler), _) => Some(handler.to_owned()),
                    (None, Some(cog)) => Some(cog.handler()?.to_owned()),
                    (None, None) => object.map(|_| target.to_owned()),
                };
                let named = named.with_context(|| {
                    format!("{path} has no {}; set the predictor with --handler predict.py:Predictor", cog::FILE)
                })?;
                Some(in_folder(&source, Some(&named)).unwrap_or(named))
            }
            Kind::Runpod if source.is_file() => Some(path.to_owned()),
            Kind::Runpod => {
                let handler = handler.with_context(|| {
                    format!("no script given for {path}; set it with --handler handler.py or in {}", manifest::FILE)
                })?;
                in_folder(&source, Some(handler))
            }
            Kind::Server | Kind::Command => None,
        };
        let mut members = manifest.members()?;
        members.insert("runner".to_owned(), manifest.runner(kind)?);
        let mut notes: Vec<String> =
            manifest.env.keys().filter(|name| sounds_secret(name)).map(|name| shown_to_all(name)).collect();
        if let Some(cog) = &cog {
            notes.extend(cog.left_out());
            if let Some(max) = cog.max_concurrency() {
                members.entry("max_concurrency").or_insert(json!(max));
            }
            if cog.needs_gpu() && overrides.vram_gib.is_none() && !members.contains_key("vram_gib") {
                let assumed = cog::VRAM_GIB_ASSUMED;
                members.insert("vram_gib".to_owned(), json!(assumed));
                notes.push(format!(
                    "{} needs a GPU but has no memory size: assuming {assumed} GiB until it has run; set it with --vram-gib",
                    cog::FILE
                ));
            }
        }
        if let Some(gib) = overrides.vram_gib {
            members.insert("vram_gib".to_owned(), json!(gib));
        }
        if overrides.network {
            members.insert("network".to_owned(), json!(true));
        } else if matches!(kind, Kind::Cog | Kind::Runpod) && !members.contains_key("network") {
            notes.push(format!("a {kind} endpoint has no network, not even for weights; enable it with --network"));
        }
        for (member, file) in [("input_schema", &manifest.input_schema), ("output_schema", &manifest.output_schema)] {
            if let Some(file) = file {
                members.insert(member.to_owned(), read_schema(&folder.join(file))?);
            }
        }
        let python = overrides.python.map(str::to_owned).or(manifest.python.as_ref().map(|version| version.0.clone()));
        let is_python_a_wish = python.is_none();
        let package = Self {
            name: overrides.name.map(str::to_owned).or(manifest.name),
            target: asked,
            python: python.or(cog.as_ref().and_then(CogYaml::python)),
            is_python_a_wish,
            requirements: match (manifest.requirements, &cog) {
                (Some(named), _) => vec![named],
                (None, Some(cog)) => cog.requirements(),
                (None, None) => usual_requirements(&folder),
            },
            weights: manifest.weights,
            allow_pickle: manifest.allow_pickle.unwrap_or(false),
            members,
            notes,
            source,
            kind,
        };
        Ok(package)
    }

    /// Name for display.
    pub(crate) fn shown(&self) -> String {
        self.source.file_name().unwrap_or(self.source.as_os_str()).to_string_lossy().into_owned()
    }

    /// Base folder of relative paths.
    pub(crate) fn folder(&self) -> PathBuf {
        if self.source.is_dir() { self.source.clone() } else { parent(&self.source) }
    }

    /// The requirements of its environment.
    pub(crate) fn lock(&self) -> Result<Lock> {
        let (mut files, mut lines) = (Vec::new(), Vec::new());
        for one in &self.requirements {
            match one {
                Requirements::Lines(given) => lines.extend(given.iter().cloned()),
                Requirements::File(name) => {
                    let path = self.folder().join(name);
                    let text = read(&path)?;
                    if name.extension().is_some_and(|extension| extension == "lock") {
                        return Ok(Lock::Exact(text));
                    }
                    files.push((path, text));
                }
            }
        }
        if let Some(needed) = self.kind.requirement() {
            let package = needed.split(['>', '=']).next().unwrap_or(needed);
            let named = |line: &str| is_requirement_of(line, package);
            if !lines.iter().any(|line| named(line)) && !files.iter().any(|(_, text)| text.lines().any(named)) {
                lines.push(needed.to_owned());
            }
        }
        if files.is_empty() && lines.is_empty() {
            return Ok(Lock::Exact(String::new()));
        }
        Ok(Lock::Loose { files: files.into_iter().map(|(path, _)| path).collect(), lines })
    }

    /// Describes its handler with the Python of its environment.
    pub(crate) async fn describe(&self, python: &Path) -> Result<Described> {
        match &self.target {
            Some(target) => describe(python, self.kind, target).await,
            None => Described::of_program(python).await,
        }
    }

    /// Makes the handler's file relative to the folder. Python reports only the file name.
    fn place(&self, described: &mut Map<String, Value>) {
        let Some(Value::String(entry)) = described.get_mut("entry") else { return };
        let target = self.target.as_deref().map(|target| PathBuf::from(parted(target).0));
        let file = target.and_then(|file| std::fs::canonicalize(file).ok()).filter(|file| file.is_file());
        let inside = file.and_then(|file| Some(file.strip_prefix(self.folder()).ok()?.to_string_lossy().into_owned()));
        if let Some(inside) = inside {
            let object = entry.split_once(':').map(|(_, object)| format!(":{object}")).unwrap_or_default();
            *entry = format!("{inside}{object}");
        }
    }

    /// The members of a deploy request, except the package and the lock.
    pub(crate) fn deploy(&self, described: Value) -> Result<Map<String, Value>> {
        let Value::Object(mut described) = described else { bail!("the handler's description is not an object") };
        let mut body = match described.remove("options") {
            Some(Value::Object(options)) => options,
            _ => Map::new(),
        };
        described.remove("kind");
        self.place(&mut described);
        let own_name = described.remove("name").filter(|name| !name.is_null());
        body.extend(described);
        // Requirements are merged member by member.
        let mut members = self.members.clone();
        if let (Some(Value::Object(theirs)), Some(Value::Object(ours))) =
            (body.get("demands"), members.get_mut("demands"))
        {
            for (name, value) in theirs {
                ours.entry(name.clone()).or_insert(value.clone());
            }
        }
        body.extend(members);
        let name = match (&self.name, own_name) {
            (Some(name), _) => json!(name),
            (None, Some(name)) => name,
            (None, None) => json!(name_of(&self.shown())),
        };
        body.insert("name".to_owned(), name);
        Ok(body)
    }
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
fn parted(target: &str) -> (&str, Option<&str>) {
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

/// `requirements.lock`, else `requirements.txt`.
fn usual_requirements(folder: &Path) -> Vec<Requirements> {
    let usual = ["requirements.lock", "requirements.txt"].into_iter().find(|name| folder.join(name).is_file());
    usual.map(|name| Requirements::File(name.into())).into_iter().collect()
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Reads and parses a file; `None` if it does not exist.
fn read_if_there<T>(path: &Path, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&text).map(Some).map_err(|why| anyhow!("{}: {why}", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn read_schema(path: &Path) -> Result<Value> {
    serde_json::from_str(&read(path)?).with_context(|| format!("{} is not valid JSON", path.display()))
}

/// Whether a line of a requirements file names this package, in any version.
fn is_requirement_of(line: &str, package: &str) -> bool {
    let name = line.trim().split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))).next();
    name.is_some_and(|name| name.eq_ignore_ascii_case(package))
}

/// Derives an endpoint name from the name of a folder or file.
fn name_of(shown: &str) -> String {
    let stem = shown.strip_suffix(".py").unwrap_or(shown).to_ascii_lowercase();
    let parts: Vec<&str> = stem.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty()).collect();
    let name: String = parts.join("-").chars().take(63).collect();
    if name.is_empty() { "endpoint".to_owned() } else { name.trim_end_matches('-').to_owned() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;

    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn open(folder: &tempfile::TempDir, overrides: &Overrides<'_>) -> Result<Package> {
        Package::open(&folder.path().to_string_lossy(), overrides)
    }

    #[test]
    fn a_folder_with_a_cog_yaml_needs_no_other_file() {
        let cog = "build:\n  gpu: true\n  python_version: \"3.12\"\n  python_packages: [\"pillow\"]\npredict: \"predict.py:Predictor\"\n";
        let folder = folder(&[("cog.yaml", cog), ("predict.py", "")]);
        let package = open(&folder, &Overrides::default()).unwrap();
        assert_eq!(
            (package.kind, package.python.as_deref(), package.is_python_a_wish),
            (Kind::Cog, Some("3.12"), true)
        );
        assert!(package.target.as_deref().unwrap().ends_with("/predict.py:Predictor"));
        let lines = vec!["pillow".to_owned(), "cog>=0.17".to_owned()];
        assert_eq!(package.lock().unwrap(), Lock::Loose { files: vec![], lines });
        assert_eq!(package.members["vram_gib"], 16.0);
        assert_eq!(package.notes.len(), 2);
        let smaller = Overrides { vram_gib: Some(4.0), ..Overrides::default() };
        assert_eq!(open(&folder, &smaller).unwrap().members["vram_gib"], 4.0);
    }

    #[test]
    fn a_variable_that_sounds_secret_is_not_taken_without_a_word() {
        let folder = folder(&[("main.py", ""), ("stoke.toml", "[env]\nHF_TOKEN = \"x\"\nMODE = \"fast\"\n")]);
        let notes = open(&folder, &Overrides::default()).unwrap().notes;
        assert!(notes.len() == 1 && notes[0].contains("stoke secret set HF_TOKEN"), "{notes:?}");
    }

    #[test]
    fn a_runpod_script_is_named() {
        let folder = folder(&[("handler.py", ""), ("requirements.txt", "RunPod == 1.7.9\n")]);
        let runpod = Overrides { kind: Some(Kind::Runpod), ..Overrides::default() };
        let error = open(&folder, &runpod).err().unwrap().to_string();
        assert!(error.contains("--handler handler.py"), "{error}");
        let package = open(&folder, &Overrides { handler: Some("handler.py"), ..runpod }).unwrap();
        let Lock::Loose { files, lines } = package.lock().unwrap() else { panic!("it is to be resolved") };
        assert_eq!((files.len(), lines.len()), (1, 0), "it names its own version");
        assert_eq!(package.members["runner"], json!({"kind": "runpod"}));
    }

    #[test]
    fn the_file_overrules_the_handler_and_the_command_line_both() {
        let toml = "name = \"mine\"\nhandler = \"main.py:f\"\nvram_gib = 8\nmin_cuda = \"12.0\"\ntimeout_s = 60\n";
        let folder = folder(&[("stoke.toml", toml), ("main.py", ""), ("requirements.lock", "six==1.17.0\n")]);
        let overrides = Overrides { name: Some("yours"), vram_gib: Some(4.0), ..Overrides::default() };
        let package = open(&folder, &overrides).unwrap();
        assert_eq!(package.lock().unwrap(), Lock::Exact("six==1.17.0\n".to_owned()));
        let described = json!({
            "name": "theirs", "kind": "python", "entry": "main.py:f", "input_schema": {}, "output_schema": {},
            "options": {"vram_gib": 2.0, "timeout_s": 10, "max_attempts": 5, "demands": {"gpus": 2, "min_cuda": "11.0"}},
        });
        let body = package.deploy(described).unwrap();
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
        let package = open(&folder, &Overrides::default()).unwrap();
        assert_eq!(package.deploy(json!({"entry": "main.py:f"})).unwrap()["entry"], "src/main.py:f");
    }

    #[test]
    fn names_come_from_folders() {
        assert_eq!(name_of("My_Model v2"), "my-model-v2");
        assert_eq!(name_of("handler.py"), "handler");
        assert_eq!(name_of("__"), "endpoint");
    }
}
