// Takes the pictures of docs/reference/dashboard.md and README.md, of a busy stack: `make screenshots`.
import { join, resolve } from "node:path";
import type { Page } from "@playwright/test";
import { expect, live, test } from "./fixtures";
import { crowd } from "./seed";
import type { Api, Schemas } from "./stack";

const PICTURES = resolve(import.meta.dirname, "../../../docs/assets/dashboard");
const BUSY_MS = 180_000;
/** Pictures that are drawn by then: so there is something of every state, and a curve. */
const DRAWN_MIN = 20;

test.describe.configure({ mode: "serial" });
test.setTimeout(300_000);

/** Machines of several kinds run, and some of it is done. */
async function busy(api: Api): Promise<void> {
  await crowd(api);
  await api.until("the fleet does not fill", "/v1/fleet", ({ machines }: Schemas["Fleet"]) => machines.filter((machine) => machine.state === "ready" && machine.running > 0).length >= 3, BUSY_MS);
  const drawn = ({ versions }: Schemas["EndpointStats"]) => versions.reduce((sum, version) => sum + version.succeeded, 0);
  await api.until("little is done", "/v1/endpoints/draw/stats", (stats: Schemas["EndpointStats"]) => drawn(stats) >= DRAWN_MIN, BUSY_MS);
}

async function take(page: Page, name: string): Promise<void> {
  await page.screenshot({ path: join(PICTURES, `${name}.png`), animations: "disabled", caret: "hide" });
}

/** A picture is drawn in the playground, and the page is back at its top. */
async function draw(page: Page): Promise<void> {
  await page.getByLabel(/^prompt/).fill("the ferry at night");
  await page.getByLabel(/^style/).selectOption("night");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await expect(page.getByRole("status").filter({ hasText: "Job succeeded" })).toHaveCount(1, { timeout: BUSY_MS });
  const output = page.getByRole("region", { name: "Output" });
  await output.getByRole("img", { name: "picture.png" }).scrollIntoViewIfNeeded();
  await expect.poll(() => output.getByRole("img", { name: "picture.png" }).evaluate((image: HTMLImageElement) => image.naturalWidth)).toBe(320);
  await page.evaluate(() => { (document.activeElement as HTMLElement | null)?.blur(); scrollTo(0, 0); });
}

test("pictures of every view, by day and by night", async ({ inside, api, at, stack }) => {
  const { seeded } = stack;
  // Of every state one, while what is to come has not pushed them down.
  for (const scheme of ["light", "dark"] as const) {
    await inside.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    await inside.goto(at("/jobs"));
    await live(inside);
    await expect(inside.locator(".list")).toContainText("expired");
    await take(inside, scheme === "light" ? "jobs" : "jobs-dark");
  }
  await busy(api);
  // The other views in both themes; what they lead on to in one.
  const views: [string, string][] = [["queue", "queue"], ["batches", "batches"], ["fleet", "fleet"], ["endpoints", "endpoints"], ["costs", "costs"]];
  const single: [string, string][] = [["job", `jobs/${seeded.torn}`], ["picture", `jobs/${seeded.picture}`]];
  for (const scheme of ["light", "dark"] as const) {
    await inside.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    for (const [name, path] of scheme === "light" ? [...views, ...single] : views) {
      await inside.goto(at(`/${path}`));
      await live(inside);
      await expect(inside.locator("main").locator("table, .list, .boxes article, .story").first()).toBeVisible();
      await inside.waitForLoadState("load");
      // Figures that are asked for once the view is there.
      await inside.waitForFunction(() => [...document.images].every((image) => image.complete));
      if (name === "endpoints") await expect(inside.getByRole("row").filter({ hasText: "draw" })).toContainText("%");
      await take(inside, scheme === "light" ? name : `${name}-dark`);
    }
  }
  await inside.emulateMedia({ colorScheme: "light" });
  await inside.setViewportSize({ width: 390, height: 780 });
  await inside.goto(at("/fleet"));
  await live(inside);
  await expect(inside.locator("article").first()).toBeVisible();
  await take(inside, "phone");
});

test("pictures of an endpoint's page", async ({ inside, at }) => {
  await inside.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
  await inside.goto(at("/endpoints/draw"));
  await live(inside);
  await draw(inside);
  await take(inside, "endpoint");
  await inside.setViewportSize({ width: 390, height: 780 });
  await draw(inside);
  await take(inside, "endpoint-phone");
});
