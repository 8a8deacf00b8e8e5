// Timeouts and bounds of requests through `fetch`, which is replaced here. Those of the client's own connections are in
// connections.test.mjs.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ConnectionFailed, Stokehold, StokeholdError, TimedOut } from "stokehold";
import { job, JOB_ID } from "./server.mjs";

/** @typedef {typeof globalThis.fetch} Fetch */

/** @param {Fetch} fetch @param {number} [timeoutS] */
const client = (fetch, timeoutS = 30) =>
  new Stokehold({ baseUrl: "http://stokehold.invalid", timeoutS, retry: { maxRetries: 0 }, fetch });

/** @type {Fetch} */
const afterAWhile = (_, init) =>
  new Promise((resolve, reject) => {
    init?.signal?.addEventListener("abort", () => reject(init.signal?.reason));
    setTimeout(() => resolve(Response.json(job(), { status: 202 })), 300);
  });

test("the timeout of a request with a body has the time that sending it may take", async () => {
  await assert.rejects(client(afterAWhile, 0.05).submit("echo"), TimedOut);
  const sent = await client(afterAWhile, 0.05).submit("echo", "x".repeat(64 << 10));
  assert.equal(sent.id, JOB_ID);
});

/** @param {number} pauseMs @param {Uint8Array} chunk @param {number} count @returns {Fetch} */
const streaming = (pauseMs, chunk, count) => async () => {
  let sent = 0;
  const body = new ReadableStream({
    async pull(controller) {
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
      if (sent++ < count) controller.enqueue(chunk);
      else controller.close();
    },
  });
  return new Response(body);
};

test("a response may take longer than the timeout, as long as it arrives", async () => {
  const space = new TextEncoder().encode(" ");
  const fetch = streaming(30, space, 20);
  await assert.rejects(client(fetch, 0.2).get(JOB_ID), /not JSON/);
});

test("a response of more than 256 MiB is refused, and not requested again", async () => {
  let requests = 0;
  const large = streaming(0, new Uint8Array(64 << 20), 5);
  /** @type {Fetch} */
  const counted = (...given) => {
    requests += 1;
    return large(...given);
  };
  const one = new Stokehold({ baseUrl: "http://stokehold.invalid", fetch: counted });
  await assert.rejects(one.get(JOB_ID), (error) => {
    assert.ok(error instanceof StokeholdError && !(error instanceof ConnectionFailed));
    assert.match(error.message, /the response has more than 256 MiB/);
    return true;
  });
  assert.equal(requests, 1);
});
