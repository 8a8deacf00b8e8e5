// Deletion: what it answers, and what prevents it. Also a deploy without a folder.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import { InUse, NotFound, Stokehold } from "stokehold";
import { data, drop, FAST, ok, problem, Server } from "./server.mjs";

/** @type {Server} */
let api;
/** @type {Stokehold} */
let client;

beforeEach(async () => {
  api = await Server.start();
  client = new Stokehold({ baseUrl: api.url, token: "sk_test", retry: FAST });
});

afterEach(() => api.stop());

const USED = { kind: "schedule", count: 1, examples: ["sch_1"] };

test("a dry run returns what depends on an endpoint", async () => {
  const answer = { deleted: false, dependents: [USED], freed_bytes: 4096 };
  api.on("DELETE /v1/endpoints/render", drop, ok(answer));
  assert.deepEqual(await client.endpoints.delete("render", { dryRun: true }), answer);
  assert.deepEqual(api.requests.at(-1)?.query, { dry_run: "true" });
});

test("a thing that is needed is not deleted", async () => {
  api.on("DELETE /v1/files/file_1", problem(409, "in_use", "2 jobs need it", { dependents: [USED] }));
  await assert.rejects(client.files.delete("file_1"), (error) => {
    assert.ok(error instanceof InUse);
    assert.deepEqual(error.dependents, [USED]);
    return true;
  });
});

for (const [name, lost] of Object.entries({ "a lost response": drop, "a 503": problem(503, "unavailable", "away") })) {
  test(`a retry after ${name} that finds nothing to delete is a success`, async () => {
    const missing = problem(404, "not_found", "no such thing");
    api.on("DELETE /v1/files/file_1", lost, missing);
    assert.deepEqual(await client.files.delete("file_1"), { deleted: true, dependents: [], freed_bytes: 0 });
    api.on("DELETE /v1/schedules/sch_1", lost, lost, missing);
    await client.schedules.delete("sch_1");
    assert.equal(api.requests.length, 5);
  });
}

test("what was never there is not found", async () => {
  const missing = problem(404, "not_found", "no such thing");
  const route = "DELETE /v1/files/file_1";
  api.on(route, missing);
  await assert.rejects(client.files.delete("file_1"), NotFound);
  // The first try was refused, so it has deleted nothing.
  api.on(route, problem(429, "rate_limited", "slow down"), missing);
  await assert.rejects(client.files.delete("file_1"), NotFound);
  // A dry run deletes nothing, nor does a reset of values.
  api.on(route, drop, missing);
  await assert.rejects(client.files.delete("file_1", { dryRun: true }), NotFound);
  api.on("DELETE /v1/endpoints/render/needs", drop, missing);
  await assert.rejects(client.endpoints.forgetNeeds("render"), NotFound);
});

test("a deploy sends the package of the current version, or one of its own, with other options", async () => {
  const current = { name: "render", version: 3, created_at: "x", entry: "main.py:render", python: "3.11", timeout_s: 60 };
  api.on("GET /v1/endpoints/render", ok({ ...current, package_sha256: "ab", package_size_bytes: 2 }));
  api.on("POST /v1/endpoints", ok({ name: "render", version: 4 }, 201));
  assert.equal((await client.endpoints.deploy("render", { timeoutS: 600 })).version, 4);
  /** @param {number} at */
  const sent = (at) => JSON.parse(api.seen("POST /v1/endpoints")[at]?.body.toString() ?? "");
  const { version, created_at, ...kept } = current;
  assert.deepEqual(sent(0), { ...kept, package_sha256: "ab", package_size_bytes: 2, timeout_s: 600 });
  api.on("POST /v1/packages", ok({ exists: false, upload_url: `${api.url}/put`, headers: { "x-sum": "1" } }));
  api.on("PUT /put", data(""));
  await client.deploy("render", { package: new Uint8Array([1, 2]), entry: "main.py:render", python: "3.11" });
  assert.deepEqual([...(api.seen("PUT /put")[0]?.body ?? [])], [1, 2]);
  const { package_sha256: hash, ...rest } = sent(1);
  assert.match(hash, /^[0-9a-f]{64}$/);
  assert.deepEqual(rest, { name: "render", package_size_bytes: 2, entry: "main.py:render", python: "3.11" });
});

test("a token is created once, whatever happens to the answer", async () => {
  api.on("POST /v1/tokens", drop);
  await assert.rejects(client.tokens.create("ci", { roles: ["deploy"] }), /no response/);
  assert.equal(api.seen("POST /v1/tokens").length, 1);
});
