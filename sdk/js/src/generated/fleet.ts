// Generated from api/openapi.json by `make models`; do not edit.
// The fleet of the API.

import type { EndpointRequirements } from "./endpoints.js";
import type { Priority, Waiting } from "./jobs.js";

/** What the autoscaler does with an instance. */
export type DecisionAction = "rent" | "resume" | "drain" | "undrain" | "stop" | "release";

/** The state of an instance. */
export type MachineState = "booting" | "ready" | "draining" | "stopped" | "resuming" | "lost" | "ending";

/** A decision of the autoscaler about an instance. */
export interface FleetDecision {
  /** When it was made, RFC 3339. */
  at: string;
  /** `rent`, `resume`, `drain`, `undrain`, `stop` or `release`. */
  action: DecisionAction;
  /** The reason. */
  reason: string;
  /** Why the action failed; null if it did not. */
  failure: string | null;
  /** The instance, once there is one. */
  machine: string | null;
}

/** A notice for the operator. */
export interface FleetNotice {
  /** The subject, e.g. `max_usd_per_hour` or `provider_unreachable vast`. */
  kind: string;
  /** The notice, with what to do. */
  text: string;
  /** Since when it applies, RFC 3339. */
  since: string;
}

/** An instance. */
export interface Machine {
  /** The autoscaler's id of the instance; for a worker that it did not start, the worker's name. */
  id: string;
  /** The provider; `joined`: an operator started the worker, and the autoscaler does not manage it. */
  provider: string;
  /** The GPU model, or `CPU`. */
  kind: string;
  /** The physical host, if the provider names it. */
  host: string;
  /** The state of an instance. */
  state: MachineState;
  /** Since when it is in this state, RFC 3339. */
  since: string;
  /** Since when it is paid for, RFC 3339. */
  rented_at: string;
  /** The cost per hour in its current state; 0 for an owned machine. */
  usd_micros_per_hour: number;
  /** Whether the provider may interrupt it for a higher bid. */
  is_interruptible: boolean;
  /** The number of GPUs; 0 computes on the CPU. */
  cards: number;
  /** The memory class of the smallest GPU. */
  vram_class_gib: number;
  /** Attempts that it runs concurrently. */
  slots: number;
  /** Attempts that it is running now. */
  running: number;
  /** Loaded models, as `tenant/name@version`. */
  loaded: string[];
  /** Endpoints that it has loaded since it was rented, as `tenant/name`: their files are on its disk. */
  on_disk: string[];
  /** Since when it runs no attempt, RFC 3339; null while it does and before it is ready. */
  idle_since: string | null;
  /** Its worker, once it has joined. */
  worker_id: string | null;
}

/** Every instance, by id. */
export interface Fleet {
  /** The current cost of all instances together. */
  usd_micros_per_hour: number;
  machines: Machine[];
  /** Notices for the operator: what the autoscaler cannot see, or holds back. */
  notices: FleetNotice[];
  /** The latest decisions and their reasons, newest first. */
  decisions: FleetDecision[];
  /** When the autoscaler last reported its status, RFC 3339; null if there was no report. */
  autoscaler_at: string | null;
}

/** Jobs that waited only for a worker. */
export interface WaitingByPriority {
  interactive: number;
  standard: number;
  batch: number;
}

/** The ready jobs of one endpoint, at one priority, for one GPU class. */
export interface Lane {
  tenant: string;
  endpoint: string;
  /** The priority of a job. */
  priority: Priority;
  /** The GPU memory class; 0 is the CPU. */
  vram_class_gib: number;
  /** The endpoint's other requirements for workers; empty if it has none. */
  demands: EndpointRequirements;
  /** The number of jobs. */
  jobs: number;
  /** Why a job has not started. */
  waiting: Waiting;
  /**
   * When they are expected to be done, as estimated by the autoscaler from current and coming instances. Null if no
   * autoscaler runs, or if nothing that could run them exists or is coming.
   */
  eta_s: number | null;
  /** Since when the first of them is ready, RFC 3339; null if all wait for their concurrency key. */
  oldest_at: string | null;
}

/** A reading of a GPU; null is what it does not report. */
export interface GpuReading {
  index: number;
  /** Reserved by models. */
  vram_held_mib: number;
  power_w: number | null;
  temperature_c: number | null;
  utilisation_pct: number | null;
  vram_used_mib: number | null;
}

/** A reading of a worker. */
export interface Reading {
  /** RFC 3339. */
  at: string;
  /** Attempts that were running. */
  running: number;
  gpus: GpuReading[];
  memory_free_bytes: number;
  disk_free_bytes: number;
  /** Bytes since the machine started, over all interfaces except loopback. */
  received_bytes: number;
  sent_bytes: number;
}

/** An evicted worker. */
export interface Evicted {
  id: string;
  /** The name that its operator gave it. */
  name: string;
  /** The number of its jobs that were requeued. */
  requeued: number;
  /** Whether that token was revoked. */
  join_token_revoked: boolean;
  /** The id of the token that it joined with; null if it is not known. */
  join_token: string | null;
}

/** The memory and the replicas of Redis. */
export interface RedisMemory {
  /** Memory in use. */
  memory_used_bytes: number;
  /** The `maxmemory` setting; 0 without a limit. */
  memory_max_bytes: number;
  /** Replicas in sync. */
  replicas: number;
}

/** Whether new work is accepted. Accepted work continues in any case. */
export interface Admission {
  /** Whether new work is accepted. */
  open: boolean;
  /** The reason for refusing new work. */
  reason: string | null;
}

/** The health of this replica. */
export interface Health {
  /** `ok`. */
  status: string;
  /**
   * What an accepted job survives: `strict` (a power cut), `standard` (any crash of a process) or `ephemeral`
   * (nothing).
   */
  durability: string;
  /** The number of Redis replicas that hold a job, or its end, before it is acknowledged. */
  replicas_to_wait: number;
  /** Whether new work is accepted, as of the last second; with several shards, on all of them. */
  admission: Admission;
  /** The state of Redis, as of the last second; with several shards, the fullest one. */
  redis: RedisMemory;
  /** This API's release. */
  release: string;
}
