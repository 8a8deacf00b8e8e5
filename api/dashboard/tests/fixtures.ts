// What every test starts from: the stack that was filled, and a page that is logged in to it.
import { existsSync, readFileSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { type BrowserContext, expect, type Page, test as base } from "@playwright/test";
import type { AxeResults } from "axe-core";
import type { Seeded } from "./seed";
import { Api } from "./stack";

export interface Filled { url: string; token: string; reader: string; canceller: string; seeded: Seeded }

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export const VIEWS = ["queue", "jobs", "batches", "fleet", "endpoints", "costs", "storage"] as const;

/** The page that a build in this folder makes, instead of the one in the binary: so that a change of the page needs no new binary. */
const DIST = process.env["STOKE_DASHBOARD_DIST"];

async function serveDist(context: BrowserContext): Promise<void> {
  if (!DIST) return;
  await context.route((url) => /^\/dashboard(\/|$)/.test(url.pathname), async (route) => {
    const path = join(DIST, new URL(route.request().url()).pathname.slice("/dashboard/".length));
    const file = existsSync(path) && statSync(path).isFile() ? path : join(DIST, "index.html");
    // The headers stay those of the API, its content security policy among them.
    const answer = await route.fetch({ url: new URL("/dashboard", route.request().url()).href });
    const headers = Object.fromEntries(Object.entries(answer.headers()).filter(([name]) => !["content-length", "content-encoding", "content-type"].includes(name)));
    await route.fulfill({ status: 200, headers, path: file });
  });
}

/** The stack of the setup. */
export function filled(): Filled {
  const text = process.env["STOKE_TEST_STACK"];
  if (!text) throw new Error("the setup has not run");
  return JSON.parse(text) as Filled;
}

/** Gives a browser the session of a token, as the page would. */
export async function enter(context: BrowserContext, url: string, token: string): Promise<void> {
  const answer = await context.request.post(`${url}/v1/session`, { data: { token } });
  expect(answer.ok()).toBe(true);
}

/** The page says that it is followed live. */
export function live(page: Page) { return expect(page.getByRole("status").filter({ hasText: "live" })).toBeVisible(); }

/** Which rules for accessibility the page breaks as it is now, with where, and how many it keeps. */
export async function axe(page: Page): Promise<{ violations: string[]; passes: number }> {
  // Not as a script of the page, which its policy would refuse.
  await page.evaluate(AXE);
  const { violations, passes } = await page.evaluate(() => (window as unknown as { axe: { run: (options: object) => Promise<AxeResults> } }).axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] }));
  return { violations: violations.map((each) => `${each.id}: ${each.nodes.map((node) => node.html).join(" | ").slice(0, 400)}`), passes: passes.length };
}

export const test = base.extend<{ stack: Filled; api: Api; at: (path: string) => string; inside: Page }>({
  context: async ({ context }, use) => { await serveDist(context); await use(context); },
  stack: async ({}, use) => use(filled()),
  api: async ({ stack }, use) => use(new Api(stack.url, stack.token)),
  at: async ({ stack }, use) => use((path) => `${stack.url}/dashboard${path}`),
  /** A page of a browser that is logged in and may do everything; it may not have met an error by its end. */
  inside: async ({ page, context, stack }, use) => {
    const errors: string[] = [];
    page.on("pageerror", (error) => errors.push(error.message));
    // That an answer was a refusal is the test's to expect; what the page's policy refused, or what it threw, is not.
    page.on("console", (line) => { if (line.type() === "error" && !line.text().startsWith("Failed to load resource")) errors.push(line.text()); });
    await enter(context, stack.url, stack.token);
    await use(page);
    expect(errors, "nothing goes wrong on the page").toEqual([]);
  },
});
export { expect };
