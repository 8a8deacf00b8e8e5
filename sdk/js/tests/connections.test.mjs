// The connections of the client in Node: reuse, ends, timeouts, TLS, and when `fetch` is used instead.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { createServer as createTcpServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { promisify } from "node:util";

import { BadRequest, ConnectionFailed, Stokehold, StokeholdError, TimedOut } from "stokehold";
import { job, JOB_ID } from "./server.mjs";

const NEVER = { maxRetries: 0 };
const DISPATCHER = Symbol.for("undici.globalDispatcher.1");

/** @typedef {import("node:http").RequestListener} Listener */

/** @type {import("node:http").Server} */
let server;
/** @type {Listener} */
let answer;
let url = "";
/** @type {import("node:net").Socket[]} */
let sockets = [];
/** @type {import("node:http").IncomingHttpHeaders[]} */
let headers = [];

/** @type {Listener} */
const accept = (request, response) => {
  request.resume().on("end", () => response.writeHead(202).end(JSON.stringify(job())));
};

beforeEach(async () => {
  answer = accept;
  sockets = [];
  headers = [];
  server = createServer((request, response) => {
    headers.push(request.headers);
    answer(request, response);
  }).listen(0, "127.0.0.1");
  server.on("connection", (socket) => sockets.push(socket));
  await once(server, "listening");
  url = urlOf(server);
});

afterEach(async () => {
  server.close();
  server.closeAllConnections();
  await once(server, "close");
});

/** @param {import("node:net").Server} listening @param {string} [scheme] */
function urlOf(listening, scheme = "http") {
  const address = listening.address();
  assert.ok(typeof address === "object" && address !== null);
  return `${scheme}://127.0.0.1:${address.port}`;
}

/** @param {string} [baseUrl] @param {number} [timeoutS] */
const client = (baseUrl = url, timeoutS = 30) => new Stokehold({ baseUrl, token: "sk_test", retry: NEVER, timeoutS });

/** Whether the last request came from `fetch`, which sends this header by itself. */
const isFetch = () => headers.at(-1)?.["sec-fetch-mode"] !== undefined;

test("requests share a connection", async () => {
  const one = client();
  for (let n = 0; n < 5; n += 1) await one.submit("echo", { text: "é" });
  await one.get(JOB_ID);
  assert.equal(sockets.length, 1);
  assert.equal(isFetch(), false);
  assert.equal(headers.at(0)?.["accept-encoding"], "identity");
  assert.equal(headers.at(0)?.["content-length"], String(Buffer.byteLength('{"endpoint":"echo","input":{"text":"é"}}')));
});

test("the path of the base URL is kept", async () => {
  /** @type {(string | undefined)[]} */
  const paths = [];
  answer = (request, response) => {
    paths.push(request.url);
    accept(request, response);
  };
  await client(`${url}/a/b/`).submit("echo");
  assert.deepEqual(paths, ["/a/b/v1/jobs"]);
});

test("a connection that the server closed while idle is replaced", async () => {
  const one = client();
  await one.submit("echo");
  sockets[0]?.destroy();
  await once(/** @type {import("node:net").Socket} */ (sockets[0]), "close");
  // The other end is in this process as well: its end arrives with the next turn of the event loop.
  await new Promise((resolve) => setImmediate(resolve));
  await one.submit("echo");
  assert.equal(sockets.length, 2);
});

test("a hundred requests at once", async () => {
  const one = client();
  await Promise.all(Array.from({ length: 100 }, () => one.submit("echo")));
  assert.equal(headers.length, 100);
  await one.submit("echo");
  assert.ok(sockets.length <= 100);
});

test("bodies of many mebibytes, in pieces that split characters", async () => {
  const text = "ü".repeat(3 << 20);
  answer = (request, response) => {
    request.resume().on("end", () => {
      const body = Buffer.from(JSON.stringify(job("queued", { input: text })));
      for (let at = 0; at < body.length; at += 99_999) response.write(body.subarray(at, at + 99_999));
      response.end();
    });
  };
  assert.equal((await client().submit("echo", text)).record.input, text);
});

test("a server that sends nothing, and one that stops", async () => {
  answer = () => undefined;
  await assert.rejects(client(url, 0.05).submit("echo"), TimedOut);
  answer = (_, response) => response.writeHead(200, { "content-length": "10" }).write("{");
  await assert.rejects(client(url, 0.05).submit("echo"), TimedOut);
  answer = (_, response) => {
    response.writeHead(200, { "content-length": "10" });
    response.write("{", () => response.destroy());
  };
  await assert.rejects(client().submit("echo"), ConnectionFailed);
});

test("an aborted request lets go of its connection", async () => {
  const controller = new AbortController();
  answer = () => controller.abort(new Error("enough"));
  const one = client();
  await assert.rejects(one.submit("echo", 1, { signal: controller.signal }), /enough/);
  await assert.rejects(one.submit("echo", 1, { signal: controller.signal }), /enough/);
  answer = accept;
  await one.submit("echo");
});

test("a server that refuses a large request before its end", async () => {
  answer = (_, response) => response.writeHead(413, { connection: "close" }).end('{"code":"body_too_large"}');
  await assert.rejects(client().submit("echo", "x".repeat(4 << 20)), BadRequest);
});

test("a server of something else", async () => {
  const other = createTcpServer((socket) => socket.end("SSH-2.0-OpenSSH_9.6\r\n")).listen(0, "127.0.0.1");
  await once(other, "listening");
  await assert.rejects(client(urlOf(other)).submit("echo"), ConnectionFailed);
  other.close();
});

test("a header that cannot be sent", async () => {
  for (const idempotencyKey of ["a\r\nx-other: b", "é"]) {
    await assert.rejects(client().submit("echo", 1, { idempotencyKey }), /POST http:.*: the request cannot be sent/);
  }
  assert.equal(headers.length, 0);
});

test("redirects and compressed bodies are left to fetch", async () => {
  const other = createServer(accept).listen(0, "127.0.0.1");
  await once(other, "listening");
  answer = (_, response) => response.writeHead(307, { location: `${urlOf(other)}/v1/jobs` }).end();
  assert.equal((await client().submit("echo")).id, JOB_ID);
  assert.equal(isFetch(), true);
  other.close();
  other.closeAllConnections();
  const { gzipSync } = await import("node:zlib");
  answer = (_, response) => response.writeHead(200, { "content-encoding": "gzip" }).end(gzipSync(JSON.stringify(job())));
  assert.equal((await client().submit("echo")).id, JOB_ID);
});

/** @type {[string, Listener][]} */
const UNEXPECTED = [
  ["compressed", (_, response) => response.writeHead(200, { "content-encoding": "gzip" }).end("x")],
  ["redirected", (_, response) => response.writeHead(307, { location: url }).end()],
  ["cut", (_, response) => response.writeHead(200, { "content-length": "9" }).write("{", () => response.destroy())],
];
for (const [name, unexpected] of UNEXPECTED) {
  test(`a request that must not be repeated is sent once if its response is ${name}`, async () => {
    answer = unexpected;
    await assert.rejects(new Stokehold({ baseUrl: url }).webhooks.rotateSecret(), StokeholdError);
    assert.equal(headers.length, 1);
  });
}

test("a response of more than 256 MiB is refused, and not requested again", async () => {
  answer = (_, response) => response.writeHead(200, { "content-length": (256 << 20) + 1 }).write("[");
  await assert.rejects(new Stokehold({ baseUrl: url }).workers.list(), (error) => {
    assert.ok(error instanceof StokeholdError && !(error instanceof ConnectionFailed));
    assert.match(error.message, /GET http:.*: the response has more than 256 MiB; request less/);
    return true;
  });
  assert.equal(headers.length, 1);
});

/** A server of one connection, which is no HTTP server. @param {(socket: import("node:net").Socket) => unknown} serve */
async function served(serve) {
  const other = createTcpServer((socket) => void serve(socket.on("error", () => undefined))).listen(0, "127.0.0.1");
  await once(other, "listening");
  return { url: urlOf(other), close: () => other.close() };
}

const BODY = JSON.stringify(job());
const RESPONSE = `HTTP/1.1 202 Accepted\r\ncontent-length: ${BODY.length}\r\n\r\n${BODY}`;

test("a large request may take longer than the timeout, as long as it is read", async () => {
  const large = "x".repeat(16 << 20);
  const started = performance.now();
  const slow = await served((socket) => {
    let left = large.length;
    socket.on("data", (data) => {
      left -= data.length;
      socket.pause();
      setTimeout(() => socket.resume(), 1);
      if (left <= 0) setTimeout(() => socket.end(RESPONSE), 200);
    });
  });
  assert.equal((await client(slow.url, 0.4).submit("echo", large)).id, JOB_ID);
  assert.ok(performance.now() - started > 400);
  slow.close();
});

test("a server that stops reading", async () => {
  const stuck = await served((socket) => socket.pause());
  await assert.rejects(client(stuck.url, 0.3).submit("echo", "x".repeat(16 << 20)), TimedOut);
  stuck.close();
});

test("a head that arrives in pieces has the time of the timeout", async () => {
  const dripping = await served((socket) => {
    const drip = setInterval(() => socket.write("HTTP/1.1 100 Continue\r\n\r\n"), 20);
    socket.on("close", () => clearInterval(drip));
  });
  await assert.rejects(client(dripping.url, 0.3).submit("echo"), TimedOut);
  dripping.close();
});

test("a connection whose server responds before the end of the request is not used again", async () => {
  let connections = 0;
  const early = await served((socket) => {
    connections += 1;
    socket.once("data", () => socket.write(RESPONSE));
  });
  const one = client(early.url);
  await one.submit("echo", "x".repeat(16 << 20));
  await one.submit("echo");
  assert.equal(connections, 2);
  early.close();
});

test("a fetch or a dispatcher of the application is used", async () => {
  const { fetch } = globalThis;
  /** @type {typeof fetch} */
  const own = (...given) => fetch(...given);
  await new Stokehold({ baseUrl: url, fetch: own }).submit("echo");
  assert.equal(isFetch(), true);
  globalThis.fetch = own;
  await client().submit("echo");
  globalThis.fetch = fetch;
  assert.equal(isFetch(), true);
  await client().submit("echo");
  assert.equal(isFetch(), false);

  const usual = Reflect.get(globalThis, DISPATCHER);
  class ProxyAgent {
    /** @param {unknown[]} given */
    dispatch(...given) {
      return usual.dispatch(...given);
    }
  }
  Reflect.set(globalThis, DISPATCHER, new ProxyAgent());
  await client().submit("echo");
  Reflect.set(globalThis, DISPATCHER, usual);
  assert.equal(isFetch(), true);
});

test("TLS with a certificate of one's own", async () => {
  const folder = mkdtempSync(join(tmpdir(), "stokehold-"));
  const [key, cert] = [join(folder, "key.pem"), join(folder, "cert.pem")];
  const options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost";
  const names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert];
  await promisify(execFile)("openssl", [...options.split(" "), ...names]);
  const secure = createTlsServer({ key: readFileSync(key), cert: readFileSync(cert) }, accept).listen(0, "127.0.0.1");
  let connections = 0;
  secure.on("secureConnection", () => (connections += 1));
  await once(secure, "listening");
  const baseUrl = urlOf(secure, "https");
  await assert.rejects(client(baseUrl).submit("echo"), ConnectionFailed);
  connections = 0;
  // Node reads the variable when it starts.
  const script = `
    import { Stokehold } from "stokehold";
    const client = new Stokehold({ baseUrl: ${JSON.stringify(baseUrl)} });
    for (let n = 0; n < 3; n += 1) await client.submit("echo");
  `;
  const env = { ...process.env, NODE_EXTRA_CA_CERTS: cert };
  const cwd = new URL(".", import.meta.url);
  await promisify(execFile)(process.execPath, ["--input-type=module", "-e", script], { env, cwd, timeout: 60_000 });
  assert.equal(connections, 1);
  secure.close();
  secure.closeAllConnections();
  rmSync(folder, { recursive: true });
});

test("a process ends while connections are idle", async () => {
  const script = `
    import { Stokehold } from "stokehold";
    await new Stokehold({ baseUrl: ${JSON.stringify(url)} }).submit("echo");
  `;
  const cwd = new URL(".", import.meta.url);
  await promisify(execFile)(process.execPath, ["--input-type=module", "-e", script], { cwd, timeout: 20_000 });
});
