// The profile of `stoke login`: chosen by STOKE_PROFILE, and its token only for its own URL.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, beforeEach, test } from "node:test";

import { Stokehold } from "../dist/esm/index.js";

const folder = mkdtempSync(join(tmpdir(), "stokehold-"));
const path = join(folder, "credentials.json");
const before = { ...process.env };

beforeEach(() => {
  for (const name of ["STOKE_URL", "STOKE_TOKEN", "STOKE_PROFILE"]) delete process.env[name];
  process.env.STOKE_CREDENTIALS = path;
  const prod = { url: "https://gpu.example.com", token: "sk_prod" };
  writeFileSync(path, JSON.stringify({ url: "http://127.0.0.1:7171", token: "sk_saved", profiles: { prod } }));
});

after(() => {
  process.env = before;
  rmSync(folder, { recursive: true });
});

/** The URL and the token of the first request. */
async function asked(options = {}) {
  /** @type {string[]} */
  const seen = [];
  const client = new Stokehold({
    ...options,
    fetch: async (input, init) => {
      seen.push(new URL(String(input)).origin, new Headers(init?.headers).get("authorization") ?? "");
      return new Response('{"jobs": [], "next_cursor": null}', { headers: { "content-type": "application/json" } });
    },
  });
  for await (const _ of client.jobs.list());
  return seen.slice(0, 2);
}

test("a profile is chosen by its name", async () => {
  assert.deepEqual(await asked(), ["http://127.0.0.1:7171", "Bearer sk_saved"]);
  process.env.STOKE_PROFILE = "prod";
  assert.deepEqual(await asked(), ["https://gpu.example.com", "Bearer sk_prod"]);
  process.env.STOKE_PROFILE = "typo";
  assert.throws(() => new Stokehold(), /stoke login --profile typo/);
});

test("a saved token is sent to its own URL only", async () => {
  assert.deepEqual(await asked({ baseUrl: "https://elsewhere.example.com" }), ["https://elsewhere.example.com", ""]);
  assert.deepEqual(await asked({ baseUrl: "http://localhost:7171" }), ["http://localhost:7171", "Bearer sk_saved"]);
});

test("without the file there is the default URL", async () => {
  rmSync(path);
  assert.deepEqual(await asked(), ["http://127.0.0.1:7070", ""]);
});
