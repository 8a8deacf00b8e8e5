// The errors of the client: one class for each case that a caller would handle differently.
//
// StokeholdError
// ├── ApiError                the API returned an error
// │   ├── BadRequest          the request is invalid; change it
// │   │   └── InvalidInput    the input does not match the schema of the endpoint; `errors` lists where
// │   ├── Unauthorized        the token is missing or invalid
// │   ├── Forbidden           the token lacks a scope
// │   ├── NotFound            the job, endpoint, version or file does not exist
// │   ├── Conflict            the current state does not allow the request
// │   │   ├── NotRetryable    the job has not failed, expired or been cancelled
// │   │   ├── NothingToRetry  no line of the batch failed or expired
// │   │   └── InUse           `dependents` need what was to be deleted; pass `force`, or delete these first
// │   ├── RateLimited         too many requests; retry after `retryAfterS`
// │   │   └── QuotaExceeded   one of your own limits is reached; see `client.limits.own()`
// │   ├── Unavailable         a service behind the API is unavailable; a retry is safe
// │   └── ServerError         a bug in the server
// ├── ConnectionFailed        no response: refused, reset or closed early
// ├── TimedOut                no response in time
// ├── WaitTimeout             the job or batch did not end in time; it continues
// ├── PartlySubmitted         `submitMany` failed after some jobs were accepted; these are `jobs`
// ├── WebhookVerificationError  the request is not from your Stokehold, or is too old
// └── JobError                the job ended without a result
//     ├── JobFailed
//     │   ├── JobPoisoned         it crashed its runner on several workers, and is not run again
//     │   ├── JobRejected         the handler, or a step before or after it, rejected the input or output
//     │   ├── DependencyFailed    a job that it depends on, or one of its steps, has no result
//     │   └── OutOfGpuMemory      it needed more GPU memory than was available
//     ├── JobCancelled
//     └── JobExpired
//
// After a `ConnectionFailed`, `TimedOut` or `Unavailable` of a submit, the outcome is unknown. All retries within one
// call use the same idempotency key. To repeat the call itself safely, pass an `idempotencyKey` of your own.
//
// If a signal is aborted, the call throws the reason of the signal, like `fetch`.

import type { Dependent } from "../generated/deletion.js";
import type { Failure, JobRecord } from "../generated/jobs.js";

/** The base class of all errors of the client. */
export class StokeholdError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** An invalid value in a request: its path, and what is wrong with it. */
export interface FieldProblem {
  path: string;
  message: string;
}

interface ApiProblem {
  status: number;
  code: string;
  detail: string;
  requestId: string | undefined;
  errors: readonly FieldProblem[];
  retryAfterS: number | undefined;
  dependents?: readonly Dependent[];
}

/** The API returned an error. */
export class ApiError extends StokeholdError {
  readonly status: number;
  /** The error code of the API. Stable. */
  readonly code: string;
  /** What is wrong, and what to change. */
  readonly detail: string;
  readonly requestId: string | undefined;
  readonly errors: readonly FieldProblem[];
  readonly retryAfterS: number | undefined;

  constructor(problem: ApiProblem) {
    const places = problem.errors
      .filter((place) => !problem.detail.includes(place.message))
      .map((place) => `${place.path || "/"}: ${place.message}`);
    super(`${problem.detail} (${[...places, `${problem.status} ${problem.code}`].join("; ")})`);
    this.status = problem.status;
    this.code = problem.code;
    this.detail = problem.detail;
    this.requestId = problem.requestId;
    this.errors = problem.errors;
    this.retryAfterS = problem.retryAfterS;
  }
}

/** The request is invalid. It cannot succeed unless it is changed. */
export class BadRequest extends ApiError {}
/** The input does not match the schema of the endpoint. `errors` lists where. */
export class InvalidInput extends BadRequest {}
/** The token is missing or invalid. */
export class Unauthorized extends ApiError {}
/** The token lacks a scope. */
export class Forbidden extends ApiError {}
/** The job, endpoint, version or file does not exist. */
export class NotFound extends ApiError {}
/** The current state of the job, batch or other object does not allow the request. */
export class Conflict extends ApiError {}
/** The job has not failed, expired or been cancelled, so it cannot be retried. */
export class NotRetryable extends Conflict {}
/** No line of the batch failed or expired. */
export class NothingToRetry extends Conflict {}
/** Something depends on what was to be deleted. `dependents` lists it, by kind. */
export class InUse extends Conflict {
  readonly dependents: readonly Dependent[];

  constructor(problem: ApiProblem) {
    super(problem);
    this.dependents = problem.dependents ?? [];
  }
}
/** Too many requests. `retryAfterS` is the time to wait before a retry. */
export class RateLimited extends ApiError {}
/** One of your own limits is reached: open jobs, running jobs or starts a minute. See `client.limits.own()`. */
export class QuotaExceeded extends RateLimited {}
/** A service behind the API is unavailable. A retry with the same idempotency key is safe. */
export class Unavailable extends ApiError {}
/** A bug in the server. */
export class ServerError extends ApiError {}

/** No response: the connection was refused, reset or closed early. */
export class ConnectionFailed extends StokeholdError {}
/** No response in time. */
export class TimedOut extends StokeholdError {}

/** The job or batch did not end in time. It is not cancelled and continues. */
export class WaitTimeout extends StokeholdError {
  constructor(
    readonly what: "job" | "batch",
    readonly id: string,
    readonly timeoutS: number,
    readonly state: string,
  ) {
    super(`${what} ${id} is still ${state} after ${timeoutS} s and continues; wait again, or cancel it`);
  }

  /** The same as `id`. */
  get jobId(): string {
    return this.id;
  }
}

/** The request is not from your Stokehold, or is too old. Respond to it with 401. */
export class WebhookVerificationError extends StokeholdError {}

/** `submitMany` failed after some jobs were accepted. `jobs` are those of the first inputs; `cause` is the reason. */
export class PartlySubmitted<J = unknown> extends StokeholdError {
  constructor(
    readonly jobs: readonly J[],
    total: number,
    cause: unknown,
  ) {
    super(`${jobs.length} of ${total} jobs were accepted before a request failed`, { cause });
  }
}

/** The job ended without a result. */
export class JobError extends StokeholdError {
  /** The error code of the job. Stable. */
  readonly code: string;
  /** The class of the exception, or the name of the signal. */
  readonly className: string;
  /** The traceback of the handler; null if there was no exception. */
  readonly traceback: string | null;
  /** The last lines that the handler wrote to stderr. */
  readonly stderr: string | null;

  constructor(
    readonly jobId: string,
    message: string,
    failure: Failure | null,
  ) {
    super(message);
    this.code = failure?.code ?? "";
    this.className = failure?.class ?? "";
    this.traceback = failure?.traceback ?? null;
    this.stderr = failure?.stderr ?? null;
  }
}

/** Every attempt failed. `code`, `className`, `message`, `traceback` and `stderr` describe the last failure. */
export class JobFailed extends JobError {}
/** The job crashed its runner several times, on more than one worker, and is not run again. */
export class JobPoisoned extends JobFailed {}
/** The handler, or a step before or after it, rejected the input or the output. */
export class JobRejected extends JobFailed {}
/** A job that this job depends on, or one of its steps, ended without a result. */
export class DependencyFailed extends JobFailed {}
/** The job needed more GPU memory than was available. Try a smaller input or a larger `vram_gib`. */
export class OutOfGpuMemory extends JobFailed {}
/** The job was cancelled. */
export class JobCancelled extends JobError {}
/** The job did not start within its queue timeout, or did not end before its deadline. */
export class JobExpired extends JobError {}

const BY_FAILURE: Readonly<Record<string, typeof JobFailed>> = {
  poison: JobPoisoned,
  rejected: JobRejected,
  dependency_failed: DependencyFailed,
  oom_gpu: OutOfGpuMemory,
};

/** Returns the error for a job that ended in another state than `succeeded`. */
export function jobError({ id, state, error }: JobRecord): JobError {
  if (state === "cancelled") return new JobCancelled(id, `job ${id} was cancelled`, error);
  if (state === "expired") return new JobExpired(id, `job ${id} expired: it did not start or end in time`, error);
  if (error === null) return new JobFailed(id, `job ${id} failed`, null);
  const what = [error.class, error.message].filter(Boolean).join(": ");
  const Kind = BY_FAILURE[error.code] ?? JobFailed;
  return new Kind(id, `job ${id} failed (${error.code}): ${what}`, error);
}

const BY_STATUS: Readonly<Record<number, typeof ApiError>> = {
  401: Unauthorized,
  403: Forbidden,
  404: NotFound,
  409: Conflict,
  429: RateLimited,
  502: Unavailable,
  503: Unavailable,
  504: Unavailable,
};
const BY_CODE: Readonly<Record<string, typeof ApiError>> = {
  invalid_input: InvalidInput,
  idempotency_conflict: Conflict,
  not_retryable: NotRetryable,
  nothing_to_retry: NothingToRetry,
  in_use: InUse,
  quota_exceeded: QuotaExceeded,
};

/** The length to which a response that is not problem+json is quoted, e.g. the error page of a proxy. */
const DETAIL_CHARS_MAX = 500;

/** The error for a response of status 400 or above. */
export function apiError(status: number, headers: Pick<Headers, "get">, body: string): ApiError {
  const problem = parseProblem(body);
  const code = typeof problem["code"] === "string" ? problem["code"] : `http_${status}`;
  const Kind = BY_CODE[code] ?? BY_STATUS[status] ?? (status >= 500 ? ServerError : BadRequest);
  const errors = Array.isArray(problem["errors"]) ? problem["errors"] : [];
  return new Kind({
    status,
    code,
    detail: String(problem["detail"] ?? problem["title"] ?? `the API returned status ${status}`),
    requestId: headers.get("x-request-id") ?? undefined,
    errors: errors.map((place) => ({ path: String(place?.path ?? ""), message: String(place?.message ?? "") })),
    retryAfterS: parseRetryAfter(headers.get("retry-after")),
    dependents: Array.isArray(problem["dependents"]) ? (problem["dependents"] as Dependent[]) : [],
  });
}

function parseProblem(body: string): Record<string, unknown> {
  try {
    const problem: unknown = JSON.parse(body);
    return typeof problem === "object" && problem !== null ? { ...problem } : {};
  } catch {
    return body.trim() === "" ? {} : { detail: body.trim().slice(0, DETAIL_CHARS_MAX) };
  }
}

/** Converts `Retry-After`, a number or a date, to seconds from now. */
function parseRetryAfter(text: string | null): number | undefined {
  if (text === null) return undefined;
  if (/^\s*\d+\s*$/.test(text)) return Number(text);
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : Math.max(0, (at - Date.now()) / 1000);
}
