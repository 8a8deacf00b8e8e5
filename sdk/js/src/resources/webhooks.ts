// Webhooks: the signing secret and the deliveries. See also `verifyWebhook`.

import type { Http } from "../internal/http.js";
import { part, type CallOptions, type Id } from "../internal/options.js";
import { pages, query } from "../internal/page.js";

/** The secret that signs deliveries. Members have the names of the API. */
export interface WebhookSecret {
  secret: string;
  /** The previous secret. Until `previous_until`, deliveries are also signed with it; null if there is none. */
  previous: string | null;
  previous_until: string | null;
}

/** A request to a webhook. */
export interface DeliveryTry {
  at: string;
  /** The status of the response; null if there was none. */
  status: number | null;
  error: string | null;
  duration_ms: number;
}

/** `exhausted`: every try failed. `disabled`: the receiver responded with 410. */
export type DeliveryState = "pending" | "delivered" | "exhausted" | "disabled";

/** A message to a webhook. `id` is its `webhook-id`, which is the same for every try and replay. */
export interface Delivery {
  id: string;
  event: string;
  url: string;
  job_id: string | null;
  batch_id: string | null;
  state: DeliveryState;
  created_at: string;
  next_try_at: string | null;
  tries: DeliveryTry[];
}

export interface DeliveriesOptions extends CallOptions {
  /** The id of a job. */
  job?: string;
  /** The id of a batch. */
  batch?: string;
  state?: DeliveryState;
  /** The number of deliveries in a page, 1 to 100. Default 100. */
  pageSize?: number;
}

/** `client.webhooks`: the signing secret and the deliveries. See also `verifyWebhook`. */
export class Webhooks {
  readonly #http: Http;

  /** @internal */
  constructor(http: Http) {
    this.#http = http;
  }

  /** Returns the signing secret, and the previous one while deliveries are also signed with that. */
  secret({ signal }: CallOptions = {}): Promise<WebhookSecret> {
    return this.#http.get("/v1/webhooks/secret", { signal });
  }

  /**
   * Replaces the signing secret. For 24 hours, deliveries are also signed with the previous one.
   *
   * The request is not retried: a second rotation would invalidate a secret that receivers still use.
   */
  rotateSecret({ signal }: CallOptions = {}): Promise<WebhookSecret> {
    return this.#http.post("/v1/webhooks/secret/rotate", "", { signal, once: true });
  }

  /** Lists deliveries, newest first, fetched page by page. */
  deliveries(options: DeliveriesOptions = {}): AsyncGenerator<Delivery, void, void> {
    const { job, batch, state, pageSize = 100, signal } = options;
    const asked = query({ limit: pageSize, job, batch, state });
    return pages(this.#http, "/v1/webhooks/deliveries", "deliveries", asked, signal);
  }

  /** Returns a delivery by its id. */
  delivery(id: Id, { signal }: CallOptions = {}): Promise<Delivery> {
    return this.#http.get(`/v1/webhooks/deliveries/${part(id)}`, { signal });
  }

  /** Sends a delivery again, with the same `webhook-id`. */
  replay(id: Id, { signal }: CallOptions = {}): Promise<Delivery> {
    return this.#http.post(`/v1/webhooks/deliveries/${part(id)}/replay`, "", { signal });
  }
}
