import { enter, expect, live, test } from "./fixtures";

test("a token logs in, and the page keeps none of it", async ({ page, stack, at }) => {
  await page.goto(at("/jobs"));
  await page.getByLabel("API token").fill(stack.token);
  await page.getByRole("button", { name: "Log in" }).click();
  await live(page);
  await expect(page.getByRole("heading", { name: "Jobs" })).toBeVisible();
  const kept = await page.evaluate(() => JSON.stringify([localStorage, sessionStorage, document.cookie, location.href]));
  expect(kept).not.toContain(stack.token.slice(0, 12));
  await page.reload();
  await live(page);
});

test("a wrong token is refused, in words that help", async ({ page, at }) => {
  await page.goto(at(""));
  await page.getByLabel("API token").fill("sk_nobody");
  await page.getByRole("button", { name: "Log in" }).click();
  await expect(page.getByRole("alert")).toContainText("not a token");
  await expect(page.getByLabel("API token")).toBeVisible();
});

test("a used link is called that, with the way to a new one", async ({ page, at }) => {
  await page.goto(`${at("")}#sk_used`);
  await expect(page.getByRole("alert")).toContainText("a link works once");
  await expect(page.getByLabel("API token")).toBeVisible();
});

test("logging out ends the session", async ({ inside, at, stack }) => {
  await inside.goto(at(""));
  await live(inside);
  await inside.getByRole("button", { name: "Log out" }).click();
  await expect(inside.getByLabel("API token")).toBeVisible();
  expect((await inside.request.get(`${stack.url}/v1/session`)).status()).toBe(401);
});

test("who may only read sees the work and no buttons for it", async ({ page, context, stack, at }) => {
  await enter(context, stack.url, stack.reader);
  await page.goto(at(`/jobs/${stack.seeded.failed}`));
  await expect(page.getByText("the film tore in scene 7").first()).toBeVisible();
  await expect(page.getByRole("button", { name: "Retry job" })).toHaveCount(0);
  await page.goto(at(`/batches/${stack.seeded.batch}`));
  await expect(page.getByText("60")).not.toHaveCount(0);
  await expect(page.getByRole("button", { name: "Retry failed" })).toHaveCount(0);
});

test("who may cancel sees the buttons for that, and no others", async ({ page, context, stack, at, api }) => {
  const job = await api.submit({ endpoint: "write", input: { about: "later" }, run_after: new Date(Date.now() + 3_600_000).toISOString() });
  await enter(context, stack.url, stack.canceller);
  await page.goto(at(`/jobs/${stack.seeded.failed}`));
  await expect(page.getByText("the film tore in scene 7").first()).toBeVisible();
  await expect(page.getByRole("button", { name: "Retry job" })).toHaveCount(0);
  await page.goto(at(`/jobs/${job.id}`));
  await page.getByRole("button", { name: "Cancel job" }).click();
  await page.getByRole("dialog", { name: "Cancel job" }).getByRole("button", { name: "Cancel job" }).click();
  await expect(page.locator("main .row").first()).toContainText("cancelled");
});
