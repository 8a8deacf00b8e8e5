import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import * as stokehold from "stokehold";
import { data, drop, FAST, ok, Server } from "./server.mjs";

const BULK = "POST /v1/jobs/bulk";

/** @type {Server} */
let api;
/** @type {stokehold.Stokehold} */
let client;

beforeEach(async () => {
  api = await Server.start();
  client = new stokehold.Stokehold({ baseUrl: api.url, token: "sk_test", retry: FAST });
});

afterEach(() => api.stop());

/** @param {import("./server.mjs").Seen | undefined} request */
const body = (request) => JSON.parse(request?.body.toString() ?? "null");

test("a pipeline is one request, whose jobs name each other by their place", async () => {
  api.on(BULK, drop, ok({ ids: ["a", "b", "c"] }, 202));
  const pipeline = client.pipeline();
  const check = pipeline.submit("prompt-check", { prompt: "a lighthouse" });
  const image = pipeline.submit("render", { prompt: check.ref("/prompt"), seed: 7 }, { after: [check], priority: "batch" });
  pipeline.submit("report", { all: [check, image.ref()] }, { after: [{ job: image, on: "completion" }, "0192"], deadlineS: 60 });
  const jobs = await pipeline.run();

  assert.deepEqual(body(api.requests[1]), {
    jobs: [
      { endpoint: "prompt-check", input: { prompt: "a lighthouse" } },
      {
        endpoint: "render",
        input: { prompt: { $job: "#0", pointer: "/prompt" }, seed: 7 },
        priority: "batch",
        depends_on: [{ job: "#0", on: "success" }],
      },
      {
        endpoint: "report",
        input: { all: [{ $job: "#0" }, { $job: "#1" }] },
        deadline_s: 60,
        depends_on: [{ job: "#1", on: "completion" }, { job: "0192", on: "success" }],
      },
    ],
  });
  const keys = api.requests.map(({ headers }) => headers["idempotency-key"]);
  assert.equal(keys.length, 2);
  assert.equal(keys[0], keys[1]);
  assert.deepEqual(jobs.map(({ id, endpoint, state }) => [id, endpoint, state]), [
    ["a", "prompt-check", "queued"],
    ["b", "render", "blocked"],
    ["c", "report", "blocked"],
  ]);
  assert.deepEqual(jobs[2]?.record.depends_on, [{ job: "b", on: "completion" }, { job: "0192", on: "success" }]);

  await pipeline.run();
  assert.equal(api.requests[2]?.headers["idempotency-key"], keys[0], "run again, it gives the same jobs");
});

test("files in a pipeline's inputs are uploaded, an accepted job may be waited for", async () => {
  api.on("POST /v1/files", ok({ id: "file_1", upload_url: `${api.url}/put`, headers: {} }, 201));
  api.on("PUT /put", data(""));
  api.on(BULK, ok({ ids: ["a"] }, 202));
  const first = client.pipeline();
  first.submit("echo", { bytes: Buffer.from("raw") });
  const [job] = await first.run();
  assert.deepEqual(body(api.seen(BULK)[0]).jobs[0].input, { bytes: { $file: "file_1" } });

  assert.ok(job);
  const second = client.pipeline();
  second.submit("echo", { before: job.ref("/text") }, { after: [job] });
  await second.run();
  assert.deepEqual(body(api.seen(BULK)[1]).jobs[0], {
    endpoint: "echo",
    input: { before: { $job: "a", pointer: "/text" } },
    depends_on: [{ job: "a", on: "success" }],
  });
});

test("what cannot be one pipeline is refused before anything is sent", async () => {
  const other = client.pipeline().submit("echo");
  const pipeline = client.pipeline();
  assert.throws(() => pipeline.submit("echo", null, { after: [other] }), /another pipeline/);
  assert.throws(() => other.ref("prompt"), /JSON pointer/);
  assert.deepEqual(await pipeline.run(), []);
  for (let n = 0; n < 8; n += 1) pipeline.submit("echo", "x".repeat(1 << 20));
  await assert.rejects(pipeline.run(), /7 MiB/);
  for (let n = 8; n < 1000; n += 1) pipeline.submit("echo");
  assert.throws(() => pipeline.submit("echo"), /1000 jobs/);
  assert.equal(api.requests.length, 0);
});
