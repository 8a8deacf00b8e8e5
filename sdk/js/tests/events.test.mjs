import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import * as stokehold from "stokehold";
import { SseParser } from "../dist/esm/internal/sse.js";
import { broken, drop, FAST, job, JOB_ID, problem, Server, stream } from "./server.mjs";

const ROUTE = `GET /v1/jobs/${JOB_ID}/events`;

/** @param {string} name @param {unknown} body @param {string} [id] */
const sse = (name, body, id) => `event: ${name}\n${id ? `id: ${id}\n` : ""}data: ${JSON.stringify(body)}\n\n`;

const STATE = sse("state", { state: "running", attempt: 1 });
const PROGRESS = sse("progress", { fraction: 0.5, message: "half" }, "1-0");
const LOG = sse("log", { stream: "stdout", text: "grüß\n", attempt: 1 }, "2-0");
const OUTPUT = sse("output", { index: 0, value: [1], attempt: 1 }, "3-0");
const DONE = sse("done", job("succeeded"));

const STORY = [
  { type: "state", state: "running", attempt: 1 },
  { type: "progress", fraction: 0.5, message: "half" },
  { type: "log", stream: "stdout", text: "grüß\n", attempt: 1 },
  { type: "output", index: 0, value: [1], attempt: 1 },
  { type: "done", job: job("succeeded") },
];

/** @type {Server} */
let api;
/** @type {stokehold.Stokehold} */
let client;

beforeEach(async () => {
  api = await Server.start();
  client = new stokehold.Stokehold({ baseUrl: api.url, token: "sk_test", retry: FAST });
});

afterEach(() => api.stop());

/** @param {AsyncIterable<stokehold.JobEvent>} events */
async function collect(events) {
  const all = [];
  for await (const event of events) all.push(event);
  return all;
}

test("events are typed and end with done", async () => {
  api.on(ROUTE, stream(": hello\n\n", STATE, PROGRESS, LOG, OUTPUT, sse("news", { of: "a newer server" }), DONE, LOG));
  api.on(`GET /v1/jobs/${JOB_ID}`, (response) => response.end(JSON.stringify(job())));
  const followed = await client.get(JOB_ID);
  assert.deepEqual(await collect(followed.events()), STORY);
  assert.equal(followed.state, "succeeded", "the job knows what its stream told");
  assert.equal(api.seen(ROUTE)[0]?.headers.accept, "text/event-stream");
});

test("missing outputs are told, and a resumed stream goes on after them", async () => {
  const gap = { attempt: 1, from: 15, to: 1162 };
  api.on(ROUTE, stream(OUTPUT, sse("gap", gap, "4-0")), stream(DONE));
  const story = await collect(client.events(JOB_ID));
  assert.deepEqual(story.slice(0, 2), [STORY[3], { type: "gap", ...gap }]);
  assert.equal(api.seen(ROUTE)[1]?.headers["last-event-id"], "4-0");
});

test("a lost connection is taken up where it broke", async () => {
  const away = problem(503, "unavailable", "restarting");
  // The second connection breaks inside the event 2-0; the fifth says the known state again.
  api.on(ROUTE, stream(STATE, PROGRESS), broken(LOG.slice(0, -1)), drop, away, stream(STATE, LOG, OUTPUT), stream(DONE));
  assert.deepEqual(await collect(client.events(JOB_ID)), STORY);
  const resumed = api.requests.map((request) => request.headers["last-event-id"]);
  assert.deepEqual(resumed, [undefined, "1-0", "1-0", "1-0", "1-0", "3-0"]);
});

// As the API of today tells it: every event has an id, and a state may come again as it was.
/** @type {[string, object][]} */
const NUMBERED = [
  ["state", { state: "queued", attempt: 0 }],
  ["state", { state: "running", attempt: 1 }],
  ...Array.from({ length: 9 }, (_, index) => /** @type {[string, object]} */ (["output", { index, value: "grüß", attempt: 1 }])),
  ["state", { state: "queued", attempt: 1 }],
  ["state", { state: "queued", attempt: 1 }],
  ["log", { stream: "stderr", text: "again\n", attempt: 2 }],
  ["done", job("succeeded")],
];

/**
 * Goes on after `Last-Event-ID` for `take` whole events, then for the first `cut` bytes of the next, then breaks.
 * @param {number} take @param {(event: Buffer) => number} cut @returns {import("./server.mjs").Answer}
 */
const resuming = (take, cut) => (response) => {
  const after = response.req.headers["last-event-id"];
  const events = NUMBERED.map(([name, body], rank) => Buffer.from(sse(name, body, `1-0.${rank}`)));
  const from = after === undefined ? 0 : Number(String(after).split(".")[1]) + 1;
  const next = events[from + take];
  const part = next === undefined ? Buffer.alloc(0) : next.subarray(0, cut(next));
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(Buffer.concat([...events.slice(from, from + take), part]), () => setTimeout(() => response.destroy(), 2));
};

/** @type {Record<string, (event: Buffer) => number>} */
const CUTS = {
  "between two events": () => 0,
  "in the middle of a line": (event) => event.length - 6,
  "in the middle of a character": (event) => Math.max(0, event.indexOf("ü") + 1),
  "between id and data": (event) => event.indexOf("data:"),
  "before the empty line": (event) => event.length - 1,
};

for (const [where, cut] of Object.entries(CUTS)) {
  test(`nothing is lost or repeated when connections break ${where}`, async () => {
    for (let take = 1; take <= NUMBERED.length; take += 1) {
      api.requests.length = 0;
      api.on(ROUTE, resuming(take, cut));
      const told = await collect(client.events(JOB_ID));
      const story = NUMBERED.map(([type, body]) => (type === "done" ? { type, job: body } : { type, ...body }));
      assert.deepEqual(told, story, `${take} at a time`);
      // More, when a connection broke before its reader was there.
      assert.ok(api.requests.length >= Math.ceil(NUMBERED.length / take));
    }
  });
}

test("an event that is told again is not given again", async () => {
  const [first, second] = NUMBERED.map(([name, body], rank) => sse(name, body, `1-0.${rank}`));
  api.on(ROUTE, stream(first ?? ""), stream(first ?? "", second ?? ""), stream(sse("done", job("succeeded"), "1-0.2")));
  assert.deepEqual((await collect(client.events(JOB_ID))).map(({ type }) => type), ["state", "state", "done"]);
});

test("connections that bring nothing new are counted, whatever else they bring", async () => {
  api.on(ROUTE, stream(": hello\n\n", sse("state", { state: "queued", attempt: 0 }, "1-0.0")));
  await assert.rejects(collect(client.events(JOB_ID)), /several times in a row/);
  assert.equal(api.requests.length, 6, "the one that told the state, and as many retries as the policy allows");
});

test("a stream that never tells anything ends, and a refused one throws", async () => {
  api.on(ROUTE, stream());
  await assert.rejects(collect(client.events(JOB_ID)), /several times in a row/);
  assert.equal(api.requests.length, 6);
  api.on(ROUTE, problem(404, "not_found", "gone"));
  await assert.rejects(collect(client.events(JOB_ID)), stokehold.NotFound);
});

test("a reader may stop early, or be aborted", async () => {
  // The stream stays open: only letting go of it ends its request.
  let closed = () => {};
  const gone = new Promise((resolve) => (closed = () => resolve(undefined)));
  api.on(ROUTE, (response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(STATE);
    response.on("close", closed);
  });
  for await (const event of client.events(JOB_ID)) {
    assert.equal(event.type, "state");
    break;
  }
  await gone;

  const controller = new AbortController();
  const reason = new Error("enough");
  const reading = (async () => {
    for await (const _ of client.events(JOB_ID, { signal: controller.signal })) controller.abort(reason);
  })();
  await assert.rejects(reading, (thrown) => thrown === reason);
});

test("events may come in any pieces", () => {
  for (const end of ["\n", "\r\n", "\r"]) {
    const text = (STATE + PROGRESS + LOG).replaceAll("\n", end);
    for (const size of [1, 2, 3, 7, 1000]) {
      const parser = new SseParser("");
      const names = [];
      for (let start = 0; start < text.length; start += size) {
        for (const message of parser.feed(text.slice(start, start + size))) names.push(message.name);
      }
      assert.deepEqual(names, ["state", "progress", "log"]);
      assert.equal(parser.lastId, "2-0");
    }
  }
  const [message] = new SseParser("").feed('event:progress\ndata:{"fraction": 1,\ndata: "x": 2}\n\n');
  assert.deepEqual(JSON.parse(message?.data ?? ""), { fraction: 1, x: 2 });
});

test("what is no event stream is refused", async () => {
  api.on(ROUTE, stream("event: state\ndata: no json\n\n"));
  await assert.rejects(collect(client.events(JOB_ID)), stokehold.StokeholdError);
  assert.equal(api.requests.length, 1);
  assert.throws(() => [...new SseParser("").feed("x".repeat(33 << 20))], /32 MiB/);
});
