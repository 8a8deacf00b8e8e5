// Each view beside the API's own answers: the page shows what is, or says so within its next look.
import { expect, live, test } from "./fixtures";
import type { Schemas } from "./stack";

/** Dollars as a person reads them: to the cent, or two digits that say something. */
function dollars(micros: number): string { const usd = micros / 1e6; return usd === 0 || usd >= 0.1 ? `$${usd.toFixed(2)}` : `$${usd.toFixed(Math.min(6, 1 - Math.floor(Math.log10(usd))))}`; }

test("Queue tells what waits, since when and why, by lane and by whom", async ({ inside, api, at }) => {
  await inside.goto(at("/queue"));
  await live(inside);
  const { lanes } = await api.ask<Schemas["QueueView"]>("/v1/queue");
  const atlas = lanes.filter((lane) => lane.endpoint === "atlas");
  expect(atlas.map((lane) => lane.priority).sort()).toEqual(["batch", "standard"]);
  const rows = inside.getByRole("region", { name: "Lanes" }).getByRole("row");
  for (const lane of atlas) {
    const row = rows.filter({ hasText: "atlas" }).filter({ has: inside.getByRole("cell", { name: lane.priority, exact: true }) });
    await expect(row.getByRole("cell")).toHaveText([lane.priority, "atlas", lane.tenant, `${lane.vram_class_gib} GiB`, String(lane.jobs), /^(\d+ s|\d+ min \d+ s)$/, /./, new RegExp(`${lane.waiting.reason}.*${lane.waiting.message.slice(0, 20)}`)]);
    expect(Date.now() - Date.parse(lane.oldest_at ?? "")).toBeGreaterThan(0);
  }
  await inside.getByRole("combobox", { name: "by" }).selectOption("endpoint");
  await expect(inside).toHaveURL(at("/queue?by=endpoint"));
  await expect(inside.getByRole("region", { name: "Waiting jobs by endpoint" }).getByRole("row").filter({ hasText: "atlas" }).getByRole("cell").nth(2)).toHaveText("2");
  await expect(inside.getByRole("img", { name: /^Jobs of the last hour/ })).toBeVisible();
});

test("Jobs filters as the API does, and the address keeps the filter", async ({ inside, api, at, stack }) => {
  for (const [query, path] of [["state=failed&endpoint=caption", "/v1/jobs?state=failed&endpoint=caption&limit=100"], ["metadata.project=calendar", "/v1/jobs?metadata.project=calendar&limit=100"]] as const) {
    await inside.goto(at(`/jobs?${query}`));
    await live(inside);
    const { jobs } = await api.ask<Schemas["JobList"]>(path);
    expect(jobs.length).toBeGreaterThan(3);
    const rows = inside.getByRole("listitem");
    await expect(rows.first()).toContainText(jobs[0]?.id ?? "no job");
    await expect(rows.first()).toHaveAttribute("aria-setsize", String(jobs.length));
  }
  await inside.goto(at("/jobs"));
  await inside.getByRole("combobox", { name: "state" }).selectOption("scheduled");
  await expect(inside).toHaveURL(at("/jobs?state=scheduled"));
  await expect(inside.getByRole("listitem").filter({ hasNotText: "scheduled" })).toHaveCount(0);
  await expect(inside.getByRole("listitem").filter({ hasText: stack.seeded.scheduled })).toBeVisible();
});

test("a job that was tried again shows both attempts on one clock, and what each said", async ({ inside, api, at, stack }) => {
  const job = await api.ask<Schemas["Job"]>(`/v1/jobs/${stack.seeded.torn}`);
  await inside.goto(at(`/jobs/${job.id}`));
  const story = inside.getByRole("region", { name: "Timeline" });
  await expect(story.getByText("the film tore in scene 3")).toBeVisible();
  const ran = story.locator(".kind-run");
  await expect(ran).toHaveCount(job.attempts.length + 1); // one is the legend's
  // Where they lie is when they ran.
  const whole = Date.parse(job.ended_at ?? "") - Date.parse(job.created_at);
  for (const [index, attempt] of job.attempts.entries()) {
    const left = await ran.nth(index).evaluate((bar: HTMLElement) => parseFloat(bar.style.left) / 100);
    const { env_ms, weights_ms, boot_ms, load_ms, warmup_ms } = attempt.timing;
    const began = Date.parse(attempt.started_at) - Date.parse(job.created_at) + env_ms + weights_ms + boot_ms + load_ms + warmup_ms;
    expect(left).toBeCloseTo(began / whole, 2);
  }
  await expect(inside.getByLabel("The result")).toContainText("frame 3");
  await expect(inside.getByLabel("Events and logs")).toContainText("scene 3, frame 0");
});

test("a job's page shows a traceback, a picture, a text, and why it waits", async ({ inside, at, stack }) => {
  const { seeded } = stack;
  await inside.goto(at(`/jobs/${seeded.failed}`));
  await expect(inside.getByLabel("The traceback")).toContainText("studio.py");
  await inside.goto(at(`/jobs/${seeded.picture}`));
  const picture = inside.getByRole("img", { name: "picture.png" });
  await expect.poll(() => picture.evaluate((image: HTMLImageElement) => [image.complete, image.naturalWidth, image.naturalHeight])).toEqual([true, 320, 200]);
  await inside.goto(at(`/jobs/${seeded.text}`));
  await expect(inside.getByLabel("The result")).toContainText("best seen early");
  await inside.goto(at(`/jobs/${seeded.waiting}`));
  await expect(inside.getByText(/Waiting:.*190 GiB/)).toBeVisible();
  await inside.goto(at("/jobs/0192f0c1a2b37cde8f00112233445500"));
  await expect(inside.getByRole("alert")).toBeVisible();
});

test("Batches tells how far each is, what it spends and what failed in it", async ({ inside, api, at, stack }) => {
  const batch = await api.ask<Schemas["Batch"]>(`/v1/batches/${stack.seeded.batch}`);
  expect([batch.counts.succeeded, batch.counts.failed]).toEqual([55, 5]);
  await inside.goto(at("/batches"));
  await live(inside);
  const row = inside.getByRole("row").filter({ hasText: batch.id });
  await expect(row).toContainText(dollars(batch.spent_usd_micros));
  await expect(row).toContainText(dollars(batch.budget_usd_micros ?? 0));
  await expect(row.getByRole("img", { name: "Progress: succeeded 55, failed 5" })).toBeVisible();
  await row.getByRole("link").click();
  await expect(inside.locator("main").getByRole("link", { name: "caption" })).toHaveAttribute("href", "/dashboard/endpoints/caption");
  const failures = inside.getByRole("region", { name: "Failures by class" }).getByRole("row");
  await expect(failures.filter({ hasText: "ValueError" }).getByRole("cell").nth(1)).toHaveText("2");
  await expect(failures.filter({ hasText: "reject" }).getByRole("cell").nth(1)).toHaveText("3");
});

test("of what a handler gave, pictures and plain text alone are shown, and text in a frame that may do nothing", async ({ inside, api, at, stack }) => {
  const types = { "a.png": "image/png", "b.svg": "image/svg+xml", "c.html": "text/html", "d.html": "Text/HTML; charset=utf-8", "e.xhtml": "application/xhtml+xml", "f.xml": "text/xml", "g.md": "text/markdown", "h.txt": "text/plain; charset=utf-8", "i.json": "application/json", "j.pdf": "application/pdf" };
  const result = Object.entries(types).map(([name, content_type]) => ({ $file: name, content_type, size_bytes: 100 }));
  const job = await api.ask<Schemas["Job"]>(`/v1/jobs/${stack.seeded.picture}`);
  await inside.route(`**/v1/jobs/${job.id}`, (route) => route.fulfill({ json: { ...job, result } }));
  // A store that keeps to nothing: it says of everything that it is a page.
  await inside.route(`**/v1/jobs/${job.id}/files/*`, (route) => route.fulfill({ contentType: "text/html", body: "<p>written by a handler</p>" }));
  await inside.goto(at(`/jobs/${job.id}`));
  await expect(inside.getByRole("link", { name: "c.html" })).toBeVisible();
  const names = (selector: string, by: string) => inside.locator(`.files ${selector}`).evaluateAll((all, by) => all.map((each) => each.getAttribute(by)), by);
  expect(await names("img", "alt")).toEqual(["a.png"]);
  expect(await names("iframe", "title")).toEqual(["h.txt", "i.json"]);
  expect(await names("iframe", "sandbox")).toEqual(["", ""]);
  expect(await names("object, embed", "data")).toEqual([]);
  for (const frame of await inside.locator(".files iframe").all()) await frame.scrollIntoViewIfNeeded();
  await expect(inside.frameLocator(".files iframe >> nth=0").getByText("written by a handler")).toBeVisible();
});

test("Fleet shows each machine with its price, and whose model has its memory", async ({ inside, api, at, stack }) => {
  await inside.goto(at("/fleet"));
  await live(inside);
  const job = await api.ask<Schemas["Job"]>(`/v1/jobs/${stack.seeded.running}`);
  const fleet = await api.ask<Schemas["Fleet"]>("/v1/fleet");
  const machine = fleet.machines.find((each) => each.worker_id === job.attempts[0]?.worker_id);
  const box = inside.getByRole("article", { name: `Instance ${machine?.id}` });
  await expect(box).toContainText(`${dollars(machine?.usd_micros_per_hour ?? 0)}/h`);
  await expect(box.getByRole("img", { name: /^Memory of GPU 0: film@1 20 GiB/ })).toBeVisible();
  await expect(inside.getByRole("region", { name: "Notices" })).toContainText("no_offer");
  const first = fleet.decisions[fleet.decisions.length - 1];
  const decided = inside.getByRole("region", { name: "Decisions" }).getByRole("row");
  await expect(decided.filter({ hasText: first?.machine ?? "none" }).filter({ hasText: first?.action ?? "none" }).first()).toContainText(first?.reason.slice(0, 30) ?? "none");
});

test("Endpoints shows versions, their traffic and how each has done", async ({ inside, api, at }) => {
  const stats = await api.ask<Schemas["EndpointStats"]>("/v1/endpoints/film/stats?hours=24");
  await inside.goto(at("/endpoints"));
  await expect(inside.getByRole("row").filter({ hasText: "draw" }).getByRole("img", { name: "Traffic: v1 75 %, v2 25 %, of 100 %" })).toBeVisible();
  await inside.getByRole("link", { name: "film" }).click();
  await expect(inside).toHaveURL(at("/endpoints/film"));
  const [version] = stats.versions;
  const outcome = inside.getByRole("region", { name: "Outcomes" }).getByRole("row").nth(1).getByRole("cell");
  await expect(outcome.nth(1)).toHaveText(String(version?.runs));
  await expect(outcome.nth(2)).toHaveText(String(version?.succeeded));
  await inside.goto(at("/endpoints/draw"));
  await expect(inside.getByRole("region", { name: "Time by part" })).toContainText("p95");
  await expect(inside.getByRole("region", { name: "Outcomes" })).toContainText(/\d+\.\d %/);
});

test("an endpoint has the same error rate in the list and on its page", async ({ inside, at }) => {
  const figures = (version: number, succeeded: number, failed: number) => ({ version, runs: succeeded + failed, succeeded, failed, timing: {} });
  await inside.route("**/v1/endpoints/draw/stats?*", (route) => route.fulfill({ json: { versions: [figures(2, 0, 10), figures(1, 9, 1)] } }));
  await inside.goto(at("/endpoints"));
  const row = inside.getByRole("row").filter({ has: inside.getByRole("link", { name: "draw", exact: true }) });
  await expect(row).toBeVisible();
  const column = (await inside.getByRole("columnheader").allTextContents()).indexOf("error rate");
  await expect(row.getByRole("cell").nth(column)).toHaveText("55.0 %");
  await inside.getByRole("link", { name: "draw", exact: true }).click();
  const tile = (label: string) => inside.getByRole("group", { name: label }).locator("div").filter({ hasText: "error rate" });
  await expect(tile("All versions, the last 24 hours")).toHaveText("error rate55.0 %");
  await inside.getByRole("combobox", { name: "version" }).selectOption({ label: "v2" });
  await expect(tile("Version 2, the last 24 hours")).toHaveText("error rate100.0 %");
  await expect(inside.getByRole("region", { name: "Outcomes" }).getByRole("row").nth(2)).toContainText("10.0 %");
});

test("Costs adds up, by whatever it is told of", async ({ inside, api, at }) => {
  await inside.goto(at("/costs"));
  await live(inside);
  await expect(async () => {
    const { rows, total } = await api.ask<Schemas["Costs"]>("/v1/costs?by=endpoint");
    await expect(inside.locator(".tiles > div").first()).toContainText(dollars(total.total_usd_micros), { timeout: 1000 });
    for (const row of rows) await expect(inside.getByRole("region", { name: "Costs by endpoint" }).getByRole("row").filter({ hasText: row.name })).toContainText(dollars(row.total_usd_micros), { timeout: 1000 });
  }).toPass();
  await expect(inside.getByRole("region", { name: "Limits and budgets" })).toContainText("$5.00");
  for (const by of ["tenant", "batch", "machine", "day"]) {
    await inside.getByRole("combobox", { name: "by" }).selectOption(by);
    await expect(inside.getByRole("region", { name: `Costs by ${by}` }).getByRole("row")).not.toHaveCount(0);
  }
});
