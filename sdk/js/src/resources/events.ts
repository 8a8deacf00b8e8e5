// The event stream of a job, resumed after a lost connection.

import type { JobRecord, JobState } from "../generated/jobs.js";
import { apiError, ConnectionFailed, StokeholdError } from "../core/error.js";
import { retryDelayMs } from "../core/retry.js";
import { transportError, type Http } from "../internal/http.js";
import { part, type CallOptions } from "../internal/options.js";
import { pause, IdleTimer } from "../internal/signal.js";
import { SseParser, type Message } from "../internal/sse.js";
import { textOf, wholeText } from "../internal/text.js";
import { hydrate } from "./files.js";

/**
 * An event of a job.
 *
 * - `state`: the job changed its state.
 * - `progress`: the handler reported its progress. `fraction` is from 0 to 1.
 * - `log`: the handler wrote to `stdout` or `stderr`.
 * - `output`: the handler yielded an output. A retry starts again at index 0, with a higher attempt.
 * - `gap`: outputs that are missing from this stream: those from `from` up to, but not including, `to`. The server
 *   keeps the last MiB of the outputs of a job for readers that start late or reconnect. The result of the job contains
 *   all outputs.
 * - `done`: the job ended. Always the last event.
 */
export type JobEvent =
  | { type: "state"; state: JobState; attempt: number }
  | { type: "progress"; fraction: number; message: string }
  | { type: "log"; stream: "stdout" | "stderr"; text: string; attempt: number }
  | { type: "output"; index: number; value: unknown; attempt: number }
  | { type: "gap"; attempt: number; from: number; to: number }
  | { type: "done"; job: JobRecord };

/** The server sends a comment at least every 15 s; after four times that, the connection counts as lost. */
const SILENCE_MS = 60_000;

const ENDED_EARLY = "the event stream ended before the job did, several times in a row";

/** A connection that lasted this long resets the retries, even if the job had no events. */
const HELD_MS = 10_000;

/**
 * Streams every event once, in order, up to `done`.
 *
 * A lost connection is resumed after the last complete event. Connections that bring no new event and do not last count
 * as retries. After too many in a row, the last error is thrown.
 */
export async function* follow(
  http: Http,
  id: string,
  { signal }: CallOptions,
): AsyncGenerator<JobEvent, void, void> {
  let lastId = "";
  let lastState = "";
  let fruitless = 0;
  for (;;) {
    const resume: Record<string, string> = lastId === "" ? {} : { "last-event-id": lastId };
    const headers = { accept: "text/event-stream", ...resume };
    const call = { ...http.route("GET", `/v1/jobs/${part(id)}/events`, { signal, headers }), timeoutMs: SILENCE_MS };
    const timer = new IdleTimer(SILENCE_MS, signal);
    const parser = new SseParser(lastId);
    const beganMs = performance.now();
    let error: StokeholdError = new ConnectionFailed(ENDED_EARLY);
    try {
      const response = await http.send(call, timer);
      if (response.ok && response.body !== null) {
        for await (const text of textOf(response.body, timer)) {
          for (const message of parser.feed(text)) {
            // Drops a repeated event. Some servers repeat the last event, and older servers start every connection
            // with the state, without an id.
            const { id: own, name, data } = message;
            const known = own === undefined ? name === "state" && data === lastState : own === lastId;
            lastId = parser.lastId;
            const event = decode(http, message);
            if (known || event === undefined) continue;
            fruitless = 0;
            if (event.type === "state") lastState = data;
            yield event;
            if (event.type === "done") return;
          }
        }
      } else {
        error = apiError(response.status, response.headers, await wholeText(response, timer));
      }
    } catch (thrown) {
      if (thrown instanceof StokeholdError) throw thrown;
      error = transportError(call, timer, thrown);
    } finally {
      timer.close();
    }
    if (performance.now() - beganMs >= HELD_MS) fruitless = 0;
    const delayMs = retryDelayMs(http.retry, fruitless, error, Math.random());
    if (delayMs === undefined) throw error;
    fruitless += 1;
    await pause(delayMs, signal);
  }
}

function decode(http: Http, { name, data }: Message): JobEvent | undefined {
  try {
    const raw = JSON.parse(data);
    switch (name) {
      case "state":
      case "progress":
      case "log":
      case "gap":
        return { ...raw, type: name };
      case "output":
        return { ...raw, type: name, value: hydrate(http, raw.value) };
      case "done":
        return { type: name, job: raw };
      default:
        return undefined; // a type of event that only a newer server has
    }
  } catch (cause) {
    throw new StokeholdError(`cannot decode the event '${name}'; if the server is newer, upgrade stokehold`, { cause });
  }
}
