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

// The resources around jobs.
const uploaded = await client.files.upload(new Uint8Array([1, 2, 3]), { name: "three.bin" });
const found = await client.files.retrieve(uploaded.id);
assert.deepEqual([found.name, found.sizeBytes, [...(await found.bytes())]], ["three.bin", 3, [1, 2, 3]]);
const before = await client.endpoints.retrieve("slow");
const deployed = await client.endpoints.deploy("slow", { timeoutS: before.timeout_s + 1, maxAttempts: 2 });
assert.equal(deployed.version, before.version + 1);
const { version, created_at, timeout_s, max_attempts, ...kept } = before;
const { version: _v, created_at: _c, timeout_s: later, max_attempts: tries, ...same } = deployed;
assert.deepEqual([same, later, tries], [kept, timeout_s + 1, 2]);
assert.deepEqual((await client.endpoints.versions("slow")).slice(0, 2).map((one) => one.version), [deployed.version, version]);
assert.equal((await client.endpoints()).length, (await client.endpoints.list()).length);
assert.equal((await (await client.submit("slow", { n: 5 })).result()).n, 5);
const created = await client.tokens.create("sdk-js", { roles: ["worker"], region: "eu", singleUse: true, ttlS: 600 });
assert.deepEqual([created.record.region, created.record.single_use, created.record.trust], ["eu", true, "owned"]);
assert.ok((await client.tokens.list()).some((one) => one.id === created.record.id));
await client.tokens.revoke(created.record);
await client.secrets.set("SDK_JS", "x");
assert.ok((await client.secrets.list()).some((one) => one.name === "SDK_JS"));
await client.secrets.delete("SDK_JS");
assert.ok((await client.jobs.trace(job)).resourceSpans.length > 0);
assert.equal((await client.batches.estimate("slow", { lineCount: 10 })).lines, 10);
assert.equal((await client.costs.retrieve({ by: "day" })).by, "day");
assert.ok((await client.fleet.retrieve()).machines !== undefined && Array.isArray(await client.fleet.queue()));
assert.equal((await client.fleet.health()).status, "ok");
const [worker] = await client.workers.list();
assert.ok(Array.isArray(await client.workers.readings(worker)));
let changes = 0;
for await (const change of client.audit.list()) changes += change.outcome === "done" ? 1 : 0;
assert.ok(changes >= 5);
