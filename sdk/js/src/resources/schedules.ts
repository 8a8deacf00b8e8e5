// Schedules: jobs submitted at set times.

import type { Http } from "../internal/http.js";
import { part, type CallOptions, type Id } from "../internal/options.js";
import { pages, query } from "../internal/page.js";
import { InputEncoder } from "./files.js";
import { request, type JobOptions } from "./submit.js";

/** What to do about missed times: submit no job, one job for all of them, or a job for each. */
export type Missed = "skip" | "run_once" | "run_all";

/** The job that a schedule submits. */
export interface ScheduledJob extends JobOptions {
  endpoint: string;
  /** A `Blob`, a `Uint8Array` or a file anywhere in it is uploaded first. */
  input?: unknown;
}

export interface CreateScheduleOptions extends CallOptions {
  name?: string;
  /** Five fields (minute, hour, day, month, weekday), or six with seconds first. */
  cron: string;
  /** The IANA name, e.g. "Europe/Paris". Default `UTC`. */
  timeZone?: string;
  /** What to do about times at which no job could be submitted. Default `run_once`. */
  missed?: Missed;
  /** A time is missed if it is more than this many seconds ago. Default 60. */
  graceS?: number;
  /** Whether the schedule starts paused. */
  paused?: boolean;
  job: ScheduledJob;
}

/** A schedule, as the API returns it. Members have the names of the API. */
export interface Schedule {
  id: string;
  name: string | null;
  cron: string;
  time_zone: string;
  missed: Missed;
  grace_s: number;
  paused: boolean;
  /** The time of its next job; null while it is paused. */
  next_at: string | null;
  last_at: string | null;
  last_job_id: string | null;
  /** Why its last job could not be submitted, as `code: what to change`; null if it was submitted. */
  last_error: string | null;
  /** The number of jobs that it has submitted. */
  ticks: number;
  created_at: string;
  /** The job that it submits: endpoint, input and options. */
  job: Record<string, unknown>;
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

  /** Creates a schedule, which submits a job at each time that matches `cron`. */
  async create({ job, signal, ...options }: CreateScheduleOptions): Promise<Schedule> {
    const { endpoint, input, ...said } = job;
    const body = {
      name: options.name,
      cron: options.cron,
      time_zone: options.timeZone,
      missed: options.missed,
      grace_s: options.graceS,
      paused: options.paused,
      job: request(endpoint, input, said),
    };
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
