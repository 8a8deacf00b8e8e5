// What a job tells, live, over as many connections as it takes.

import { apiError, ConnectionFailed, StokeholdError } from "../core/error.js";
import { retryDelayMs } from "../core/retry.js";
import { transportError, type Http } from "../internal/http.js";
import { part, type CallOptions } from "../internal/options.js";
import { pause, Silence } from "../internal/signal.js";
import { SseParser, type Message } from "../internal/sse.js";
import { textOf } from "../internal/text.js";
import { hydrate } from "./files.js";
import type { JobRecord, JobState } from "./record.js";

/**
 * What a job tells. `done` is always the last. A retry begins its outputs again at index 0 with a higher attempt.
 *
 * `gap`: outputs that this stream has not, from index `from` up to, and without, index `to`. The server keeps the last
 * MiB of a job's outputs for readers that come late or come back. The job's result has all.
 */
export type JobEvent =
  | { type: "state"; state: JobState; attempt: number }
  | { type: "progress"; fraction: number; message: string }
  | { type: "log"; stream: "stdout" | "stderr"; text: string; attempt: number }
  | { type: "output"; index: number; value: unknown; attempt: number }
  | { type: "gap"; attempt: number; from: number; to: number }
  | { type: "done"; job: JobRecord };

/** The server sends a comment at least every 15 s, so four times that is silence. */
const SILENCE_MS = 60_000;

/** A connection that held for this long was a good one, even without an event: a job may be queued for hours. */
const HELD_MS = 10_000;

/**
 * Every event once, in order, to `done`.
 *
 * A lost connection is taken up after the last whole event. Connections that bring nothing new and do not hold are
 * counted, and too many in a row are the last error's end.
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
    const silence = new Silence(SILENCE_MS, signal);
    const parser = new SseParser(lastId);
    const beganMs = performance.now();
    let error: StokeholdError = new ConnectionFailed("the event stream ended before the job did, again and again");
    try {
      const response = await http.send(call, silence);
      if (response.ok && response.body !== null) {
        for await (const text of textOf(response.body, silence)) {
          for (const message of parser.feed(text)) {
            // A server that repeats the event it was asked to go on after, or one that begins each connection with
            // the state and gives it no id, tells nothing new.
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
        error = apiError(response.status, response.headers, await response.text());
      }
    } catch (thrown) {
      if (thrown instanceof StokeholdError) throw thrown;
      error = transportError(call, silence, thrown);
    } finally {
      silence.close();
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
        return undefined; // a kind that a newer server knows
    }
  } catch (cause) {
    throw new StokeholdError(`the event ${name} is not what this version of stokehold knows`, { cause });
  }
}
