// What the stack is filled with, so that every view has something true to show.
import { Api, type Schemas, type Stack } from "./stack";

type Job = Schemas["Job"];

const PROMPTS = ["harbour at dusk", "a lighthouse in fog", "nets drying at noon", "the ferry at night", "gulls over the pier", "rain on the quay"];
const BUDGET_USD_MICROS = 5_000_000;

/** What the tests look for, by id. */
export interface Seeded { picture: string; text: string; torn: string; failed: string; waiting: string; scheduled: string; running: string; cancelled: string; batch: string }

async function deploy(stack: Stack): Promise<void> {
  for (const object of ["Draw", "Write", "Film", "caption", "atlas"]) await stack.deploy("studio.py", object);
  // A second version that asks for more, with a quarter of the traffic.
  await stack.deploy("studio.py", "Draw", "--vram-gib", "10", "--traffic", "25");
}

function captions(count: number, broken: number[]): unknown[] {
  return Array.from({ length: count }, (_, n) => ({ custom_id: `picture-${n}`, input: { n, fails: broken.includes(n) ? (n % 2 ? "reject" : "decode") : "" } }));
}

/** Everything that ends has ended, and what waits or runs goes on doing so. */
export async function seed(stack: Stack): Promise<Seeded> {
  const { api } = stack;
  await deploy(stack);
  await api.ask("/v1/limits/default", { method: "PUT", body: { budget_usd_micros_per_day: BUDGET_USD_MICROS, max_open: 100_000 } });
  const submit = async (endpoint: string, input: unknown, more: Partial<Schemas["SubmitRequest"]> = {}) => (await api.submit({ endpoint, input, ...more })).id;
  const metadata = { project: "calendar" };

  const torn = await submit("film", { scene: 3, tears: 1 }, { priority: "standard", metadata });
  const failed = await submit("film", { scene: 7, tears: 9 }, { max_attempts: 2, priority: "standard" });
  const drawn = await Promise.all(PROMPTS.map((prompt) => submit("draw", { prompt }, { metadata })));
  const written = await Promise.all(PROMPTS.map((about) => submit("write", { about })));
  const small = await api.ask<Schemas["Batch"]>("/v1/batches", { method: "POST", body: { endpoint: "caption", lines: captions(60, [9, 20, 33, 34, 51]), budget_usd_micros: 200_000, metadata } });

  const waiting = await submit("atlas", {}, { metadata });
  await submit("atlas", {}, { priority: "batch" });
  const run_after = new Date(Date.now() + 24 * 3600 * 1000).toISOString();
  const scheduled = await submit("write", { about: "tomorrow" }, { run_after });
  await submit("write", { about: "what follows" }, { depends_on: [scheduled] });
  const cancelled = await submit("write", { about: "nothing" }, { run_after });
  await api.ask(`/v1/jobs/${cancelled}/cancel`, { method: "POST" });
  await submit("atlas", {}, { queue_timeout_s: 1 });

  await stack.upload("scenes.txt", PROMPTS.join("\n"));
  const [picture, text] = [drawn[0] as string, written[0] as string];
  await Promise.all([torn, failed, ...drawn, ...written].map((id) => api.ended(id)));
  for (const [at, id] of drawn.entries()) await api.ask(`/v1/jobs/${id}/feedback`, { method: "POST", body: { accepted: at !== 1 } });
  await api.until("the batch does not end", `/v1/batches/${small.id}`, (batch: Schemas["Batch"]) => batch.ended_at != null);
  const running = await submit("film", { scene: 9, seconds: 3600 }, { priority: "interactive", metadata });
  await api.until("it does not start", `/v1/jobs/${running}`, (job: Job) => job.state === "running");
  return { picture, text, torn, failed, waiting, scheduled, running, cancelled, batch: small.id };
}

/** Keeps every kind of machine busy while pictures are taken. */
export async function crowd(api: Api): Promise<void> {
  for (const [project, count, broken, budget] of [["archive", 1200, [40, 41, 300, 301, 302], 500_000], ["postcards", 240, [7, 8], 2_000]] as const) {
    await api.ask("/v1/batches", { method: "POST", body: { endpoint: "caption", lines: captions(count, [...broken]), budget_usd_micros: budget, metadata: { project } } });
  }
  const film = Array.from({ length: 14 }, (_, n) => ({ endpoint: "film", input: { scene: n, seconds: 12, tears: n % 5 === 4 ? 1 : 0 }, metadata: { reel: `${1 + (n % 3)}` } }));
  const write = Array.from({ length: 40 }, (_, n) => ({ endpoint: "write", input: { about: PROMPTS[n % PROMPTS.length], seconds: 3 }, metadata: { project: "guide" } }));
  const draw = Array.from({ length: 60 }, (_, n) => ({ endpoint: "draw", input: { prompt: PROMPTS[n % PROMPTS.length], seconds: 2.5 }, metadata: { project: n % 3 ? "calendar" : "posters" } }));
  // In turn, as people send them.
  const jobs = draw.flatMap((job, n) => [job, ...write.slice(n, n + 1), ...film.slice(n, n + 1)]);
  await api.ask("/v1/jobs/bulk", { method: "POST", body: { jobs } });
}
