// A job that waits for a machine: its page shows each step and an estimate, live, on a desk and on a phone.
import { chmodSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { axe, enter, expect, live, test } from "./fixtures";
import { type Schemas, Stack } from "./stack";

type Job = Schemas["Job"];
const STEPS = ["renting", "booting", "environment", "loading", "running"];
const SCREENS = { desk: { width: 1280, height: 860 }, phone: { width: 360, height: 740 } };

test.describe("a job that waits for a machine", () => {
  test.describe.configure({ mode: "default", timeout: 240_000 });
  // Its own: machines come only for its jobs, and go when they have ended.
  const stack = new Stack(["--fake-vast", "--workers", "0..2"]);
  test.beforeAll(async () => {
    // An environment takes seconds to build elsewhere; here everything is on the disk.
    const uv = process.env["STOKE_UV"];
    if (!uv) throw new Error("STOKE_UV names no uv: run `make test-dashboard`");
    const slow = join(stack.data, "slow-uv");
    writeFileSync(slow, `#!/bin/sh\ncase " $* " in *" venv "*) sleep 3 ;; esac\nexec "${uv}" "$@"\n`);
    chmodSync(slow, 0o755);
    stack.set("STOKE_UV", slow);
    stack.set("STOKE_CACHE_DIR", join(stack.data, "cache"));
    await stack.start();
    await stack.deploy("slow.py", "Slow");
    // The first run shows how long an environment and the model take.
    const first = await stack.api.submit({ endpoint: "slow", input: { n: 0 } });
    expect((await stack.api.ended(first.id)).state).toBe("succeeded");
  });
  test.afterAll(async () => { await stack.stop(); stack.remove(); });

  test("its page goes through the steps, on each screen", async ({ context }) => {
    const { api } = stack;
    await api.until("machines stay", "/v1/fleet", (fleet: Schemas["Fleet"]) => fleet.machines.length === 0);
    // The machines of this market share one disk.
    rmSync(join(stack.data, "cache", "envs"), { recursive: true });
    await enter(context, api.url, api.token);
    const job = await api.submit({ endpoint: "slow", input: { n: 1, seconds: 8 } });
    await Promise.all(Object.values(SCREENS).map(async (size) => {
      const page = await context.newPage();
      await page.setViewportSize(size);
      await page.goto(`${api.url}/dashboard/jobs/${job.id}`);
      await live(page);
      const line = page.locator(".waiting");
      const current = page.getByRole("list", { name: "Steps until the job runs" }).locator("[aria-current=step]");
      const seen: string[] = [];
      const estimated = new Set<string>();
      let widest = 0;
      // What the page shows is read until the job runs; a step that is over in a moment may be missed.
      await expect.poll(async () => {
        const step = (await current.textContent({ timeout: 1_000 }).catch(() => null))?.replace(/^\S+\s+/, "");
        if (step && seen[seen.length - 1] !== step) seen.push(step);
        const text = await line.textContent({ timeout: 200 }).catch(() => null);
        if (step && text && / about \d+ (s|min)/.test(text)) estimated.add(step);
        widest = Math.max(widest, await page.evaluate(() => document.documentElement.scrollWidth));
        return step;
      }, { timeout: 180_000, intervals: [100] }).toBe("running");
      const order = seen.map((step) => STEPS.indexOf(step));
      expect([...order].sort(), seen.join(" ")).toEqual(order);
      expect(seen).toEqual(expect.arrayContaining(["booting", "environment", "loading", "running"]));
      expect([...estimated], "each has an estimate").toEqual(expect.arrayContaining(["booting", "environment", "loading"]));
      expect(widest, "nothing lies beside the screen").toBeLessThanOrEqual(size.width);
      const { violations } = await axe(page);
      expect(violations).toEqual([]);
    }));
    expect((await api.ask<Job>(`/v1/jobs/${job.id}`)).state).toMatch(/running|succeeded/);
  });
});
