// When short requests are sent over connections of the client's own, which take a fraction of the CPU time of Node's
// `fetch`. Elsewhere there is only `fetch`.

import { Pool } from "./pool.js";
import type { IdleTimer } from "./signal.js";

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

/** Sends a request once. Undefined if the URL is not under the base URL. */
export type SendShort = (request: ShortRequest, timer: IdleTimer) => Promise<ShortResponse> | undefined;

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

/**
 * Returns a function that sends short requests, or undefined where `fetch` has to send all of them: outside of Node, if
 * `fetch` was replaced or configured by the application, or if the URL is unusual.
 */
export function shortSender(baseUrl: string, fetch: typeof globalThis.fetch): SendShort | undefined {
  if (!isNode(globalThis as NodeGlobals) || !isUnchanged(fetch)) return undefined;
  const base = new URL(baseUrl);
  if (base.username || base.password || base.search || base.hash) return undefined;
  const basePath = base.pathname.replace(/\/+$/, "");
  let pool: Pool | undefined;
  let opening: Promise<Pool> | undefined;
  const open = async (): Promise<Pool> => (pool = await Pool.open(base));
  return ({ method, url, headers, body }, timer) => {
    if (!url.startsWith(baseUrl)) return undefined;
    const target = basePath + url.slice(baseUrl.length);
    if (pool !== undefined) return pool.send(method, target, headers, body, timer);
    return (opening ??= open()).then((opened) => opened.send(method, target, headers, body, timer));
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
