//! Every figure, as Prometheus knows it.

use stokehold_metrics::catalogue;

catalogue! {
    /// How the installation stands.
    pub const METRICS;
    gauge LOOKED = "stokehold_figures_timestamp_seconds", "When these figures were looked at, Unix time.";
    gauge LEFT_OUT = "stokehold_figures_left_out" by ["of"], "How many there are more of than are told one by one.";

    gauge QUEUE_DEPTH = "stokehold_queue_depth_jobs" by ["priority", "vram_class_gib"], "Jobs that lack nothing but a worker, by the smallest card that is sold and takes them, GiB; 0 is the CPU.";
    gauge QUEUE_OLDEST = "stokehold_queue_oldest_age_seconds" by ["priority"], "How long the oldest of them has waited; 0 when none does.";
    gauge JOBS_RUNNING = "stokehold_jobs_running", "Jobs that run.";
    gauge JOBS_ENDED = "stokehold_jobs_ended", "Ended jobs in Redis: those of the retention time.";
    gauge JOBS_QUARANTINED = "stokehold_jobs_quarantined" by ["shard"], "Jobs whose records cannot be read: they wait for an operator. 0 in a healthy queue.";
    gauge SCRIPT_FAULTS = "stokehold_script_faults" by ["part"], "How often a part of a script that is no single job's has failed in Redis, ever. 0 in a healthy queue.";
    gauge ENDPOINT_WAITING = "stokehold_endpoint_waiting_jobs" by ["tenant", "endpoint", "priority"], "Jobs of an endpoint that lack nothing but a worker. The 100 endpoints with most to do.";
    gauge ENDPOINT_OLDEST = "stokehold_endpoint_oldest_age_seconds" by ["tenant", "endpoint"], "How long the oldest of them has waited.";
    gauge ENDPOINT_RUNNING = "stokehold_endpoint_running_jobs" by ["tenant", "endpoint"], "Jobs of an endpoint that run.";
    counter ENDPOINT_ENDED = "stokehold_endpoint_jobs_ended_total" by ["tenant", "endpoint"], "Jobs of an endpoint that ever ended, whatever came of them.";
    counter ENDPOINT_FAILED = "stokehold_endpoint_jobs_failed_total" by ["tenant", "endpoint"], "Of those, how many failed or expired.";
    gauge BATCHES = "stokehold_batches" by ["state"], "Batches that have not ended.";
    gauge BATCH_LINES = "stokehold_batch_lines" by ["state"], "Their lines: waiting, running, succeeded, failed (expired ones too) or cancelled.";

    gauge WORKERS = "stokehold_workers" by ["state"], "Workers that are alive: ready or draining.";
    gauge WORKER_SLOTS = "stokehold_worker_slots" by ["worker"], "Attempts that a worker runs at once. Of workers the first 500 by name are told one by one.";
    gauge WORKER_RUNNING = "stokehold_worker_running_attempts" by ["worker"], "Attempts that it runs.";
    gauge WORKER_DISK_FREE = "stokehold_worker_disk_free_bytes" by ["worker"], "Free where its jobs work.";
    gauge WORKER_DISK_SIZE = "stokehold_worker_disk_size_bytes" by ["worker"], "Of so many.";
    gauge WORKER_MEMORY_FREE = "stokehold_worker_memory_available_bytes" by ["worker"], "Memory of its machine that could be used.";
    gauge WORKER_MEMORY_SIZE = "stokehold_worker_memory_size_bytes" by ["worker"], "Of so many.";
    gauge WORKER_CACHED = "stokehold_worker_cached_bytes" by ["worker", "what"], "What it keeps on its disk: environments and weights.";
    gauge GPUS = "stokehold_gpus" by ["kind", "health"], "Cards of workers that are alive: well, hot (no work until it is cooler) or fenced (no work until its worker starts again).";
    gauge GPU_SIZE = "stokehold_gpu_vram_size_bytes" by ["worker", "gpu", "kind"], "Memory of a card. Of cards the first 500 are told one by one.";
    gauge GPU_USED = "stokehold_gpu_vram_used_bytes" by ["worker", "gpu", "kind"], "Used by anybody, as the driver says.";
    gauge GPU_RESERVED = "stokehold_gpu_vram_reserved_bytes" by ["worker", "gpu", "kind"], "Reserved by models.";
    gauge GPU_FOREIGN = "stokehold_gpu_vram_foreign_bytes" by ["worker", "gpu", "kind"], "Used by nobody of the worker's.";
    gauge GPU_UTILIZATION = "stokehold_gpu_utilization_ratio" by ["worker", "gpu", "kind"], "How busy it is, 0 to 1, as the driver says.";
    gauge GPU_TEMPERATURE = "stokehold_gpu_temperature_celsius" by ["worker", "gpu", "kind"], "How hot it is.";
    gauge GPU_POWER = "stokehold_gpu_power_watts" by ["worker", "gpu", "kind"], "What it draws.";
    gauge GPU_ECC = "stokehold_gpu_ecc_uncorrected_errors" by ["worker", "gpu", "kind"], "Uncorrected memory errors since its driver was loaded.";
    gauge GPU_FENCED = "stokehold_gpu_fenced" by ["worker", "gpu", "kind"], "1 while it is fenced off, 0 while not.";
    gauge MODELS = "stokehold_models" by ["state"], "Models on workers: loading, idle or busy.";
    gauge MODEL_WORKERS = "stokehold_model_workers" by ["tenant", "endpoint", "version"], "Workers that have a model. The 200 models that hold most.";
    gauge MODEL_RESERVED = "stokehold_model_vram_reserved_bytes" by ["tenant", "endpoint", "version"], "What it has reserved of their cards.";

    gauge MACHINES = "stokehold_machines" by ["provider", "state"], "Machines of the ledger by where they are in their lives; `joined` are those that the autoscaler did not start.";
    gauge ORPHANS = "stokehold_orphan_machines" by ["provider"], "Machines that were given back more than ten minutes ago and are not known to be gone: they may still cost money.";
    gauge SPEND = "stokehold_spend_usd_per_hour" by ["provider"], "What all machines cost per hour now.";
    gauge COST_TODAY = "stokehold_cost_today_usd" by ["part"], "What was paid for since midnight, UTC: run, load, boot, idle, stopped, disk, traffic.";
    gauge BUDGETS = "stokehold_budgets" by ["state"], "Budgets of a day by how they stand: within, warned (80 %) or reached.";
    gauge BUDGET = "stokehold_budget_usd" by ["tenant", "endpoint"], "What may be spent on a day; endpoint `*` is all of the tenant's. The 100 that are nearest to their end.";
    gauge BUDGET_SPENT = "stokehold_budget_spent_usd" by ["tenant", "endpoint"], "What ended attempts have taken of it today.";
    gauge AUTOSCALER_TOLD = "stokehold_autoscaler_told_timestamp_seconds", "When the autoscaler last said how it is, Unix time; absent where there never was one.";
    gauge AUTOSCALER_NOTICES = "stokehold_autoscaler_notices" by ["kind"], "1 for each thing that it says its operator should know: `blind <provider>`, `budget`, `max_machines` ...";
}
