// A real HTTP server that answers by script, and what the API would say.

import { createServer } from "node:http";
import { once } from "node:events";

export const JOB_ID = "0192f0c1a2b37cde8f00112233445500";

/** Pauses of at most a millisecond: what is tested is that there are retries, not that they take long. */
export const FAST = { baseMs: 1, capMs: 1 };

/**
 * @typedef {{ method: string, path: string, query: Record<string, string>, headers: import("node:http").IncomingHttpHeaders, body: Buffer }} Seen
 * @typedef {(response: import("node:http").ServerResponse) => unknown} Answer
 */

export class Server {
  /** @type {Seen[]} */
  requests = [];
  url = "";
  /** @type {Map<string, Answer[]>} */
  #script = new Map();
  /** @type {(() => void)[]} */
  #arrivals = [];

  #server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const url = new URL(request.url ?? "/", "http://x");
    const method = request.method ?? "";
    const query = Object.fromEntries(url.searchParams);
    this.requests.push({ method, path: url.pathname, query, headers: request.headers, body: Buffer.concat(chunks) });
    for (const arrived of this.#arrivals.splice(0)) arrived();
    const answers = this.#script.get(`${method} ${url.pathname}`) ?? [problem(404, "not_found", "no script for it")];
    const answer = answers.length > 1 ? answers.shift() : answers[0];
    answer?.(response);
  });

  static async start() {
    const server = new Server();
    server.#server.listen(0, "127.0.0.1");
    await once(server.#server, "listening");
    const address = server.#server.address();
    if (typeof address === "object") server.url = `http://127.0.0.1:${address?.port}`;
    return server;
  }

  async stop() {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, "close");
  }

  /** One answer a request, and the last one for ever. @param {string} route @param {...Answer} answers */
  on(route, ...answers) {
    this.#script.set(route, answers);
  }

  /** @param {string} route */
  seen(route) {
    return this.requests.filter((request) => `${request.method} ${request.path}` === route);
  }

  /** The next request. @returns {Promise<void>} */
  arrival() {
    return new Promise((resolve) => this.#arrivals.push(resolve));
  }
}

/** @param {unknown} body @param {number} [status] @returns {Answer} */
export function ok(body, status = 200) {
  return (response) => response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}

/** @param {Uint8Array | string} body @returns {Answer} */
export function data(body) {
  return (response) => response.end(body);
}

/** @param {number} status @param {string} code @param {string} detail @param {object} [more] @param {Record<string, string>} [headers] @returns {Answer} */
export function problem(status, code, detail, more = {}, headers = {}) {
  const body = JSON.stringify({ title: "A title", status, code, detail, ...more });
  return (response) =>
    response.writeHead(status, { "content-type": "application/problem+json", "x-request-id": "req-7", ...headers }).end(body);
}

/** @param {string} location @returns {Answer} */
export function redirect(location) {
  return (response) => response.writeHead(307, { location }).end();
}

/** @param {...string} chunks @returns {Answer} */
export function stream(...chunks) {
  return (response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const chunk of chunks) response.write(chunk);
    response.end();
  };
}

/** Like `stream`, but the connection breaks instead of ending. @param {...string} chunks @returns {Answer} */
export function broken(...chunks) {
  return (response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(chunks.join(""), () => response.destroy());
  };
}

/** @type {Answer} */
export const drop = (response) => response.destroy();

/** @type {Answer} */
export const hang = () => undefined;

/** A job as every route shows it. @param {string} [state] @param {object} [members] */
export function job(state = "queued", members = {}) {
  const ended = ["succeeded", "failed", "cancelled", "expired"].includes(state);
  return {
    id: JOB_ID,
    endpoint: "echo",
    version: 1,
    state,
    priority: "standard",
    created_at: "2026-11-21T05:50:00.123Z",
    run_after: null,
    ended_at: ended ? "2026-11-21T05:50:00.150Z" : null,
    input: { text: "hi" },
    metadata: {},
    progress: null,
    attempts: [],
    timing: null,
    result: state === "succeeded" ? { text: "hi" } : null,
    result_url: null,
    error: null,
    ...members,
  };
}
