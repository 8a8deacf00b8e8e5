import { expect, test } from "@playwright/test";
import { ApiError } from "../../src/api";
import { type Later, PAUSE_MAX_MS, poll } from "../../src/playground/poll";

/** A timer that the test fires, and a request that the test answers. */
function bench() {
  const pauses: number[] = [];
  const seen: string[] = [];
  const asked: { signal: AbortSignal; answer: (text: string) => Promise<void>; fail: (error: Error) => Promise<void> }[] = [];
  let fire: (() => void) | null = null;
  const wait: Later = (then, ms) => { pauses.push(ms); fire = then; return () => { fire = null; }; };
  // An answer has been taken once the promises that wait for it have run.
  const settled = () => new Promise<void>((done) => setImmediate(done));
  const get = (signal: AbortSignal) => new Promise<string>((resolve, reject) => {
    asked.push({ signal, answer: (text) => { resolve(text); return settled(); }, fail: (error) => { reject(error); return settled(); } });
  });
  const polled = poll<string>({ get, take: (text) => { seen.push(text); return text !== "end"; }, fail: (error) => seen.push(`error: ${(error as Error).message}`) }, wait);
  return { asked, pauses, polled, seen, isPaused: () => fire !== null, next: () => { const then = fire; fire = null; then?.(); } };
}
type Bench = ReturnType<typeof bench>;
const last = ({ asked }: Bench) => { const found = asked.at(-1); if (!found) throw new Error("nothing was asked"); return found; };

test("the next request waits for the answer to the last one, and none follows the end", async () => {
  const it = bench();
  it.polled.now();
  it.polled.now();
  expect(it.asked).toHaveLength(1);
  await last(it).answer("queued");
  // What was wanted meanwhile is one request.
  expect(it.asked).toHaveLength(2);
  await last(it).answer("running");
  expect([it.asked.length, it.isPaused()]).toEqual([2, true]);
  it.next();
  await last(it).answer("end");
  expect([it.asked.length, it.isPaused()]).toEqual([3, false]);
  expect(it.seen).toEqual(["queued", "running", "end"]);
  // What ends the stream asks once more.
  it.polled.now();
  expect(it.asked).toHaveLength(4);
});

test("the pause doubles with each failure up to its limit, and an answer resets it", async () => {
  const it = bench();
  for (let failure = 0; failure < 8; failure++) { await last(it).fail(new Error("no network")); it.next(); }
  await last(it).answer("running");
  expect(it.pauses).toEqual([3000, 6000, 12_000, 24_000, PAUSE_MAX_MS, PAUSE_MAX_MS, PAUSE_MAX_MS, PAUSE_MAX_MS, 1500]);
});

for (const [status, goesOn] of [[404, false], [403, false], [408, true], [429, true], [503, true]] as const) {
  test(`after ${status}, polling ${goesOn ? "goes on" : "ends"}`, async () => {
    const it = bench();
    await last(it).fail(new ApiError(status, "no"));
    expect([it.seen, it.isPaused()]).toEqual([["error: no"], goesOn]);
  });
}

test("stopping aborts the request that is under way, whose answer is ignored", async () => {
  const it = bench();
  it.polled.stop();
  expect(last(it).signal.aborted).toBe(true);
  await last(it).answer("running");
  it.polled.now();
  expect([it.seen, it.asked.length, it.isPaused()]).toEqual([[], 1, false]);
});

test("stopping during a pause sends no other request", async () => {
  const it = bench();
  await last(it).answer("running");
  it.polled.stop();
  expect(it.isPaused()).toBe(false);
});
