// What can be done to jobs, and a list of more of them than a page can hold.
import { expect, live, test } from "./fixtures";
import type { Schemas } from "./stack";

const MANY = 10_000;
const PAGE = 100;

test("cancelling asks first, and then it is so", async ({ inside, api, at }) => {
  const job = await api.submit({ endpoint: "write", input: { about: "later" }, run_after: new Date(Date.now() + 3_600_000).toISOString() });
  await inside.goto(at(`/jobs/${job.id}`));
  await inside.getByRole("button", { name: "Cancel job" }).click();
  const box = inside.getByRole("dialog", { name: "Cancel job" });
  await box.getByRole("button", { name: "Go back" }).click();
  await expect(box).toBeHidden();
  expect((await api.ask<Schemas["Job"]>(`/v1/jobs/${job.id}`)).state).toBe("scheduled");
  await inside.getByRole("button", { name: "Cancel job" }).click();
  await box.getByRole("button", { name: "Cancel job" }).click();
  await expect(inside.locator("main .row").first()).toContainText("cancelled");
  expect((await api.ask<Schemas["Job"]>(`/v1/jobs/${job.id}`)).state).toBe("cancelled");
});

test("retrying makes a new job and goes to it", async ({ inside, api, at, stack }) => {
  await inside.goto(at(`/jobs/${stack.seeded.failed}`));
  await inside.getByRole("button", { name: "Retry job" }).click();
  await inside.getByRole("dialog", { name: "Retry job" }).getByRole("button", { name: "Retry job" }).click();
  await expect(inside).not.toHaveURL(at(`/jobs/${stack.seeded.failed}`));
  const id = inside.url().split("/").pop() ?? "";
  expect((await api.ask<Schemas["Job"]>(`/v1/jobs/${id}`)).retry_of).toBe(stack.seeded.failed);
});

test("a refusal is told where it was asked for", async ({ inside, api, at }) => {
  const job = await api.submit({ endpoint: "write", input: { about: "later" }, run_after: new Date(Date.now() + 3_600_000).toISOString() });
  await inside.goto(at(`/jobs/${job.id}`));
  await inside.route("**/cancel", (route) => route.fulfill({ status: 429, contentType: "application/problem+json", body: JSON.stringify({ detail: "ask again in a second" }) }));
  await inside.getByRole("button", { name: "Cancel job" }).click();
  const box = inside.getByRole("dialog", { name: "Cancel job" });
  await box.getByRole("button", { name: "Cancel job" }).click();
  await expect(box.getByRole("alert")).toHaveText("ask again in a second");
});

test("ten thousand jobs scroll smoothly, and each can be reached", async ({ inside, api, at }) => {
  test.setTimeout(120_000);
  const [sample] = (await api.ask<Schemas["JobList"]>("/v1/jobs?limit=1")).jobs;
  const id = (n: number) => n.toString(16).padStart(32, "0");
  // The only answer that is made up: what is tried here is the page's list.
  await inside.route("**/v1/jobs?**", (route) => {
    const from = Number(new URL(route.request().url()).searchParams.get("cursor") ?? 0);
    const jobs = Array.from({ length: Math.min(PAGE, MANY - from) }, (_, n) => ({ ...sample, id: id(from + n) }));
    return route.fulfill({ json: { jobs, next_cursor: from + PAGE < MANY ? String(from + PAGE) : null } });
  });
  await inside.goto(at("/jobs"));
  await live(inside);
  const list = inside.getByRole("list", { name: "Jobs, newest first" });
  await expect(list.getByRole("listitem").first()).toContainText(id(0));
  // What is drawn stays few, from the first row to the last, as fast as the wheel goes.
  const seen = await list.evaluate(async (box, all) => {
    const frame = () => new Promise((drawn) => requestAnimationFrame(drawn));
    let nodes = 0;
    const positions = new Set<number>();
    const read = () => {
      nodes = Math.max(nodes, box.querySelectorAll("*").length);
      box.querySelectorAll("[aria-posinset]").forEach((row) => positions.add(Number(row.getAttribute("aria-posinset"))));
    };
    read();
    for (let before = -1; positions.size < all && box.scrollTop !== before; ) {
      before = box.scrollTop;
      box.scrollTop += 1000;
      // The first row that is seen and the last.
      const seen = () => [box.scrollTop, Math.min(box.scrollTop + box.clientHeight, box.scrollHeight) - 34].map((top) => Math.floor(top / 34) + 1);
      do await frame(); while (!seen().every((row) => box.querySelector(`[aria-posinset="${row}"]`)));
      // The next page may be under way at the end of those that are here.
      for (let patience = 0; patience < 120 && box.scrollTop + box.clientHeight > box.scrollHeight - 40 && box.scrollHeight < all * 34; patience++) await frame();
      read();
    }
    return { nodes, rows: positions.size };
  }, MANY);
  expect(seen.rows).toBe(MANY);
  expect(seen.nodes).toBeLessThan(1_000);
  await expect(list.getByRole("listitem").last()).toContainText(id(MANY - 1));
});
