//! Loads models: starts a runner in the sandbox with the fetched parts, and warms it up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stokehold_protocol::endpoint::Runner as RunnerKind;
use stokehold_protocol::gateway::{LeaseRef, StartPhase};
use stokehold_protocol::job::JobError;
use stokehold_vram::{Reservation, Ticket};
use tracing::Instrument as _;

use super::endpoint::Endpoint;
use super::fetch::Fetched;
use super::model::{LoadTimings, Loaded, Model};
use super::{Pool, warmup};
use crate::failure::{infra, start_failure};
use crate::runner::{Launch, Runner, Vram};
use crate::sandbox::FsAccess;
use crate::scratch::Home;

impl Pool {
    /// Starts a runner of the model, loads its handler and warms it up. Fetches what it needs, unless `ahead` has it.
    pub(super) async fn start(
        &self,
        model: &Model,
        lease: Option<&LeaseRef>,
        ahead: &mut Option<Fetched>,
        reservation: Option<Reservation>,
    ) -> Result<(Loaded, LoadTimings), JobError> {
        let endpoint = &*model.endpoint;
        let mut fetched = match ahead.take() {
            Some(fetched) => fetched,
            None => self.fetch_for(model, lease).await?,
        };
        self.enters(model, StartPhase::Loading);
        let home = endpoint.folder.home().map_err(|error| infra(format!("cannot create scratch space: {error}")))?;
        let gpus = reservation.as_ref().map_or_else(Vec::new, |reservation| reservation.gpus.clone());
        let vram = self.vram_of(&gpus, reservation.as_ref());
        model.turns.limit(None);
        let turns = Some(Arc::clone(&model.turns));
        let launch = Launch { vram, turns, ..self.launch(endpoint, &mut fetched, &home, &gpus) };
        let ticket = reservation.as_ref().map(|reservation| reservation.ticket);
        let alone = endpoint.has_whole_gpus() || model.alone.load(Ordering::SeqCst);
        let runner = self.start_runner(endpoint, &launch, &gpus, reservation).await?;
        let warmup = self.warm_up(endpoint, &runner, &home, ticket).await?;
        let Fetched { environment, package, weights, took: (environment_took, weights_took), .. } = fetched;
        let timings = LoadTimings {
            environment: environment_took,
            weights: weights_took,
            boot: runner.boot,
            load: runner.load,
            warmup,
        };
        endpoint.loaded_in(timings.boot + timings.load + timings.warmup);
        let loaded = Loaded {
            runner,
            ticket,
            gpus,
            alone,
            timings,
            _environment: environment,
            _package: package,
            _weights: weights,
            _home: home,
        };
        Ok((loaded, timings))
    }

    /// How to start a runner without GPU memory. Takes the secrets out of `fetched`.
    fn launch(&self, endpoint: &Endpoint, fetched: &mut Fetched, home: &Home, gpus: &[u32]) -> Launch {
        let spec = &endpoint.spec.version.spec;
        let secrets = std::mem::take(&mut fetched.secrets);
        let Fetched { environment, weights, .. } = &*fetched;
        Launch {
            python: environment.python.clone(),
            ours: environment.ours.clone(),
            sandbox: Arc::clone(&self.sandbox),
            access: self.access(endpoint, fetched, home, gpus),
            home: home.path().to_owned(),
            temp: home.link().unwrap_or(home.path()).to_owned(),
            scratch: endpoint.folder.work(),
            scratch_bytes: self.scratch_bytes,
            spec: spec.clone(),
            secrets,
            weights: weights.as_ref().map(|set| set.folder.clone()),
            output_to: None,
            visible: self.gpus.names(gpus, self.sandbox.is_alone()),
            vram: None,
            turns: None,
        }
    }

    /// What a runner of the endpoint can access.
    fn access(&self, endpoint: &Endpoint, fetched: &Fetched, home: &Home, gpus: &[u32]) -> FsAccess {
        let (spec, Fetched { environment, package, weights, .. }) = (&endpoint.spec.version.spec, fetched);
        // Without a separate network namespace, loopback is the machine's: a server there has either full network
        // access or none.
        let is_served = matches!(spec.runner, RunnerKind::Server(_) | RunnerKind::Runpod) && !self.sandbox.is_alone();
        let weight_files = weights.iter().flat_map(|set| std::iter::once(&set.folder).chain(&set.blobs).cloned());
        FsAccess {
            reads: [environment.folder.clone(), package.folder.clone()]
                .into_iter()
                .chain(environment.base.iter().cloned())
                .chain(weight_files)
                .collect(),
            writes: vec![endpoint.folder.work(), endpoint.folder.inputs()],
            links: home.link().map(|link| (link.to_owned(), home.path().to_owned())).into_iter().collect(),
            folder: package.folder.clone(),
            network: spec.network || is_served,
            devices: self.gpus.devices(gpus),
            uid: endpoint.folder.uid,
        }
    }

    /// Starts a runner. If it could not use its GPUs, tests them before the error is attributed.
    async fn start_runner(
        &self,
        endpoint: &Endpoint,
        launch: &Launch,
        gpus: &[u32],
        reservation: Option<Reservation>,
    ) -> Result<Arc<Runner>, JobError> {
        let version = &endpoint.spec.version;
        let span = tracing::info_span!("runner.load", endpoint.id = %version.name, endpoint.version = version.version);
        match Runner::start(launch, reservation, self.load_timeout).instrument(span).await {
            Ok(runner) => {
                let pid = runner.pid;
                tracing::info!(endpoint.id = %version.name, version = version.version, runner.pid = pid, "runner loaded");
                Ok(Arc::new(runner))
            }
            Err(error) => {
                if error.is_cuda_fault() {
                    self.gpus.test(gpus, &launch.ours);
                    self.gpus.await_tests(gpus).await;
                }
                Err(self.attribute_to_gpu(start_failure(error), gpus))
            }
        }
    }

    /// Warms up a runner, and reduces its reservation to what it has used. Returns how long it took.
    async fn warm_up(
        &self,
        endpoint: &Endpoint,
        runner: &Arc<Runner>,
        home: &Home,
        ticket: Option<Ticket>,
    ) -> Result<Duration, JobError> {
        let (version, started) = (&endpoint.spec.version, Instant::now());
        warmup::run(runner, &version.spec, home.path(), self.load_timeout, &self.gpus).await?;
        let took = started.elapsed();
        if let (Some(ticket), false) = (ticket, version.spec.warmup.is_empty()) {
            let held_mib = self.gpus.ledger().settle(ticket);
            tracing::info!(endpoint.id = %version.name, version = version.version, held_mib, "warmed up");
        }
        Ok(took)
    }

    /// The memory that a runner may use on each of its GPUs; `None` on the CPU.
    fn vram_of(&self, gpus: &[u32], reservation: Option<&Reservation>) -> Option<Vram> {
        let (gpu, reservation) = (self.gpu_of(gpus)?, reservation?);
        let held = self.gpus.ledger().held(reservation.ticket);
        let held_mib = held.iter().find(|on| on.index == gpu.index)?.held_mib;
        Some(Vram { held_mib, total_mib: gpu.vram_mib })
    }
}
