// A batch and its lines, as the API returns them. Members have the names of the API.

/** A line to run, in the format of this API or of OpenAI's batches (`method`, `url`, `body`). */
export type BatchLine =
  | { custom_id?: string; input: unknown; endpoint?: string; metadata?: Record<string, string> }
  | { custom_id: string; method: "POST"; url: string; body: unknown };

/** A line with its result. A line with a large result has `result_url` instead; `client.result(job_id)` fetches it. */
export interface BatchResult<T = unknown> {
  line: number;
  custom_id: string | null;
  job_id: string;
  result?: T;
  result_url?: string;
  /** The run time in milliseconds, without loading. */
  run_ms: number | null;
}

/** A line that has no result. */
export interface BatchError {
  line: number;
  custom_id: string | null;
  /** Null if the line did not become a job. */
  job_id: string | null;
  state: "failed" | "expired" | "cancelled" | "invalid";
  error: { code: string; message: string };
  /** The run time of the last attempt in milliseconds; absent if there was none. */
  run_ms?: number;
}
