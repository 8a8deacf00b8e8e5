// Webhooks: the signing secret and the deliveries. See also `verifyWebhook`.

import type { Delivery, DeliveryState, WebhookSecret } from "../generated/webhooks.js";
import type { Http } from "../internal/http.js";
import { part, type CallOptions, type Id } from "../internal/options.js";
import { pages, query } from "../internal/page.js";

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
