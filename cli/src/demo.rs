//! `stoke demo`: a temporary stack with real models, driven by a program that uses the Python SDK.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use clap::Args;
use stokehold_package::Overlay;
use tokio::process::Command;

use crate::client::{Client, connect_to};
use crate::deploy::Builder;
use crate::dev::stack::{ChildLog, Stack, StackOptions};
use crate::dev::{Durability, WorkerRange};
use crate::signals::StopSignals;
use crate::{Global, logging, output, progress};

/// The program that submits the jobs, and its requirements.
const DRIVER: &str = include_str!("demo/driver.py");
const DRIVER_LOCK: &str = include_str!("demo/requirements.lock");

/// The example endpoints of `sdk/examples`.
const EXAMPLES: [(&str, &[(&str, &str)]); 3] = [
    ("echo", &[("main.py", include_str!("../../sdk/examples/echo/main.py"))]),
    (
        "embed",
        &[
            ("main.py", include_str!("../../sdk/examples/embed/main.py")),
            ("requirements.lock", include_str!("../../sdk/examples/embed/requirements.lock")),
        ],
    ),
    (
        "render",
        &[
            ("main.py", include_str!("../../sdk/examples/render/main.py")),
            ("requirements.lock", include_str!("../../sdk/examples/render/requirements.lock")),
        ],
    ),
];

/// Start a temporary stack, run 12 example jobs, show the results
#[derive(Args)]
#[command(after_help = "Examples:\n  stoke demo\n  stoke demo --stay")]
pub(crate) struct DemoArgs {
    /// Folder for the generated images
    #[arg(long, value_name = "FOLDER", default_value = "demo-output")]
    out: PathBuf,
    /// Keep the stack running afterwards until Ctrl-C, e.g. to look at the dashboard
    #[arg(long)]
    stay: bool,
}

pub(crate) async fn run(global: &Global, args: DemoArgs) -> Result<()> {
    fs::create_dir_all(&args.out).with_context(|| format!("cannot create {}", args.out.display()))?;
    let folder = tempfile::Builder::new().prefix("stokehold-demo-").tempdir()?;
    let log = folder.path().join("demo.log");
    let log_file = File::create(&log)?;
    logging::to_file(log_file.try_clone()?);
    let mut stop = StopSignals::new()?;
    let mut stack = tokio::select! {
        done = Box::pin(show(global, &args, folder.path(), log_file)) => done.map_err(|error| with_log(error, &log))?,
        () = stop.recv() => anyhow::bail!("stopped before the demo finished"),
    };
    let ended =
        if args.stay { stay(&mut stack, &mut stop).await.map_err(|error| with_log(error, &log)) } else { Ok(()) };
    stack.stop(std::future::pending()).await;
    ended
}

/// Waits for Ctrl-C or for the failure of a part.
async fn stay(stack: &mut Stack, stop: &mut StopSignals) -> Result<()> {
    // The first link may have been used or have expired.
    if let Some(link) = stack.dashboard().await? {
        output::note(format!("{} {link}", output::bold("dashboard")));
    }
    output::note(output::dim("The stack keeps running until Ctrl-C."));
    tokio::select! {
        broken = stack.supervise() => Err(broken),
        () = stop.recv() => Ok(()),
    }
}

/// Starts the stack and runs the demo on it. Stops the stack if the demo fails.
async fn show(global: &Global, args: &DemoArgs, folder: &Path, log: File) -> Result<Stack> {
    let say = |text: String| {
        if !global.json {
            output::note(text);
        }
    };
    let mut stack = start(folder, log).await?;
    say(format!("{} {}", output::bold("started "), output::dim(format_args!("{}, {}", stack.url, stack.about.redis))));
    if let Some(link) = stack.dashboard().await? {
        let lasts = if args.stay { "" } else { " (until the demo ends; DEMO_STAY=1 keeps it running)" };
        say(format!("{} {link}{}", output::bold("dashboard"), output::dim(lasts)));
    }

    let (url, token) = (stack.url.clone(), stack.token.clone());
    let work = async {
        let client = connect_to(url.clone(), token.clone())?;
        let builder = Builder::open().await?;
        deploy_examples(&client, &builder, folder, say).await?;
        let environment = builder.environment("environment of the SDK", DRIVER_LOCK, "").await?;
        let driver = folder.join("driver.py");
        fs::write(&driver, DRIVER)?;
        let mut command = Command::new(&environment.python);
        command.arg(&driver).arg(&args.out).args(global.json.then_some("--json"));
        command.env("STOKE_URL", &url).env("STOKE_TOKEN", &token).env_remove("PYTHONPATH");
        let status =
            command.stdin(Stdio::null()).kill_on_drop(true).status().await.context("cannot run the demo program")?;
        ensure!(status.success(), "the demo program failed ({status})");
        anyhow::Ok(())
    };
    let done = tokio::select! {
        done = work => done,
        broken = stack.supervise() => Err(broken),
    };
    match done {
        Ok(()) => Ok(stack),
        Err(error) => {
            stack.stop(std::future::pending()).await;
            Err(error)
        }
    }
}

/// Starts a stack with its data in `folder`.
pub(crate) async fn start(folder: &Path, log: File) -> Result<Stack> {
    let bar = progress::spinner("starting Redis, the object store, the API and a worker");
    let options = StackOptions {
        data: folder.join("data"),
        listen: ([127, 0, 0, 1], 0).into(),
        redis: None,
        s3: None,
        durability: Durability::Strict,
        ephemeral: false,
        workers: WorkerRange::ONE,
        fake_vast: None,
        slots: None,
        child_log: ChildLog::File(log),
    };
    let stack = Box::pin(Stack::start(options)).await?;
    bar.finish_and_clear();
    Ok(stack)
}

/// Deploys the examples.
pub(crate) async fn deploy_examples(
    client: &Client,
    builder: &Builder,
    folder: &Path,
    say: impl Fn(String),
) -> Result<()> {
    for (name, files) in EXAMPLES {
        let example = folder.join("examples").join(name);
        fs::create_dir_all(&example)?;
        for (file, text) in files {
            fs::write(example.join(file), text)?;
        }
        let path = example.to_string_lossy();
        let deployed = Box::pin(builder.deploy(client, &path, Overlay::default(), 100)).await?;
        say(format!("{} {}", output::bold("deployed"), deployed.name()));
    }
    Ok(())
}

/// Adds the last lines of the stack's log to an error.
pub(crate) fn with_log(error: anyhow::Error, log: &Path) -> anyhow::Error {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(15)..].join("\n");
    if last.is_empty() { error } else { anyhow::anyhow!("{error:#}\nLast log lines of the stack:\n{last}") }
}
