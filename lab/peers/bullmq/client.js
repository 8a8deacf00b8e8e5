import { createInterface } from "node:readline";

import { Queue, QueueEvents } from "bullmq";

import { connection, payload } from "./jobs.js";

const queue = new Queue("bench", { connection });
const events = new QueueEvents("bench", { connection });
await Promise.all([queue.waitUntilReady(), events.waitUntilReady()]);

const job = (name, number) => ({ name, data: name === "noop" ? payload : { number } });

async function submit(how, name, count) {
  if (how === "bulk") {
    for (let at = 0; at < count; at += 1_000) {
      const size = Math.min(1_000, count - at);
      await queue.addBulk(Array.from({ length: size }, (_, n) => job(name, at + n)));
    }
    return;
  }
  let next = 0;
  const submitter = async () => {
    while (next < count) {
      const { data } = job(name, next++);
      await queue.add(name, data);
    }
  };
  await Promise.all(Array.from({ length: how === "one" ? 1 : 64 }, submitter));
}

async function roundTrips(count) {
  const samplesMs = [];
  for (let n = 0; n < count; n++) {
    const start = performance.now();
    const added = await queue.add("noop", payload);
    await added.waitUntilFinished(events, 30_000);
    samplesMs.push(performance.now() - start);
  }
  return samplesMs;
}

console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const [verb, ...rest] = line.split(" ");
  try {
    const samplesMs = verb === "submit" ? await submit(rest[0], rest[1], Number(rest[2])) : await roundTrips(Number(rest[0]));
    console.log(["ok", ...(samplesMs ?? [])].join(" "));
  } catch (error) {
    console.log(`error ${String(error).replaceAll("\n", " ")}`);
  }
}
process.exit(0);
