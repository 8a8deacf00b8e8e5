// What cannot be undone: endpoints, versions, files and requirement sets are deleted, and a worker is evicted.
import type { Page } from "@playwright/test";
import { axe, enter, expect, live, test } from "./fixtures";
import { type Schemas, Stack } from "./stack";

const SIZES = { desktop: { width: 1280, height: 860 }, phone: { width: 390, height: 780 } };

test.describe.configure({ mode: "default" });
// Its own: the endpoints and the worker of the others' stack stay.
let stack: Stack;
test.beforeAll(async () => {
  test.setTimeout(180_000);
  stack = new Stack(["--workers", "1"]);
  await stack.start();
});
test.afterAll(async () => { await stack.stop(); stack.remove(); });

async function open(page: Page, path: string, token = stack.api.token): Promise<void> {
  await enter(page.context(), stack.api.url, token);
  await page.goto(`${stack.api.url}/dashboard/${path}`);
  await live(page);
}

/** The status that the API answers with. */
const status = async (path: string) => (await fetch(stack.api.url + path, { headers: { Authorization: `Bearer ${stack.api.token}` } })).status;

for (const [size, viewport] of Object.entries(SIZES)) {
  test.describe(size, () => {
    test.use({ viewport });

    test("an endpoint is deleted, with the jobs that wait for it, once its name is typed", async ({ page }) => {
      await stack.deploy("atelier.py", "recite");
      const job = await stack.api.submit({ endpoint: "recite", input: { about: "later" }, run_after: new Date(Date.now() + 3_600_000).toISOString() });
      await open(page, "endpoints/recite");
      await page.getByRole("button", { name: "Delete endpoint recite" }).click();
      const box = page.getByRole("dialog", { name: "Delete endpoint recite" });
      await expect(box.getByRole("list", { name: "Dependents" })).toContainText(`1 open job is cancelled ${job.id}`);
      const confirm = box.getByRole("button", { name: "Delete endpoint recite" });
      await expect(confirm).toBeDisabled();
      const typed = box.getByRole("textbox");
      await typed.fill("recit");
      await expect(confirm).toBeDisabled();
      expect((await axe(page)).violations).toEqual([]);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(viewport.width);
      await box.getByRole("button", { name: "Go back" }).click();
      await expect(box).toBeHidden();
      expect(await status("/v1/endpoints/recite"), "nothing was deleted").toBe(200);

      // What was typed before is gone.
      await page.getByRole("button", { name: "Delete endpoint recite" }).click();
      await expect(typed).toHaveValue("");
      await typed.fill("recite");
      const deleted = page.waitForRequest((request) => request.method() === "DELETE" && request.url().endsWith("/v1/endpoints/recite?force=true"));
      await typed.press("Enter");
      await deleted;
      await expect(page).toHaveURL(`${stack.api.url}/dashboard/endpoints`);
      await expect(page.getByRole("heading", { name: "Endpoints", level: 1 })).toBeVisible();
      await expect(page.getByRole("link", { name: "recite", exact: true })).toHaveCount(0);
      expect(await status("/v1/endpoints/recite")).toBe(404);
      expect((await stack.api.ask<Schemas["Job"]>(`/v1/jobs/${job.id}`)).state).toBe("cancelled");
    });

    test("a version is deleted once no new job goes to it", async ({ page }) => {
      for (const handler of ["hum", "hum_again"]) await stack.deploy("atelier.py", handler);
      const { versions: [newest, older] } = await stack.api.ask<Schemas["VersionList"]>("/v1/endpoints/hum/versions");
      await open(page, "endpoints/hum");
      const refused = page.getByRole("dialog", { name: `Delete version ${newest?.version} of hum` });
      await page.getByRole("button", { name: `Delete version ${newest?.version} of hum` }).click();
      await expect(refused.getByRole("list", { name: "Dependents" })).toContainText("route them to another version first");
      await expect(refused.getByRole("textbox")).toHaveCount(0);
      await expect(refused.getByRole("button", { name: /^Delete/ })).toBeDisabled();
      await refused.getByRole("button", { name: "Go back" }).click();

      const name = `Delete version ${older?.version} of hum`;
      await page.getByRole("button", { name }).click();
      const box = page.getByRole("dialog", { name });
      await box.getByRole("textbox").fill(`hum@${older?.version}`);
      await box.getByRole("button", { name }).click();
      await expect(page.getByRole("button", { name })).toHaveCount(0);
      const { versions } = await stack.api.ask<Schemas["VersionList"]>("/v1/endpoints/hum/versions");
      expect(versions.map(({ version }) => version)).toEqual([newest?.version]);
      await stack.api.ask("/v1/endpoints/hum?force=true", { method: "DELETE" });
    });
  });
}

for (const [size, viewport] of Object.entries(SIZES)) {
  test.describe(`storage, ${size}`, () => {
    test.use({ viewport });

    test("a file is deleted, with the job that waits for it", async ({ page }) => {
      await stack.deploy("atelier.py", "read");
      const id = await stack.upload("letter.txt", "x".repeat(2048));
      const job = await stack.api.submit({ endpoint: "read", input: { letter: { $file: id } }, run_after: new Date(Date.now() + 3_600_000).toISOString() });
      await open(page, "storage");
      const row = page.getByRole("region", { name: "Files" }).getByRole("row", { name: id });
      await expect(row).toContainText("letter.txt2.0 KiBtext/plain");
      await row.getByRole("button", { name: `Delete file ${id}` }).click();
      const box = page.getByRole("dialog", { name: `Delete file ${id}` });
      await expect(box.getByRole("list", { name: "Dependents" })).toContainText(`1 open job is cancelled ${job.id}`);
      expect((await axe(page)).violations).toEqual([]);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(viewport.width);
      await box.getByRole("button", { name: "Go back" }).click();
      expect(await status(`/v1/files/${id}`), "nothing was deleted").toBe(200);
      await row.getByRole("button", { name: `Delete file ${id}` }).click();
      await box.getByRole("button", { name: `Delete file ${id}` }).click();
      await expect(row).toHaveCount(0);
      expect(await status(`/v1/files/${id}`)).toBe(404);
      expect((await stack.api.ask<Schemas["Job"]>(`/v1/jobs/${job.id}`)).state).toBe("cancelled");
    });

    test("a requirement set is deleted, and its version stays", async ({ page }) => {
      await stack.deploy("atelier.py", "far");
      const { requirement_sets: [set] } = await stack.api.ask<Schemas["RequirementSetList"]>("/v1/requirement-sets");
      await open(page, "storage");
      const row = page.getByRole("region", { name: "Requirement sets" }).getByRole("row", { name: set?.id ?? "none" });
      await expect(row).toContainText("trust owned, region mars");
      await expect(row).toContainText("far@");
      const name = `Delete requirement set ${set?.id}`;
      await row.getByRole("button", { name }).click();
      const box = page.getByRole("dialog", { name });
      await expect(box.getByRole("list", { name: "Dependents" })).toContainText("1 version has it far@");
      await box.getByRole("button", { name }).click();
      await expect(row).toHaveCount(0);
      expect(await status("/v1/endpoints/far")).toBe(200);
      await stack.api.ask("/v1/endpoints/far?force=true", { method: "DELETE" });
    });
  });
}

test("files are shown page by page", async ({ page }) => {
  const ids: string[] = [];
  for (let at = 0; at < 51; at += 1) ids.push(await stack.upload(`page-${at}.txt`, `${at}`));
  await open(page, "storage");
  const rows = page.getByRole("region", { name: "Files" }).getByRole("row");
  await expect(rows).toHaveCount(1 + 50);
  await page.getByRole("button", { name: "Show more files" }).click();
  await expect(rows).toHaveCount(1 + 51);
  await expect(page.getByRole("button", { name: "Show more files" })).toHaveCount(0);
  await Promise.all(ids.map((id) => stack.api.ask(`/v1/files/${id}`, { method: "DELETE" })));
});

test("a token without scopes for storage gets the reason", async ({ page }) => {
  await open(page, "storage", await stack.token("sitter", "jobs:read"));
  await expect(page.getByText("it lacks the scope files:read")).toBeVisible();
  await expect(page.getByText("it lacks the scope endpoints:read")).toBeVisible();
});

test("a token that may not deploy is offered no deletion", async ({ page }) => {
  await stack.deploy("atelier.py", "tear");
  await open(page, "endpoints/tear", await stack.token("viewer", "jobs:read", "endpoints:read"));
  await expect(page.getByRole("region", { name: "Versions" })).toBeVisible();
  await expect(page.getByRole("button", { name: /^Delete/ })).toHaveCount(0);
});

test("a worker is evicted by a token that may, and its job goes back to the queue", async ({ page }) => {
  await stack.deploy("atelier.py", "dry");
  const job = await stack.api.submit({ endpoint: "dry", input: { seconds: 600 } });
  await stack.api.until("it does not start", `/v1/jobs/${job.id}`, (now: Schemas["Job"]) => now.state === "running");
  const { workers: [worker] } = await stack.api.ask<Schemas["WorkerList"]>("/v1/workers");

  await open(page, "fleet", await stack.token("watcher", "jobs:read", "workers:read"));
  await expect(page.getByRole("article")).toContainText("1 of ");
  await expect(page.getByRole("button", { name: /^Evict/ })).toHaveCount(0);

  await open(page, "fleet");
  const name = `Evict worker ${worker?.name}`;
  await page.getByRole("button", { name }).click();
  const box = page.getByRole("dialog", { name });
  await expect(box).toContainText(`${worker?.id}`);
  await box.getByRole("button", { name: "Go back" }).click();
  await expect(box).toBeHidden();
  expect((await stack.api.ask<Schemas["WorkerList"]>("/v1/workers")).workers.map(({ id }) => id)).toContain(worker?.id);

  await page.getByRole("button", { name }).click();
  await box.getByRole("button", { name }).click();
  await expect(box).toBeHidden();
  await stack.api.until("its job stays with it", `/v1/jobs/${job.id}`, (now: Schemas["Job"]) => now.state === "queued" || now.attempts.length > 1);
  expect((await stack.api.ask<Schemas["WorkerList"]>("/v1/workers")).workers.map(({ id }) => id)).not.toContain(worker?.id);
});
