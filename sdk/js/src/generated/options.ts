// Generated from api/openapi.json by `make models`; do not edit.
// The options of the calls.

import type { AtBudget, LineFormat, OnInvalid } from "./batches.js";
import type { EndpointRequirements, EndpointRetry, EndpointRunner, EndpointStep, EndpointWeight, OpenAiApi } from "./endpoints.js";
import type { JobHookEvent, JobState, Priority } from "./jobs.js";
import type { Missed } from "./schedules.js";

/** An event of a batch that a webhook can receive. */
export type BatchHookEvent = "batch.completed";

/** A predefined set of scopes. */
export type Role = "submit" | "read" | "cancel" | "deploy" | "admin" | "operator" | "worker";

/** How a job is run. An option that is missing has the default of the endpoint or of the API. */
export interface JobOptions {
  /** At most `concurrencyMax` of your jobs with the same key run concurrently. 1 to 255 characters. */
  concurrencyKey?: string;
  /** The limit for `concurrencyKey`. 1 to 10,000. Default 1. */
  concurrencyMax?: number;
  /** The job expires if it has not ended this many seconds after the submit. 1 to 2,592,000. */
  deadlineS?: number;
  /** How many attempts may fail because of the handler. 1 to 100. Default: the endpoint's. */
  maxAttempts?: number;
  /** Your own labels, up to 32, to list jobs by. */
  metadata?: Record<string, string>;
  /** The job's priority. Default: the endpoint's, else `standard`. */
  priority?: Priority;
  /**
   * The job expires if it has not started this many seconds after the submit. 1 to 2,592,000. Default: the endpoint's,
   * else 604,800 (7 days), counted from `runAfter` if that is later.
   */
  queueTimeoutS?: number;
  /**
   * How many seconds after its end the job stays in the queue's memory before it moves to the archive. 60 to 2,592,000.
   * Default: the server's.
   */
  retentionS?: number;
  /** The longest that one attempt may run, seconds. 1 to 604,800. Default: the endpoint's. */
  timeoutS?: number;
  /** The endpoint's version; default: the current one. At least 1. */
  version?: number;
  /** An https URL that receives events of the job. */
  webhook?: string;
  /** The events to send. Default `["job.completed"]`. */
  webhookEvents?: readonly JobHookEvent[];
}

/** Selects the jobs that match every given member. */
export interface JobFilter {
  /** Only lines of this batch. */
  batch?: string;
  /** Only jobs of this endpoint. */
  endpoint?: string;
  /** Only jobs that failed with this error code. */
  errorCode?: string;
  /** Only jobs with all of these labels. */
  metadata?: Record<string, string>;
  /** Only jobs of this priority. */
  priority?: Priority;
  /** Only jobs of this schedule. */
  schedule?: string;
  /** Only jobs in this state. */
  state?: JobState;
}

/** How a batch is run. An option that is missing has the default of the endpoint or of the API. */
export interface BatchOptions {
  /**
   * What happens when the budget is reached: lines that have not started are cancelled (`drain`, the default), or
   * running lines as well (`stop`).
   */
  atBudget?: AtBudget;
  /**
   * The budget of all lines together, micro-dollars. Lines that are already running when it is reached add to the cost.
   * At least 1.
   */
  budgetUsdMicros?: number;
  /** Seconds until the batch must have ended; lines that are left then expire. 1 to 2,592,000. */
  deadlineS?: number;
  /** The endpoint of lines that name none. */
  endpoint?: string;
  /** The format of the lines. Default `auto`: detected per line. */
  format?: LineFormat;
  /** How many attempts of a line may fail because of the handler. 1 to 100. Default: the endpoint's. */
  maxAttempts?: number;
  /** Your own labels for the batch as a whole: up to 32. */
  metadata?: Record<string, string>;
  /** What to do with invalid lines: run nothing (`fail`, the default) or run the others (`skip`). */
  onInvalid?: OnInvalid;
  /** The priority of the jobs. Default `batch`. */
  priority?: Priority;
  /** The longest that one attempt of a line may run, seconds. 1 to 604,800. Default: the endpoint's. */
  timeoutS?: number;
  /** The version of `endpoint`. At least 1. Default: the version that is current while the batch validates. */
  version?: number;
  /** An https URL that receives an event when the batch ends. */
  webhook?: string;
  /** The events to send. `batch.completed` is the only one and the default. */
  webhookEvents?: readonly BatchHookEvent[];
}

/** When a schedule submits its job. An option that is missing has the default of the endpoint or of the API. */
export interface ScheduleTiming {
  /** Minute, hour, day of month, month, day of week, e.g. `30 9 * * MON-FRI`; six fields begin with the second. */
  cron?: string;
  /** Seconds after which a tick counts as missed; 1 to 604800, default 60. */
  graceS?: number;
  /** What to do with missed ticks: those later than `graceS`. Default `run_once`. */
  missed?: Missed;
  /** Your own name for the schedule, up to 255 characters. Names need not be unique. */
  name?: string;
  /** Create the schedule paused. */
  paused?: boolean;
  /** The IANA time zone, e.g. `Europe/Berlin`. Default `UTC`. */
  timeZone?: string;
}

/** A rating of a result. At least one member is required. */
export interface Rating {
  /** Whether the result was useful. */
  accepted?: boolean;
  /** At most 2,000 characters. */
  comment?: string;
  /** 1 to 20 labels of 1 to 100 characters each. */
  labels?: readonly string[];
  /** 1 to 5; 5 is best. */
  score?: number;
}

/**
 * Options of a version of an endpoint. Objects in them have the members of the API. An option that is missing has the
 * value of the current version, or the default if a `package` is given.
 */
export interface DeployOptions {
  /** The JSON Schema of the input. It must not refer to other documents. */
  inputSchema?: unknown;
  /** Up to 8 endpoints that must allow an output before it is returned. */
  after?: readonly EndpointStep[];
  /**
   * Whether weights may contain pickles, which run code when they are loaded. They are scanned, and loaded without
   * network on workers with a sandbox. Default false.
   */
  allowPickle?: boolean;
  /** Up to 8 endpoints that must allow an input before it runs. */
  before?: readonly EndpointStep[];
  /** Other requirements for workers. */
  demands?: EndpointRequirements;
  /** `file.py:object` inside the package; each runner kind other than `python` describes its own format. */
  entry?: string;
  /** Environment variables of the runners: up to 64, each at most 4 KiB. */
  env?: Record<string, string>;
  /**
   * How long the model stays loaded after its last job although others need the memory, 0 to 86,400 seconds. Default 0.
   */
  keepWarmS?: number;
  /** The number of attempts of jobs that set none. 1 to 100. Default 3. */
  maxAttempts?: number;
  /**
   * Jobs that one call of the handler takes, 1 to 256; more than 1 only for handlers written for batches. Default 1.
   */
  maxBatchSize?: number;
  /** Jobs that one runner runs concurrently; more than 1 only for async handlers. 1 to 1,000. Default 1. */
  maxConcurrency?: number;
  /** How long the first job of a call waits for others, 0 to 10,000 milliseconds. Default 0. */
  maxWaitMs?: number;
  /** How many workers keep the model loaded without jobs, 0 to 1,000. Default 0. */
  minWarm?: number;
  /** Whether runners have network access. Default false: only loopback, on workers that can enforce it. */
  network?: boolean;
  /**
   * What the endpoint answers below `/openai/v1`: `chat`, `embeddings`, `images` or `none`. Default: a server answers
   * the call that its `path` names, or every call if it has no `path`; other kinds answer none.
   */
  openai?: OpenAiApi;
  /** Other names of the endpoint below `/openai/v1`: up to 16, each of up to 200 characters without `@`. */
  openaiModels?: readonly string[];
  /**
   * What the endpoint's own server calls its model, e.g. `Qwen/Qwen3-8B`: it replaces `model` in calls below
   * `/openai/v1`. Default: the name in the call, without its version.
   */
  openaiServedModel?: string;
  /** The JSON Schema of the result. */
  outputSchema?: unknown;
  /** The priority of jobs that set none. Default `standard`. */
  priority?: Priority;
  /** The Python version, e.g. `3.11`; empty means the worker's own. */
  python?: string;
  /**
   * How long after the submit jobs that set none may take to start, seconds; then they expire. 1 to 2,592,000. Default
   * 604,800 (7 days).
   */
  queueTimeoutS?: number;
  /**
   * The locked requirements, one per line: `name==version`, or `name @ https://...` with a hash, each optionally with a
   * marker and `--hash=sha256:...`, and `--index-url` lines. Indexes and URLs must be below those that the operator
   * allows. Up to 512 KiB. No other `requirements.txt` syntax is allowed.
   */
  requirementsLock?: string;
  /** When and after which errors jobs are retried. */
  retry?: EndpointRetry;
  /** What the worker starts. Default `{"kind": "python"}`. */
  runner?: EndpointRunner;
  /** Names of secrets that runners receive as environment variables: up to 32. They must exist. */
  secrets?: readonly string[];
  /** The longest run of jobs that set none, seconds. 1 to 604,800. Default 600. */
  timeoutS?: number;
  /**
   * The share of new jobs for this version, 0 to 100 percent; the current version gets the rest. Default 100: this
   * version becomes the current one. The first version always gets all jobs.
   */
  trafficPercent?: number;
  /**
   * The share of the memory that the model takes on any GPU, more than 0 and at most 1, for engines that fill the
   * memory they are given; `vramGib` is then the minimum. The memory of such an endpoint is never learned. Default: the
   * model takes what it needs.
   */
  vramFraction?: number;
  /** The VRAM needed on one GPU, GiB, 0 to 384; 0 runs on the CPU. */
  vramGib?: number;
  /**
   * Up to 8 inputs that a worker runs once before the first job; the GPU memory they use replaces `vramGib` on that
   * worker.
   */
  warmup?: readonly unknown[];
  /** Files that runners find in the folder `STOKE_WEIGHTS`: up to 1,000. */
  weights?: readonly EndpointWeight[];
}

/** Limits to set. A member that is missing or null means no limit. */
export interface LimitsOptions {
  /**
   * What happens when the budget is reached. With `drain`, the default, nothing more starts before midnight; with
   * `stop`, running jobs also return to the front of their queue and start again after midnight.
   */
  atBudget?: AtBudget | null;
  /**
   * The daily budget (UTC) for running and loading, micro-dollars. Jobs that are already running when it is reached add
   * to the cost.
   */
  budgetUsdMicrosPerDay?: number | null;
  /** Jobs that have not ended; a submit beyond this is refused with `quota_exceeded`. */
  maxOpen?: number | null;
  /** Jobs that run concurrently; 0 stops every start. */
  maxRunning?: number | null;
  /** Starts per minute; the burst is one second's worth, at least one. */
  startsPerMinute?: number | null;
}

/** Limits to set. A member that is missing or null means no limit. */
export interface TenantLimitsOptions {
  /**
   * What happens when the budget is reached. With `drain`, the default, nothing more starts before midnight; with
   * `stop`, running jobs also return to the front of their queue and start again after midnight.
   */
  atBudget?: AtBudget | null;
  /**
   * The daily budget (UTC) for running and loading, micro-dollars. Jobs that are already running when it is reached add
   * to the cost.
   */
  budgetUsdMicrosPerDay?: number | null;
  /**
   * Bytes of the queue's memory for the tenant's jobs, including ended ones until they move to the archive; a submit
   * beyond this is refused with `quota_exceeded`, and lines of batches wait. Absent: no limit until 60 % of the memory
   * is in use, then a fifth of it. Tenants only.
   */
  maxMemoryBytes?: number | null;
  /** Jobs that have not ended; a submit beyond this is refused with `quota_exceeded`. */
  maxOpen?: number | null;
  /** Jobs that run concurrently; 0 stops every start. */
  maxRunning?: number | null;
  /**
   * Bytes of uploaded files, packages and weights; an upload beyond this is refused with `storage_exceeded`. Tenants
   * only.
   */
  maxStorageBytes?: number | null;
  /**
   * Requests per minute to each replica of the API; the burst is ten seconds' worth. Requests beyond this are refused
   * with `rate_limited`. Tenants only.
   */
  requestsPerMinute?: number | null;
  /** Starts per minute; the burst is one second's worth, at least one. */
  startsPerMinute?: number | null;
  /** The share of the machines relative to other tenants, 0.01 to 1,000; default 1. Tenants only. */
  weight?: number | null;
}
