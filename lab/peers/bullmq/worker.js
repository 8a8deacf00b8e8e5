import { setTimeout as sleep } from "node:timers/promises";

import { Worker } from "bullmq";

import { concurrency, connection, journal, journalJobMs, result } from "./jobs.js";

const handlers = {
  noop: async () => result,
  note: async ({ data }) => {
    journal(`start ${data.number}`);
    await sleep(journalJobMs);
    journal(`end ${data.number}`);
  },
};

// Finished jobs and their results are kept, its default.
const worker = new Worker("bench", (job) => handlers[job.name](job), { connection, concurrency });
worker.on("error", (error) => console.error(error.message));
await worker.waitUntilReady();
console.log("ready");
