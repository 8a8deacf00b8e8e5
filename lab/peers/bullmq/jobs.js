// What client and worker share.
import { appendFileSync } from "node:fs";

const url = new URL(process.env.BENCH_REDIS_URL);
export const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
export const concurrency = Number(process.env.BENCH_CONCURRENCY ?? "50");
// As JSON: 194 bytes of payload, 55 of result.
export const payload = { text: "x".repeat(183) };
export const result = { ok: true, note: "y".repeat(34) };
export const journalJobMs = 5;

export const journal = (line) => appendFileSync(process.env.BENCH_JOURNAL, `${line}\n`);
