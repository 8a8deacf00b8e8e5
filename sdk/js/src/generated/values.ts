// Generated from api/openapi.json by `make models`; do not edit.
// A job without values, and the names of options in the API.

import type { JobRecord } from "./jobs.js";

/** A job without values, as of a bulk submit. */
export function emptyJob(): Omit<JobRecord, "id" | "endpoint" | "state"> {
  return {
    version: null,
    priority: "standard",
    created_at: null,
    input: null,
    metadata: {},
    depends_on: [],
    webhook_events: [],
    steps: [],
    oom_events: 0,
    attempts: [],
    batch_id: null,
    concurrency_key: null,
    cost_usd_micros: null,
    custom_id: null,
    deadline_at: null,
    ended_at: null,
    error: null,
    line: null,
    progress: null,
    result: null,
    result_url: null,
    retry_of: null,
    run_after: null,
    schedule_id: null,
    step_of: null,
    timing: null,
    webhook: null,
  };
}

export const JOB_OPTIONS = {
  concurrencyKey: "concurrency_key",
  concurrencyMax: "concurrency_max",
  deadlineS: "deadline_s",
  maxAttempts: "max_attempts",
  metadata: "metadata",
  priority: "priority",
  queueTimeoutS: "queue_timeout_s",
  retentionS: "retention_s",
  timeoutS: "timeout_s",
  version: "version",
  webhook: "webhook",
  webhookEvents: "webhook_events",
} as const;

export const JOB_FILTER = {
  batch: "batch",
  endpoint: "endpoint",
  errorCode: "error_code",
  metadata: "metadata",
  priority: "priority",
  schedule: "schedule",
  state: "state",
} as const;

export const BATCH_OPTIONS = {
  atBudget: "at_budget",
  budgetUsdMicros: "budget_usd_micros",
  deadlineS: "deadline_s",
  endpoint: "endpoint",
  format: "format",
  maxAttempts: "max_attempts",
  metadata: "metadata",
  onInvalid: "on_invalid",
  priority: "priority",
  timeoutS: "timeout_s",
  version: "version",
  webhook: "webhook",
  webhookEvents: "webhook_events",
} as const;

export const SCHEDULE_TIMING = {
  cron: "cron",
  graceS: "grace_s",
  missed: "missed",
  name: "name",
  paused: "paused",
  timeZone: "time_zone",
} as const;

export const RATING = {
  accepted: "accepted",
  comment: "comment",
  labels: "labels",
  score: "score",
} as const;

export const DEPLOY_OPTIONS = {
  inputSchema: "input_schema",
  after: "after",
  allowPickle: "allow_pickle",
  before: "before",
  demands: "demands",
  entry: "entry",
  env: "env",
  keepWarmS: "keep_warm_s",
  maxAttempts: "max_attempts",
  maxBatchSize: "max_batch_size",
  maxConcurrency: "max_concurrency",
  maxWaitMs: "max_wait_ms",
  minWarm: "min_warm",
  network: "network",
  openai: "openai",
  openaiModels: "openai_models",
  openaiServedModel: "openai_served_model",
  outputSchema: "output_schema",
  priority: "priority",
  python: "python",
  queueTimeoutS: "queue_timeout_s",
  requirementsLock: "requirements_lock",
  retry: "retry",
  runner: "runner",
  secrets: "secrets",
  timeoutS: "timeout_s",
  trafficPercent: "traffic_percent",
  vramFraction: "vram_fraction",
  vramGib: "vram_gib",
  warmup: "warmup",
  weights: "weights",
} as const;

export const LIMITS_OPTIONS = {
  atBudget: "at_budget",
  budgetUsdMicrosPerDay: "budget_usd_micros_per_day",
  maxOpen: "max_open",
  maxRunning: "max_running",
  startsPerMinute: "starts_per_minute",
} as const;

export const TENANT_LIMITS_OPTIONS = {
  atBudget: "at_budget",
  budgetUsdMicrosPerDay: "budget_usd_micros_per_day",
  maxMemoryBytes: "max_memory_bytes",
  maxOpen: "max_open",
  maxRunning: "max_running",
  maxStorageBytes: "max_storage_bytes",
  requestsPerMinute: "requests_per_minute",
  startsPerMinute: "starts_per_minute",
  weight: "weight",
} as const;
