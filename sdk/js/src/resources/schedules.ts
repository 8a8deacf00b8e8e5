// Schedules: a job at every tick of a clock.

import type { Http } from "../internal/http.js";
import { part, type CallOptions, type Id } from "../internal/options.js";
import { pages, query } from "../internal/page.js";
import { InputEncoder } from "./files.js";
import { request, type JobOptions } from "./submit.js";

/** What becomes of ticks that nothing was there to see: none of them, one for all, or each. */
export type Missed = "skip" | "run_once" | "run_all";

/** The job of every tick. */
export interface ScheduledJob extends JobOptions {
  endpoint: string;
  /** A `Blob`, a `Uint8Array` or a file anywhere in it is uploaded first. */
  input?: unknown;
}

export interface CreateScheduleOptions extends CallOptions {
  name?: string;
  /** Minute, hour, day, month and weekday; with six fields, seconds first. */
  cron: string;
  /** As the IANA names it. Default `UTC`. */
  timeZone?: string;
  /** Default `run_once`. */
  missed?: Missed;
  /** A tick that is seen later than this is missed. Default 60. */
  graceS?: number;
  /** Begin without ticking. */
  paused?: boolean;
  job: ScheduledJob;
}

/** A schedule as the API shows it. Members are named as the API names them. */
export interface Schedule {
  id: string;
  name: string | null;
  cron: string;
  time_zone: string;
  missed: Missed;
  grace_s: number;
  paused: boolean;
  next_at: string | null;
  last_at: string | null;
  last_job_id: string | null;
  /** Why the last tick made no job. */
  last_error: string | null;
  ticks: number;
  created_at: string;
  /** The job of every tick, as a submit says it. */
  job: Record<string, unknown>;
}

export interface ListSchedulesOptions extends CallOptions {
  /** Schedules fetched at once, 1 to 100. */
  pageSize?: number;
}

/** `client.schedules` */
export class Schedules {
  readonly #http: Http;

  /** @internal */
  constructor(http: Http) {
    this.#http = http;
  }

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

  retrieve(id: Id, { signal }: CallOptions = {}): Promise<Schedule> {
    return this.#http.get(`/v1/schedules/${part(id)}`, { signal });
  }

  /** Fetched page by page as they are looked at. */
  list({ pageSize = 100, signal }: ListSchedulesOptions = {}): AsyncGenerator<Schedule, void, void> {
    return pages(this.#http, "/v1/schedules", "schedules", query({ limit: pageSize }), signal);
  }

  /** No tick makes a job until it is resumed. */
  pause(id: Id, { signal }: CallOptions = {}): Promise<Schedule> {
    return this.#http.post(`/v1/schedules/${part(id)}/pause`, "", { signal });
  }

  resume(id: Id, { signal }: CallOptions = {}): Promise<Schedule> {
    return this.#http.post(`/v1/schedules/${part(id)}/resume`, "", { signal });
  }

  /** Its jobs stay. */
  delete(id: Id, { signal }: CallOptions = {}): Promise<void> {
    return this.#http.delete(`/v1/schedules/${part(id)}`, { signal });
  }
}
