// Short requests over node:http, which take a fifth of the CPU time of Node's `fetch`. Elsewhere there is only `fetch`.

import type { Silence } from "./signal.js";

/** The parts of a response that short requests need. `Response` has them too. */
export interface ShortResponse {
  readonly ok: boolean;
  readonly status: number;
  readonly headers: Pick<Headers, "get">;
  text: () => Promise<string>;
}

/** A request to a URL under the base URL, with a body of text or none. */
export interface ShortRequest {
  method: string;
  url: string;
  headers: Record<string, string>;
  body?: string | undefined;
}

/** Sends a request once. Resolves to undefined if only `fetch` can: a redirect, or a body that is compressed. */
export type SendShort = (request: ShortRequest, silence: Silence) => Promise<ShortResponse | undefined>;

// What is used of node:http; the types of Node are not those of browsers.
interface Incoming {
  statusCode: number;
  headers: Record<string, string | string[] | undefined>;
  setEncoding: (encoding: "utf8") => Incoming;
  on: ((event: "data", listener: (chunk: string) => void) => Incoming) &
    ((event: "end", listener: () => void) => Incoming) &
    ((event: "error", listener: (error: Error) => void) => Incoming);
}
interface Outgoing {
  on: ((event: "response", listener: (response: Incoming) => void) => Outgoing) &
    ((event: "error", listener: (error: Error) => void) => Outgoing);
  end: (body?: string) => void;
  destroy: (error?: Error) => void;
}
interface NodeHttp {
  request: (options: object) => Outgoing;
  Agent: new (options: object) => object;
}
interface NodeGlobals {
  process?: {
    release?: { name?: string };
    versions?: Record<string, string | undefined>;
    env?: Record<string, string | undefined>;
  };
  navigator?: { userAgent?: string };
  Deno?: unknown;
}

/** The dispatcher of Node's `fetch`, which an application can replace, e.g. by one that uses a proxy. */
const DISPATCHER = Symbol.for("undici.globalDispatcher.1");

/** Idle connections are kept for a minute, so that occasional jobs do not need a new one each. */
const IDLE_MS = 60_000;
const IDLE_CONNECTIONS_MAX = 20;

/**
 * Returns a function that sends short requests, or undefined where `fetch` has to send all of them: outside of Node, if
 * `fetch` was replaced or configured by the application, or if the URL is unusual.
 */
export function shortSender(baseUrl: string, fetch: typeof globalThis.fetch): SendShort | undefined {
  if (!isNode(globalThis as NodeGlobals) || !isUnchanged(fetch)) return undefined;
  const base = new URL(baseUrl);
  if (base.username || base.password || base.search || base.hash) return undefined;
  const basePath = base.pathname.replace(/\/+$/, "");
  let sending: Promise<Sender> | undefined;
  return async (request, silence) => {
    if (!request.url.startsWith(baseUrl)) return undefined;
    const sender = await (sending ??= connect(base));
    return sender({ ...request, url: basePath + request.url.slice(baseUrl.length) }, silence);
  };
}

function isNode({ process, navigator, Deno }: NodeGlobals): boolean {
  const userAgent = navigator?.userAgent ?? "Node.js/"; // Node 18 and 20 have no navigator
  return (
    process?.release?.name === "node" &&
    process.versions?.["node"] !== undefined &&
    process.versions["bun"] === undefined &&
    Deno === undefined &&
    userAgent.startsWith("Node.js/")
  );
}

/** Whether `fetch` is that of Node, without a proxy or another dispatcher. */
function isUnchanged(fetch: typeof globalThis.fetch): boolean {
  const { env } = (globalThis as NodeGlobals).process ?? {};
  if (env?.["NODE_USE_ENV_PROXY"] || env?.["NODE_OPTIONS"]?.includes("--use-env-proxy")) return false;
  const dispatcher = (globalThis as Record<symbol, object | undefined>)[DISPATCHER];
  if (dispatcher !== undefined && dispatcher.constructor.name !== "Agent") return false;
  return fetch === globalThis.fetch && Function.prototype.toString.call(fetch).includes("undici");
}

type Sender = (request: ShortRequest, silence: Silence) => Promise<ShortResponse | undefined>;

async function connect(base: URL): Promise<Sender> {
  // Not a literal, so that bundlers for browsers ignore it.
  const name: string = base.protocol === "https:" ? "node:https" : "node:http";
  const http = (await import(name)) as NodeHttp;
  const agent = new http.Agent({ keepAlive: true, timeout: IDLE_MS, maxFreeSockets: IDLE_CONNECTIONS_MAX });
  const server = { agent, hostname: base.hostname.replace(/^\[|\]$/g, ""), port: base.port || undefined };
  return ({ method, url, headers, body }, silence) =>
    new Promise((resolve, reject) => {
      if (silence.stopped) throw new Error("stopped before it was sent");
      const request = http.request({ ...server, method, path: url, headers });
      silence.onstop = () => request.destroy(new Error("stopped"));
      request.on("error", reject);
      request.on("response", (response) => {
        let text = "";
        response.setEncoding("utf8");
        response.on("error", reject);
        response.on("data", (chunk) => {
          if (text !== "") silence.heard();
          text += chunk;
        });
        response.on("end", () => {
          const { statusCode: status } = response;
          const isRedirect = status >= 300 && status < 400 && response.headers["location"] !== undefined;
          const coding = response.headers["content-encoding"] ?? "identity";
          resolve(isRedirect || coding !== "identity" ? undefined : new Whole(status, response.headers, text));
        });
      });
      request.end(body);
    });
}

class Whole implements ShortResponse {
  readonly ok: boolean;
  readonly headers: Pick<Headers, "get">;

  constructor(
    readonly status: number,
    headers: Incoming["headers"],
    private readonly body: string,
  ) {
    this.ok = status >= 200 && status < 300;
    this.headers = {
      get: (name) => {
        const value = headers[name.toLowerCase()];
        return value === undefined ? null : Array.isArray(value) ? value.join(", ") : value;
      },
    };
  }

  text(): Promise<string> {
    return Promise.resolve(this.body);
  }
}
