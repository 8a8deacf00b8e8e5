// Stokehold for JavaScript: everything public, and nothing else.

export { Stokehold, type StokeholdOptions } from "./client.js";
export {
  ApiError,
  BadRequest,
  Conflict,
  ConnectionFailed,
  DependencyFailed,
  Forbidden,
  InvalidInput,
  JobCancelled,
  JobError,
  JobExpired,
  JobFailed,
  JobPoisoned,
  JobRejected,
  NotFound,
  NothingToRetry,
  NotRetryable,
  OutOfGpuMemory,
  PartlySubmitted,
  QuotaExceeded,
  RateLimited,
  ServerError,
  StokeholdError,
  TimedOut,
  Unauthorized,
  Unavailable,
  WaitTimeout,
  WebhookVerificationError,
  type FieldProblem,
} from "./core/error.js";
export type { RetryPolicy } from "./core/retry.js";
export type { CallOptions } from "./internal/options.js";
export type { Endpoint } from "./resources/endpoints.js";
export { FileRef, type UploadOptions } from "./resources/files.js";
export type { JobEvent } from "./resources/events.js";
export type {
  Feedback,
  FeedbackExample,
  FeedbackExportOptions,
  FeedbackResource,
  FeedbackStats,
  Rating,
} from "./resources/feedback.js";
export { Job, type ResultRef, type WaitOptions } from "./resources/job.js";
export type { DeadLettersOptions, JobFilter, Jobs, ListOptions, RetriedJob } from "./resources/jobs.js";
export type { Pipeline, PipelineStep, RunOptions, StepOptions } from "./resources/pipelines.js";
export type {
  Attempt,
  Failure,
  JobDependency,
  JobHookEvent,
  JobRecord,
  JobState,
  JobStep,
  Priority,
  Progress,
  Timing,
} from "./resources/record.js";
export type { Dependency, JobOptions, SubmitManyOptions, SubmitOptions } from "./resources/submit.js";
