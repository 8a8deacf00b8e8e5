import { defineConfig } from "@playwright/test";

const chromium = process.env["STOKE_TEST_CHROMIUM"];
if (!chromium) throw new Error("STOKE_TEST_CHROMIUM names no Chromium: run `make test-dashboard`, which has one");

export default defineConfig({
  testDir: "tests",
  outputDir: "test-results",
  globalSetup: "./tests/setup.ts",
  // One stack and two cores: more at once would only wait for each other.
  workers: 2,
  fullyParallel: true,
  timeout: 60_000,
  expect: { timeout: 15_000 },
  forbidOnly: true,
  reporter: "list",
  use: {
    // Chromium takes a page that a test answers itself for one of another network, which may not load pictures from this one.
    launchOptions: { executablePath: chromium, args: process.env["STOKE_DASHBOARD_DIST"] ? ["--disable-features=LocalNetworkAccessChecks"] : [] },
    viewport: { width: 1280, height: 860 },
    locale: "en-GB",
    timezoneId: "UTC",
    screenshot: "only-on-failure",
  },
  projects: [
    // The longest one, which waits for machines, begins first.
    { name: "waiting", testMatch: "waiting.spec.ts" },
    { name: "tests", testMatch: "*.spec.ts", testIgnore: "waiting.spec.ts" },
    { name: "screenshots", testMatch: "screenshots.ts" },
  ],
});
