//! `stoke init`: creates a folder with an example endpoint.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;
use stokehold_package::{Kind, name_of};

use crate::failure::usage;
use crate::{Global, kind, output};

/// Create a folder with a working example endpoint, named after the folder
#[derive(Args)]
#[command(after_help = "Examples:\n  stoke init greet\n  stoke init proxy --kind server")]
pub(crate) struct InitArgs {
    /// Folder to create or fill
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Kind of endpoint
    #[arg(long, value_name = "KIND", default_value = "python", value_parser = kind::parser())]
    kind: Kind,
}

/// Name and contents of a file.
type Start = (&'static str, &'static str);

const PYTHON: [Start; 3] = [
    ("stoke.toml", include_str!("init/python/stoke.toml")),
    ("main.py", include_str!("init/python/main.py")),
    ("requirements.txt", include_str!("init/python/requirements.txt")),
];
const COG: [Start; 2] =
    [("cog.yaml", include_str!("init/cog/cog.yaml")), ("predict.py", include_str!("init/cog/predict.py"))];
const RUNPOD: [Start; 2] =
    [("stoke.toml", include_str!("init/runpod/stoke.toml")), ("handler.py", include_str!("init/runpod/handler.py"))];
const SERVER: [Start; 2] =
    [("stoke.toml", include_str!("init/server/stoke.toml")), ("serve.py", include_str!("init/server/serve.py"))];
const COMMAND: [Start; 2] =
    [("stoke.toml", include_str!("init/command/stoke.toml")), ("run.sh", include_str!("init/command/run.sh"))];

fn start(kind: Kind) -> &'static [Start] {
    match kind {
        Kind::Python => &PYTHON,
        Kind::Cog => &COG,
        Kind::Runpod => &RUNPOD,
        Kind::Server => &SERVER,
        Kind::Command => &COMMAND,
    }
}

pub(crate) fn run(global: &Global, args: &InitArgs) -> Result<()> {
    let (name, files) = write(&args.folder, start(args.kind))?;
    let shown = args.folder.display();
    if global.json {
        return output::json(&json!({"folder": args.folder, "endpoint": name, "files": files}));
    }
    for file in &files {
        output::line(format_args!("  {file}"))?;
    }
    output::line(format_args!("try it     stoke run {shown} --input '{{\"name\": \"world\"}}'"))?;
    output::line(format_args!("deploy it  stoke deploy {shown}"))
}

/// The name of the endpoint in the templates, which is replaced by the one of the folder.
const NAME: &str = "name = \"greet\"";

/// Writes the files, with an endpoint that is named after the folder. Existing files are never changed. Returns the
/// name of the endpoint, and the names of the files.
fn write(folder: &Path, files: &[Start]) -> Result<(String, Vec<&'static str>)> {
    if let Some((name, _)) = files.iter().find(|(name, _)| folder.join(name).exists()) {
        usage!("{} already exists; choose another folder", folder.join(name).display());
    }
    let create = || format!("cannot create {}", folder.display());
    fs::create_dir_all(folder).with_context(create)?;
    // The folder may be given as `.`, which is no name.
    let whole = folder.canonicalize().with_context(create)?;
    let endpoint = name_of(&whole.file_name().unwrap_or_default().to_string_lossy());
    for (name, text) in files {
        let path = folder.join(name);
        let written = fs::File::create_new(&path).and_then(|mut file| {
            file.write_all(text.replace(NAME, &format!("name = \"{endpoint}\"")).as_bytes())?;
            make_executable(&file, text)
        });
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok((endpoint, files.iter().map(|(name, _)| *name).collect()))
}

/// Makes a file executable if it begins with `#!`.
fn make_executable(file: &fs::File, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if !text.starts_with("#!") {
        return Ok(());
    }
    let mode = file.metadata()?.permissions().mode();
    file.set_permissions(fs::Permissions::from_mode(mode | 0o111))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_endpoint_is_named_after_its_folder() {
        let parent = tempfile::tempdir().unwrap();
        for (folder, expected) in [("hello", "hello"), ("My_Model v2", "my-model-v2")] {
            for kind in [Kind::Python, Kind::Runpod, Kind::Server, Kind::Command] {
                let folder = parent.path().join(format!("{kind}")).join(folder);
                let (name, files) = write(&folder, start(kind)).unwrap();
                assert_eq!((name.as_str(), files.contains(&"stoke.toml")), (expected, true), "{kind}");
                let written = fs::read_to_string(folder.join("stoke.toml")).unwrap();
                assert!(written.contains(&format!("name = \"{expected}\"\n")), "{kind}: {written}");
                assert!(write(&folder, start(kind)).is_err(), "existing files stay");
            }
        }
    }
}
