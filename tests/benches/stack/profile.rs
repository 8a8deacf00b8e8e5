//! `make profile`: the distribution of CPU time of a drain and of a bulk submit, as a flame graph for each process
//! group.
//!
//! `perf` samples the group's processes 997 times per second of CPU time and unwinds with the debug information of
//! release builds. The runner's graph shows the interpreter's functions, not the handler's. Sampling costs about as
//! much as the work: read shares here, and seconds in `make bench`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use stokehold_tests::process;

use crate::peers::Spec;
use crate::program::{How, Job};
use crate::system::System;

const JOBS: usize = 20_000;
const PARTS: [&str; 4] = ["api", "worker", "runner", "redis"];
/// Maximum time until perf has opened its events and written the head of its file.
const ATTACH_MAX: Duration = Duration::from_secs(20);

pub(crate) async fn record(spec: &Spec) -> anyhow::Result<()> {
    let out = PathBuf::from(std::env::var("STOKE_PROFILE_DIR").context("STOKE_PROFILE_DIR says where the graphs go")?);
    std::fs::create_dir_all(&out)?;
    let mut system = System::start(spec, usize::MAX).await?;
    system.start_worker().await?;
    system.warm_up().await?;
    let samples = tempfile::tempdir()?;

    system.pause(true);
    let recorders = attach(&system, &["api", "redis"], samples.path(), "submit")?;
    system.client.submit(How::Bulk, Job::Noop, JOBS).await?;
    graphs(recorders, &out)?;

    let recorders = attach(&system, &PARTS, samples.path(), "drain")?;
    system.pause(false);
    system.drained().await?;
    graphs(recorders, &out)
}

struct Recorder {
    name: String,
    perf: Child,
    data: PathBuf,
}

fn attach(system: &System<'_>, parts: &[&str], dir: &Path, during: &str) -> anyhow::Result<Vec<Recorder>> {
    let mut recorders = vec![];
    for part in parts {
        let pids: Vec<String> = system.pids(part).iter().map(u32::to_string).collect();
        let name = format!("{during}-{part}");
        let data = dir.join(&name);
        let perf = Command::new("perf")
            .args(["record", "--quiet", "--event", "cpu-clock", "--freq", "997", "--call-graph", "dwarf,16384"])
            .args(["--mmap-pages", "16M", "--pid", &pids.join(","), "--output"])
            .arg(&data)
            .stderr(Stdio::null())
            .spawn()
            .context("perf cannot be started; Debian has it as linux-perf")?;
        let mut recorder = Recorder { name, perf, data };
        let until = Instant::now() + ATTACH_MAX;
        while !recorder.data.metadata().is_ok_and(|file| file.len() > 0) {
            let ended = recorder.perf.try_wait()?;
            ensure!(ended.is_none(), "perf ended: /proc/sys/kernel/perf_event_paranoid may forbid it");
            ensure!(Instant::now() < until, "perf does not attach to {part}");
            std::thread::sleep(Duration::from_millis(20));
        }
        recorders.push(recorder);
    }
    Ok(recorders)
}

/// Ends the recording and draws the graphs.
fn graphs(recorders: Vec<Recorder>, out: &Path) -> anyhow::Result<()> {
    let mut drawn = vec![];
    for mut recorder in recorders {
        process::signal(recorder.perf.id(), Signal::SIGINT);
        recorder.perf.wait()?;
        drawn.push((recorder.name, recorder.data));
    }
    for (name, data) in drawn {
        let svg = out.join(format!("flame-{name}.svg"));
        // Without inlined functions: looking each of them up takes minutes.
        let mut script = pipe(Command::new("perf").args(["script", "--no-inline", "--input"]).arg(&data))?;
        let mut folded = pipe(tool("inferno-collapse-perf").stdin(script.stdout.take().context("piped")?))?;
        let status = tool("inferno-flamegraph")
            .args(["--title", &format!("Stokehold: {}, CPU time", name.replace('-', ", ")), "--minwidth", "0.2"])
            .stdin(folded.stdout.take().context("piped")?)
            .stdout(File::create(&svg)?)
            .status()?;
        ensure!(
            script.wait()?.success() && folded.wait()?.success() && status.success(),
            "no graph of {name} could be drawn"
        );
        println!("{}", svg.display());
    }
    Ok(())
}

fn pipe(command: &mut Command) -> anyhow::Result<Child> {
    let name = command.get_program().to_owned();
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().with_context(|| format!("cannot start {name:?}"))
}

/// The path of a drawing tool that `make` has installed.
fn tool(name: &str) -> Command {
    Command::new(std::env::var_os("STOKE_TOOLS_BIN").map_or_else(|| name.into(), |bin| Path::new(&bin).join(name)))
}
