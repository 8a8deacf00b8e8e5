// The first load, gzipped, may not exceed 100 kB in all.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const LIMIT_BYTES = 100_000;
const dist = new URL("../dist", import.meta.url).pathname;
const files = readdirSync(dist, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
const bytes = files.reduce((sum, entry) => sum + gzipSync(readFileSync(join(entry.parentPath, entry.name))).length, 0);
console.log(`dashboard: ${bytes} of ${LIMIT_BYTES} bytes, gzipped`);
if (bytes > LIMIT_BYTES) process.exit(1);
