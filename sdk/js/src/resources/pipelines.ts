// Jobs that wait for each other, submitted together: all are accepted, or none.

import { uuid } from "../internal/crypto.js";
import type { Http } from "../internal/http.js";
import type { CallOptions } from "../internal/options.js";
import { callHeaders } from "../internal/trace.js";
import { InputEncoder } from "./files.js";
import { resultRef, type Job, type ResultRef } from "./job.js";
import {
  accepted,
  BULK_BYTES_MAX,
  BULK_JOBS_MAX,
  request,
  sendBulk,
  type Dependency,
  type JobOptions,
  type SubmitManyOptions,
} from "./submit.js";

export interface StepOptions extends JobOptions {
  /** What to wait for beside the steps and jobs that the input refers to. */
  after?: readonly Dependency[];
  /** Not before this time. */
  runAfter?: Date;
}

export interface RunOptions extends CallOptions {
  /** Running the same pipeline with this key within 24 hours gives the same jobs. Default: one for this pipeline. */
  idempotencyKey?: string;
}

/** A job to be, by its place in the pipeline. Anywhere in a later input it stands for its result. */
export class PipelineStep {
  /** What the API knows it by until it is accepted. */
  readonly id: string;

  /** @internal */
  constructor(index: number) {
    this.id = `#${index}`;
  }

  /** Its result, or the part that a JSON pointer names. */
  ref(pointer = ""): ResultRef {
    return resultRef(this.id, pointer);
  }

  /** What `JSON.stringify` shows. */
  toJSON(): ResultRef {
    return this.ref();
  }
}

interface Planned {
  endpoint: string;
  input: unknown;
  options: SubmitManyOptions;
}

/** `client.pipeline()` */
export class Pipeline {
  readonly #http: Http;
  readonly #planned: Planned[] = [];
  readonly #steps = new Set<PipelineStep>();
  #key: string | undefined;

  /** @internal */
  constructor(http: Http) {
    this.#http = http;
  }

  /** Adds a job. Nothing is sent before `run`. */
  submit(endpoint: string, input?: unknown, { after, ...options }: StepOptions = {}): PipelineStep {
    if (this.#planned.length >= BULK_JOBS_MAX) throw new TypeError(`a pipeline has at most ${BULK_JOBS_MAX} jobs`);
    for (const dependency of after ?? []) this.#own(dependency);
    const step = new PipelineStep(this.#planned.length);
    this.#planned.push({ endpoint, input, options: after === undefined ? options : { ...options, dependsOn: after } });
    this.#steps.add(step);
    return step;
  }

  /** Queues all of it with one request, and gives the jobs in the order they were added. */
  async run({ idempotencyKey, signal }: RunOptions = {}): Promise<Job[]> {
    if (this.#planned.length === 0) return [];
    const called = callHeaders();
    const key = idempotencyKey ?? (this.#key ??= await uuid());
    const encoder = new InputEncoder(this.#http, signal);
    const planned = [...this.#planned];
    const bodies: string[] = [];
    let bytes = 0;
    for (const { endpoint, input, options } of planned) {
      const body = await encoder.encode(request(endpoint, input, options));
      bodies.push(body);
      bytes += new TextEncoder().encode(body).byteLength + 1;
    }
    if (bytes > BULK_BYTES_MAX) {
      const why = `the pipeline has ${bytes} bytes of JSON, and one request takes ${BULK_BYTES_MAX}`;
      throw new TypeError(`${why}; upload large inputs`);
    }
    const ids = await sendBulk(this.#http, bodies, key, signal, called);
    const named = (dependency: Dependency): Dependency => {
      if (typeof dependency === "string") return dependency;
      if ("id" in dependency) return ids[indexOf(dependency)] ?? dependency;
      const id = typeof dependency.job === "string" ? dependency.job : (ids[indexOf(dependency.job)] ?? dependency.job);
      return { ...dependency, job: id };
    };
    return planned.flatMap(({ endpoint, options }, index) => {
      const id = ids[index];
      const dependsOn = (options.dependsOn ?? []).map(named);
      return id === undefined ? [] : [accepted(this.#http, id, endpoint, { ...options, dependsOn })];
    });
  }

  /** Another pipeline's step has a place there, which would be some other job's here. */
  #own(dependency: Dependency): void {
    const step = typeof dependency === "object" && "job" in dependency ? dependency.job : dependency;
    if (!(step instanceof PipelineStep) || this.#steps.has(step)) return;
    throw new TypeError(`${step.id} is of another pipeline`);
  }
}

function indexOf(step: { readonly id: string }): number {
  return step instanceof PipelineStep ? Number(step.id.slice(1)) : -1;
}
