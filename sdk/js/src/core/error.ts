// Everything this client throws, one class for each thing a caller would do differently.
//
// StokeholdError
// ├── ApiError                the API answered, but not with success
// │   ├── BadRequest          change the request
// │   │   └── InvalidInput    the input does not match the endpoint's schema; `errors` says where
// │   ├── Unauthorized        no token, or not a good one
// │   ├── Forbidden           the token lacks a scope
// │   ├── NotFound            no such job, endpoint, version or file
// │   ├── Conflict            it is in another state than the request supposes
// │   │   ├── NotRetryable    the job is not one that failed, expired or was cancelled
// │   │   └── NothingToRetry  no line of the batch failed or expired
// │   ├── RateLimited         too much at once; `retryAfterS` says when to come back
// │   │   └── QuotaExceeded   the tenant's own limit, of its open or running jobs or of their starts
// │   ├── Unavailable         something behind the API is away; repeating is safe
// │   └── ServerError         a defect of the server
// ├── ConnectionFailed        no answer: refused, reset, cut off
// ├── TimedOut                no answer in time
// ├── WaitTimeout             the job or the batch had not ended in time; it runs on
// ├── PartlySubmitted         `submitMany` failed half way; `jobs` are those accepted
// ├── WebhookVerificationError  what came is not what Stokehold signed
// └── JobError                the job ended without a result
//     ├── JobFailed
//     │   ├── JobPoisoned         it crashed whatever ran it, and is not tried again
//     │   ├── JobRejected         the handler, or a step before or after it, refused the input or the output
//     │   ├── DependencyFailed    a job or a step that it depends on failed
//     │   └── OutOfGpuMemory      it needs more than the GPU has
//     ├── JobCancelled
//     └── JobExpired
//
// An aborted signal throws its own reason, as `fetch` does.

import type { Failure, JobRecord } from "../resources/record.js";

/** The root of all that this client throws. */
export class StokeholdError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** One wrong place in a request. */
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
}

/** The API answered, but not with success. */
export class ApiError extends StokeholdError {
  readonly status: number;
  /** What kind of problem it is; stable. */
  readonly code: string;
  /** What is wrong and what to change. */
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

/** The request is wrong; repeating it as it is cannot succeed. */
export class BadRequest extends ApiError {}
/** The input does not match the endpoint's schema; `errors` says where. */
export class InvalidInput extends BadRequest {}
/** No token, or not a good one. */
export class Unauthorized extends ApiError {}
/** The token lacks a scope. */
export class Forbidden extends ApiError {}
/** No such job, endpoint, version or file. */
export class NotFound extends ApiError {}
/** The thing is in another state than the request supposes. */
export class Conflict extends ApiError {}
/** The job is not one that failed, expired or was cancelled. */
export class NotRetryable extends Conflict {}
/** No line of the batch failed or expired. */
export class NothingToRetry extends Conflict {}
/** Too much at once; `retryAfterS` says when to come back. */
export class RateLimited extends ApiError {}
/** The tenant's own limit is reached; `retryAfterS` says when to come back. */
export class QuotaExceeded extends RateLimited {}
/** Something behind the API is away; repeating with the same idempotency key is safe. */
export class Unavailable extends ApiError {}
/** A defect of the server. */
export class ServerError extends ApiError {}

/** No answer: the connection was refused, reset or cut off. */
export class ConnectionFailed extends StokeholdError {}
/** No answer in time. */
export class TimedOut extends StokeholdError {}

/** The job or the batch had not ended in time. It was not cancelled and runs on. */
export class WaitTimeout extends StokeholdError {
  constructor(
    readonly what: "job" | "batch",
    readonly id: string,
    readonly timeoutS: number,
    readonly state: string,
  ) {
    super(`${what} ${id} is still ${state} after ${timeoutS} s; it runs on, wait for it again or cancel it`);
  }

  /** The same as `id`. */
  get jobId(): string {
    return this.id;
  }
}

/** What came as a webhook is not what Stokehold signed with this secret, or not lately. Answer 4xx and do nothing. */
export class WebhookVerificationError extends StokeholdError {}

/** `submitMany` failed after a part was accepted; `cause` says why. `jobs` are those of the first inputs. */
export class PartlySubmitted<J = unknown> extends StokeholdError {
  constructor(
    readonly jobs: readonly J[],
    total: number,
    cause: unknown,
  ) {
    super(`${jobs.length} of ${total} jobs were accepted before this failed`, { cause });
  }
}

/** The job ended without a result. */
export class JobError extends StokeholdError {
  /** What kind of failure; stable. */
  readonly code: string;
  /** The exception's class or the signal's name. */
  readonly className: string;
  /** The handler's traceback, when there was an exception. */
  readonly traceback: string | null;
  /** The last lines it wrote to stderr. */
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

/** Every attempt failed; what it tells is the last one's. */
export class JobFailed extends JobError {}
/** It crashed whatever ran it, on more than one worker, and is not tried again. */
export class JobPoisoned extends JobFailed {}
/** The handler, or a step before or after it, refused the input or the output. */
export class JobRejected extends JobFailed {}
/** A job or a step that it depends on failed. */
export class DependencyFailed extends JobFailed {}
/** It needs more memory than the GPU has. */
export class OutOfGpuMemory extends JobFailed {}
/** It was cancelled. */
export class JobCancelled extends JobError {}
/** It had to be started or to have ended by a time, and was not. */
export class JobExpired extends JobError {}

const BY_FAILURE: Readonly<Record<string, typeof JobFailed>> = {
  poison: JobPoisoned,
  rejected: JobRejected,
  dependency_failed: DependencyFailed,
  oom_gpu: OutOfGpuMemory,
};

/** The error for a job that ended, but not `succeeded`. */
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
  quota_exceeded: QuotaExceeded,
};

/** An answer that is no problem+json (a proxy's error page) is quoted up to here. */
const DETAIL_CHARS_MAX = 500;

/** The error that an answer of 400 and above tells. */
export function apiError(status: number, headers: Headers, body: string): ApiError {
  const problem = parseProblem(body);
  const code = typeof problem["code"] === "string" ? problem["code"] : `http_${status}`;
  const Kind = BY_CODE[code] ?? BY_STATUS[status] ?? (status >= 500 ? ServerError : BadRequest);
  const errors = Array.isArray(problem["errors"]) ? problem["errors"] : [];
  return new Kind({
    status,
    code,
    detail: String(problem["detail"] ?? problem["title"] ?? `the API answered ${status}`),
    requestId: headers.get("x-request-id") ?? undefined,
    errors: errors.map((place) => ({ path: String(place?.path ?? ""), message: String(place?.message ?? "") })),
    retryAfterS: parseRetryAfter(headers.get("retry-after")),
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

/** `Retry-After` as seconds from now; it may be a number or a date. */
function parseRetryAfter(text: string | null): number | undefined {
  if (text === null) return undefined;
  if (/^\s*\d+\s*$/.test(text)) return Number(text);
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : Math.max(0, (at - Date.now()) / 1000);
}
