// Schedules: jobs submitted at set times.

import type { JobOptions, ScheduleTiming } from "../generated/options.js";
import type { Schedule } from "../generated/schedules.js";
import { SCHEDULE_TIMING } from "../generated/values.js";
import type { Http } from "../internal/http.js";
import { named, part, type CallOptions, type Id } from "../internal/options.js";
import { pages, query } from "../internal/page.js";
import { InputEncoder } from "./files.js";
import { request } from "./submit.js";

/** The job that a schedule submits. */
export interface ScheduledJob extends JobOptions {
  endpoint: string;
  /** A `Blob`, a `Uint8Array` or a file anywhere in it is uploaded first. */
  input?: unknown;
}

/** `cron` and `job` are required. */
export interface CreateScheduleOptions extends ScheduleTiming, CallOptions {
  /** Five fields (minute, hour, day, month, weekday), or six with seconds first. */
  cron: string;
  job: ScheduledJob;
}

export interface ListSchedulesOptions extends CallOptions {
  /** The number of schedules in a page, 1 to 100. Default 100. */
  pageSize?: number;
}

/** `client.schedules`: jobs submitted at set times. */
export class Schedules {
  readonly #http: Http;

  /** @internal */
  constructor(http: Http) {
    this.#http = http;
  }

  /**
   * Creates a schedule, which submits a job at each time that matches `cron`.
   *
   * ```js
   * const job = { endpoint: "report", input: {} };
   * await client.schedules.create({ cron: "0 6 * * 1-5", timeZone: "Europe/Berlin", job });
   * ```
   */
  async create({ job, signal, ...options }: CreateScheduleOptions): Promise<Schedule> {
    const { endpoint, input, ...jobOptions } = job;
    const body = { ...named(SCHEDULE_TIMING, options), job: request(endpoint, input, jobOptions) };
    return this.#http.post("/v1/schedules", await new InputEncoder(this.#http, signal).encode(body), { signal });
  }

  /** Returns a schedule by its id. */
  retrieve(id: Id, { signal }: CallOptions = {}): Promise<Schedule> {
    return this.#http.get(`/v1/schedules/${part(id)}`, { signal });
  }

  /** Lists every schedule, fetched page by page. */
  list({ pageSize = 100, signal }: ListSchedulesOptions = {}): AsyncGenerator<Schedule, void, void> {
    return pages(this.#http, "/v1/schedules", "schedules", query({ limit: pageSize }), signal);
  }

  /** Pauses a schedule: it submits no job until it is resumed. */
  pause(id: Id, { signal }: CallOptions = {}): Promise<Schedule> {
    return this.#http.post(`/v1/schedules/${part(id)}/pause`, "", { signal });
  }

  /** Resumes a schedule from the next time that matches its `cron`. */
  resume(id: Id, { signal }: CallOptions = {}): Promise<Schedule> {
    return this.#http.post(`/v1/schedules/${part(id)}/resume`, "", { signal });
  }

  /** Deletes a schedule. Jobs that it has submitted continue. */
  delete(id: Id, { signal }: CallOptions = {}): Promise<void> {
    return this.#http.delete(`/v1/schedules/${part(id)}`, { signal });
  }
}
