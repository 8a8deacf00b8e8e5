import { enter, expect, live, test } from "./fixtures";
import { type Schemas, Stack } from "./stack";

test("a job's row appears and ends without a reload", async ({ inside, api, at }) => {
  await inside.goto(at("/jobs"));
  await live(inside);
  await inside.evaluate(() => { (window as unknown as { isSame: boolean }).isSame = true; });
  const job = await api.submit({ endpoint: "caption", input: { n: 1 }, priority: "interactive" });
  const row = inside.getByRole("listitem").filter({ hasText: job.id });
  await expect(row).toBeVisible();
  await expect(row).toContainText("succeeded", { timeout: 40_000 });
  expect(await inside.evaluate(() => (window as unknown as { isSame?: boolean }).isSame)).toBe(true);
});

test("a job's page follows it to its end", async ({ inside, api, at }) => {
  const job = await api.submit({ endpoint: "draw", input: { prompt: "a buoy", seconds: 1.5 } });
  await inside.goto(at(`/jobs/${job.id}`));
  await expect(inside.getByText("drawing 'a buoy'")).toBeVisible({ timeout: 50_000 });
  await expect(inside.getByRole("img", { name: "picture.png" })).toBeVisible();
  await expect(inside.locator("main .row").first()).toContainText("succeeded");
});

test.describe("the API goes away and comes back", () => {
  // Its own: the others' stack goes on.
  const stack = new Stack(["--workers", "0"]);
  test.beforeAll(async () => { await stack.start(); await stack.deploy("studio.py", "caption"); });
  test.afterAll(async () => { await stack.stop(); stack.remove(); });

  test("the page says so, keeps what it knows, and is true again by itself", async ({ page, context }) => {
    const before = await stack.api.submit({ endpoint: "caption", input: { n: 1 } });
    await enter(context, stack.api.url, stack.api.token);
    await page.goto(`${stack.api.url}/dashboard/jobs`);
    await live(page);
    const row = page.getByRole("listitem").filter({ hasText: before.id });
    await expect(row).toContainText("queued");
    await page.evaluate(() => { (window as unknown as { isSame: boolean }).isSame = true; });

    const { url } = stack.api;
    await stack.stop();
    await expect(page.getByRole("status").filter({ hasText: "reconnecting" })).toBeVisible();
    await expect(row, "what is known stays").toContainText("queued");

    await stack.start();
    expect(stack.api.url).toBe(url);
    await stack.api.ask<Schemas["Job"]>(`/v1/jobs/${before.id}/cancel`, { method: "POST" });
    const after = await stack.api.submit({ endpoint: "caption", input: { n: 2 } });
    await live(page);
    await expect(row).toContainText("cancelled");
    await expect(page.getByRole("listitem").filter({ hasText: after.id })).toBeVisible();
    expect(await page.evaluate(() => (window as unknown as { isSame?: boolean }).isSame), "it was never loaded again").toBe(true);
  });
});
