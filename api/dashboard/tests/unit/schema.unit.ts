import { expect, test } from "@playwright/test";
import { check, initial, type Json, memberOf, type Schema, shape } from "../../src/playground/schema";

test("a schema whose only alternative is itself accepts anything", () => {
  const root: Schema = { $defs: { A: { anyOf: [{ $ref: "#/$defs/A" }, { type: "null" }] }, B: { $ref: "#/$defs/B" } } };
  expect(shape({ $ref: "#/$defs/A" }, root)).toMatchObject({ kind: "json", isNullable: true });
  expect(check({ a: 1 }, { $ref: "#/$defs/A" }, root)).toEqual([]);
  expect(shape({ $ref: "#/$defs/B" }, root).kind).toBe("json");
});

test("a union that has itself as an alternative accepts what the others do", () => {
  const root: Schema = { $defs: { A: { anyOf: [{ $ref: "#/$defs/A" }, { type: "string" }, { type: "object", properties: { a: { $ref: "#/$defs/A" } } }] } } };
  const its = { $ref: "#/$defs/A" };
  expect([check("text", its, root), check({ a: { a: "text" } }, its, root)]).toEqual([[], []]);
  expect(check({ a: { a: 1 } }, its, root)).not.toEqual([]);
});

test("a new value of a schema that requires itself is bounded", () => {
  const names = ["a", "b", "c", "d"];
  const self: Schema = { type: "object", required: names, properties: Object.fromEntries(names.map((name) => [name, { $ref: "#" }])) };
  expect(JSON.stringify(initial(self, self)).length).toBeLessThan(20_000);
  // Sixteen items of each of twenty nested lists.
  const nested = Array.from({ length: 20 }).reduce<Schema>((items) => ({ type: "array", minItems: 16, items }), { type: "boolean" });
  expect(JSON.stringify(initial(nested, nested)).length).toBeLessThan(20_000);
});

test("a new value has what is required, down to optional parts that refer to the schema again", () => {
  const root: Schema = { type: "object", required: ["flag", "next"], properties: { flag: { type: "boolean" }, next: { anyOf: [{ $ref: "#" }, { type: "null" }], default: null }, other: { type: "string" } } };
  expect(initial(root, root)).toEqual({ flag: false, next: null });
  // A value for the nullable part itself is not null.
  expect(initial({ anyOf: [{ $ref: "#" }, { type: "null" }], default: null }, root)).toEqual({ flag: false, next: null });
});

test("alternatives that nest look at each part of a value once", () => {
  const kinds = ["sum", "product", "power", "root", "log", "mean"];
  const alternatives = kinds.map((kind) => ({ type: "object", required: ["kind", "of"], properties: { kind: { const: kind }, of: { $ref: "#/$defs/Term" } } }));
  const root: Schema = { $defs: { Term: { anyOf: [...alternatives, { type: "object", required: ["value"], properties: { value: { type: "number" } } }] } } };
  let reads = 0;
  const leaf = Object.defineProperty({}, "value", { enumerable: true, get: () => { reads += 1; return "not a number"; } }) as Json;
  const value = Array.from({ length: 9 }).reduce<Json>((of) => ({ kind: "mean", of }), leaf);
  const misfits = check(value, { $ref: "#/$defs/Term" }, root);
  expect(misfits.map(({ path }) => path)).toContain(`${"/of".repeat(9)}/value`);
  // Once for each alternative: without a memory, six times as often with each level, ten million times in all.
  expect(reads).toBeLessThanOrEqual(alternatives.length + 1);
  expect(memberOf(value, shape({ $ref: "#/$defs/Term" }, root).members, root)).toBe(0);
});

test("the path of what does not match begins at the value", () => {
  const root: Schema = { type: "object", properties: { "a/b": { type: "array", items: { type: "integer", minimum: 1 } } }, additionalProperties: false };
  expect(check({ "a/b": [1, 0, "x"], c: 1 }, root, root)).toEqual([
    { path: "/a~1b/1", message: "must be at least 1" },
    { path: "/a~1b/2", message: "must be a number" },
    { path: "/c", message: "is not an input of this version" },
  ]);
  expect(check({ "a/b": Array.from({ length: 1000 }, () => 0) }, root, root)).toHaveLength(50);
});
