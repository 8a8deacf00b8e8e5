// Stokehold for JavaScript: everything public, and nothing else.

export { Stokehold, type StokeholdOptions } from "./client.js";
export {
  ApiError,
  BadRequest,
  Conflict,
  ConnectionFailed,
  Forbidden,
  InvalidInput,
  JobCancelled,
  JobError,
  JobExpired,
  JobFailed,
  NotFound,
  PartlySubmitted,
  RateLimited,
  ServerError,
  StokeholdError,
  TimedOut,
  Unauthorized,
  Unavailable,
  WaitTimeout,
  type FieldProblem,
} from "./core/error.js";
export type { RetryPolicy } from "./core/retry.js";
export type { Endpoint } from "./resources/endpoints.js";
export { FileRef, type UploadOptions } from "./resources/files.js";
export {
  Job,
  type CallOptions,
  type JobEvent,
  type ListOptions,
  type SubmitManyOptions,
  type SubmitOptions,
  type WaitOptions,
} from "./resources/jobs.js";
export type { Attempt, Failure, JobRecord, JobState, Priority, Progress, Timing } from "./resources/record.js";
