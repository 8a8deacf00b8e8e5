import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { Readable } from "node:stream";

import * as stokehold from "stokehold";
import { Bar, barText } from "../dist/esm/internal/bar.js";
import { LinesBody } from "../dist/esm/internal/lines.js";
import { broken, data, drop, FAST, ok, problem, Server } from "./server.mjs";

const CREATE = "POST /v1/batches";
const COUNTS = { total: 4, invalid: 0, accepted: 4, succeeded: 0, failed: 0, cancelled: 0, expired: 0, open: 4, running: 0 };

/** @param {stokehold.BatchState} [state] @param {Partial<stokehold.BatchCounts>} [counts] @returns {stokehold.Batch} */
const batch = (state = "running", counts = {}) => ({
  id: "batch_1", endpoint: "embed", version: null, state, priority: "batch", on_invalid: "fail", format: "stokehold", metadata: {},
  counts: { ...COUNTS, ...counts }, created_at: "2026-11-21T05:50:00Z", started_at: null, ended_at: null, deadline_at: null,
  eta_at: null, rate_per_s: null, errors: [], retry_of: null, results_url: "/v1/batches/batch_1/results", errors_url: "/v1/batches/batch_1/errors",
  webhook: null, budget_usd_micros: null, at_budget: null, spent_usd_micros: 0, budget_state: null, estimate: null, estimate_unknown: null,
  estimate_error_pct: null, stop_reason: null,
});

/** @type {Server} */
let api;
/** @type {stokehold.Stokehold} */
let client;

beforeEach(async () => {
  api = await Server.start();
  client = new stokehold.Stokehold({ baseUrl: api.url, token: "sk_test", retry: FAST });
});

afterEach(() => api.stop());

/** @param {AsyncIterable<unknown>} all */
async function collect(all) {
  const given = [];
  for await (const one of all) given.push(one);
  return given;
}

const LINES = [{ custom_id: "a", input: { text: "grüß" } }, { custom_id: "b", input: 2 }];
const TEXT = LINES.map((line) => `${JSON.stringify(line)}\n`).join("");

async function* generated() {
  for (const line of LINES) yield line;
}

/** @type {Record<string, () => stokehold.BatchLines>} */
const SOURCES = {
  "an array": () => LINES,
  "a set": () => new Set(LINES),
  "a generator": () => LINES.values(),
  "an async generator": generated,
  "lines of JSON": () => LINES.map((line) => `${JSON.stringify(line)}\n`),
  "text": () => TEXT,
  "bytes": () => Buffer.from(TEXT),
  "a Blob": () => new Blob([TEXT]),
  "a stream of bytes": () => new Blob([TEXT]).stream(),
  "a Node stream of bytes": () => Readable.from([Buffer.from(TEXT.slice(0, 9)), Buffer.from(TEXT.slice(9))]),
};

for (const [what, source] of Object.entries(SOURCES)) {
  test(`lines are streamed out of ${what}, and fit in a Blob`, async () => {
    api.on(CREATE, ok(batch("validating"), 202));
    const made = await client.batches.create({ endpoint: "embed", lines: source() });
    assert.equal(made.state, "validating");
    const [sent] = api.requests;
    assert.equal(sent?.body.toString(), TEXT);
    assert.equal(sent?.headers["content-type"], "application/jsonl");
    assert.equal(sent?.headers["transfer-encoding"], "chunked");
    assert.match(String(sent?.headers["idempotency-key"]), /^[0-9a-f-]{36}$/);
    const encode = async (/** @type {object} */ line) => JSON.stringify(line);
    const body = new LinesBody(/** @type {any} */ (source()), encode);
    assert.equal(await (await body.blob()).text(), TEXT);
  });
}

test("a hundred thousand lines go out in pieces as they are made", async () => {
  api.on(CREATE, ok(batch(), 202));
  let made = 0;
  function* many() {
    for (; made < 100_000; made += 1) yield { input: made };
  }
  await client.batches.create({ endpoint: "embed", lines: many() });
  const lines = api.requests[0]?.body.toString().trimEnd().split("\n") ?? [];
  assert.equal(lines.length, 100_000);
  assert.equal(lines.at(-1), '{"input":99999}');
});

test("every option goes along, in the query or in the body", async () => {
  api.on(CREATE, ok(batch(), 202));
  const options = /** @type {const} */ ({
    endpoint: "embed",
    format: "stokehold",
    priority: "standard",
    onInvalid: "skip",
    deadlineS: 3600,
    timeoutS: 9,
    maxAttempts: 2,
    metadata: { team: "a b" },
    webhook: "https://example.com/hook?a=b",
    webhookEvents: ["batch.completed"],
    idempotencyKey: "mine",
  });
  await client.batches.create({ ...options, lines: LINES });
  await client.batches.create({ ...options, inputFile: "file_1" });
  await client.batches.create({ endpoint: "embed", inputKey: "inputs/t/x.jsonl" });
  const [streamed, filed, keyed] = api.requests;
  const said = { endpoint: "embed", format: "stokehold", priority: "standard", on_invalid: "skip" };
  const hook = "https://example.com/hook?a=b";
  assert.deepEqual(streamed?.query, {
    ...said, deadline_s: "3600", timeout_s: "9", max_attempts: "2", webhook: hook, webhook_events: "batch.completed", "metadata.team": "a b",
  });
  assert.deepEqual(JSON.parse(filed?.body.toString() ?? ""), {
    ...said, deadline_s: 3600, timeout_s: 9, max_attempts: 2, webhook: hook, webhook_events: ["batch.completed"],
    metadata: { team: "a b" }, input_file: "file_1",
  });
  assert.deepEqual(JSON.parse(keyed?.body.toString() ?? ""), { endpoint: "embed", input_key: "inputs/t/x.jsonl" });
  assert.deepEqual([streamed?.headers["idempotency-key"], filed?.headers["idempotency-key"]], ["mine", "mine"]);
});

test("bytes in a line are uploaded", async () => {
  api.on("POST /v1/files", ok({ id: "file_1", upload_url: `${api.url}/put`, headers: {} }, 201));
  api.on("PUT /put", data(""));
  api.on(CREATE, ok(batch(), 202));
  await client.batches.create({ endpoint: "embed", lines: [{ input: { image: new Blob(["x"]) } }] });
  assert.equal(api.seen(CREATE)[0]?.body.toString(), '{"input":{"image":{"$file":"file_1"}}}\n');
});

test("what can be read again is sent again with the same key; what cannot is not", async () => {
  api.on(CREATE, drop, problem(503, "unavailable", "away"), ok(batch(), 202));
  await client.batches.create({ endpoint: "embed", lines: LINES });
  assert.deepEqual(api.requests.map(({ body }) => body.toString()), [TEXT, TEXT, TEXT]);
  assert.equal(new Set(api.requests.map(({ headers }) => headers["idempotency-key"])).size, 1);
  api.requests.length = 0;
  api.on(CREATE, drop, ok(batch(), 202));
  await assert.rejects(client.batches.create({ endpoint: "embed", lines: generated() }), stokehold.ConnectionFailed);
  assert.equal(api.requests.length, 1);
});

test("what the source throws is thrown, once", async () => {
  const reason = new Error("the disk is gone");
  let asked = 0;
  const lines = {
    *[Symbol.iterator]() {
      asked += 1;
      yield LINES[0] ?? "";
      throw reason;
    },
  };
  await assert.rejects(client.batches.create({ endpoint: "embed", lines }), (thrown) => thrown === reason);
  await assert.rejects(client.batches.create({ endpoint: "embed", lines: ['{"a":\n1}'] }), /line break/);
  await assert.rejects(client.batches.create({ endpoint: "embed", lines: [{ input: NaN }] }), /NaN/);
  assert.ok(asked <= 2, "once to see that it can be read again, once to read it");
});

test("retrieve, list, cancel, retryFailed", async () => {
  api.on("GET /v1/batches/batch_1", ok(batch()));
  api.on("GET /v1/batches", ok({ batches: [batch()], next_cursor: "x" }), ok({ batches: [batch()], next_cursor: null }));
  api.on("POST /v1/batches/batch_1/cancel", ok(batch("cancelled")));
  api.on("POST /v1/batches/batch_1/retry-failed", ok({ ...batch("validating"), id: "batch_2" }, 202), problem(409, "nothing_to_retry", "no"));
  const one = await client.batches.retrieve("batch_1");
  assert.equal((await collect(client.batches.list({ state: "running", pageSize: 1 }))).length, 2);
  assert.deepEqual(api.requests.at(-1)?.query, { limit: "1", state: "running", cursor: "x" });
  assert.equal((await client.batches.cancel(one)).state, "cancelled");
  assert.equal((await client.batches.retryFailed(one)).id, "batch_2");
  await assert.rejects(client.batches.retryFailed(one), stokehold.NothingToRetry);
});

/** @param {number} line */
const result = (line) => `${JSON.stringify({ line, custom_id: null, job_id: `j${line}`, result: { text: "grüß" } })}\n`;

test("results come each once, through connections that break anywhere and lines in another order", async () => {
  const route = "GET /v1/batches/batch_1/results";
  api.on(
    route,
    broken(result(3), result(1), result(9000).slice(0, 20)),
    problem(503, "unavailable", "away"),
    broken(result(1), result(2), result(3)),
    drop,
    data(result(2) + result(3) + result(9000) + result(1) + result(4).trimEnd()),
  );
  const lines = /** @type {stokehold.BatchResult[]} */ (await collect(client.batches.results("batch_1")));
  assert.deepEqual(lines.map(({ line }) => line).sort((a, b) => a - b), [1, 2, 3, 4, 9000]);
  assert.deepEqual(lines[0]?.result, { text: "grüß" });
  assert.equal(api.requests[0]?.headers.accept, "application/jsonl");
});

test("files in a batch's results can be read, OpenAI's lines pass as they are, errors say why", async () => {
  const file = { $file: "out.png", url: "/v1/jobs/j1/files/out.png" };
  const openai = { id: "batch_req_1", custom_id: "a", response: { status_code: 200, body: {} }, error: null };
  const error = { line: 2, custom_id: "b", job_id: null, state: "invalid", error: { code: "invalid_input", message: "no" } };
  api.on("GET /v1/batches/batch_1/results", data(JSON.stringify({ line: 1, custom_id: null, job_id: "j1", result: { file } })));
  api.on("GET /v1/batches/batch_2/results", broken(`${JSON.stringify(openai)}\n`), data(JSON.stringify(openai)));
  api.on("GET /v1/batches/batch_1/errors", data(`${JSON.stringify(error)}\n\n`));
  const [line] = /** @type {stokehold.BatchResult<any>[]} */ (await collect(client.batches.results("batch_1")));
  assert.ok(line?.result.file instanceof stokehold.FileRef);
  assert.deepEqual(await collect(client.batches.results("batch_2")), [openai]);
  assert.deepEqual(await collect(client.batches.errors("batch_1")), [error]);
});

test("a cut or foreign answer is told, and lines that never end are refused", async () => {
  const route = "GET /v1/batches/batch_1/results";
  api.on(route, data(result(1) + "<html>"));
  await assert.rejects(collect(client.batches.results("batch_1")), /not JSON/);
  assert.equal(api.requests.length, 6);
  api.on(route, problem(404, "not_found", "gone"));
  await assert.rejects(collect(client.batches.results("batch_1")), stokehold.NotFound);
  api.on(route, (response) => {
    response.writeHead(200);
    const more = () => response.destroyed || response.write("x".repeat(8 << 20), () => setImmediate(more));
    more();
  });
  await assert.rejects(collect(client.batches.results("batch_1")), /64 MiB/);
});

test("wait looks until it has ended and tells how far it is", async () => {
  const half = batch("running", { succeeded: 2, open: 2 });
  api.on("GET /v1/batches/batch_1", ok(batch()), ok(half), drop, ok(batch("completed", { succeeded: 4, open: 0 })));
  /** @type {number[]} */
  const told = [];
  const ended = await client.batches.wait("batch_1", { onProgress: ({ counts }) => told.push(counts.succeeded) });
  assert.equal(ended.state, "completed");
  assert.deepEqual(told, [0, 2, 4]);
  assert.deepEqual(api.requests.map(({ query }) => query["wait_s"]), [undefined, "2", "2", "2"]);
  api.on("GET /v1/batches/batch_1", ok(batch()));
  await assert.rejects(client.batches.wait("batch_1", { timeoutS: 0.02 }), (thrown) => {
    assert.ok(thrown instanceof stokehold.WaitTimeout);
    assert.match(thrown.message, /batch batch_1 is still running/);
    return true;
  });
});

test("the bar is for terminals, on one line", () => {
  const half = { ...batch("running", { succeeded: 1, failed: 1, open: 2, invalid: 3 }), rate_per_s: 41.23, eta_at: "2026-01-01T00:01:32Z" };
  const now = Date.parse("2026-01-01T00:00:00Z");
  const bar = "█".repeat(12) + "░".repeat(12);
  assert.equal(barText(half, now), `running  ${bar}  2/4  50 %  1 failed  3 invalid  41.2/s  1m 32s left`);
  assert.match(barText(batch("validating", { accepted: 0, open: 0 }), now), /0\/0 {2}0 %/);
  /** @type {string[]} */
  const written = [];
  const write = (/** @type {string} */ text) => written.push(text);
  const shown = new Bar({ isTTY: true, columns: 20, write });
  shown.show(half);
  shown.close();
  shown.close();
  assert.deepEqual(written, [`\r${barText(half, now).slice(0, 19)}\u001b[K`, "\n"]);
  const piped = new Bar({ write });
  piped.show(half);
  piped.close();
  assert.equal(written.length, 2);
});
