// How good results are: said of a job, added up by version, exported to train or to test with.

import type { Http } from "../internal/http.js";
import { jsonl } from "../internal/jsonl.js";
import { part, type CallOptions } from "../internal/options.js";
import { query } from "../internal/page.js";

/** What is said of a result; at least one of these. */
export interface Rating {
  accepted?: boolean;
  /** 1 to 5. */
  score?: number;
  /** 1 to 20. */
  labels?: readonly string[];
  comment?: string;
}

/** What was said of a job's result. Members are named as the API names them. */
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

/** What was said of one version's results. */
export interface FeedbackStats {
  endpoint: string;
  version: number;
  rated: number;
  accepted: number;
  /** 0 to 1; null when nothing was accepted or refused. */
  success_rate: number | null;
  /** 1 to 5; null when there is no score. */
  mean_score: number | null;
}

/** A rated job with what it was given and what it made. Of a large result there is only the `result_url`. */
export interface FeedbackExample extends Feedback {
  input: unknown;
  result?: unknown;
  result_url?: string;
}

export interface FeedbackExportOptions extends CallOptions {
  endpoint?: string;
  version?: number;
  /** So many at random, 1 to 100,000. */
  sample?: number;
}

/** `client.feedback` */
export class FeedbackResource {
  readonly #http: Http;

  /** @internal */
  constructor(http: Http) {
    this.#http = http;
  }

  /** By version: how many were rated, and how well. */
  async stats({ endpoint, signal }: { endpoint?: string } & CallOptions = {}): Promise<FeedbackStats[]> {
    const path = `/v1/feedback?${query({ endpoint })}`;
    return (await this.#http.get<{ versions: FeedbackStats[] }>(path, { signal })).versions;
  }

  /**
   * Rated jobs, at random, as they come. Another sample is another choice, so a connection that is lost under way is
   * not taken up again but throws.
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
