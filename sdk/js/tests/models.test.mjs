// Every member of the API's objects and requests is in the types that the package exports.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

/** @param {string} path */
const text = (path) => readFileSync(fileURLToPath(new URL(path, import.meta.url)), "utf8");

/** @type {Record<string, { properties?: Record<string, unknown>, oneOf?: { properties: Record<string, unknown> }[] }>} */
const SCHEMAS = JSON.parse(text("../../../api/openapi.json")).components.schemas;
/** @type {Record<string, Record<string, { responses?: Record<string, unknown> }>>} */
const PATHS = JSON.parse(text("../../../api/openapi.json")).paths;

/** The objects that responses consist of, and their types. */
const OBJECTS = {
  Job: "JobRecord", Attempt: "Attempt", Timing: "Timing", JobError: "Failure", Progress: "Progress", JobCost: "JobCost",
  Waiting: "Waiting", Dependency: "JobDependency", StepRun: "JobStep", Retried: "RetriedJob", Batch: "Batch",
  BatchCounts: "BatchCounts", BatchLineError: "InvalidLine", Estimate: "BatchEstimate", Schedule: "Schedule",
  EndpointVersion: "Endpoint", Step: "EndpointStep", RetryPolicy: "EndpointRetry", Requirements: "EndpointRequirements",
  Runner: "EndpointRunner", Weight: "EndpointWeight", WebhookSecret: "WebhookSecret", WebhookDelivery: "Delivery",
  WebhookTry: "DeliveryTry", Feedback: "Feedback", FeedbackLine: "FeedbackExample", VersionFeedback: "FeedbackStats",
  OwnLimits: "OwnLimits", LimitsOf: "EndpointLimits", LimitsShown: "TenantLimits", Limits: "TenantLimits",
  Usage: "Usage", BudgetOfDay: "BudgetUsage", Actor: "Actor", Change: "Change", ChangeList: "ChangeList",
  Tenant: "Tenant", Token: "Token", NewToken: "NewToken", Secret: "Secret", Rewrapped: "Rewrapped",
  TokenUsage: "TokenUsage", HostedCost: "HostedCost", Savings: "Savings", CostRow: "CostRow", Costs: "Costs", Decision: "FleetDecision",
  Notice: "FleetNotice", Machine: "Machine", Fleet: "Fleet", WaitingByPriority: "WaitingByPriority", Lane: "Lane",
  GpuReading: "GpuReading", Reading: "Reading", Evicted: "Evicted", Memory: "RedisMemory", Admission: "Admission",
  Health: "Health", QuarantinedJob: "QuarantinedJob", Quarantine: "Quarantine", Need: "Need",
  QuarantineOutcome: "QuarantineOutcome", Quantiles: "Quantiles", TimingStats: "TimingStats",
  VersionStats: "VersionStats", BatchEstimate: "LinesEstimate", Trace: "Trace", Host: "WorkerHost",
  ModelOnGpu: "ModelOnGpu", Model: "LoadedModel", Gpu: "WorkerGpu", Worker: "Worker",
  Deletion: "Deletion", Dependent: "Dependent", RequirementSet: "RequirementSet",
  FileSummary: "FileSummary",
};

/** Answers whose only member the client returns, or that are pages of a list. */
const WRAPPERS = [
  "BatchList", "BulkReply", "CancelledMany", "DeadLetters", "DeliveryList", "EndpointList",
  "EndpointStats", "FeedbackSummary", "FileList", "ForgottenNeeds", "JobList", "Needs", "QuarantineOutcomes", "QueueView",
  "ReadingList", "RequirementSetList", "RetriedMany", "ScheduleList", "SecretList", "TenantList", "TokenList",
  "Traffic", "TrafficPart", "VersionList", "WorkerList",
];
/** What uploads, a deploy and the stream of events decode by hand. */
const BY_HAND = ["File", "FileUpload", "PackageReply", "StreamEvent"];
/** What the dashboard, load balancers and a deploy from a folder read. */
const OTHERS = ["LiveEvent", "Ready", "Series", "SeriesPoint", "Session", "WeightsReply", "WeightsUrl"];

/** The requests, the types of their options, and the members that are arguments or options of a call. */
const REQUESTS = {
  SubmitRequest: { type: "JobOptions", others: ["endpoint", "input", "run_after", "depends_on", "idempotency_key"] },
  JobFilter: { type: "JobFilter", others: [] },
  BatchRequest: { type: "BatchOptions", others: ["lines", "input_file", "input_key", "idempotency_key"] },
  ScheduleRequest: { type: "ScheduleTiming", others: ["job"] },
  FeedbackRequest: { type: "Rating", others: [] },
  Limits: { type: "TenantLimitsOptions", others: [] },
  DeployRequest: { type: "DeployOptions", others: ["name", "package_sha256", "package_size_bytes"] },
};

const DECLARED = readdirSync(fileURLToPath(new URL("../dist/esm/generated/", import.meta.url)))
  .filter((name) => name.endsWith(".d.ts"))
  .map((name) => text(`../dist/esm/generated/${name}`))
  .join("\n");

/** @param {string} type */
function members(type) {
  const found = new RegExp(`^export interface ${type} \\{\\n([\\s\\S]*?)^\\}`, "m").exec(DECLARED);
  assert.ok(found?.[1], `${type} is not declared`);
  return new Set([...found[1].matchAll(/^ {4}(\w+)\??:/gm)].map((member) => member[1]));
}

/** @param {string} schema */
function properties(schema) {
  const { properties = {}, oneOf = [] } = SCHEMAS[schema] ?? {};
  return Object.keys(Object.assign({}, properties, ...oneOf.map((kind) => kind.properties)));
}

/** @param {string} name */
const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());

for (const [schema, type] of Object.entries(OBJECTS)) {
  test(`${type} has every member of ${schema}`, () => {
    const has = members(type);
    assert.ok(properties(schema).length > 0);
    assert.deepEqual(properties(schema).filter((name) => !has.has(name)), []);
  });
}

for (const [schema, { type, others }] of Object.entries(REQUESTS)) {
  test(`${type} has every option of ${schema}`, () => {
    const has = members(type);
    const missing = properties(schema).filter((name) => !has.has(camel(name)));
    assert.deepEqual(missing.sort(), [...others].sort());
  });
}

test("every object that the API answers has a type", () => {
  /** @param {unknown} part */
  const refs = (part) => [...JSON.stringify(part).matchAll(/#\/components\/schemas\/(\w+)/g)].map(([, ref = ""]) => ref);
  const answers = Object.values(PATHS).flatMap((methods) => Object.values(methods).map((one) => one.responses ?? {}));
  const good = answers.map((one) => Object.entries(one).filter(([status]) => status.startsWith("2")));
  const seen = new Set(refs(good));
  for (const schema of seen) for (const ref of refs(SCHEMAS[schema])) seen.add(ref);
  const known = new Set([...Object.keys(OBJECTS), ...WRAPPERS, ...BY_HAND, ...OTHERS]);
  assert.deepEqual([...seen].filter((ref) => !known.has(ref) && !("enum" in (SCHEMAS[ref] ?? {}))), []);
});

test("every object that a member refers to is one of these", () => {
  const known = new Set(Object.keys(OBJECTS));
  for (const schema of known) {
    if (!(schema in SCHEMAS)) continue;
    for (const [, ref = ""] of JSON.stringify(SCHEMAS[schema]).matchAll(/#\/components\/schemas\/(\w+)/g)) {
      assert.ok(known.has(ref) || "enum" in (SCHEMAS[ref] ?? {}), `${schema} refers to ${ref}, which has no type`);
    }
  }
});

test("every generated type is exported", () => {
  const modules = readdirSync(fileURLToPath(new URL("../src/generated/", import.meta.url)));
  const expected = modules.filter((name) => name !== "values.ts").map((name) => name.replace(".ts", ".js"));
  const exported = [...text("../src/index.ts").matchAll(/^export type \* from "\.\/generated\/(.*)";$/gm)];
  assert.deepEqual(exported.map((found) => found[1]), expected.sort());
});
