import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import * as stokehold from "stokehold";
import { data, drop, FAST, hang, job, JOB_ID, ok, problem, redirect, Server } from "./server.mjs";

/** @type {Server} */
let api;
/** @type {Server} */
let store;
/** @type {stokehold.Stokehold} */
let client;

beforeEach(async () => {
  api = await Server.start();
  store = await Server.start();
  client = new stokehold.Stokehold({ baseUrl: `${api.url}/`, token: "sk_test", retry: FAST });
});

afterEach(async () => {
  await api.stop();
  await store.stop();
});

/** @param {import("./server.mjs").Seen | undefined} request */
const body = (request) => JSON.parse(request?.body.toString() ?? "null");

test("the public names are these", () => {
  assert.deepEqual(Object.keys(stokehold).sort(), [
    "ApiError", "BadRequest", "Conflict", "ConnectionFailed", "DependencyFailed", "FileRef", "Forbidden", "InUse", "InvalidInput", "Job",
    "JobCancelled", "JobError", "JobExpired", "JobFailed", "JobPoisoned", "JobRejected", "NotFound", "NotRetryable",
    "NothingToRetry", "OutOfGpuMemory", "PartlySubmitted", "QuotaExceeded", "RateLimited", "ServerError", "Stokehold",
    "StokeholdError", "TimedOut", "Unauthorized", "Unavailable", "WaitTimeout", "WebhookVerificationError",
    "verifyWebhook",
  ]);
});

test("submit sends what was given and nothing else", async () => {
  api.on("POST /v1/jobs", ok(job(), 202));
  const submitted = await client.submit("echo", { text: "hi" });
  assert.deepEqual([submitted.id, submitted.state, submitted.record.version], [JOB_ID, "queued", 1]);
  await client.submit("echo", undefined, {
    version: 3,
    priority: "batch",
    timeoutS: 9,
    maxAttempts: 2,
    queueTimeoutS: 60,
    deadlineS: 600,
    retentionS: 3600,
    concurrencyKey: "user-7",
    concurrencyMax: 3,
    dependsOn: ["a1", { id: "a2" }, { job: "a3", on: "completion" }],
    webhook: "https://example.com/hook",
    webhookEvents: ["job.started", "job.completed"],
    runAfter: new Date("2027-01-02T00:00:00Z"),
    metadata: { team: "a" },
    idempotencyKey: "mine",
    waitS: 2.5,
  });
  const [plain, full] = api.requests;
  assert.deepEqual(body(plain), { endpoint: "echo", input: { text: "hi" } });
  assert.equal(plain?.headers.authorization, "Bearer sk_test");
  assert.match(String(plain?.headers["idempotency-key"]), /^[0-9a-f-]{36}$/);
  assert.equal(plain?.headers["prefer"], undefined);
  assert.deepEqual(body(full), {
    endpoint: "echo",
    input: null,
    version: 3,
    priority: "batch",
    timeout_s: 9,
    max_attempts: 2,
    queue_timeout_s: 60,
    deadline_s: 600,
    retention_s: 3600,
    concurrency_key: "user-7",
    concurrency_max: 3,
    depends_on: [{ job: "a1", on: "success" }, { job: "a2", on: "success" }, { job: "a3", on: "completion" }],
    webhook: "https://example.com/hook",
    webhook_events: ["job.started", "job.completed"],
    run_after: "2027-01-02T00:00:00.000Z",
    metadata: { team: "a" },
  });
  assert.equal(full?.headers["idempotency-key"], "mine");
  assert.equal(full?.headers["prefer"], "wait=3");
});

test("submit refuses what JSON cannot hold", async () => {
  await assert.rejects(client.submit("echo", { n: NaN }), /n is NaN/);
  await assert.rejects(client.submit("echo", { n: 1n }), TypeError);
  assert.equal(api.requests.length, 0);
});

for (const [name, trouble] of Object.entries({ drop, 429: problem(429, "x", "y"), 503: problem(503, "x", "y") })) {
  test(`a create is repeated with the same key and body after ${name}`, async () => {
    api.on("POST /v1/jobs", trouble, trouble, ok(job(), 202));
    await client.submit("echo", 1);
    assert.equal(api.requests.length, 3);
    assert.equal(new Set(api.requests.map(({ headers, body }) => `${headers["idempotency-key"]} ${body}`)).size, 1);
  });
}

test("what repeating cannot help is not repeated", async () => {
  for (const status of [400, 404, 409, 500]) {
    api.on("POST /v1/jobs", problem(status, "x", "no"));
    await assert.rejects(client.submit("echo"), stokehold.ApiError);
  }
  assert.equal(api.requests.length, 4);
  assert.equal(new Set(api.requests.map(({ headers }) => headers["idempotency-key"])).size, 4);
});

/** @type {[number, string, typeof stokehold.ApiError][]} */
const CAUSES = [
  [400, "invalid_json", stokehold.BadRequest],
  [400, "invalid_input", stokehold.InvalidInput],
  [422, "idempotency_conflict", stokehold.Conflict],
  [401, "unauthorized", stokehold.Unauthorized],
  [403, "forbidden", stokehold.Forbidden],
  [404, "unknown_endpoint", stokehold.NotFound],
  [409, "not_ready", stokehold.Conflict],
  [409, "not_retryable", stokehold.NotRetryable],
  [409, "nothing_to_retry", stokehold.NothingToRetry],
  [429, "quota_exceeded", stokehold.QuotaExceeded],
  [429, "queue_full", stokehold.RateLimited],
  [500, "internal", stokehold.ServerError],
  [503, "unavailable", stokehold.Unavailable],
];

for (const [status, code, Kind] of CAUSES) {
  test(`${status} ${code} is ${Kind.name}`, async () => {
    const errors = [{ path: "/input/text", message: "is wrong" }];
    // An hour is longer than a client sleeps, so it throws at once.
    api.on("POST /v1/jobs", problem(status, code, "do this instead", { errors }, { "retry-after": "3600" }));
    const error = await client.submit("echo").catch((thrown) => thrown);
    assert.equal(error.constructor, Kind);
    assert.deepEqual([error.name, error.status, error.code, error.detail], [Kind.name, status, code, "do this instead"]);
    assert.deepEqual([error.requestId, error.errors, error.retryAfterS], ["req-7", errors, 3600]);
    assert.equal(error.message, `do this instead (/input/text: is wrong; ${status} ${code})`);
    assert.equal(api.requests.length, 1);
  });
}

test("retries end, and a server that is not there is told", async () => {
  api.on("GET /v1/endpoints", problem(503, "unavailable", "away"));
  await assert.rejects(client.endpoints(), /away/);
  assert.equal(api.requests.length, 6);
  const nowhere = new stokehold.Stokehold({ baseUrl: "http://127.0.0.1:1", retry: { maxRetries: 0 } });
  await assert.rejects(nowhere.endpoints(), stokehold.ConnectionFailed);
});

test("a server that says nothing, or something else", async () => {
  api.on("GET /v1/endpoints", hang);
  const hasty = new stokehold.Stokehold({ baseUrl: api.url, timeoutS: 0.02, retry: { ...FAST, maxRetries: 1 } });
  await assert.rejects(hasty.endpoints(), stokehold.TimedOut);
  assert.equal(api.requests.length, 2);
  api.on("GET /v1/endpoints", data("<html>"));
  await assert.rejects(client.endpoints(), /proxy/);
});

test("submitMany goes in chunks of a thousand", async () => {
  const ids = Array.from({ length: 1000 }, (_, n) => `a${n}`);
  api.on("POST /v1/jobs/bulk", ok({ ids }, 202), ok({ ids: ["b0", "b1"] }, 202));
  const inputs = Array.from({ length: 1002 }, (_, n) => ({ n }));
  const jobs = await client.submitMany("echo", inputs, { priority: "batch", idempotencyKey: "k" });
  assert.deepEqual([jobs[0]?.id, jobs[999]?.id, jobs[1001]?.id, jobs.length], ["a0", "a999", "b1", 1002]);
  const [first, second] = api.requests;
  assert.deepEqual(body(first).jobs[7], { endpoint: "echo", input: { n: 7 }, priority: "batch" });
  assert.deepEqual([body(first).jobs.length, body(second).jobs.length], [1000, 2]);
  assert.deepEqual([first?.headers["idempotency-key"], second?.headers["idempotency-key"]], ["k-0", "k-1"]);
});

test("submitMany keeps a request below the body limit and tells what was accepted", async () => {
  api.on("POST /v1/jobs/bulk", ok({ ids: ["a", "b"] }, 202), problem(400, "invalid_input", "no"));
  const third = "ü".repeat((7 << 20) / 6);
  const error = await client.submitMany("echo", [third, third, third]).catch((thrown) => thrown);
  assert.ok(error instanceof stokehold.PartlySubmitted);
  assert.deepEqual(error.jobs.map((job) => job.id), ["a", "b"]);
  assert.ok(error.cause instanceof stokehold.InvalidInput);
  assert.ok(api.requests.every((request) => request.body.length < 8 << 20));
});

test("wait polls until the job has ended, through a restart of the API", async () => {
  const away = problem(503, "unavailable", "starting");
  api.on(`GET /v1/jobs/${JOB_ID}`, ok(job()), ok(job("running")), away, drop, ok(job("succeeded")));
  const waited = await client.wait(JOB_ID);
  assert.equal(waited.state, "succeeded");
  assert.deepEqual(api.requests.map((request) => request.query["wait_s"]), [undefined, "30", "30", "30", "30"]);
  assert.deepEqual(await waited.result(), { text: "hi" });
  assert.equal(api.requests.length, 5, "an ended job is not asked for again");
});

test("wait gives up in time and leaves the job alone", async () => {
  api.on(`GET /v1/jobs/${JOB_ID}`, ok(job("running")));
  const running = await client.get(JOB_ID);
  await assert.rejects(running.wait({ timeoutS: 0.05 }), stokehold.WaitTimeout);
  await assert.rejects(client.result(JOB_ID, { timeoutS: 0 }), /still running/);
  assert.ok(api.requests.every((request) => request.method === "GET"));
});

test("a large result is fetched without handing on the token; null is a result", async () => {
  api.on(`GET /v1/jobs/${JOB_ID}`, ok(job("succeeded", { result: null })));
  api.on(`GET /v1/jobs/${JOB_ID}/result`, redirect(`${store.url}/r?sig=s`), ok(null));
  store.on("GET /r", ok(["large"]));
  assert.deepEqual(await client.result(JOB_ID), ["large"]);
  assert.equal(api.requests.at(-1)?.headers.authorization, "Bearer sk_test");
  assert.equal(store.requests[0]?.headers.authorization, undefined);
  assert.equal(await client.result(JOB_ID), null);
});

test("a job without a result throws what happened", async () => {
  const error = { code: "handler_error", class: "ValueError", message: "no", traceback: "tb", stderr: "last words" };
  api.on(`GET /v1/jobs/${JOB_ID}`, ok(job("failed", { error })), ok(job("cancelled")), ok(job("expired")));
  const failed = await client.result(JOB_ID).catch((thrown) => thrown);
  assert.ok(failed instanceof stokehold.JobFailed);
  assert.match(failed.message, /failed \(handler_error\): ValueError: no/);
  assert.deepEqual([failed.code, failed.className, failed.traceback, failed.stderr], ["handler_error", "ValueError", "tb", "last words"]);
  await assert.rejects(client.result(JOB_ID), stokehold.JobCancelled);
  await assert.rejects(client.result(JOB_ID), stokehold.JobExpired);
});

/** @type {[string, typeof stokehold.JobFailed][]} */
const FAILURES = [
  ["poison", stokehold.JobPoisoned],
  ["rejected", stokehold.JobRejected],
  ["dependency_failed", stokehold.DependencyFailed],
  ["oom_gpu", stokehold.OutOfGpuMemory],
  ["timeout", stokehold.JobFailed],
];

for (const [code, Kind] of FAILURES) {
  test(`a job that failed by ${code} throws ${Kind.name}`, async () => {
    const error = { code, class: "", message: "why", traceback: null, stderr: null };
    api.on(`GET /v1/jobs/${JOB_ID}`, ok(job("failed", { error })));
    await assert.rejects(client.result(JOB_ID), (thrown) => {
      assert.ok(thrown instanceof stokehold.JobFailed);
      assert.deepEqual([thrown.constructor, thrown.code], [Kind, code]);
      return true;
    });
  });
}

test("a job is done again, rated, and shows what it went through", async () => {
  const steps = [{ name: "check", stage: "before", endpoint: "prompt-check", decision: "allow" }];
  api.on(`GET /v1/jobs/${JOB_ID}`, ok(job("failed", { steps, cost_usd_micros: 1250 })));
  api.on(`POST /v1/jobs/${JOB_ID}/retry`, ok(job("queued", { id: "new", retry_of: JOB_ID }), 202), problem(409, "not_retryable", "no"));
  api.on(`POST /v1/jobs/${JOB_ID}/feedback`, ok({ job_id: JOB_ID, score: 4 }));
  const failed = await client.jobs.retrieve(JOB_ID);
  assert.deepEqual([failed.steps[0]?.decision, failed.costUsdMicros], ["allow", 1250]);
  const again = await failed.retry();
  assert.deepEqual([again.id, again.record.retry_of, failed.id], ["new", JOB_ID, JOB_ID]);
  await assert.rejects(client.jobs.retry(JOB_ID), stokehold.NotRetryable);
  assert.equal((await failed.feedback({ accepted: true, score: 4, labels: ["sharp"], comment: "good" })).score, 4);
  assert.deepEqual(body(api.requests.at(-1)), { accepted: true, score: 4, labels: ["sharp"], comment: "good" });
  assert.deepEqual(failed.ref("/a/0"), { $job: JOB_ID, pointer: "/a/0" });
  assert.throws(() => failed.ref("a"), /JSON pointer/);
});

test("many are retried and cancelled a thousand at a time, each request with its own key", async () => {
  const pair = { id: "a", new_id: "b" };
  api.on(
    "POST /v1/jobs/retry",
    ok({ retried: [pair], more: true }),
    ok({ retried: [{ id: "c", new_id: "d" }], more: true }),
    ok({ retried: [pair], more: true }), // says nothing new: enough
  );
  api.on("POST /v1/jobs/cancel", ok({ cancelled: 1000, more: true }), drop, ok({ cancelled: 3, more: false }));
  assert.deepEqual(await client.jobs.retryMany({ state: "failed", errorCode: "oom_gpu" }), [pair, { id: "c", new_id: "d" }]);
  assert.equal(await client.jobs.cancelMany({ batch: "batch_1", metadata: { team: "a" } }), 1003);
  assert.deepEqual(body(api.requests[0]), { filter: { state: "failed", error_code: "oom_gpu" }, limit: 1000 });
  assert.deepEqual(body(api.requests[3]), { filter: { batch: "batch_1", metadata: { team: "a" } }, limit: 1000 });
  assert.equal(new Set(api.requests.map(({ headers }) => headers["idempotency-key"])).size, 5);
});

test("as many jobs as asked are retried and cancelled", async () => {
  const pairs = [0, 1].map((n) => ({ id: `a${n}`, new_id: `b${n}` }));
  api.on("POST /v1/jobs/retry", ok({ retried: pairs, more: true }));
  api.on("POST /v1/jobs/cancel", ok({ cancelled: 1000, more: true }), ok({ cancelled: 200, more: true }));
  assert.deepEqual(await client.jobs.retryMany({ endpoint: "echo" }, { limit: 2, sameVersion: true }), pairs);
  assert.deepEqual(body(api.requests[0]), { filter: { endpoint: "echo" }, limit: 2, same_version: true });
  assert.equal(await client.jobs.cancelMany({ endpoint: "echo" }, { limit: 1200 }), 1200);
  assert.deepEqual(api.requests.map((request) => body(request).limit), [2, 1000, 200]);
});

test("dead letters come page by page, and lists take every filter", async () => {
  api.on(
    "GET /v1/dead-letters",
    ok({ jobs: [job("failed", { id: "a" })], next_cursor: "x" }),
    ok({ jobs: [job("expired", { id: "b" })], next_cursor: null }),
  );
  api.on("GET /v1/jobs", ok({ jobs: [], next_cursor: null }));
  const ids = [];
  for await (const { id } of client.jobs.deadLetters({ endpoint: "echo", errorCode: "poison", pageSize: 1 })) ids.push(id);
  assert.deepEqual(ids, ["a", "b"]);
  assert.deepEqual(api.requests[1]?.query, { limit: "1", endpoint: "echo", error_code: "poison", cursor: "x" });
  const none = client.jobs.list({ batch: "batch_1", schedule: "sch_1", priority: "batch", errorCode: "oom_gpu" });
  assert.equal((await none.next()).done, true);
  const asked = { limit: "100", batch: "batch_1", schedule: "sch_1", priority: "batch", error_code: "oom_gpu" };
  assert.deepEqual(api.requests[2]?.query, asked);
});

test("cancel, refresh, endpoints", async () => {
  api.on(`POST /v1/jobs/${JOB_ID}/cancel`, ok(job("cancelled")), problem(409, "already_ended", "it is succeeded"));
  api.on(`GET /v1/jobs/${JOB_ID}`, ok(job()), ok(job("running")));
  const queued = await client.get(JOB_ID);
  assert.equal((await queued.refresh()).state, "running");
  assert.equal((await queued.cancel()).state, "cancelled");
  await assert.rejects(client.cancel(JOB_ID), stokehold.Conflict);
  api.on("GET /v1/endpoints/echo", ok({ name: "echo", version: 2 }));
  api.on("GET /v1/endpoints/echo/versions", ok({ versions: [{ version: 2 }, { version: 1 }] }));
  assert.equal((await client.endpoint("echo")).version, 2);
  assert.equal((await client.versions("echo")).length, 2);
  const parts = [
    { version: 1, percent: 90 },
    { version: 2, percent: 10 },
  ];
  api.on("GET /v1/endpoints/echo/traffic", ok({ name: "echo", versions: parts }));
  api.on("PUT /v1/endpoints/echo/traffic", ok({ name: "echo", versions: parts }));
  assert.deepEqual([...(await client.traffic("echo"))], [[1, 90], [2, 10]]);
  assert.equal((await client.setTraffic("echo", 2, 10)).get(2), 10);
  assert.deepEqual(body(api.requests.at(-1)), { version: 2, percent: 10 });
});

test("list fetches pages as they are looked at", async () => {
  api.on(
    "GET /v1/jobs",
    ok({ jobs: [job("queued", { id: "a" })], next_cursor: "2-0" }),
    ok({ jobs: [], next_cursor: "1-0" }),
    ok({ jobs: [job("queued", { id: "b" })], next_cursor: null }),
  );
  const ids = [];
  for await (const { id } of client.list({ state: "queued", metadata: { team: "a b" }, pageSize: 2 })) ids.push(id);
  assert.deepEqual(ids, ["a", "b"]);
  assert.deepEqual(api.requests[0]?.query, { limit: "2", state: "queued", "metadata.team": "a b" });
  assert.equal(api.requests[2]?.query["cursor"], "1-0");
});

test("an aborted signal ends a call, a pause and a wait with its own reason", async () => {
  const reason = new Error("enough");
  for (const answer of [hang, problem(503, "unavailable", "x", {}, { "retry-after": "30" })]) {
    api.on(`GET /v1/jobs/${JOB_ID}`, answer);
    const controller = new AbortController();
    const arrival = api.arrival();
    const call = client.wait(JOB_ID, { signal: controller.signal });
    await arrival;
    controller.abort(reason);
    await assert.rejects(call, (thrown) => thrown === reason);
  }
  await assert.rejects(client.get(JOB_ID, { signal: AbortSignal.abort(reason) }), (thrown) => thrown === reason);
});

test("settings come from the environment, and what cannot be meant is refused", () => {
  process.env["STOKE_URL"] = "http://example.com/";
  try {
    assert.equal(new stokehold.Stokehold().baseUrl, "http://example.com");
  } finally {
    delete process.env["STOKE_URL"];
  }
  assert.equal(new stokehold.Stokehold().baseUrl, "http://127.0.0.1:7070");
  assert.throws(() => new stokehold.Stokehold({ baseUrl: "127.0.0.1:7070" }), /STOKE_URL/);
  assert.throws(() => new stokehold.Stokehold({ token: "sk_\nx" }), /token/);
});

test("a submit says when it began, and where its caller is in a trace", async () => {
  const before = Date.now();
  api.on("POST /v1/jobs", problem(503, "unavailable", "later"), ok(job(), 202));
  await client.submit("echo", {});
  const tries = api.requests.map(({ headers }) => headers["stokehold-called-ms"]);
  assert.equal(new Set(tries).size, 1, "every try says when the first began");
  assert.ok(Number(tries[0]) >= before && Number(tries[0]) <= Date.now());
  assert.equal(api.requests[0]?.headers["traceparent"], undefined, "there is no trace");

  // What OpenTelemetry's API registers, and what its context manager answers within a span.
  const place = { traceId: "4bf92f3577b34da6a3ce929d0e0e4736", spanId: "00f067aa0ba902b7", traceFlags: 1 };
  const key = Symbol.for("OpenTelemetry Context Key SPAN");
  const context = { getValue: (/** @type {symbol} */ asked) => (asked === key ? { spanContext: () => place } : undefined) };
  const global = /** @type {Record<symbol, unknown>} */ (globalThis);
  global[Symbol.for("opentelemetry.js.api.1")] = { context: { active: () => context } };
  try {
    api.on("POST /v1/jobs/bulk", ok({ ids: [JOB_ID] }, 202));
    await client.submitMany("echo", [{}]);
    assert.equal(api.requests.at(-1)?.headers["traceparent"], `00-${place.traceId}-${place.spanId}-01`);
    place.traceId = "0".repeat(32);
    api.on("POST /v1/jobs", ok(job(), 202));
    await client.submit("echo", {});
    assert.equal(api.requests.at(-1)?.headers["traceparent"], undefined, "a span that is not recorded and has no place");
  } finally {
    delete global[Symbol.for("opentelemetry.js.api.1")];
  }
});
