// The playground of an endpoint: its form, a run of it, and the same call in other languages.
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import type { Page } from "@playwright/test";
import { axe, enter, expect, live, test } from "./fixtures";
import { type Schemas, Stack } from "./stack";

const run = promisify(execFile);
const HANDLERS = ["poster", "measure", "recite", "tear", "dry", "forge", "monument", "hum"];
const SIZES = { desktop: { width: 1280, height: 860 }, phone: { width: 390, height: 780 } };
const SNIPPET_MS = 60_000;

test.describe.configure({ mode: "default" });
// Its own, with one worker: jobs of the others' stack do not delay these.
let stack: Stack;
test.beforeAll(async () => {
  test.setTimeout(180_000);
  stack = new Stack(["--workers", "1"]);
  await stack.start();
  for (const handler of HANDLERS) await stack.deploy("atelier.py", handler);
});
test.afterAll(async () => { await stack.stop(); stack.remove(); });

/** The page of an endpoint, logged in; an error on the page fails the test. */
async function open(page: Page, endpoint: string, token = stack.api.token): Promise<() => void> {
  const errors: string[] = [];
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("console", (line) => { if (line.type() === "error" && !line.text().startsWith("Failed to load resource")) errors.push(line.text()); });
  await enter(page.context(), stack.api.url, token);
  await page.goto(`${stack.api.url}/dashboard/endpoints/${endpoint}`);
  await live(page);
  await expect(page.getByRole("heading", { name: "Inputs" })).toBeVisible();
  return () => expect(errors, "nothing goes wrong on the page").toEqual([]);
}

const button = (page: Page) => page.getByRole("button", { name: "Run", exact: true });
const state = (page: Page, text: string) => expect(page.getByRole("status").filter({ hasText: text })).toHaveCount(1);

for (const [size, viewport] of Object.entries(SIZES)) {
  test.describe(size, () => {
    test.use({ viewport });

    test("a form of every kind of input runs, and its pictures are in the gallery", async ({ page }) => {
      const isWell = await open(page, "poster");
      await expect(page.getByText("Draws posters of a prompt.")).toBeVisible();
      await expect(page.getByText("What the poster shows.")).toBeVisible();
      await page.getByLabel(/^prompt/).fill(`a harbour, ${size}`);
      await page.getByLabel(/^style/).selectOption("oil");
      await page.getByLabel(/^copies [^,]*$/).fill("2");
      await page.getByLabel(/^is_framed/).check();
      await page.getByRole("group", { name: /^tags/ }).getByRole("combobox").or(page.getByRole("group", { name: /^tags/ }).getByRole("button", { name: "Add an item" })).first().click();
      await page.getByRole("group", { name: /^tags/ }).getByRole("textbox").fill("sea");
      await page.getByRole("group", { name: /^size/ }).getByLabel(/^width/).fill("90");
      await button(page).click();
      await state(page, "Job succeeded");
      const output = page.getByRole("region", { name: "Output" });
      await expect(output.getByRole("img", { name: "poster-1.png" })).toBeVisible();
      await output.getByRole("img", { name: "poster-0.png" }).scrollIntoViewIfNeeded();
      await expect.poll(() => output.getByRole("img", { name: "poster-0.png" }).evaluate((image: HTMLImageElement) => image.naturalWidth)).toBe(90);
      await expect(output.getByText(/^Took \d/)).toBeVisible();
      await expect(output.locator("details.logs")).toContainText(`drawing 2 of a harbour, ${size}`);
      const { jobs } = await stack.api.ask<Schemas["JobList"]>("/v1/jobs?endpoint=poster&limit=1");
      expect(jobs[0]?.input).toEqual({ prompt: `a harbour, ${size}`, style: "oil", copies: 2, is_framed: true, tags: ["sea"], size: { width: 90 } });

      // Both pictures, each of which leads to its job.
      const gallery = page.getByRole("region", { name: "Gallery" });
      await expect(gallery.getByRole("img", { name: `a harbour, ${size}` })).toHaveCount(2);
      await expect(gallery.getByRole("link").first()).toHaveAttribute("href", `/dashboard/jobs/${jobs[0]?.id}`);
      expect((await axe(page)).violations).toEqual([]);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(viewport.width);

      // The same inputs again, from the list of recent jobs.
      await page.getByRole("button", { name: "Reset" }).click();
      await expect(page.getByLabel(/^prompt/)).toHaveValue("");
      await page.getByRole("button", { name: `Run again with these inputs, of job ${jobs[0]?.id}` }).click();
      await expect(page.getByLabel(/^prompt/)).toHaveValue(`a harbour, ${size}`);
      await expect(page.getByRole("group", { name: /^size/ }).getByLabel(/^width/)).toHaveValue("90");
      isWell();
    });

    test("what does not match is marked beside its input, before and after the API was asked", async ({ page }) => {
      const isWell = await open(page, "poster");
      await button(page).click();
      const prompt = page.getByLabel(/^prompt/);
      await expect(prompt).toBeFocused();
      await expect(prompt).toHaveAttribute("aria-invalid", "true");
      await expect(page.getByText("is required", { exact: true })).toBeVisible();
      await prompt.fill("ab");
      await expect(page.getByText("must have at least 3 characters, not 2")).toBeVisible();
      await prompt.fill("abc");
      await expect(prompt).toHaveAttribute("aria-invalid", "false");
      const copies = page.getByLabel(/^copies [^,]*$/);
      await copies.fill("9");
      await expect(page.getByText("must be at most 4")).toBeVisible();
      await copies.fill("1.5");
      await expect(page.getByText("must be a whole number")).toBeVisible();
      await expect(page.getByRole("slider", { name: "copies, slider" })).toBeVisible();
      await copies.fill("1");
      // An error that the page does not find by itself.
      const detail = "the input does not match the schema";
      await page.route("**/v1/jobs", (route) => route.fulfill({ status: 422, contentType: "application/problem+json", json: { detail, errors: [{ path: "/input/guidance", message: "is not what the API wants" }] } }), { times: 1 });
      await button(page).click();
      await expect(page.getByRole("alert").filter({ hasText: detail })).toBeVisible();
      await expect(page.locator(".field", { hasText: "guidance" }).getByText("is not what the API wants")).toBeVisible();
      isWell();
    });

    test("the JSON tab and the form show the same inputs", async ({ page }) => {
      const isWell = await open(page, "poster");
      await page.getByLabel(/^prompt/).fill("ships");
      await page.getByRole("button", { name: "JSON" }).click();
      const json = page.getByRole("textbox", { name: "Inputs as JSON" });
      expect(JSON.parse(await json.inputValue())).toEqual({ prompt: "ships" });
      await json.fill('{"prompt": "more ships", "copies": ');
      await expect(json).toHaveAttribute("aria-invalid", "true");
      await expect(button(page)).toBeDisabled();
      await json.fill('{"prompt": "more ships", "copies": 3, "seed": 7}');
      await page.getByRole("button", { name: "Form" }).click();
      await expect(page.getByLabel(/^prompt/)).toHaveValue("more ships");
      await expect(page.getByLabel(/^copies [^,]*$/)).toHaveValue("3");
      isWell();
    });

    test("text appears as it is written", async ({ page }) => {
      const isWell = await open(page, "recite");
      await page.getByLabel(/^about/).fill("word");
      await page.getByLabel(/^words/).fill("12");
      await page.getByLabel(/^pause/).fill("0.3");
      await page.getByLabel(/^about/).press("Control+Enter");
      const streamed = page.getByLabel("Streamed output");
      await expect(streamed).toContainText("word 1");
      expect(await streamed.textContent()).not.toContain("word 11");
      await state(page, "Job succeeded");
      await expect(streamed).toHaveText(Array.from({ length: 12 }, (_, n) => `word ${n} `).join(""));
      isWell();
    });

    test("outputs stay when the state of their attempt comes after them, and go when a retry writes them anew", async ({ page }) => {
      const isWell = await open(page, "recite");
      const frame = (event: string, data: unknown) => `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
      const output = (attempt: number, index: number, value: string) => frame("output", { index, value, attempt });
      const first = frame("state", { state: "queued", attempt: 0 }) + output(1, 0, "torn ");
      const retry = output(2, 0, "whole ") + output(2, 1, "text") + frame("state", { state: "succeeded", attempt: 2 }) + frame("done", {});
      await page.route("**/v1/jobs/*/events", (route) => route.fulfill({ contentType: "text/event-stream", body: first + retry }));
      await page.getByLabel(/^about/).fill("word");
      // While it runs: what a job that has ended shows is its result.
      await page.getByLabel(/^pause/).fill("30");
      await button(page).click();
      await expect(page.getByLabel("Streamed output")).toHaveText("whole text");
      await page.getByRole("button", { name: "Cancel" }).click();
      isWell();
    });

    test("a failure shows its error, its traceback and its logs", async ({ page }) => {
      const isWell = await open(page, "tear");
      await page.getByLabel(/^reason/).fill("<b>torn</b> & wet");
      await button(page).click();
      await state(page, "Job failed");
      const output = page.getByRole("region", { name: "Output" });
      await expect(output.getByRole("alert")).toContainText("<b>torn</b> & wet");
      await output.getByText("Traceback", { exact: true }).click();
      await expect(page.getByLabel("The traceback")).toContainText("atelier.py");
      isWell();
    });

    test("a job that runs shows its progress, and can be cancelled", async ({ page }) => {
      const isWell = await open(page, "dry");
      await button(page).click();
      await expect(page.getByText(/\d+ % layer \d+/)).toBeVisible();
      await page.getByRole("button", { name: "Cancel" }).click();
      await state(page, "Job cancelled");
      await expect(button(page)).toBeEnabled();
      isWell();
    });

    test("a session that may not submit sees the page and the snippets, and why it cannot run", async ({ page }) => {
      const viewer = await stack.token(`viewer-${size}`, "jobs:read", "endpoints:read", "files:read");
      const isWell = await open(page, "poster", viewer);
      await expect(button(page)).toBeDisabled();
      await expect(button(page)).toHaveAccessibleDescription(/lacks the permission jobs:submit/);
      await page.getByLabel(/^prompt/).fill("ships");
      await expect(page.getByRole("tabpanel")).toContainText('client.submit("poster", {"prompt": "ships"})');
      await page.keyboard.press("Control+Enter");
      await expect(page.getByRole("region", { name: "Output" })).toContainText("A result would appear here.");
      isWell();
    });

    test("what a handler gives is never a part of the page", async ({ page }) => {
      const isWell = await open(page, "forge");
      await button(page).click();
      await state(page, "Job succeeded");
      const output = page.getByRole("region", { name: "Output" });
      await expect(output.getByRole("link", { name: "page.html" })).toBeVisible();
      await expect(output.locator("img, iframe, object, embed")).toHaveCount(0);
      await expect(output.getByLabel("The result")).toContainText("<img src=x onerror=alert(1)>");
      expect(await page.title()).not.toContain("forged");
      isWell();
    });
  });
}

test("a job that waits says why, and about how long, and can be left", async ({ page }) => {
  const isWell = await open(page, "monument");
  // The estimate of a fleet that rents, and then a worker that loads the model.
  let isLoading = false;
  await page.route("**/v1/jobs/*", async (route) => {
    const answer = await route.fetch();
    const job = (await answer.json()) as Schemas["Job"];
    await route.fulfill({ response: answer, json: !job.waiting ? job : isLoading ? { ...job, state: "running", waiting: { reason: "loading", message: "its model loads", estimate_s: 150 } } : { ...job, waiting: { ...job.waiting, estimate_s: 40 } } });
  });
  await button(page).click();
  await expect(page.locator(".waiting")).toHaveText(/190 GiB.*, about 40 s$/);
  await state(page, "Job queued: ");
  isLoading = true;
  await expect(page.locator(".waiting")).toHaveText("its model loads, about 3 min");
  await state(page, "Job running: its model loads, about 3 min");
  await page.getByRole("button", { name: "Leave it running" }).click();
  await expect(page.getByText("The result appears here.")).toBeVisible();
  const { jobs } = await stack.api.ask<Schemas["JobList"]>("/v1/jobs?endpoint=monument&limit=1");
  expect(jobs[0]?.state).toBe("queued");
  isWell();
});

test("sound is played and text is shown in a frame that may do nothing", async ({ page }) => {
  const isWell = await open(page, "hum");
  await button(page).click();
  await state(page, "Job succeeded");
  const output = page.getByRole("region", { name: "Output" });
  const audio = output.locator("audio");
  await audio.evaluate((sound: HTMLAudioElement) => sound.load());
  await audio.evaluate((sound: HTMLAudioElement) => { sound.preload = "auto"; sound.load(); });
  await expect.poll(() => audio.evaluate((sound: HTMLAudioElement) => sound.duration)).toBeCloseTo(0.5, 1);
  await expect(output.locator("iframe")).toHaveAttribute("sandbox", "");
  await expect(output.frameLocator("iframe").getByText("one note")).toBeVisible();
  isWell();
});

test("a stream without end is kept in bounded memory", async ({ page }) => {
  const isWell = await open(page, "recite");
  await page.getByLabel(/^about/).fill("0123456789".repeat(30));
  await page.getByLabel(/^words/).fill("3000");
  await button(page).click();
  await state(page, "Job succeeded");
  // The stream may still be read when the job has ended.
  await expect.poll(async () => (await page.getByLabel("Streamed output").textContent())?.length).toBe(200_000);
  await expect(page.getByText(/^The first \d+ characters are not kept here/)).toBeVisible();
  isWell();
});

test("the gallery asks for new results after a job has changed, and not while the page is hidden", async ({ page }) => {
  await page.clock.install();
  const asked: URL[] = [];
  page.on("request", (request) => { const url = new URL(request.url()); if (url.pathname === "/v1/jobs" && url.searchParams.get("state") === "succeeded") asked.push(url); });
  const isWell = await open(page, "poster");
  await expect.poll(() => asked.length).toBeGreaterThan(0);
  const visibility = (state: string) => page.evaluate((state) => { Object.defineProperty(document, "visibilityState", { value: state, configurable: true }); document.dispatchEvent(new Event("visibilitychange")); }, state);
  await visibility("hidden");
  const before = asked.length;
  const job = await stack.api.submit({ endpoint: "poster", input: { prompt: "a picture for later" } });
  await stack.api.ended(job.id);
  await expect(page.getByRole("region", { name: "Recent jobs" })).toContainText(job.id);
  await page.clock.fastForward("10:00");
  expect(asked).toHaveLength(before);
  await visibility("visible");
  await expect(page.getByRole("img", { name: "a picture for later" })).toBeVisible();
  expect(asked).toHaveLength(before + 1);
  expect(asked.map((url) => [url.searchParams.get("limit"), url.searchParams.get("cursor")])).toEqual(asked.map(() => ["20", null]));
  isWell();
});

test("a schema that refers to itself is drawn as far as it has values", async ({ page }) => {
  const node = { type: "object", required: ["label"], properties: { label: { type: "string", default: "leaf" }, ...Object.fromEntries(["north", "east", "south", "west"].map((side) => [side, { anyOf: [{ $ref: "#/$defs/Node" }, { type: "null" }], default: null }])) } };
  await page.route("**/v1/endpoints/dry/versions", async (route) => {
    const answer = await route.fetch();
    const { versions } = (await answer.json()) as Schemas["VersionList"];
    const input_schema = { type: "object", properties: { tree: { $ref: "#/$defs/Node" } }, $defs: { Node: node } };
    await route.fulfill({ response: answer, json: { versions: versions.map((each) => ({ ...each, input_schema })) } });
  });
  const isWell = await open(page, "dry");
  const tree = page.getByRole("group", { name: /^tree/ });
  await expect(tree.getByRole("textbox")).toHaveCount(1);
  await tree.getByRole("button", { name: "Add north" }).click();
  const north = tree.getByRole("group", { name: /^north/ });
  await north.getByLabel(/^label/).first().fill("top");
  await expect(page.getByRole("tabpanel")).toContainText('{"tree": {"north": {"label": "top"}}}');
  expect(await tree.getByRole("textbox").count()).toBeLessThan(10);
  await tree.getByRole("button", { name: "Remove north" }).click();
  await expect(page.getByRole("tabpanel")).toContainText('{"tree": {}}');
  isWell();
});

test("inputs that were typed are there after another view, and gone after log-out", async ({ page }) => {
  const isWell = await open(page, "poster");
  await page.getByLabel(/^prompt/).fill("a secret harbour");
  await page.getByRole("navigation").getByRole("link", { name: "Endpoints" }).click();
  await page.getByRole("link", { name: "poster", exact: true }).click();
  await expect(page.getByLabel(/^prompt/)).toHaveValue("a secret harbour");
  await page.getByRole("button", { name: "Log out" }).click();
  // The page is not loaded again: the next person logs in where the last one was.
  await page.getByLabel("API token").fill(await stack.token("next", "jobs:read", "jobs:submit", "endpoints:read"));
  await page.getByRole("button", { name: "Log in" }).click();
  await live(page);
  await expect(page.getByLabel(/^prompt/)).toHaveValue("");
  await expect(page.getByRole("tabpanel")).toContainText('client.submit("poster", {})');
  await expect(page.locator("body")).not.toContainText("a secret harbour");
  isWell();
});

test("the inputs of a job fill the form, from its page and from an address", async ({ page }) => {
  const job = await stack.api.submit({ endpoint: "recite", input: { about: "ropes", words: 2 } });
  await stack.api.ended(job.id);
  const isWell = await open(page, "recite");
  await page.goto(`${stack.api.url}/dashboard/jobs/${job.id}`);
  await page.getByRole("link", { name: "Run again with these inputs" }).click();
  await expect(page).toHaveURL(`${stack.api.url}/dashboard/endpoints/recite?from=${job.id}`);
  await expect(page.getByLabel(/^about/)).toHaveValue("ropes");
  await expect(page.getByLabel(/^words/)).toHaveValue("2");
  isWell();
});

test("a version is chosen for a run and its snippets", async ({ page }) => {
  await stack.deploy("atelier.py", "hum_again", "--traffic", "25");
  const isWell = await open(page, "hum");
  const picker = page.getByRole("combobox", { name: "version" });
  await expect(picker.locator("option").first()).toHaveText("by traffic (v1 75 %, v2 25 %)");
  await picker.selectOption({ label: "v2" });
  await expect(page).toHaveURL(`${stack.api.url}/dashboard/endpoints/hum?version=2`);
  await expect(page.getByRole("tabpanel")).toContainText('client.submit("hum", {}, version=2)');
  await button(page).click();
  await state(page, "Job succeeded");
  const { jobs } = await stack.api.ask<Schemas["JobList"]>("/v1/jobs?endpoint=hum&limit=1");
  expect(jobs[0]?.version).toBe(2);
  await expect(page.getByRole("region", { name: "Versions" }).getByRole("row").nth(1)).toContainText("v225 %");
  isWell();
});

/** A folder for snippets to run in, with the JavaScript SDK. */
function workplace(): string {
  const folder = mkdtempSync(join(tmpdir(), "stokehold-snippets-"));
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(resolve(import.meta.dirname, "../../../sdk/js"), join(folder, "node_modules", "stokehold"));
  return folder;
}

/** What a snippet prints when a shell, Python or Node runs it. */
async function runs(page: Page, language: string, folder: string): Promise<string> {
  await page.getByRole("tab", { name: language, exact: true }).click();
  const text = await page.getByRole("tabpanel").locator("code").textContent() ?? "";
  expect(text).not.toContain(stack.api.token);
  const env = { PATH: `${resolve(process.env["STOKE_BIN"] ?? resolve(import.meta.dirname, "../../../target/debug/stoke"), "..")}:${process.env["PATH"]}`, HOME: folder, STOKE_TOKEN: stack.api.token };
  const options = { cwd: folder, env, timeout: SNIPPET_MS };
  if (language === "JavaScript") return (await run(process.execPath, ["--input-type=module", "-e", text], options)).stdout;
  if (language === "Python") return (await run(process.env["STOKE_TEST_PYTHON"] ?? "python3", ["-c", text], options)).stdout;
  return (await run("bash", ["-euo", "pipefail", "-c", text], options)).stdout;
}

test("each snippet runs as it is shown, with the inputs of the form", async ({ page }) => {
  test.setTimeout(180_000);
  const isWell = await open(page, "poster");
  const prompt = 'it\'s "quoted" \\ and $HOME `id` ünï\nsecond line';
  await page.getByLabel(/^prompt/).fill(prompt);
  await page.getByLabel(/^is_framed/).check();
  // The schema of this endpoint has no files; the result of a run does.
  await expect(page.getByRole("tabpanel")).not.toContainText("results");
  await button(page).click();
  await state(page, "Job succeeded");
  const folder = workplace();
  try {
    for (const language of ["Python", "JavaScript", "curl", "CLI"]) {
      await runs(page, language, folder);
      expect(readFileSync(join(folder, "results", "poster-0.png")).subarray(1, 4).toString(), `${language} saves the files`).toBe("PNG");
      rmSync(join(folder, "results"), { recursive: true });
      const { jobs } = await stack.api.ask<Schemas["JobList"]>("/v1/jobs?endpoint=poster&limit=1");
      const job = await stack.api.ended(jobs[0]?.id ?? "");
      expect([job.state, job.input], language).toEqual(["succeeded", { prompt, is_framed: true }]);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
  isWell();
});

test("a file is dropped, uploaded and read, and each snippet uploads it too", async ({ page }) => {
  test.setTimeout(180_000);
  const isWell = await open(page, "measure");
  await button(page).click();
  await expect(page.locator(".field", { has: page.locator(".drop") }).getByText("is required")).toBeVisible();
  const name = "it's a file.txt";
  const transfer = await page.evaluateHandle((name) => { const data = new DataTransfer(); data.items.add(new File(["twelve bytes"], name, { type: "text/plain" })); return data; }, name);
  await page.locator(".drop").dispatchEvent("drop", { dataTransfer: transfer });
  await expect(page.locator(".drop")).toContainText(`${name} text/plain · 12 B`);
  await button(page).click();
  await state(page, "Job succeeded");
  await expect(page.getByLabel("The result")).toContainText('"bytes": 12');
  await expect(page.getByLabel("The result")).toContainText(".txt");
  const folder = workplace();
  try {
    writeFileSync(join(folder, name), "thirteen bytes");
    for (const language of ["Python", "JavaScript", "curl", "CLI"]) expect(await runs(page, language, folder), language).toMatch(/\bbytes['"]?: ?14/);
  } finally {
    rmSync(folder, { recursive: true });
  }
  // An upload that fails says so where the file was chosen.
  await page.getByRole("button", { name: "Remove the file of document" }).click();
  await page.route("**/v1/files/upload?*", (route) => route.fulfill({ status: 409, contentType: "application/problem+json", json: { detail: "the storage is full" } }));
  await page.getByLabel(/^document/).setInputFiles({ name: "a.bin", mimeType: "application/octet-stream", buffer: Buffer.from("x") });
  await expect(page.locator(".drop").getByRole("alert")).toHaveText("the storage is full");
  isWell();
});
