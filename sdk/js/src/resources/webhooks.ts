// Webhooks: what they are signed with, and what became of each.

import type { Http } from "../internal/http.js";
import { part, type CallOptions, type Id } from "../internal/options.js";
import { pages, query } from "../internal/page.js";

/** What webhooks are signed with. Members are named as the API names them. */
export interface WebhookSecret {
  secret: string;
  /** The one before, which signs beside it until then: accept both. */
  previous: string | null;
  previous_until: string | null;
}

/** One try to deliver. */
export interface DeliveryTry {
  at: string;
  /** What the receiver answered; null when it did not. */
  status: number | null;
  error: string | null;
  duration_ms: number;
}

/** `exhausted`: every try failed. `disabled`: the receiver answered 410. */
export type DeliveryState = "pending" | "delivered" | "exhausted" | "disabled";

/** One webhook, and the tries to deliver it. Its id is its `webhook-id` header. */
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
  job?: string;
  batch?: string;
  state?: DeliveryState;
  /** Deliveries fetched at once, 1 to 100. */
  pageSize?: number;
}

/** `client.webhooks` */
export class Webhooks {
  readonly #http: Http;

  /** @internal */
  constructor(http: Http) {
    this.#http = http;
  }

  /** What webhooks are signed with. */
  secret({ signal }: CallOptions = {}): Promise<WebhookSecret> {
    return this.#http.get("/v1/webhooks/secret", { signal });
  }

  /**
   * A new secret. The one before signs beside it for a day.
   *
   * Not repeated after a lost answer: a second rotation would end the day of a secret that receivers still know.
   */
  rotateSecret({ signal }: CallOptions = {}): Promise<WebhookSecret> {
    return this.#http.post("/v1/webhooks/secret/rotate", "", { signal, once: true });
  }

  /** Newest first, fetched page by page as they are looked at. */
  deliveries(options: DeliveriesOptions = {}): AsyncGenerator<Delivery, void, void> {
    const { job, batch, state, pageSize = 100, signal } = options;
    const asked = query({ limit: pageSize, job, batch, state });
    return pages(this.#http, "/v1/webhooks/deliveries", "deliveries", asked, signal);
  }

  /** One of them. */
  delivery(id: Id, { signal }: CallOptions = {}): Promise<Delivery> {
    return this.#http.get(`/v1/webhooks/deliveries/${part(id)}`, { signal });
  }

  /** Delivers it once more, with the same `webhook-id`. */
  replay(id: Id, { signal }: CallOptions = {}): Promise<Delivery> {
    return this.#http.post(`/v1/webhooks/deliveries/${part(id)}/replay`, "", { signal });
  }
}
