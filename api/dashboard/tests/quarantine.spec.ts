// What the page shows of jobs whose records cannot be read, and what operators do about them.
import { axe, enter, expect, live, test } from "./fixtures";
import { type Schemas, Stack } from "./stack";

test.describe("jobs whose records cannot be read", () => {
  test.describe.configure({ mode: "serial" });
  // Its own, without workers: the records of the others' stack stay whole, and these jobs stay where they are.
  let stack: Stack;
  test.beforeAll(async () => { stack = new Stack(["--workers", "0"]); await stack.start(); await stack.deploy("studio.py", "caption"); });
  test.afterAll(async () => { await stack.stop(); stack.remove(); });

  /** A queued job whose record is damaged, which a cancel then finds. */
  async function damaged(n: number): Promise<string> {
    const { id } = await stack.api.submit({ endpoint: "caption", input: { n } });
    await stack.setField(id, "fence", "nobody");
    await expect(stack.api.ask(`/v1/jobs/${id}/cancel`, { method: "POST" })).rejects.toThrow(/409.*quarantine/);
    return id;
  }

  test("operators see them on Queue, and put them back or discard them", async ({ page, context }) => {
    const { api } = stack;
    await enter(context, api.url, api.token);
    const answered = page.waitForResponse((answer) => answer.url().endsWith("/v1/quarantine"));
    await page.goto(`${api.url}/dashboard/queue`);
    expect((await answered).status()).toBe(200);
    await live(page);
    const heading = page.getByRole("heading", { name: "Quarantine" });
    await expect(heading, "there are none").toHaveCount(0);

    const [first, second, third] = [await damaged(1), await damaged(2), await damaged(3)];
    const table = page.getByRole("region", { name: "Quarantine" });
    const row = (id: string) => table.locator("tbody tr").filter({ hasText: id });
    // The page looks again every ten seconds.
    await expect(row(third)).toBeVisible({ timeout: 30_000 });
    await expect(page.getByText("The records of 3 jobs cannot be read.")).toBeVisible();
    const found = await api.ask<Schemas["Quarantine"]>("/v1/quarantine");
    expect(found.jobs.map((job) => job.id)).toEqual([first, second, third]);
    for (const job of found.jobs) {
      expect(job.why).toContain("fence");
      await expect(row(job.id).locator("td")).toHaveText([job.id, job.tenant ?? "no tenant", "caption", /queued/, /^(\d+ s|\d+ min \d+ s)$/, job.why, /Put back.*Discard/]);
    }
    expect((await axe(page)).violations).toEqual([]);

    await row(first).getByRole("button", { name: "Discard" }).click();
    const discard = page.getByRole("dialog", { name: "Discard" });
    await expect(discard).toContainText(first);
    await discard.getByRole("button", { name: "Go back" }).click();
    await expect(discard).toBeHidden();
    expect((await api.ask<Schemas["Quarantine"]>("/v1/quarantine")).total, "it was left").toBe(3);

    // Its record still cannot be read, and the dialog says so.
    await row(second).getByRole("button", { name: "Put back" }).click();
    const back = page.getByRole("dialog", { name: "Put back" });
    await back.getByRole("button", { name: "Put back" }).click();
    await expect(back.getByRole("alert")).toContainText(found.jobs[1]?.why ?? "no reason");
    // Somebody else ends the job of the row above: the dialog stays with the job that it was opened for.
    await api.ask("/v1/quarantine/discard", { method: "POST", body: { ids: [first] } });
    await expect(row(first)).toHaveCount(0, { timeout: 30_000 });
    await expect(back).toContainText(second);
    await stack.setField(second, "fence", "0");
    await back.getByRole("button", { name: "Put back" }).click();
    await expect(back).toBeHidden();
    await expect(row(second)).toHaveCount(0);
    expect((await api.ask<Schemas["Job"]>(`/v1/jobs/${second}`)).state).toBe("queued");

    await row(third).getByRole("button", { name: "Discard" }).click();
    await discard.getByRole("button", { name: "Discard" }).click();
    await expect(heading, "there are none again").toHaveCount(0);
    const { state, error } = await api.ask<Schemas["Job"]>(`/v1/jobs/${third}`);
    expect([state, error?.code]).toEqual(["failed", "infra"]);
  });

  test("a token that may only look is offered no decision, and one of a tenant is shown none of it", async ({ page, context }) => {
    const { api } = stack;
    const id = await damaged(4);
    await enter(context, api.url, await stack.token("looker", "jobs:read", "workers:read", "tenants:read"));
    await page.goto(`${api.url}/dashboard/queue`);
    await expect(page.getByRole("region", { name: "Quarantine" })).toContainText(id);
    await expect(page.getByRole("button", { name: "Put back" })).toHaveCount(0);
    await expect(page.getByRole("button", { name: "Discard" })).toHaveCount(0);

    await enter(context, api.url, await stack.token("tenant", "jobs:read", "workers:read"));
    const asked: string[] = [];
    page.on("request", (request) => { asked.push(new URL(request.url()).pathname); });
    await page.reload();
    await live(page);
    await expect(page.getByRole("heading", { name: "The last hour" })).toBeVisible();
    await expect(page.getByRole("heading", { name: "Quarantine" })).toHaveCount(0);
    expect(asked).toContain("/v1/queue");
    expect(asked).not.toContain("/v1/quarantine");
  });
});
