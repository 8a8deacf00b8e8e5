// Stokehold for JavaScript: the public names.

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
export { verifyWebhook, type VerifyOptions, type WebhookEvent, type WebhookHeaders } from "./core/webhook.js";
export type { CallOptions } from "./internal/options.js";
export type {
  Batch,
  BatchCounts,
  BatchError,
  BatchEstimate,
  BatchLine,
  BatchResult,
  BatchState,
} from "./resources/batch_record.js";
export type {
  Batches,
  BatchLines,
  BatchSource,
  BatchWaitOptions,
  CreateBatchOptions,
  ListBatchesOptions,
} from "./resources/batches.js";
export type {
  Endpoint,
  EndpointDemands,
  EndpointRetry,
  EndpointRunner,
  EndpointStep,
  EndpointWeight,
  Traffic,
} from "./resources/endpoints.js";
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
export type {
  Limits,
  LimitsOptions,
  LimitsResource,
  OwnLimits,
  TenantLimits,
  TenantLimitsOptions,
} from "./resources/limits.js";
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
export type {
  CreateScheduleOptions,
  ListSchedulesOptions,
  Missed,
  Schedule,
  ScheduledJob,
  Schedules,
} from "./resources/schedules.js";
export type { Dependency, JobOptions, SubmitManyOptions, SubmitOptions } from "./resources/submit.js";
export type {
  DeliveriesOptions,
  Delivery,
  DeliveryState,
  DeliveryTry,
  Webhooks,
  WebhookSecret,
} from "./resources/webhooks.js";
