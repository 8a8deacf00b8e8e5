// Tests of pure code, which need neither a browser nor a stack: `npm run test:unit`.
import { defineConfig } from "@playwright/test";

export default defineConfig({ testMatch: "*.unit.ts", outputDir: "../../test-results/unit", timeout: 10_000, forbidOnly: true, reporter: "list" });
