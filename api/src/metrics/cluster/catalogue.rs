//! Names, labels and descriptions of all metrics of the installation.

use stokehold_metrics::catalogue;

catalogue! {
    /// The metrics of the installation.
    pub const METRICS;
    gauge LOOKED = "stokehold_figures_timestamp_seconds", "Unix time when the metrics of the installation were collected.";
    gauge LEFT_OUT = "stokehold_figures_left_out" by ["of"], "Items beyond the limit of those that have series of their own, by kind.";

    gauge QUEUE_DEPTH = "stokehold_queue_depth_jobs" by ["priority", "vram_class_gib"], "Jobs that wait only for a worker, by the smallest GPU class that fits them, GiB; 0 is the CPU.";
    gauge QUEUE_OLDEST = "stokehold_queue_oldest_age_seconds" by ["priority"], "Age of the oldest of these jobs; 0 without jobs.";
    gauge JOBS_RUNNING = "stokehold_jobs_running", "Running jobs.";
    gauge JOBS_ENDED = "stokehold_jobs_ended", "Ended jobs in Redis that are within the retention time.";
    gauge JOBS_QUARANTINED = "stokehold_jobs_quarantined" by ["shard"], "Jobs whose records cannot be read; they wait for an operator. 0 in a healthy queue.";
    gauge SCRIPT_FAULTS = "stokehold_script_faults" by ["part"], "Failures in Redis of a script part that does not belong to a single job, since the queue was created. 0 in a healthy queue.";
    gauge ENDPOINT_WAITING = "stokehold_endpoint_waiting_jobs" by ["tenant", "endpoint", "priority"], "Jobs of an endpoint that wait only for a worker. The 100 busiest endpoints.";
    gauge ENDPOINT_OLDEST = "stokehold_endpoint_oldest_age_seconds" by ["tenant", "endpoint"], "Age of the oldest of these jobs.";
    gauge ENDPOINT_RUNNING = "stokehold_endpoint_running_jobs" by ["tenant", "endpoint"], "Running jobs of an endpoint.";
    counter ENDPOINT_ENDED = "stokehold_endpoint_jobs_ended_total" by ["tenant", "endpoint"], "Jobs of an endpoint that have ended, in any state.";
    counter ENDPOINT_FAILED = "stokehold_endpoint_jobs_failed_total" by ["tenant", "endpoint"], "Jobs of an endpoint that failed or expired.";
    counter ENDPOINT_TOKENS = "stokehold_tokens_total" by ["tenant", "endpoint", "kind"], "Tokens of an endpoint's jobs, as their results report them: prompt (including cached), cached and completion. Absent without tokens.";
    gauge BATCHES = "stokehold_batches" by ["state"], "Batches that have not ended.";
    gauge BATCH_LINES = "stokehold_batch_lines" by ["state"], "Lines of these batches: waiting, running, succeeded, failed (including expired) or cancelled.";

    gauge WORKERS = "stokehold_workers" by ["state"], "Live workers: ready or draining.";
    gauge WORKER_SLOTS = "stokehold_worker_slots" by ["worker"], "Attempts that a worker runs concurrently. The first 500 workers by name.";
    gauge WORKER_RUNNING = "stokehold_worker_running_attempts" by ["worker"], "Attempts that a worker is running.";
    gauge WORKER_DISK_FREE = "stokehold_worker_disk_free_bytes" by ["worker"], "Free disk space where a worker's jobs run.";
    gauge WORKER_DISK_SIZE = "stokehold_worker_disk_size_bytes" by ["worker"], "Size of that disk.";
    gauge WORKER_MEMORY_FREE = "stokehold_worker_memory_available_bytes" by ["worker"], "Available memory of a worker's machine.";
    gauge WORKER_MEMORY_SIZE = "stokehold_worker_memory_size_bytes" by ["worker"], "Memory size of that machine.";
    gauge WORKER_CACHED = "stokehold_worker_cached_bytes" by ["worker", "what"], "Disk space of a worker's caches: environments and weights.";
    gauge GPUS = "stokehold_gpus" by ["kind", "health"], "GPUs of live workers: healthy, hot (no work until the GPU is cooler) or faulty (no work until the worker restarts).";
    gauge GPU_SIZE = "stokehold_gpu_vram_size_bytes" by ["worker", "gpu", "kind"], "Memory of a GPU. The first 500 GPUs.";
    gauge GPU_USED = "stokehold_gpu_vram_used_bytes" by ["worker", "gpu", "kind"], "Memory of a GPU in use by any process, as reported by the driver.";
    gauge GPU_RESERVED = "stokehold_gpu_vram_reserved_bytes" by ["worker", "gpu", "kind"], "Memory of a GPU that is reserved for models.";
    gauge GPU_FOREIGN = "stokehold_gpu_vram_foreign_bytes" by ["worker", "gpu", "kind"], "Memory of a GPU in use by processes that do not belong to the worker.";
    gauge GPU_UTILIZATION = "stokehold_gpu_utilization_ratio" by ["worker", "gpu", "kind"], "Utilization of a GPU, 0 to 1, as reported by the driver.";
    gauge GPU_TEMPERATURE = "stokehold_gpu_temperature_celsius" by ["worker", "gpu", "kind"], "Temperature of a GPU.";
    gauge GPU_POWER = "stokehold_gpu_power_watts" by ["worker", "gpu", "kind"], "Power draw of a GPU.";
    gauge GPU_ECC = "stokehold_gpu_ecc_uncorrected_errors" by ["worker", "gpu", "kind"], "Uncorrected memory errors of a GPU since its driver was loaded.";
    gauge GPU_FAULTY = "stokehold_gpu_faulty" by ["worker", "gpu", "kind"], "1 while a GPU is faulty, otherwise 0.";
    gauge MODELS = "stokehold_models" by ["state"], "Models on workers: loading, idle or busy.";
    gauge MODEL_WORKERS = "stokehold_model_workers" by ["tenant", "endpoint", "version"], "Workers that have a model. The 200 models with the most reserved memory.";
    gauge MODEL_RESERVED = "stokehold_model_vram_reserved_bytes" by ["tenant", "endpoint", "version"], "GPU memory reserved for a model on all workers.";

    gauge MACHINES = "stokehold_machines" by ["provider", "state"], "Instances in the ledger by state; `joined` are those that the autoscaler did not start.";
    gauge ORPHANS = "stokehold_orphan_machines" by ["provider"], "Instances released more than ten minutes ago whose end is not confirmed; they may still cost money.";
    gauge SPEND = "stokehold_spend_usd_per_hour" by ["provider"], "Current cost per hour of all instances.";
    gauge COST_TODAY = "stokehold_cost_today_usd" by ["part"], "Cost since midnight UTC by part: run, load, boot, idle, stopped, disk, traffic.";
    gauge BUDGETS = "stokehold_budgets" by ["state"], "Daily budgets by state: within, warned (80 %) or reached.";
    gauge BUDGET = "stokehold_budget_usd" by ["tenant", "endpoint"], "Daily budget; endpoint `*` is the whole tenant. The 100 budgets closest to their limit.";
    gauge BUDGET_SPENT = "stokehold_budget_spent_usd" by ["tenant", "endpoint"], "Amount of the budget that ended attempts have used today.";
    gauge AUTOSCALER_TOLD = "stokehold_autoscaler_told_timestamp_seconds", "Unix time of the autoscaler's last status report; absent if there was none.";
    gauge AUTOSCALER_NOTICES = "stokehold_autoscaler_notices" by ["kind"], "1 for each notice that the autoscaler has for its operator: `blind <provider>`, `budget`, `max_machines` ...";
}
