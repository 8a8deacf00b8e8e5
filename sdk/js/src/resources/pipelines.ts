// Pipelines: jobs that use each other's results, sent as one request.

import type { JobOptions } from "../generated/options.js";
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
  type SubmitManyOptions,
} from "./submit.js";

export interface StepOptions extends JobOptions {
  /** Steps and jobs to depend on, in addition to those that the input refers to. */
  after?: readonly Dependency[];
  /** The earliest time to start at. */
  runAfter?: Date;
}

export interface RunOptions extends CallOptions {
  /** A second run with the same key, within 24 hours, returns the same jobs. Default: a key for this pipeline. */
  idempotencyKey?: string;
}

/** A job of a pipeline that is not sent yet. In the input of a later step it is replaced by its result. */
export class PipelineStep {
  /** The id within the request, e.g. `#0`: the position of the step in the pipeline. */
  readonly id: string;

  /** @internal */
  constructor(index: number) {
    this.id = `#${index}`;
  }

  /** Returns a reference to the result of the step, or to the part of it that a JSON pointer selects. */
  ref(pointer = ""): ResultRef {
    return resultRef(this.id, pointer);
  }

  /** The reference, for `JSON.stringify`. */
  toJSON(): ResultRef {
    return this.ref();
  }
}

interface Planned {
  endpoint: string;
  input: unknown;
  options: SubmitManyOptions;
}

/** Jobs that use each other's results, sent as one request by `run`: all, or none. */
export class Pipeline {
  readonly #http: Http;
  readonly #planned: Planned[] = [];
  readonly #steps = new Set<PipelineStep>();
  #key: string | undefined;

  /** @internal */
  constructor(http: Http) {
    this.#http = http;
  }

  /** Adds a job. It is sent by `run`. */
  submit(endpoint: string, input?: unknown, { after, ...options }: StepOptions = {}): PipelineStep {
    if (this.#planned.length >= BULK_JOBS_MAX) throw tooLarge();
    for (const dependency of after ?? []) this.#own(dependency);
    const step = new PipelineStep(this.#planned.length);
    this.#planned.push({ endpoint, input, options: after === undefined ? options : { ...options, dependsOn: after } });
    this.#steps.add(step);
    return step;
  }

  /** Submits all jobs with one request, and returns them in the order in which they were added. */
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
    if (bytes > BULK_BYTES_MAX) throw tooLarge();
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

  /** Rejects a step of another pipeline. Its id is a position, which belongs to another job in this pipeline. */
  #own(dependency: Dependency): void {
    const step = typeof dependency === "object" && "job" in dependency ? dependency.job : dependency;
    if (!(step instanceof PipelineStep) || this.#steps.has(step)) return;
    throw new TypeError(`step ${step.id} belongs to another pipeline; use it only within its own pipeline`);
  }
}

function tooLarge(): TypeError {
  const limits = `at most ${BULK_JOBS_MAX} jobs and ${BULK_BYTES_MAX >> 20} MiB`;
  return new TypeError(
    `a pipeline is sent as one request, with ${limits}; ` +
      "upload large inputs as files, or split it and let the second part depend on jobs of the first",
  );
}

function indexOf(step: { readonly id: string }): number {
  return step instanceof PipelineStep ? Number(step.id.slice(1)) : -1;
}
