import assert from "node:assert/strict";
import { File } from "node:buffer"; // Node 18 has no global one
import { createHash } from "node:crypto";
import { afterEach, beforeEach, test } from "node:test";
import { inspect } from "node:util";

import * as stokehold from "stokehold";
import { data, drop, FAST, job, JOB_ID, ok, redirect, Server } from "./server.mjs";

const BYTES = new Uint8Array(300_000).map((_, n) => n);
const SHA256 = createHash("sha256").update(BYTES).digest("hex");

/** @type {Server} */
let api;
/** @type {Server} */
let store;
/** @type {stokehold.Stokehold} */
let client;

beforeEach(async () => {
  api = await Server.start();
  store = await Server.start();
  client = new stokehold.Stokehold({ baseUrl: api.url, token: "sk_test", retry: FAST });
});

afterEach(async () => {
  await api.stop();
  await store.stop();
});

/** @param {...string} ids */
function takeUploads(...ids) {
  const headers = { "x-sum": "1", "Content-Type": "image/png", host: "elsewhere", "content-length": "9" };
  api.on("POST /v1/files", ...ids.map((id) => ok({ id, name: "n", upload_url: `${store.url}/${id}?sig=s`, headers }, 201)));
  for (const id of ids) store.on(`PUT /${id}`, data(""));
}

test("upload sends the bytes to the store, without the token, as often as it takes", async () => {
  takeUploads("file_1");
  store.on("PUT /file_1", drop, data(""));
  const file = await client.upload(BYTES, { name: "a.png", contentType: "image/png" });
  assert.deepEqual([file.id, file.name, file.sizeBytes], ["file_1", "a.png", BYTES.length]);
  assert.deepEqual(JSON.parse(api.requests[0]?.body.toString() ?? ""), {
    name: "a.png",
    size_bytes: BYTES.length,
    sha256: SHA256,
    content_type: "image/png",
  });
  assert.equal(store.requests.length, 2);
  for (const put of store.requests) {
    assert.ok(put.body.equals(BYTES));
    assert.equal(put.headers.authorization, undefined);
    assert.equal(put.headers["x-sum"], "1");
    assert.equal(put.headers["content-type"], "image/png");
  }
});

test("bytes and files in an input become ids, each uploaded once", async () => {
  takeUploads("file_1", "file_2", "file_3");
  api.on("POST /v1/jobs", ok(job(), 202));
  const known = await client.upload(new Blob(["known"], { type: "text/plain" }));
  const blob = new File(["b"], "b.txt", { type: "text/plain" });
  await client.submit("echo", { known, twice: [blob, { again: blob }], bytes: Buffer.from("raw") });
  assert.deepEqual(JSON.parse(api.seen("POST /v1/jobs")[0]?.body.toString() ?? "").input, {
    known: { $file: "file_1" },
    twice: [{ $file: "file_2" }, { again: { $file: "file_2" } }],
    bytes: { $file: "file_3" },
  });
  assert.deepEqual(store.requests.map((put) => put.body.toString()), ["known", "b", "raw"]);
  assert.equal(JSON.parse(api.requests[1]?.body.toString() ?? "").name, "b.txt");
});

test("files in a result can be read, and go into another job", async () => {
  takeUploads("file_9");
  const named = { $file: "out.png", url: `/v1/jobs/${JOB_ID}/files/out.png`, size_bytes: BYTES.length, sha256: SHA256 };
  api.on(`GET /v1/jobs/${JOB_ID}`, ok(job("succeeded", { result: { images: [named], seed: 1 } })));
  api.on(`GET ${named.url}`, redirect(`${store.url}/out?sig=s`));
  store.on("GET /out", drop, data(BYTES));
  /** @type {{ images: stokehold.FileRef[], seed: number }} */
  const result = await client.result(JOB_ID);
  const [image] = result.images;
  assert.ok(image instanceof stokehold.FileRef);
  assert.deepEqual([image.name, image.url, result.seed], ["out.png", api.url + named.url, 1]);
  assert.deepEqual(await image.bytes(), BYTES);
  assert.equal((await image.blob()).size, BYTES.length);
  assert.ok(store.requests.every((request) => request.headers.authorization === undefined));

  api.on("POST /v1/jobs", ok(job(), 202));
  await client.submit("next", { image });
  assert.deepEqual(JSON.parse(api.seen("POST /v1/jobs")[0]?.body.toString() ?? "").input, { image: { $file: "file_9" } });

  store.on("GET /out", data("other bytes"));
  await assert.rejects(image.bytes(), /SHA-256/);
});

test("a result does not choose where its reader connects to", async () => {
  const crafted = { $file: "x", url: `${store.url}/v1/steal` };
  api.on(`GET /v1/jobs/${JOB_ID}`, ok(job("succeeded", { result: crafted })));
  assert.deepEqual(await client.result(JOB_ID), crafted, "plain data, not a file");
});

test("an uploaded file can be read back", async () => {
  takeUploads("file_1");
  const file = await client.upload(BYTES);
  api.on("GET /v1/files/file_1", ok({ id: "file_1", url: `${store.url}/get?sig=s` }));
  store.on("GET /get", data(BYTES));
  assert.deepEqual(await file.bytes(), BYTES);
  assert.equal(store.seen("GET /get")[0]?.headers.authorization, undefined);
});

test("the token is never printed", () => {
  assert.doesNotMatch(inspect(client, { depth: 9, showHidden: true }) + JSON.stringify(client), /sk_test/);
});
