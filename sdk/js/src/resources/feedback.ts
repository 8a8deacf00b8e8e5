// Feedback: ratings of results.

import type { Feedback, FeedbackExample, FeedbackStats } from "../generated/feedback.js";
import type { Rating } from "../generated/options.js";
import { RATING } from "../generated/values.js";
import type { Http } from "../internal/http.js";
import { jsonl } from "../internal/jsonl.js";
import { named, part, type CallOptions } from "../internal/options.js";
import { query } from "../internal/page.js";

export interface FeedbackExportOptions extends CallOptions {
  endpoint?: string;
  version?: number;
  /** The size of the random sample, 1 to 100,000. Default 1,000. */
  sample?: number;
  /** The same seed returns the same sample. Default: another sample for each call. */
  seed?: number;
}

/** `client.feedback`: ratings of results. */
export class FeedbackResource {
  readonly #http: Http;

  /** @internal */
  constructor(http: Http) {
    this.#http = http;
  }

  /** Returns the ratings of each version, of one endpoint or of all. */
  async stats({ endpoint, signal }: { endpoint?: string } & CallOptions = {}): Promise<FeedbackStats[]> {
    const path = `/v1/feedback?${query({ endpoint })}`;
    return (await this.#http.get<{ versions: FeedbackStats[] }>(path, { signal })).versions;
  }

  /**
   * Streams a random sample of rated jobs, with their inputs and results.
   *
   * A repeated request would draw another sample. Therefore a connection that is lost after the first job throws.
   */
  export(options: FeedbackExportOptions = {}): AsyncGenerator<FeedbackExample, void, void> {
    const { endpoint, version, sample, seed, signal } = options;
    return jsonl(this.#http, `/v1/feedback/export?${query({ endpoint, version, sample, seed })}`, { signal });
  }
}

export async function rateJob(http: Http, id: string, rating: Rating, { signal }: CallOptions): Promise<Feedback> {
  const body = JSON.stringify(named(RATING, rating));
  return http.post<Feedback>(`/v1/jobs/${part(id)}/feedback`, body, { signal });
}
