// The client has a method for every operation of the API.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { Stokehold } from "stokehold";

/** @type {{ paths: Record<string, Record<string, { responses: Record<string, any> }>>, components: { schemas: Record<string, any> } }} */
const DOCUMENT = JSON.parse(readFileSync(fileURLToPath(new URL("../../../api/openapi.json", import.meta.url)), "utf8"));
const METHODS = ["get", "post", "put", "delete"];
const OPERATIONS = Object.entries(DOCUMENT.paths).flatMap(([path, methods]) =>
  Object.keys(methods).filter((method) => METHODS.includes(method)).map((method) => `${method.toUpperCase()} ${path}`),
);

/** The operations without a method, and who calls them. */
const NO_METHOD = {
  "GET /metrics": "Prometheus",
  "GET /readyz": "load balancers, which read the status alone",
  "GET /v1/worker/archives/{name}": "machines that become workers",
  "GET /v1/worker/install.sh": "machines that become workers",
  "GET /v1/live": "the dashboard",
  "GET /v1/series": "the dashboard",
  "GET /v1/session": "the dashboard",
  "POST /v1/session": "the dashboard",
  "DELETE /v1/session": "the dashboard",
  "POST /v1/files/upload": "clients that can neither hash a file nor reach the object store",
  "POST /v1/weights": "a deploy from a folder, by `stoke deploy` and the Python client",
  "GET /v1/weights/url": "a deploy from a folder, by `stoke deploy` and the Python client",
};

/** @param {AsyncIterable<unknown>} all */
async function collect(all) {
  const found = [];
  for await (const one of all) found.push(one);
  return found;
}

/** A call of each operation. @type {Record<string, (client: Stokehold) => Promise<unknown>>} */
const CALLS = {
  "GET /healthz": (c) => c.fleet.health(),
  "GET /v1/audit": async (c) => [await collect(c.audit.list({ tenant: "t" })), await c.audit.page({ after: "a" })],
  "GET /v1/batches": (c) => collect(c.batches.list()),
  "POST /v1/batches": (c) => c.batches.create({ endpoint: "echo", lines: [{ input: 1 }] }),
  "POST /v1/batches/estimate": (c) => c.batches.estimate("echo", { lineCount: 10 }),
  "GET /v1/batches/{id}": (c) => c.batches.retrieve("b"),
  "POST /v1/batches/{id}/cancel": (c) => c.batches.cancel("b"),
  "GET /v1/batches/{id}/errors": (c) => collect(c.batches.errors("b")),
  "GET /v1/batches/{id}/results": (c) => collect(c.batches.results("b")),
  "POST /v1/batches/{id}/retry-failed": (c) => c.batches.retryFailed("b"),
  "GET /v1/costs": (c) => c.costs.retrieve({ by: "day", from: "2026-11-22" }),
  "GET /v1/dead-letters": (c) => collect(c.jobs.deadLetters({ endpoint: "echo" })),
  "GET /v1/endpoints": async (c) => [await c.endpoints.list(), await c.endpoints()],
  "POST /v1/endpoints": (c) => c.endpoints.deploy("echo", { timeoutS: 60 }),
  "GET /v1/endpoints/{name}": (c) => c.endpoints.retrieve("echo"),
  "DELETE /v1/endpoints/{name}": (c) => c.endpoints.delete("echo", { dryRun: true }),
  "GET /v1/endpoints/{name}/needs": (c) => c.endpoints.needs("echo"),
  "DELETE /v1/endpoints/{name}/needs": (c) => c.endpoints.forgetNeeds("echo"),
  "GET /v1/endpoints/{name}/stats": (c) => c.endpoints.stats("echo", { hours: 2 }),
  "GET /v1/endpoints/{name}/traffic": (c) => c.endpoints.traffic("echo"),
  "PUT /v1/endpoints/{name}/traffic": (c) => c.endpoints.setTraffic("echo", 2, 10),
  "GET /v1/endpoints/{name}/versions": (c) => c.endpoints.versions("echo"),
  "DELETE /v1/endpoints/{name}/versions/{version}": (c) => c.endpoints.deleteVersion("echo", 2, { force: true }),
  "GET /v1/feedback": (c) => c.feedback.stats(),
  "GET /v1/feedback/export": (c) => collect(c.feedback.export()),
  "GET /v1/files": (c) => collect(c.files.list()),
  "POST /v1/files": (c) => c.files.upload(new Uint8Array([1])),
  "GET /v1/files/{id}": (c) => c.files.retrieve("f"),
  "DELETE /v1/files/{id}": (c) => c.files.delete("f", { force: true }),
  "GET /v1/fleet": (c) => c.fleet.retrieve(),
  "GET /v1/jobs": (c) => collect(c.jobs.list({ endpoint: "echo" })),
  "POST /v1/jobs": (c) => c.jobs.submit("echo", {}),
  "POST /v1/jobs/bulk": (c) => c.jobs.submitMany("echo", [{}, {}]),
  "POST /v1/jobs/cancel": (c) => c.jobs.cancelMany({ endpoint: "echo" }),
  "POST /v1/jobs/retry": (c) => c.jobs.retryMany({ endpoint: "echo" }),
  "GET /v1/jobs/{id}": (c) => c.jobs.retrieve("j"),
  "POST /v1/jobs/{id}/cancel": (c) => c.jobs.cancel("j"),
  "GET /v1/jobs/{id}/events": (c) => collect(c.events("j")),
  "POST /v1/jobs/{id}/feedback": (c) => c.jobs.feedback("j", { accepted: true }),
  "GET /v1/jobs/{id}/files/{name}": async (c) => {
    const { image } = /** @type {{ image: import("stokehold").FileRef }} */ (await c.result("j"));
    return image.bytes();
  },
  "GET /v1/jobs/{id}/result": (c) => c.result("j"),
  "POST /v1/jobs/{id}/retry": (c) => c.jobs.retry("j"),
  "GET /v1/jobs/{id}/trace": (c) => c.jobs.trace("j"),
  "GET /v1/limits": (c) => c.limits.own(),
  "GET /v1/limits/{tenant}": (c) => c.limits.retrieve("t"),
  "PUT /v1/limits/{tenant}": (c) => c.limits.replace("t", { maxOpen: 5 }),
  "GET /v1/limits/{tenant}/endpoints/{name}": (c) => c.limits.retrieveForEndpoint("t", "echo"),
  "PUT /v1/limits/{tenant}/endpoints/{name}": (c) => c.limits.replaceForEndpoint("t", "echo", { maxOpen: 5 }),
  "POST /v1/packages": (c) => c.deploy("echo", { package: new Uint8Array([1]), entry: "main.py:echo", python: "3.11" }),
  "GET /v1/quarantine": (c) => c.quarantine.retrieve(),
  "POST /v1/quarantine/discard": (c) => c.quarantine.discard(["j"]),
  "POST /v1/quarantine/readmit": (c) => c.quarantine.readmit(["j"]),
  "GET /v1/queue": (c) => c.fleet.queue(),
  "GET /v1/requirement-sets": (c) => c.requirementSets.list(),
  "DELETE /v1/requirement-sets/{id}": (c) => c.requirementSets.delete("r", { dryRun: true }),
  "GET /v1/schedules": (c) => collect(c.schedules.list()),
  "POST /v1/schedules": (c) => c.schedules.create({ cron: "* * * * *", job: { endpoint: "echo" } }),
  "GET /v1/schedules/{id}": (c) => c.schedules.retrieve("s"),
  "DELETE /v1/schedules/{id}": (c) => c.schedules.delete("s"),
  "POST /v1/schedules/{id}/pause": (c) => c.schedules.pause("s"),
  "POST /v1/schedules/{id}/resume": (c) => c.schedules.resume("s"),
  "GET /v1/secrets": (c) => c.secrets.list(),
  "POST /v1/secrets/rewrap": (c) => c.secrets.rewrap(),
  "PUT /v1/secrets/{name}": (c) => c.secrets.set("HF_TOKEN", "x"),
  "DELETE /v1/secrets/{name}": (c) => c.secrets.delete("HF_TOKEN"),
  "GET /v1/tenants": (c) => c.tenants.list(),
  "POST /v1/tenants": (c) => c.tenants.create("t"),
  "POST /v1/tenants/{tenant}/disable": (c) => c.tenants.disable("t"),
  "POST /v1/tenants/{tenant}/enable": (c) => c.tenants.enable("t"),
  "GET /v1/tokens": (c) => c.tokens.list({ tenant: "t" }),
  "POST /v1/tokens": (c) => c.tokens.create("ci", { roles: ["deploy"], ttlS: 3600 }),
  "DELETE /v1/tokens/{id}": (c) => c.tokens.revoke("k", { withWorkers: true }),
  "POST /v1/tokens/{id}/rotate": (c) => c.tokens.rotate("k", { overlapS: 60 }),
  "GET /v1/webhooks/deliveries": (c) => collect(c.webhooks.deliveries()),
  "GET /v1/webhooks/deliveries/{id}": (c) => c.webhooks.delivery("d"),
  "POST /v1/webhooks/deliveries/{id}/replay": (c) => c.webhooks.replay("d"),
  "GET /v1/webhooks/secret": (c) => c.webhooks.secret(),
  "POST /v1/webhooks/secret/rotate": (c) => c.webhooks.rotateSecret(),
  "GET /v1/workers": (c) => c.workers.list(),
  "POST /v1/workers/{id}/evict": (c) => c.workers.evict("w", { revokeJoinToken: true }),
  "GET /v1/workers/{id}/readings": (c) => c.workers.readings("w"),
};

/** Members of answers whose samples would make a call wait, or look for another page. @type {Record<string, object>} */
const MEMBERS = {
  Job: { state: "succeeded", result: null, result_url: null },
  Batch: { state: "completed" },
  BulkReply: { ids: ["a", "b"] },
  CancelledMany: { more: false },
  RetriedMany: { more: false },
};

/** A value of a schema, with every member. @param {any} schema @returns {any} */
function sample(schema) {
  const choice = schema.oneOf?.find((/** @type {any} */ one) => one.type !== "null");
  if (choice !== undefined) return sample(choice);
  if (schema.$ref !== undefined) {
    const name = schema.$ref.split("/").at(-1);
    const value = sample(DOCUMENT.components.schemas[name]);
    return name in MEMBERS ? { ...value, ...MEMBERS[name] } : value;
  }
  if (schema.enum !== undefined) return schema.enum[0];
  const kind = [schema.type ?? "object"].flat().find((one) => one !== "null");
  if (kind === "array") return [sample(schema.items)];
  if (kind === "object") {
    const members = Object.entries(schema.properties ?? {}).map(([name, one]) => [name, sample(one)]);
    const value = Object.fromEntries(members);
    return "next_cursor" in value ? { ...value, next_cursor: null } : value;
  }
  /** @type {Record<string, unknown>} */
  const plain = { string: "text", integer: 1, number: 0.5, boolean: true };
  return plain[kind];
}

/** Answers each request with a sample of what the document describes. */
class Described {
  /** @type {Set<string>} */
  called = new Set();

  /** @type {typeof globalThis.fetch} */
  fetch = async (url, init) => {
    const { pathname } = new URL(String(url));
    for (const [path, methods] of Object.entries(DOCUMENT.paths)) {
      const operation = methods[(init?.method ?? "GET").toLowerCase()];
      if (operation === undefined || !new RegExp(`^${path.replace(/\{\w+\}/g, "[^/]+")}$`).test(pathname)) continue;
      this.called.add(`${init?.method} ${path}`);
      return Described.#answer(path, operation);
    }
    return Response.json({});
  };

  /** @param {string} path @param {{ responses: Record<string, any> }} operation */
  static #answer(path, { responses }) {
    if (path === "/v1/jobs/{id}/result") {
      return Response.json({ image: { $file: "a.png", url: "/v1/jobs/j/files/a.png" } });
    }
    if (path === "/v1/jobs/{id}/events") {
      const done = JSON.stringify(sample({ $ref: "#/components/schemas/Job" }));
      return new Response(`id: 1\nevent: done\ndata: ${done}\n\n`, { headers: { "content-type": "text/event-stream" } });
    }
    const status = ["200", "201", "202", "204"].find((one) => one in responses);
    if (status === "204") return new Response(null, { status: 204 });
    const schema = responses[status ?? ""]?.content?.["application/json"]?.schema;
    return schema === undefined ? new Response('{"line": 1}\n') : Response.json(sample(schema), { status: Number(status) });
  }
}

test("every operation has a method or a reason", () => {
  const known = new Set([...Object.keys(CALLS), ...Object.keys(NO_METHOD)]);
  assert.deepEqual(OPERATIONS.filter((one) => !known.has(one)), []);
  assert.deepEqual(Object.keys(NO_METHOD).filter((one) => !OPERATIONS.includes(one)), []);
});

for (const [operation, call] of Object.entries(CALLS)) {
  test(`${operation} has a method`, async () => {
    const api = new Described();
    await call(new Stokehold({ baseUrl: "http://api.test", token: "sk_test", fetch: api.fetch, retry: { maxRetries: 0 } }));
    assert.ok(api.called.has(operation), [...api.called].join(", "));
  });
}
