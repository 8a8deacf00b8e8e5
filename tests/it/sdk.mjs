// The JavaScript SDK against the stack that STOKE_URL and STOKE_TOKEN name. Argument: the built module.
import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const { Stokehold } = await import(pathToFileURL(process.argv[2]).href);
const client = new Stokehold({ baseUrl: process.env.STOKE_URL, token: process.env.STOKE_TOKEN });

const job = await client.submit("slow", { n: 1 });
assert.equal((await client.result(job.id)).n, 1);
assert.equal((await client.get(job.id)).state, "succeeded");

const jobs = await client.submitMany("slow", Array.from({ length: 20 }, (_, n) => ({ n })));
const results = await Promise.all(jobs.map((one) => client.result(one.id ?? one)));
assert.deepEqual(results.map((result) => result.n), Array.from({ length: 20 }, (_, n) => n));

const kinds = [];
const counted = await client.submit("count", { to: 3 });
for await (const event of client.events(counted.id)) kinds.push(event.type);
assert.equal(kinds.filter((kind) => kind === "output").length, 3);
assert.equal(kinds.at(-1), "done");

const doomed = await client.submit("slow", { n: 1, seconds: 3600 });
await client.cancel(doomed.id);
assert.equal((await client.get(doomed.id)).state, "cancelled");

await assert.rejects(client.submit("nothing-like-it", {}), (error) => error.code === "unknown_endpoint");
