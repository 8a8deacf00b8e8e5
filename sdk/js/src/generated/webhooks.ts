// Generated from api/openapi.json by `make models`; do not edit.
// The webhooks of the API.

/** An event that a webhook can receive. */
export type HookEvent = "job.started" | "job.output" | "job.progress" | "job.completed" | "batch.completed";

/** The state of a delivery. */
export type DeliveryState = "pending" | "delivered" | "exhausted" | "disabled";

/** One try at a delivery. */
export interface DeliveryTry {
  /** When it started, RFC 3339. */
  at: string;
  /** The receiver's status code. */
  status: number | null;
  /** Why there is no response, or why it counts as failed. */
  error: string | null;
  duration_ms: number;
}

/** A webhook event and its delivery. */
export interface Delivery {
  /** The `webhook-id` of every try. */
  id: string;
  /** The event, e.g. `job.completed`. */
  event: HookEvent;
  url: string;
  /** The state of a delivery. */
  state: DeliveryState;
  /** When the event happened, RFC 3339. */
  created_at: string;
  /** The latest tries, oldest first. */
  tries: DeliveryTry[];
  /** The batch, unless the event is about a job. */
  batch_id: string | null;
  /** The job, unless the event is about a batch. */
  job_id: string | null;
  /** When the next try is due, RFC 3339; null once the delivery has ended. */
  next_try_at: string | null;
}

/** The secret that signs webhooks, as Standard Webhooks describes. */
export interface WebhookSecret {
  /** `whsec_` and base64, the format of Standard Webhooks libraries. */
  secret: string;
  /** The previous secret, for one day after a rotation. Until then each webhook has a signature by both. */
  previous: string | null;
  /** When `previous` expires, RFC 3339. */
  previous_until: string | null;
}
