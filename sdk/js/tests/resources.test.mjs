import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import * as stokehold from "stokehold";
import { data, drop, FAST, ok, problem, Server } from "./server.mjs";

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
const body = (request) => JSON.parse(request?.body.toString() || "null");

/** @template T @param {AsyncIterable<T>} all */
async function collect(all) {
  const given = [];
  for await (const one of all) given.push(one);
  return given;
}

test("a schedule is said with its job, as a submit says it", async () => {
  api.on("POST /v1/files", ok({ id: "file_1", upload_url: `${api.url}/put`, headers: {} }, 201));
  api.on("PUT /put", data(""));
  api.on("POST /v1/schedules", ok({ id: "sch_1", cron: "0 6 * * 1-5" }, 201));
  const schedule = await client.schedules.create({
    name: "morning",
    cron: "0 6 * * 1-5",
    timeZone: "Europe/Berlin",
    missed: "skip",
    graceS: 10,
    paused: true,
    job: { endpoint: "render", input: { mask: Buffer.from("x") }, priority: "batch", deadlineS: 60 },
  });
  assert.equal(schedule.id, "sch_1");
  assert.deepEqual(body(api.seen("POST /v1/schedules")[0]), {
    name: "morning",
    cron: "0 6 * * 1-5",
    time_zone: "Europe/Berlin",
    missed: "skip",
    grace_s: 10,
    paused: true,
    job: { endpoint: "render", input: { mask: { $file: "file_1" } }, priority: "batch", deadline_s: 60 },
  });
  await client.schedules.create({ cron: "* * * * *", job: { endpoint: "echo" } });
  assert.deepEqual(body(api.seen("POST /v1/schedules")[1]), { cron: "* * * * *", job: { endpoint: "echo", input: null } });
});

test("schedules are listed, looked at, paused, resumed and deleted", async () => {
  const one = { id: "sch_1" };
  api.on("GET /v1/schedules", ok({ schedules: [one], next_cursor: "x" }), ok({ schedules: [one], next_cursor: null }));
  api.on("GET /v1/schedules/sch_1", ok(one));
  api.on("POST /v1/schedules/sch_1/pause", ok({ ...one, paused: true }));
  api.on("POST /v1/schedules/sch_1/resume", ok({ ...one, paused: false }));
  const all = await collect(client.schedules.list({ pageSize: 1 }));
  assert.equal(all.length, 2);
  assert.equal((await client.schedules.retrieve("sch_1")).id, "sch_1");
  assert.equal((await client.schedules.pause(all[0] ?? "")).paused, true);
  assert.equal((await client.schedules.resume("sch_1")).paused, false);

  const route = "DELETE /v1/schedules/sch_1";
  const gone = problem(404, "not_found", "gone");
  api.on(route, (response) => response.writeHead(204).end());
  await client.schedules.delete("sch_1");
  api.on(route, drop, gone);
  await client.schedules.delete("sch_1"); // its first try did it, and the answer was lost
  api.on(route, gone);
  await assert.rejects(client.schedules.delete("sch_1"), stokehold.NotFound);
});

test("the webhook secret is rotated once, whatever happens to the answer", async () => {
  const secrets = { secret: "whsec_eA==", previous: null, previous_until: null };
  api.on("GET /v1/webhooks/secret", drop, ok(secrets));
  assert.deepEqual(await client.webhooks.secret(), secrets);
  const route = "POST /v1/webhooks/secret/rotate";
  api.on(route, drop, ok(secrets));
  await assert.rejects(client.webhooks.rotateSecret(), stokehold.ConnectionFailed);
  assert.equal(api.seen(route).length, 1);
  assert.deepEqual(await client.webhooks.rotateSecret(), secrets);
});

test("deliveries are listed, looked at and replayed", async () => {
  const one = { id: "msg_a_completed", state: "exhausted" };
  const list = "GET /v1/webhooks/deliveries";
  api.on(list, ok({ deliveries: [one], next_cursor: "x" }), ok({ deliveries: [], next_cursor: null }));
  api.on(`${list}/msg_a_completed`, ok(one));
  api.on("POST /v1/webhooks/deliveries/msg_a_completed/replay", ok({ ...one, state: "pending" }, 202));
  const [delivery] = await collect(client.webhooks.deliveries({ job: "a", batch: "b", state: "exhausted" }));
  assert.deepEqual(api.seen(list)[1]?.query, { limit: "100", job: "a", batch: "b", state: "exhausted", cursor: "x" });
  assert.deepEqual(await client.webhooks.delivery("msg_a_completed"), one);
  assert.equal((await client.webhooks.replay(delivery ?? "")).state, "pending");
});

test("feedback adds up by version and is exported as it comes", async () => {
  const stats = { endpoint: "echo", version: 1, rated: 2, accepted: 1, success_rate: 0.5, mean_score: null };
  const line = `${JSON.stringify({ job_id: "a", input: 1, result: 2, accepted: true })}\n`;
  const route = "GET /v1/feedback/export";
  api.on("GET /v1/feedback", ok({ versions: [stats] }));
  api.on(route, drop, data(line + line));
  assert.deepEqual(await client.feedback.stats({ endpoint: "echo" }), [stats]);
  assert.equal((await collect(client.feedback.export({ endpoint: "echo", version: 1, sample: 10, seed: 7 }))).length, 2);
  assert.deepEqual(api.seen(route)[1]?.query, { endpoint: "echo", version: "1", sample: "10", seed: "7" });
  // Another sample would be another choice, so what began is not begun again.
  let lose = () => {};
  api.on(route, (response) => {
    response.writeHead(200).write(line);
    lose = () => void response.destroy();
  });
  const reading = client.feedback.export();
  assert.equal((await reading.next()).done, false);
  lose();
  await assert.rejects(reading.next(), stokehold.ConnectionFailed);
  assert.equal(api.seen(route).length, 3);
});

test("an export that is not read to its end lets go of its connection", async () => {
  let closed = () => {};
  const gone = new Promise((resolve) => (closed = () => resolve(undefined)));
  api.on("GET /v1/feedback/export", (response) => {
    response.writeHead(200);
    response.write('{"job_id":"a"}\n');
    response.on("close", closed);
  });
  for await (const { job_id } of client.feedback.export()) {
    assert.equal(job_id, "a");
    break;
  }
  await gone;
});

test("limits are looked at and replaced", async () => {
  const limits = { weight: 2, max_running: 4, max_open: null, starts_per_minute: 60 };
  const own = { tenant: "t", limits, endpoints: {}, usage: { open: 1, running: 0 } };
  api.on("GET /v1/limits", ok(own));
  api.on("GET /v1/limits/a%2Fb", ok(limits));
  api.on("PUT /v1/limits/a%2Fb", drop, ok(limits));
  api.on("GET /v1/limits/t/endpoints/echo", ok(limits));
  api.on("PUT /v1/limits/t/endpoints/echo", ok(limits));
  assert.deepEqual(await client.limits.own(), own);
  assert.deepEqual(await client.limits.retrieve("a/b"), limits);
  assert.deepEqual(await client.limits.replace("a/b", { weight: 2, maxRunning: 4, maxOpen: null, startsPerMinute: 60 }), limits);
  assert.deepEqual(body(api.requests.at(-1)), limits);
  assert.equal((await client.limits.retrieveForEndpoint("t", "echo")).max_running, 4);
  await client.limits.replaceForEndpoint("t", "echo", { maxRunning: 4 });
  assert.deepEqual(body(api.requests.at(-1)), { max_running: 4 });
});
