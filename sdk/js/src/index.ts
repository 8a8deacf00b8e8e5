// Stokehold for JavaScript: the public names.

export { Stokehold, type StokeholdOptions } from "./client.js";
export {
  ApiError,
  BadRequest,
  Conflict,
  ConnectionFailed,
  DependencyFailed,
  Forbidden,
  InUse,
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
export { verifyWebhook, type VerifyOptions, type WebhookEvent, type WebhookHeaders } from "./core/webhook.js";
export type * from "./generated/access.js";
export type * from "./generated/batches.js";
export type * from "./generated/costs.js";
export type * from "./generated/deletion.js";
export type * from "./generated/endpoints.js";
export type * from "./generated/feedback.js";
export type * from "./generated/files.js";
export type * from "./generated/fleet.js";
export type * from "./generated/jobs.js";
export type * from "./generated/limits.js";
export type * from "./generated/options.js";
export type * from "./generated/quarantine.js";
export type * from "./generated/routes.js";
export type * from "./generated/schedules.js";
export type * from "./generated/stats.js";
export type * from "./generated/webhooks.js";
export type * from "./generated/workers.js";
export type { CallOptions } from "./internal/options.js";
export type { BatchError, BatchLine, BatchResult } from "./resources/batch_record.js";
export type {
  Batches,
  BatchLines,
  BatchSource,
  BatchWaitOptions,
  CreateBatchOptions,
  ListBatchesOptions,
} from "./resources/batches.js";
export type { CallableEndpoints, DeployEndpointOptions, Endpoints, Traffic } from "./resources/endpoints.js";
export { FileRef, type Files, type UploadOptions } from "./resources/files.js";
export type { JobEvent } from "./resources/events.js";
export type { FeedbackExportOptions, FeedbackResource } from "./resources/feedback.js";
export { Job, type ResultRef, type WaitOptions } from "./resources/job.js";
export type { DeadLettersOptions, Jobs, ListOptions, ManyOptions } from "./resources/jobs.js";
export type { LimitsResource } from "./resources/limits.js";
export type { Pipeline, PipelineStep, RunOptions, StepOptions } from "./resources/pipelines.js";
export type { CreateScheduleOptions, ListSchedulesOptions, ScheduledJob, Schedules } from "./resources/schedules.js";
export type { Dependency, SubmitManyOptions, SubmitOptions } from "./resources/submit.js";
export type { DeliveriesOptions, Webhooks } from "./resources/webhooks.js";
