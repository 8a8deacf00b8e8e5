// Generated from api/openapi.json by `make models`; do not edit.
// The endpoints of the API.

import type { Priority } from "./jobs.js";

/** The sandbox level of a worker's handlers. */
export type SandboxLevel = "L0" | "L1" | "L2";

/** The owner of a machine. */
export type Trust = "community" | "datacenter" | "owned";

/** A part of the API of OpenAI. */
export type OpenAiApi = "chat" | "embeddings" | "images" | "none";

/** An endpoint that decides on a job. */
export interface EndpointStep {
  /** The endpoint that decides. */
  endpoint: string;
  /** The step's name in the job's record. Default: its endpoint's name. */
  name: string | null;
  /** The highest allowed score of each label, 0 to 1. */
  thresholds: Record<string, number>;
  /** The longest that one attempt of the step may run, seconds. Default: the deciding endpoint's. */
  timeout_s: number | null;
  /** The version; default: the version that is current at each submit. */
  version: number | null;
}

/** When and after which errors a job is retried. `max_attempts` limits how often. */
export interface EndpointRetry {
  /** The longest wait before any retry, seconds. Default 60. */
  backoff_max_s: number | null;
  /** The longest wait before the first retry, seconds; it doubles with each retry. Default 1. */
  backoff_s: number | null;
  /** The random part of the wait, 0 to 1. Default 0.5. */
  jitter: number | null;
  /** The job error codes that are retried. Default: all that may be. */
  on: string[] | null;
}

/** An endpoint's requirements for workers besides memory. Absent members require nothing. */
export interface EndpointRequirements {
  /**
   * One of these GPU models, e.g. `RTX 4090`: words that appear in this order in the name that the driver reports. At
   * most 16.
   */
  gpu_models?: string[];
  /**
   * The number of GPUs in one machine, 1 to 16. Default 1. With several, each GPU is used whole, and `vram_gib` applies
   * to each.
   */
  gpus?: number;
  /** The minimum CUDA compute capability, e.g. `8.0`. */
  min_compute_capability?: string;
  /** The minimum CUDA version that the driver supports, e.g. `12.4`. */
  min_cuda?: string;
  /** The minimum sandbox level of the handlers: `L0` to `L2`. Default `L0`. */
  min_sandbox?: SandboxLevel;
  /** The minimum trust in the machine's owner. Default `datacenter`. */
  min_trust?: Trust;
  /** One of these regions, as set on join tokens. At most 16. */
  regions?: string[];
}

/** What a worker starts for an endpoint. */
export interface EndpointRunner {
  kind: "python" | "cog" | "runpod" | "server" | "command";
  /**
   * The metric in the server's `GET /metrics` that shows that it has no room for another job, and its limit, e.g.
   * `vllm:num_requests_waiting > 0` (`>` or `>=`). While it holds, the server is sent fewer jobs at once, down to 1.
   */
  busy?: string;
  /** The program and its arguments; `{port}` is replaced by the port to listen on, which is also in `PORT`. */
  command?: string[];
  /** The path that inputs are posted to. Without it, an input is `{"path": …, "body": …, "method": …}`. */
  path?: string;
  /** The port of a server whose port is fixed. */
  port?: number;
  /** The path that answers 2xx once the server is ready. Default `/health`. */
  ready_path?: string;
}

/** One file of an endpoint's weights. */
export interface EndpointWeight {
  /** The file's path in the folder `STOKE_WEIGHTS`, e.g. `unet/model.safetensors`. */
  path: string;
  /** The origin of the file, for people to read, e.g. `hf://org/model@<commit>/model.safetensors`. */
  source: string;
  /** The SHA-256 of the file, lower-case hex; workers reject other content. */
  sha256: string;
  size_bytes: number;
  /**
   * The address that workers fetch it from: `https://`, `http://` or `s3://`. Null if it was uploaded, see `POST
   * /v1/weights`.
   */
  url: string | null;
}

/** A version of an endpoint. Versions never change. */
export interface Endpoint {
  /** The endpoint's name: 1 to 63 of a-z, 0-9 and -, not starting with -. */
  name: string;
  /** 1, 2, 3, ... */
  version: number;
  /** When it was deployed, RFC 3339. */
  created_at: string;
  /** The uploaded package, see `POST /v1/packages`. */
  package_sha256: string;
  /** The package's size. */
  package_size_bytes: number;
  /** `file.py:object` inside the package; each runner kind other than `python` describes its own format. */
  entry: string;
  /**
   * The locked requirements, one per line: `name==version`, or `name @ https://...` with a hash, each optionally with a
   * marker and `--hash=sha256:...`, and `--index-url` lines. Indexes and URLs must be below those that the operator
   * allows. Up to 512 KiB. No other `requirements.txt` syntax is allowed.
   */
  requirements_lock: string;
  /** The Python version, e.g. `3.11`; empty means the worker's own. */
  python: string;
  /** Whether runners have network access. Default false: only loopback, on workers that can enforce it. */
  network: boolean;
  /** The JSON Schema of the input. It must not refer to other documents. */
  input_schema: unknown;
  /** The JSON Schema of the result. */
  output_schema: unknown;
  /** The VRAM needed on one GPU, GiB, 0 to 384; 0 runs on the CPU. */
  vram_gib: number;
  /** Jobs that one runner runs concurrently; more than 1 only for async handlers. Default 1. */
  max_concurrency: number;
  /** The longest run of jobs that set none, seconds. Default 600. */
  timeout_s: number;
  /** The number of attempts of jobs that set none. Default 3. */
  max_attempts: number;
  /** Up to 8 endpoints that must allow an output before it is returned. */
  after?: EndpointStep[];
  /**
   * Whether weights may contain pickles, which run code when they are loaded. They are scanned, and loaded without
   * network on workers with a sandbox. Default false.
   */
  allow_pickle?: boolean;
  /** Up to 8 endpoints that must allow an input before it runs. */
  before?: EndpointStep[];
  /** Other requirements for workers. */
  demands?: EndpointRequirements;
  /** Environment variables of the runners: up to 64, each at most 4 KiB. */
  env?: Record<string, string>;
  /**
   * How long the model stays loaded after its last job although others need the memory, 0 to 86,400 seconds. Default 0.
   */
  keep_warm_s?: number;
  /**
   * Jobs that one call of the handler takes, 1 to 256; more than 1 only for handlers written for batches. Default 1.
   */
  max_batch_size?: number;
  /** How long the first job of a call waits for others, 0 to 10,000 milliseconds. Default 0. */
  max_wait_ms?: number;
  /** How many workers keep the model loaded without jobs, 0 to 1,000. Default 0. */
  min_warm?: number;
  /**
   * What the endpoint answers below `/openai/v1`: `chat`, `embeddings`, `images` or `none`. Default: a server answers
   * the call that its `path` names, or every call if it has no `path`; other kinds answer none.
   */
  openai?: OpenAiApi;
  /** Other names of the endpoint below `/openai/v1`: up to 16, each of up to 200 characters without `@`. */
  openai_models?: string[];
  /**
   * What the endpoint's own server calls its model, e.g. `Qwen/Qwen3-8B`: it replaces `model` in calls below
   * `/openai/v1`. Default: the name in the call, without its version.
   */
  openai_served_model?: string;
  /** The priority of jobs that set none. Default `standard`. */
  priority?: Priority;
  /**
   * How long after the submit jobs that set none may take to start, seconds; then they expire. Default 604,800 (7
   * days).
   */
  queue_timeout_s?: number;
  /** When and after which errors jobs are retried. */
  retry?: EndpointRetry;
  /** What the worker starts. Default `{"kind": "python"}`. */
  runner?: EndpointRunner;
  /** Names of secrets that runners receive as environment variables: up to 32. They must exist. */
  secrets?: string[];
  /**
   * The share of the memory that the model takes on any GPU, more than 0 and at most 1, for engines that fill the
   * memory they are given; `vram_gib` is then the minimum. The memory of such an endpoint is never learned. Default:
   * the model takes what it needs.
   */
  vram_fraction?: number;
  /**
   * Up to 8 inputs that a worker runs once before the first job; the GPU memory they use replaces `vram_gib` on that
   * worker.
   */
  warmup?: unknown[];
  /** Files that runners find in the folder `STOKE_WEIGHTS`: up to 1,000. */
  weights?: EndpointWeight[];
}
