// The JavaScript SDK.
import { createInterface } from "node:readline";

import { Stokehold } from "../../../sdk/js/dist/esm/index.js";

const client = new Stokehold({ baseUrl: process.env.BENCH_URL, token: process.env.BENCH_TOKEN });

// As JSON: 194 bytes.
const noop = { text: "x".repeat(183) };
const payload = (job, number) => (job === "noop" ? noop : { number });

async function submit(how, job, count) {
  if (how === "bulk") {
    await client.submitMany(job, Array.from({ length: count }, (_, number) => payload(job, number)));
    return;
  }
  let next = 0;
  const submitter = async () => {
    while (next < count) await client.submit(job, payload(job, next++));
  };
  await Promise.all(Array.from({ length: how === "one" ? 1 : 64 }, submitter));
}

async function roundTrips(count) {
  const samplesMs = [];
  for (let n = 0; n < count; n += 1) {
    const start = performance.now();
    await (await client.submit("noop", noop)).result({ timeoutS: 30 });
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
