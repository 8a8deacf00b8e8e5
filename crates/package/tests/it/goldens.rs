//! Goldens in `tests/goldens`, one per kind of endpoint. The tests of the Python SDK compare its requests with the same
//! files. `BLESS=1` rewrites everything that follows from `description` and `lock`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stokehold_package::{
    BoxError, Description, Error, Host, Overlay, Package, Request, Requirements, Response, forget_pins,
};

/// A host without a network.
pub(crate) struct Offline;

impl Host for Offline {
    fn send(&self, request: &Request<'_>) -> Result<Response, BoxError> {
        Err(format!("no connection to {}", request.url).into())
    }

    fn note(&self, _: &str) {}

    fn hashing(&self, _: &str, _: u64, _: u64) -> Result<(), Error> {
        Ok(())
    }
}

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The result of a deploy of `folder` with this description and lock.
fn deployed(folder: &Path, golden: &Value) -> Value {
    let package = Package::open(&folder.to_string_lossy(), Overlay::default()).unwrap();
    let in_folder = |text: String| text.replace(&*package.folder().to_string_lossy(), "FOLDER");
    let arguments = |arguments: Vec<String>| arguments.into_iter().map(in_folder).collect::<Vec<_>>();
    let uv_arguments = match package.requirements().unwrap() {
        Requirements::Locked(_) => None,
        Requirements::Unlocked(unlocked) => {
            let lines_file = unlocked.lines_file().map(|_| Path::new("LINES"));
            let python = package.python.as_deref().unwrap_or_default();
            let given = unlocked.uv_arguments(python, lines_file);
            Some(arguments(given.into_iter().map(|one| one.into_string().unwrap()).collect()))
        }
    };
    let weights = package.pin(&Offline, &BTreeMap::new()).unwrap();
    let archive = package.pack(&weights, &tempfile::tempfile().unwrap()).unwrap();
    let lock = golden["lock"].as_str().unwrap();
    let python = package.python.clone().unwrap_or_else(|| "3.11".to_owned());
    let description = Description { version: golden["description"].clone(), python };
    let request = package.request(&description, lock, &weights, &archive, 100).unwrap();
    json!({
        "description": golden["description"], "lock": lock, "notes": package.notes,
        "describe_arguments": package.describe_arguments().map(arguments), "uv_arguments": uv_arguments,
        "request": request,
    })
}

fn check(name: &str, folder: &Path) {
    let file = here().join("tests/goldens").join(name).with_extension("json");
    let golden: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let found = deployed(folder, &golden);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, format!("{found:#}\n")).unwrap();
    } else {
        assert_eq!(found, golden, "{name}; `make bless` rewrites it");
    }
}

#[test]
fn every_template_of_init() {
    for kind in ["python", "cog", "runpod", "server", "command"] {
        check(kind, &here().join("../../cli/src/init").join(kind));
    }
}

#[test]
fn a_folder_with_weights_variables_and_secrets() {
    check("everything", &here().join("tests/folders/everything"));
}

#[test]
fn weights_that_are_not_pinned_are_requested() {
    let folder = tempfile::tempdir().unwrap();
    let toml =
        "[[weights]]\nsource = \"https://example.org/a.bin\"\nsha256 = \"SHA\"\n".replace("SHA", &"0".repeat(64));
    std::fs::write(folder.path().join("stoke.toml"), toml).unwrap();
    let package = Package::open(&folder.path().to_string_lossy(), Overlay::default()).unwrap();
    let error = package.pin(&Offline, &BTreeMap::new()).unwrap_err().with_causes();
    assert_eq!(error, "weights: cannot download a.bin: no connection to https://example.org/a.bin");
    forget_pins(folder.path()).unwrap();
}
