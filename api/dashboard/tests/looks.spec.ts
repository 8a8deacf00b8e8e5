// How it looks to whoever has a phone, a dark room, or a screen reader.
import { gzipSync } from "node:zlib";
import { axe, expect, live, test, VIEWS } from "./fixtures";

const FIRST_LOAD_BYTES_MAX = 100_000;

for (const scheme of ["light", "dark"] as const) {
  test(`a screen reader and tired eyes find nothing amiss in any view, ${scheme}`, async ({ inside, at, stack }) => {
    await inside.emulateMedia({ colorScheme: scheme });
    const { seeded } = stack;
    for (const path of [...VIEWS, `jobs/${seeded.torn}`, `jobs/${seeded.picture}`, `jobs/${seeded.failed}`, `batches/${seeded.batch}`, "endpoints/draw"]) {
      await inside.goto(at(`/${path}`));
      await live(inside);
      await expect(inside.locator("main").locator("table, .list, .boxes, .tiles").first()).toBeVisible();
      await expect(inside.locator("html")).toHaveAttribute("data-theme", scheme);
      const { violations, passes } = await axe(inside);
      expect(violations, path).toEqual([]);
      expect(passes, path).toBeGreaterThan(15);
    }
  });
}

test("on a phone nothing lies beside the screen, and every view is in reach", async ({ inside, at, stack }) => {
  await inside.setViewportSize({ width: 360, height: 740 });
  for (const path of [...VIEWS, `jobs/${stack.seeded.torn}`, `jobs/${stack.seeded.picture}`, `batches/${stack.seeded.batch}`, "endpoints/draw"]) {
    await inside.goto(at(`/${path}`));
    await live(inside);
    await expect(inside.getByRole("heading", { level: 1 })).toBeInViewport();
    expect(await inside.evaluate(() => document.documentElement.scrollWidth), path).toBeLessThanOrEqual(360);
  }
  await inside.getByRole("navigation").getByRole("link", { name: "Queue" }).click();
  await expect(inside).toHaveURL(at("/queue"));
});

test("on a phone a host's long names lie beside nothing either", async ({ inside, at }) => {
  await inside.setViewportSize({ width: 360, height: 740 });
  await inside.goto(at("/fleet"));
  await live(inside);
  const box = inside.getByRole("article").first();
  await expect(box).toBeVisible();
  // What a host, or a provider, calls its machines, its cards and its region; in one step with the look, as the page is written anew all the time.
  const width = await box.evaluate((article: HTMLElement) => {
    const texts = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) if (text.nodeValue?.trim()) text.nodeValue = "NVIDIA_H100_".repeat(12);
    return document.documentElement.scrollWidth;
  });
  expect(width).toBeLessThanOrEqual(360);
});

test("the button changes light to dark, the chart's lines with it, and stays so", async ({ inside, at }) => {
  await inside.emulateMedia({ colorScheme: "light" });
  await inside.goto(at("/queue"));
  const chart = inside.locator(".uplot canvas");
  await expect(chart).toBeVisible();
  const picture = () => chart.evaluate((canvas: HTMLCanvasElement) => canvas.toDataURL());
  const light = await picture();
  await inside.getByRole("button", { name: "Light / dark" }).click();
  await expect(inside.locator("html")).toHaveAttribute("data-theme", "dark");
  await expect.poll(picture).not.toBe(light);
  await inside.reload();
  await expect(inside.locator("html")).toHaveAttribute("data-theme", "dark");
});

test("the first load is small", async ({ page, at }) => {
  const bodies: Promise<Buffer>[] = [];
  page.on("response", (answer) => { if (!answer.url().includes("/v1/")) bodies.push(answer.body()); });
  await page.goto(at(""));
  await expect(page.getByLabel("API token")).toBeVisible();
  const sizes = (await Promise.all(bodies)).map((body) => gzipSync(body).length);
  expect(sizes.length).toBeGreaterThan(2);
  expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThan(FIRST_LOAD_BYTES_MAX);
});
