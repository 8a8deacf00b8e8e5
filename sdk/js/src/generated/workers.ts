// Generated from api/openapi.json by `make models`; do not edit.
// The workers of the API.

import type { SandboxLevel, Trust } from "./endpoints.js";

/** The state of a model on a worker. */
export type ModelState = "loading" | "idle" | "busy";

/** Whether a GPU takes work. */
export type GpuHealth = "healthy" | "hot" | "faulty";

/** The state of a worker. */
export type WorkerState = "ready" | "draining" | "lost";

/** A worker's machine; zeros before the first reading. */
export interface WorkerHost {
  disk_free_bytes: number;
  disk_total_bytes: number;
  /** Bytes of cached environments. */
  environments_bytes: number;
  /** Bytes of cached weights. */
  weights_bytes: number;
  memory_free_bytes: number;
  memory_total_bytes: number;
  /** Bytes since the machine started, over all interfaces except loopback. */
  received_bytes: number;
  sent_bytes: number;
}

/** The memory of a model on a GPU. */
export interface ModelOnGpu {
  /** The GPU's index. */
  index: number;
  /** The memory reserved for the model. */
  held_mib: number;
  /** The memory that its processes use; null if that cannot be measured. */
  seen_mib: number | null;
}

/** A model on a worker. */
export interface LoadedModel {
  tenant: string;
  /** `name@version`. */
  name: string;
  /** The state of a model on a worker. */
  state: ModelState;
  /** The GPUs that it uses; none on the CPU. */
  cards: ModelOnGpu[];
  /** The mean of its last runs, at most a hundred. */
  mean_ms: number | null;
  /** The 95th percentile of its last runs, at most a hundred. */
  p95_ms: number | null;
  /** When a run of it last succeeded, RFC 3339. */
  succeeded_at: string | null;
}

/** A GPU. */
export interface WorkerGpu {
  index: number;
  uuid: string;
  name: string;
  /** The total memory. */
  vram_mib: number;
  /** Whether a GPU takes work. */
  health: GpuHealth;
  /** E.g. `8.9`. */
  compute_capability: string | null;
  /** Uncorrected ECC errors since the driver was loaded. */
  ecc_uncorrected: number | null;
  power_w: number | null;
  temperature_c: number | null;
  utilisation_pct: number | null;
  /** Memory in use by processes that do not belong to the worker. */
  vram_foreign_mib: number | null;
  /** Memory that a model could still reserve. */
  vram_free_mib: number | null;
  /** Memory reserved for models. */
  vram_held_mib: number | null;
  /** Memory in use by any process. */
  vram_used_mib: number | null;
  /** Why the GPU takes no work. */
  why: string | null;
}

/** A worker. */
export interface Worker {
  /** Its id. */
  id: string;
  /** The name that its operator gave it. */
  name: string;
  /** Its release. */
  release: string;
  /** Whether it takes jobs. */
  state: WorkerState;
  /** When it joined, RFC 3339. */
  joined_at: string;
  /** When it last called the gateway, RFC 3339. */
  seen_at: string;
  /** Attempts that it runs concurrently. */
  slots: number;
  /** Attempts that it is running now. */
  running: number;
  /** Loaded endpoint versions, as `name@version`. */
  loaded: string[];
  /** The owner of the machine, as set on its join token. */
  trust: Trust;
  /** The region, as set on its join token; empty if the token sets none. */
  region: string;
  /** Its GPUs; none on a CPU worker. */
  gpus: WorkerGpu[];
  /** Its models, by name. */
  models: LoadedModel[];
  /** A worker's machine; zeros before the first reading. */
  host: WorkerHost;
  /** The newest CUDA version that the driver supports, e.g. `12.8`. */
  cuda: string | null;
  /** The GPU driver's version. */
  driver: string | null;
  /** The sandbox level that the worker reports: `L0` none, `L1` system calls and files, `L2` also namespaces. */
  sandbox?: SandboxLevel;
}
