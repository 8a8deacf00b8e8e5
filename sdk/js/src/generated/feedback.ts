// Generated from api/openapi.json by `make models`; do not edit.
// The feedback of the API.

/** Stored feedback. */
export interface Feedback {
  /** The job that was rated. */
  job_id: string;
  /** The endpoint of the job. */
  endpoint: string;
  /** The version of the endpoint that the job ran on. */
  version: number;
  /** Your own labels. */
  labels: string[];
  /** When it was given, RFC 3339. */
  at: string;
  /** Whether the result was useful. */
  accepted: boolean | null;
  /** Your own words. */
  comment: string | null;
  /** 1 to 5; 5 is best. */
  score: number | null;
}

/** One line of an export. */
export interface FeedbackExample {
  /** The job that was rated. */
  job_id: string;
  /** The endpoint of the job. */
  endpoint: string;
  /** The version of the endpoint that the job ran on. */
  version: number;
  /** The job's input. */
  input: unknown;
  /** Your own labels. */
  labels: string[];
  /** When it was given, RFC 3339. */
  at: string;
  /** Whether the result was useful. */
  accepted: boolean | null;
  /** Your own words. */
  comment: string | null;
  /** The job's result, if it is small; otherwise see `result_url`. */
  result?: unknown;
  /** The address of a large result. Requires the same bearer token. */
  result_url?: string;
  /** 1 to 5; 5 is best. */
  score: number | null;
}

/** The feedback on one version of an endpoint. */
export interface FeedbackStats {
  endpoint: string;
  version: number;
  /** Jobs with feedback. */
  rated: number;
  /** Jobs whose result was accepted. */
  accepted: number;
  /** 1 to 5; null if no feedback has a score. */
  mean_score: number | null;
  /** The share of accepted results among feedback with `accepted`, 0 to 1; null without any. */
  success_rate: number | null;
}
