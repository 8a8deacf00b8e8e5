// Builds dist/esm and dist/cjs, each with its types, from the one source.
import { spawnSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");

rmSync(`${root}dist`, { recursive: true, force: true });
for (const config of ["tsconfig.json", "tsconfig.cjs.json"]) {
  const { status } = spawnSync(process.execPath, [tsc, "-p", config], { cwd: root, stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}
// The package is ESM; this folder alone is not.
writeFileSync(`${root}dist/cjs/package.json`, '{ "type": "commonjs" }\n');
