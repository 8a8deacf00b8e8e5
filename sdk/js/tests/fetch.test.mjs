// The tests of requests again, through `fetch`: the way of browsers, Deno, Bun, and of a `fetch` that was replaced.

import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const helper = new URL("through_fetch.mjs", import.meta.url).href;
// Without it, the test runner of the other process reports to this one's.
const { NODE_TEST_CONTEXT: _, ...env } = process.env;

for (const name of ["jobs", "resources", "pipelines", "batches", "events", "files"]) {
  const file = fileURLToPath(new URL(`${name}.test.mjs`, import.meta.url));
  test(`the tests of ${name} pass through fetch`, async () => {
    await promisify(execFile)(process.execPath, ["--import", helper, file], { env, timeout: 120_000 });
  });
}
