//! One running system: a separate Redis, its servers, a client, and the requested number of workers.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::signal::Signal;
use redis::aio::MultiplexedConnection;
use serde_json::Value;
use stokehold_tests::meeting;
use stokehold_tests::redis_server::RedisServer;
use stokehold_tests::stack::{Stack, StackOptions, stoke_binary};
use tempfile::TempDir;

use crate::measure::CpuWatch;
use crate::peers::{Kind, Spec};
use crate::program::{Client, How, Job, Program, Worker};
use crate::stokehold;

/// The Redis settings of `stoke dev`, so that all systems have the same ones, and room for the deepest queue.
const REDIS_SETTINGS: [&str; 6] =
    ["--hash-max-listpack-value", "1024", "--stream-node-max-entries", "16", "--maxmemory", "6gb"];

/// Time without progress after which a queue counts as stuck.
const STUCK: Duration = Duration::from_secs(45);

/// Interval of reading a queue's length: too long to be a load, short enough for a drain of a second.
const LOOK: Duration = Duration::from_millis(5);

/// Jobs that a new worker runs before a measurement, so that its handlers are loaded and its code compiled.
const WARM_UP_JOBS: usize = 2_000;

pub(crate) struct System<'a> {
    spec: &'a Spec,
    pub(crate) client: Client,
    workers: Vec<Worker>,
    redis: MultiplexedConnection,
    stack: Option<Stack>,
    server: RedisServer,
    started: usize,
    concurrency_max: usize,
    pub(crate) journal: PathBuf,
    dir: TempDir,
}

impl<'a> System<'a> {
    /// Starts it without a worker. `concurrency_max` limits the concurrent jobs of a peer's worker; with a limit, the
    /// peer leaves everything else at its defaults.
    pub(crate) async fn start(spec: &'a Spec, concurrency_max: usize) -> anyhow::Result<Self> {
        let dir = meeting::folder()?;
        let redis_dir = dir.path().join("redis");
        std::fs::create_dir(&redis_dir)?;
        let server = RedisServer::start(&redis_dir, &REDIS_SETTINGS);
        let journal = dir.path().join("journal");
        let mut env = vec![("BENCH_REDIS_URL", server.url()), ("BENCH_JOURNAL", text(&journal))];
        let stack = match spec.kind {
            Kind::Peer { .. } => None,
            Kind::Stokehold => {
                let args = ["--workers", "0", "--redis", &server.url()].map(str::to_owned).to_vec();
                let stack = Stack::start(&dir.path().join("stack"), &StackOptions { args, env: vec![] });
                // Handlers write there, those of each worker as a separate user.
                std::fs::write(&journal, "")?;
                meeting::open(&journal)?;
                stokehold::deploy(&stack, dir.path(), &journal)?;
                env.extend([("BENCH_URL", stack.url.clone()), ("BENCH_TOKEN", stack.token.clone())]);
                Some(stack)
            }
        };
        let client = Client::start(&spec.client, &env, &dir.path().join("client.log")).await?;
        // A bulk submit may block Redis for longer than the driver's default timeout of half a second.
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(STUCK));
        let redis = redis::Client::open(server.url())?.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Self { spec, client, workers: vec![], redis, stack, server, started: 0, concurrency_max, journal, dir })
    }

    /// Starts one more worker and waits until it is ready.
    pub(crate) async fn start_worker(&mut self) -> anyhow::Result<()> {
        self.started += 1;
        let name = format!("worker{}", self.started);
        let log = self.dir.path().join(format!("{name}.log"));
        let env = [("BENCH_REDIS_URL", self.server.url()), ("BENCH_JOURNAL", text(&self.journal))];
        let worker = match (&self.spec.kind, &self.stack) {
            (Kind::Peer { worker, ready, concurrency }, _) => {
                let concurrency = (*concurrency).min(self.concurrency_max).to_string();
                let words = worker.words.iter().map(|word| word.replace("{concurrency}", &concurrency)).collect();
                let program = Program { words, ..worker.clone() };
                let defaults = if self.concurrency_max < usize::MAX { "1" } else { "" };
                let settings = [("BENCH_CONCURRENCY", concurrency), ("BENCH_DEFAULTS", defaults.to_owned())];
                let env = [env.as_slice(), &settings].concat();
                Worker::start(&program, &env, ready, &log).await?
            }
            (Kind::Stokehold, Some(stack)) => {
                let mut program = stoke_worker(stack, &name, self.dir.path())?;
                if self.concurrency_max < usize::MAX {
                    // These jobs write into the journal, which is outside of a sandbox.
                    program.env.push(("STOKE_SANDBOX".into(), "L0".into()));
                }
                Worker::start(&program, &[], "joined", &log).await?
            }
            (Kind::Stokehold, None) => anyhow::bail!("the stack is not up"),
        };
        self.workers.push(worker);
        Ok(())
    }

    /// Runs jobs until every worker has taken some.
    pub(crate) async fn warm_up(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + STUCK;
        loop {
            self.client.submit(How::Bulk, Job::Noop, WARM_UP_JOBS).await?;
            self.drained().await?;
            // A Stokehold worker loads a handler with the first job of it.
            if self.stack.is_none() || self.workers.iter().all(|worker| runners(worker) > 0) {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < until, "a worker takes no jobs: {}", self.logs());
        }
    }

    /// Stops the processes of every worker, or continues them.
    pub(crate) fn pause(&self, paused: bool) {
        for worker in &self.workers {
            worker.signal(if paused { Signal::SIGSTOP } else { Signal::SIGCONT });
        }
    }

    pub(crate) async fn kill_workers(&mut self) -> anyhow::Result<()> {
        for worker in self.workers.drain(..) {
            worker.kill().await?;
        }
        Ok(())
    }

    /// Jobs that have not ended.
    pub(crate) async fn open(&mut self) -> anyhow::Result<usize> {
        let mut pipe = redis::pipe();
        for words in &self.spec.open {
            let (name, rest) = words.split_first().context("an empty command")?;
            pipe.cmd(name).arg(rest);
        }
        let counts: Vec<Option<i64>> = pipe.query_async(&mut self.redis).await?;
        Ok(counts.into_iter().flatten().map(|count| usize::try_from(count).unwrap_or_default()).sum())
    }

    pub(crate) async fn drained(&mut self) -> anyhow::Result<()> {
        self.drained_to(0).await
    }

    /// Waits until at most `left` jobs have not ended.
    pub(crate) async fn drained_to(&mut self, left: usize) -> anyhow::Result<()> {
        let (mut shortest, mut since) = (usize::MAX, Instant::now());
        loop {
            let open = self.open().await?;
            if open <= left {
                return Ok(());
            }
            if open < shortest {
                (shortest, since) = (open, Instant::now());
            }
            anyhow::ensure!(self.workers.iter().all(Worker::alive), "a worker ended by itself: {}", self.logs());
            anyhow::ensure!(
                since.elapsed() < STUCK,
                "stuck: {open} jobs open, none ended for {} s: {}",
                STUCK.as_secs(),
                self.logs()
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Memory that Redis has allocated, bytes.
    pub(crate) async fn used_memory(&mut self) -> anyhow::Result<f64> {
        let info: String = redis::cmd("INFO").arg("memory").query_async(&mut self.redis).await?;
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).context("Redis tells its memory")?;
        Ok(line.trim().parse()?)
    }

    /// Waits until Redis has rewritten its append-only file.
    pub(crate) async fn written(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            let info: String = redis::cmd("INFO").arg("persistence").query_async(&mut self.redis).await?;
            if ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"].iter().all(|line| info.contains(line)) {
                return Ok(());
            }
            anyhow::ensure!(
                start.elapsed() < STUCK,
                "Redis still rewrites its append-only file after {} s",
                STUCK.as_secs()
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Starts counting the CPU time of every process group that serves jobs; the client is counted separately.
    pub(crate) fn cpu(&self) -> CpuWatch {
        let mut processes = vec![("redis", self.server.pid())];
        processes.extend(self.stack.as_ref().map(|stack| ("api", stack.pid())));
        for worker in &self.workers {
            processes.extend(
                worker
                    .processes()
                    .iter()
                    .map(|(pid, command)| (if command.contains(RUNNER) { "runner" } else { "worker" }, *pid)),
            );
        }
        CpuWatch::start(processes)
    }

    pub(crate) fn client_cpu(&self) -> CpuWatch {
        CpuWatch::start(self.client.pid().map(|pid| ("client", pid)).into_iter().collect())
    }

    /// The process ids of a group.
    pub(crate) fn pids(&self, part: &str) -> Vec<u32> {
        self.cpu().pids(part)
    }

    fn logs(&self) -> String {
        self.workers.iter().map(Worker::log_tail).collect::<Vec<_>>().join(" | ")
    }
}

const RUNNER: &str = "stokehold.runner";

fn runners(worker: &Worker) -> usize {
    worker.processes().iter().filter(|(_, command)| command.contains(RUNNER)).count()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn stoke_worker(stack: &Stack, name: &str, dir: &Path) -> anyhow::Result<Program> {
    let token = stack.stoke_ok(&["token", "create", "--kind", "join", "--name", name, "--json"]);
    let token: Value = serde_json::from_str(&token)?;
    let token = token["token"].as_str().context("a token was made")?.to_owned();
    Ok(Program {
        words: vec![text(&stoke_binary()), "worker".into(), "--name".into(), name.into()],
        dir: dir.to_owned(),
        env: vec![
            ("STOKE_GATEWAY_URL".into(), stack.url.clone()),
            ("STOKE_JOIN_TOKEN".into(), token),
            // One folder for all: the second worker, or one started after a kill, finds the environment there as on a
            // real machine.
            ("STOKE_DATA_DIR".into(), text(&dir.join(format!("{name}-data")))),
        ],
    })
}
