// Feedback: ratings of results.

import type { Http } from "../internal/http.js";
import { jsonl } from "../internal/jsonl.js";
import { part, type CallOptions } from "../internal/options.js";
import { query } from "../internal/page.js";

/** A rating of a result. At least one member is required. */
export interface Rating {
  accepted?: boolean;
  /** From 1 to 5. */
  score?: number;
  /** 1 to 20 strings. */
  labels?: readonly string[];
  /** At most 2,000 characters. */
  comment?: string;
}

/** The rating of the result of a job. `score` is from 1 to 5. Members have the names of the API. */
export interface Feedback {
  job_id: string;
  endpoint: string;
  version: number;
  accepted: boolean | null;
  score: number | null;
  labels: string[];
  comment: string | null;
  at: string;
}

/** The ratings of a version of an endpoint. */
export interface FeedbackStats {
  endpoint: string;
  version: number;
  rated: number;
  accepted: number;
  /** The share, from 0 to 1, of accepted results among those that were accepted or not; null if there are none. */
  success_rate: number | null;
  /** From 1 to 5; null if there is no score. */
  mean_score: number | null;
}

/** A rated job with its input and its result. A job with a large result has `result_url` instead. */
export interface FeedbackExample extends Feedback {
  input: unknown;
  result?: unknown;
  result_url?: string;
}

export interface FeedbackExportOptions extends CallOptions {
  endpoint?: string;
  version?: number;
  /** The size of the random sample, 1 to 100,000. Default 1,000. */
  sample?: number;
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
    const { endpoint, version, sample, signal } = options;
    return jsonl(this.#http, `/v1/feedback/export?${query({ endpoint, version, sample })}`, { signal });
  }
}

export async function rateJob(http: Http, id: string, rating: Rating, { signal }: CallOptions): Promise<Feedback> {
  const { accepted, score, labels, comment } = rating;
  const body = JSON.stringify({ accepted, score, labels, comment });
  return http.post<Feedback>(`/v1/jobs/${part(id)}/feedback`, body, { signal });
}
