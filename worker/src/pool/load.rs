//! Loads models: starts a runner in the sandbox with the fetched parts, and warms it up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stokehold_queue::endpoint::Runner as RunnerKind;
use stokehold_queue::gateway::LeaseRef;
use stokehold_queue::job::JobError;
use stokehold_vram::Reservation;
use tracing::Instrument as _;

use super::fetch::Fetched;
use super::model::{LoadTimings, Loaded, Model};
use super::{Pool, warmup};
use crate::failure::{infra, start_failure};
use crate::runner::{Launch, Runner, Vram};
use crate::sandbox::FsAccess;

impl Pool {
    pub(super) async fn start(
        &self,
        model: &Model,
        lease: Option<&LeaseRef>,
        ahead: &mut Option<Fetched>,
        reservation: Option<Reservation>,
    ) -> Result<(Loaded, LoadTimings), JobError> {
        let version = &model.endpoint.spec.version;
        let spec = &version.spec;
        let fetched = match ahead.take() {
            Some(fetched) => fetched,
            None => self.fetch_for(&model.endpoint, lease, !model.is_growing()).await?,
        };
        let Fetched { secrets, environment, package, weights, took: (environment_took, weights_took) } = fetched;
        let home =
            model.endpoint.folder.home().map_err(|error| infra(format!("cannot create scratch space: {error}")))?;
        let gpus = reservation.as_ref().map_or_else(Vec::new, |reservation| reservation.gpus.clone());
        let is_boxed = self.sandbox.is_alone();
        // Without a separate network namespace, loopback is the machine's: a server there has either full network
        // access or none.
        let is_served = matches!(spec.runner, RunnerKind::Server(_) | RunnerKind::Runpod) && !is_boxed;
        let weight_files = weights.iter().flat_map(|set| std::iter::once(&set.folder).chain(&set.blobs).cloned());
        let access = FsAccess {
            reads: [environment.folder.clone(), package.folder.clone()]
                .into_iter()
                .chain(environment.base.iter().cloned())
                .chain(weight_files)
                .collect(),
            writes: vec![model.endpoint.folder.work(), model.endpoint.folder.inputs()],
            folder: package.folder.clone(),
            network: spec.network || is_served,
            devices: self.gpus.devices(&gpus),
            uid: model.endpoint.folder.uid,
        };
        let launch = Launch {
            python: environment.python.clone(),
            ours: environment.ours.clone(),
            sandbox: Arc::clone(&self.sandbox),
            access,
            home: home.path().to_owned(),
            scratch: model.endpoint.folder.work(),
            scratch_bytes: self.scratch_bytes,
            runner: spec.runner.clone(),
            env: spec.env.clone(),
            secrets,
            weights: weights.as_ref().map(|set| set.folder.clone()),
            output_to: None,
            entry: spec.entry.clone(),
            max_concurrency: spec.max_concurrency,
            max_batch_size: spec.max_batch_size,
            max_wait: Duration::try_from_secs_f64(spec.max_wait_ms / 1_000.0).unwrap_or_default(),
            visible: self.gpus.names(&gpus, is_boxed),
            vram: self.vram_of(&gpus, reservation.as_ref()),
        };
        let ticket = reservation.as_ref().map(|reservation| reservation.ticket);
        let alone = model.endpoint.has_whole_gpus() || model.alone.load(Ordering::SeqCst);
        let span = tracing::info_span!("runner.load", endpoint.id = %version.name, endpoint.version = version.version);
        let loading = Runner::start(&launch, reservation, self.load_timeout).instrument(span);
        let runner = match loading.await {
            Ok(runner) => Arc::new(runner),
            Err(error) => {
                if error.is_cuda_fault() {
                    self.gpus.try_out(&gpus, &launch.ours);
                    self.gpus.tried(&gpus).await;
                }
                return Err(self.attribute_to_gpu(start_failure(error), &gpus));
            }
        };
        tracing::info!(endpoint.id = %version.name, version = version.version, runner.pid = runner.pid, "runner loaded");
        let started = Instant::now();
        warmup::run(&runner, spec, home.path(), self.load_timeout, &self.gpus).await?;
        let warmup = started.elapsed();
        if let (Some(ticket), false) = (ticket, spec.warmup.is_empty()) {
            let held_mib = self.gpus.ledger().settle(ticket);
            tracing::info!(endpoint.id = %version.name, version = version.version, held_mib, "warmed up");
        }
        let timings = LoadTimings {
            environment: environment_took,
            weights: weights_took,
            boot: runner.boot,
            load: runner.load,
            warmup,
        };
        model.endpoint.loaded_in(timings.boot + timings.load + timings.warmup);
        Ok((
            Loaded {
                runner,
                ticket,
                gpus,
                alone,
                timings,
                _environment: environment,
                _package: package,
                _weights: weights,
                _home: home,
            },
            timings,
        ))
    }

    /// The memory that a runner may use on each of its GPUs; `None` on the CPU.
    fn vram_of(&self, gpus: &[u32], reservation: Option<&Reservation>) -> Option<Vram> {
        let (gpu, reservation) = (self.gpu_of(gpus)?, reservation?);
        let held = self.gpus.ledger().held(reservation.ticket);
        let held_mib = held.iter().find(|on| on.index == gpu.index)?.held_mib;
        Some(Vram { held_mib, total_mib: gpu.vram_mib })
    }
}
