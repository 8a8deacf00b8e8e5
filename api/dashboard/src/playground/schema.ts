// JSON Schemas as forms: which control a schema needs, what a new value is, and where a value does not match. Pure. The API has the last
// word: patterns and rarer keywords are checked there.

export type Schema = Record<string, unknown>;
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Kind = "text" | "integer" | "number" | "boolean" | "choice" | "file" | "array" | "object" | "union" | "null" | "json";

/** References that are followed one after another; nesting that is checked; errors that are collected; parts of a new value. */
const REFERENCES_MAX = 32;
const DEPTH_MAX = 24;
const ERRORS_MAX = 50;
const PARTS_MAX = 500;

export interface Shape { kind: Kind; schema: Schema; isNullable: boolean; members: Schema[] }

const isSchema = (value: unknown): value is Schema => typeof value === "object" && value !== null && !Array.isArray(value);
export const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
export const schemas = (value: unknown): [string, Schema][] => (isSchema(value) ? Object.entries(value).map(([name, each]) => [name, isSchema(each) ? each : {}]) : []);
export const text = (value: unknown): string => (typeof value === "string" ? value : "");
export const number = (value: unknown): number | undefined => (typeof value === "number" && Number.isFinite(value) ? value : undefined);
export const isObject = (value: unknown): value is { [key: string]: Json } => typeof value === "object" && value !== null && !Array.isArray(value);
export const equal = (one: unknown, other: unknown): boolean => JSON.stringify(one) === JSON.stringify(other);

/** A part of a JSON pointer. */
export const part = (name: string | number): string => `/${String(name).replaceAll("~", "~0").replaceAll("/", "~1")}`;

/** What was derived from the parts of a schema, by its root. A schema that refers to itself thus has a finite number of parts. */
type Memo<T> = WeakMap<Schema, WeakMap<Schema, T>>;
const resolved: Memo<Schema> = new WeakMap();
const shapes: Memo<Shape> = new WeakMap();

function once<T>(memo: Memo<T>, root: Schema, key: Schema, make: () => T): T {
  let known = memo.get(root);
  if (!known) memo.set(root, (known = new WeakMap()));
  let found = known.get(key);
  if (found === undefined) known.set(key, (found = make()));
  return found;
}

/** A schema without references: what is beside a `$ref` is added to its target. */
export function resolve(schema: unknown, root: Schema): Schema { return isSchema(schema) ? once(resolved, root, schema, () => follow(schema, root)) : {}; }

function follow(schema: Schema, root: Schema): Schema {
  let found = schema;
  for (let turn = 0; turn < REFERENCES_MAX; turn++) {
    const { $ref, allOf, ...own } = found;
    const only = list(allOf).length === 1 ? list(allOf)[0] : undefined;
    const target = typeof $ref === "string" ? at(root, $ref) : only;
    if (!isSchema(target)) return found;
    found = Object.keys(own).length === 0 ? target : { ...target, ...own };
  }
  return {};
}

/** The part of a schema at `#/a/b`. */
function at(root: Schema, reference: string): unknown {
  if (!reference.startsWith("#")) return undefined;
  let found: unknown = root;
  for (const name of reference.slice(1).split("/").slice(1)) {
    let key = name;
    try { key = decodeURIComponent(name); } catch { /* It is not encoded. */ }
    key = key.replaceAll("~1", "/").replaceAll("~0", "~");
    found = typeof found === "object" && found !== null && Object.hasOwn(found, key) ? (found as Schema)[key] : undefined;
  }
  return found;
}

/** The control that a schema needs. */
export function shape(schema: unknown, root: Schema, depth = 0): Shape {
  const own = resolve(schema, root);
  return once(shapes, root, own, () => shapeOf(own, root, depth));
}

function shapeOf(schema: Schema, root: Schema, depth: number): Shape {
  let own = schema;
  let isNullable = false;
  const all = [...list(own["anyOf"]), ...list(own["oneOf"])];
  const members = all.map((each) => resolve(each, root)).filter((each) => { const isNull = each["type"] === "null"; isNullable ||= isNull; return !isNull; });
  if (all.length > 0 && members.length === 1) {
    // A schema whose only alternative is itself accepts anything.
    if (depth >= REFERENCES_MAX) return { kind: "json", schema: {}, isNullable, members: [] };
    const { anyOf: _any, oneOf: _one, ...rest } = own;
    const only = shape(members[0], root, depth + 1);
    return { ...only, schema: { ...only.schema, ...rest }, isNullable: isNullable || only.isNullable };
  }
  if (members.length > 1) return { kind: "union", schema: own, isNullable, members };
  const types = Array.isArray(own["type"]) ? own["type"] : [own["type"]];
  isNullable ||= types.includes("null") && types.length > 1;
  const left = types.filter((type) => type !== "null" || types.length === 1);
  if (left.length > 1) return { kind: "union", schema: own, isNullable, members: left.map((type) => ({ ...own, type })) };
  own = { ...own, type: left[0] };
  const of = (kind: Kind): Shape => ({ kind, schema: own, isNullable: isNullable || list(own["enum"]).includes(null), members: [] });
  if (own["const"] !== undefined) return { ...of("choice"), schema: { ...own, enum: [own["const"]] } };
  if (Array.isArray(own["enum"])) return of("choice");
  if (own["format"] === "stokehold-file" || (isSchema(own["properties"]) && "$file" in own["properties"])) return of("file");
  switch (left[0]) {
    case "string": return of("text");
    case "integer": case "number": case "boolean": case "array": case "null": return of(left[0]);
    case "object": return of(isSchema(own["properties"]) || isSchema(own["additionalProperties"]) ? "object" : "json");
    default: return of(isSchema(own["properties"]) ? "object" : "json");
  }
}

/** The value that a new required member or item begins with; undefined where only a person can choose it. */
export function initial(schema: unknown, root: Schema): Json | undefined { return begin(schema, root, [], { count: 0 }); }

/** `within` are the shapes around this one: one that requires itself has no finite value, and gets null. `parts` counts those of the whole value. */
function begin(schema: unknown, root: Schema, within: Shape[], parts: { count: number }): Json | undefined {
  const its = shape(schema, root);
  const { kind, schema: own, isNullable, members } = its;
  // A default of null means that there is no value; a new one is wanted.
  if (own["default"] !== undefined && (own["default"] !== null || within.length > 0)) return own["default"] as Json;
  if (isNullable && within.length > 0) return null;
  if (within.length > DEPTH_MAX || within.includes(its) || parts.count >= PARTS_MAX) return null;
  parts.count += 1;
  const below = (each: unknown) => begin(each, root, [...within, its], parts);
  switch (kind) {
    case "boolean": return false;
    case "null": return null;
    case "choice": return list(own["enum"])[0] as Json;
    case "array": {
      const tuple = list(own["prefixItems"]);
      return Array.from({ length: Math.min(number(own["minItems"]) ?? 0, 16) }, (_, n) => below(tuple[n] ?? own["items"]) ?? null);
    }
    case "object": return Object.fromEntries(list(own["required"]).map(text).flatMap((name) => {
      const value = below(at(own, `#/properties${part(name)}`));
      return value === undefined ? [] : [[name, value]];
    }));
    case "union": return below(members[0]);
    default: return undefined;
  }
}

export interface Misfit { path: string; message: string }

/** The places where a value does not match a schema, at most fifty. */
export function check(value: unknown, schema: unknown, root: Schema): Misfit[] { return misfitsOf(value, schema, { root, known: new Map() }, 0); }

/** `known`: what was found so far, by shape and value. Each alternative of a union looks at the parts of the same value. */
interface Check { root: Schema; known: Map<Shape, Map<unknown, Misfit[]>> }

/** The paths begin at the value. */
function misfitsOf(value: unknown, schema: unknown, within: Check, depth: number): Misfit[] {
  if (depth > DEPTH_MAX) return [];
  const its = shape(schema, within.root);
  let known = within.known.get(its);
  if (!known) within.known.set(its, (known = new Map<unknown, Misfit[]>()));
  const before = known.get(value);
  if (before) return before;
  // The result for a union that is its own alternative, until it is known.
  known.set(value, [{ path: "", message: "matches none of the alternatives" }]);
  const found: Misfit[] = [];
  walk(value, its, within, found, depth);
  known.set(value, found.slice(0, ERRORS_MAX));
  return found.slice(0, ERRORS_MAX);
}

function walk(value: unknown, { kind, schema: own, isNullable, members }: Shape, within: Check, found: Misfit[], depth: number): void {
  const wrong = (message: string, path = "") => { found.push({ path, message }); };
  const inside = (name: string | number, each: unknown, its: unknown) => { if (found.length < ERRORS_MAX) found.push(...misfitsOf(each, its, within, depth + 1).map(({ path, message }) => ({ path: part(name) + path, message }))); };
  if (value === null && (isNullable || kind === "null" || kind === "json")) return;
  switch (kind) {
    case "text": {
      if (typeof value !== "string") return wrong("must be text");
      const [least, most] = [number(own["minLength"]), number(own["maxLength"])];
      const length = [...value].length;
      if (least !== undefined && length < least) wrong(length === 0 && least === 1 ? "is required" : `must have at least ${least} characters, not ${length}`);
      if (most !== undefined && length > most) wrong(`must have at most ${most} characters, not ${length}`);
      return;
    }
    case "integer": case "number": return ((typeof value === "number" && Number.isFinite(value)) || wrong("must be a number")) && amount(value as number, kind, own, wrong);
    case "boolean": if (typeof value !== "boolean") wrong("must be true or false"); return;
    case "choice": if (!list(own["enum"]).some((each) => equal(each, value))) wrong(`must be one of ${list(own["enum"]).slice(0, 12).map((each) => JSON.stringify(each)).join(", ")}`); return;
    case "file": if (!isObject(value) || typeof value["$file"] !== "string" || value["$file"] === "") wrong("choose a file"); return;
    case "array": {
      if (!Array.isArray(value)) return wrong("must be a list");
      const [least, most] = [number(own["minItems"]), number(own["maxItems"])];
      if (least !== undefined && value.length < least) wrong(`must have at least ${least} items, not ${value.length}`);
      if (most !== undefined && value.length > most) wrong(`must have at most ${most} items, not ${value.length}`);
      const tuple = list(own["prefixItems"]);
      value.forEach((item, n) => inside(n, item, tuple[n] ?? own["items"]));
      return;
    }
    case "object": {
      if (!isObject(value)) return wrong("must be an object");
      const known = new Map(schemas(own["properties"]));
      for (const name of list(own["required"]).map(text)) if (!Object.hasOwn(value, name)) wrong("is required", part(name));
      for (const [name, each] of Object.entries(value)) {
        const its = known.get(name) ?? own["additionalProperties"];
        if (its === false) wrong("is not an input of this version", part(name));
        else inside(name, each, its);
      }
      return;
    }
    case "union": {
      const each = members.map((member) => misfitsOf(value, member, within, depth + 1));
      if (each.some((inner) => inner.length === 0)) return;
      // The errors of the member that the value comes closest to.
      const close = each.filter((inner) => inner.every((misfit) => misfit.path !== "")).sort((one, other) => one.length - other.length)[0];
      if (close) found.push(...close); else wrong("matches none of the alternatives");
      return;
    }
    case "null": wrong("must be null"); return;
    default: if (own["type"] === "object" && !isObject(value)) wrong("must be an object");
  }
}

function amount(value: number, kind: "integer" | "number", own: Schema, wrong: (message: string) => void): void {
  if (kind === "integer" && !Number.isInteger(value)) return wrong("must be a whole number");
  const of = (key: string) => number(own[key]);
  const [least, most, above, below, step] = [of("minimum"), of("maximum"), of("exclusiveMinimum"), of("exclusiveMaximum"), of("multipleOf")];
  if (least !== undefined && value < least) wrong(`must be at least ${least}`);
  if (most !== undefined && value > most) wrong(`must be at most ${most}`);
  if (above !== undefined && value <= above) wrong(`must be more than ${above}`);
  if (below !== undefined && value >= below) wrong(`must be less than ${below}`);
  if (step !== undefined && step > 0 && Math.abs(value / step - Math.round(value / step)) > 1e-9) wrong(`must be a multiple of ${step}`);
}

/** A union's member that a value belongs to: the first that it matches, else the one whose type it has. */
export function memberOf(value: unknown, members: Schema[], root: Schema): number {
  const fits = members.findIndex((member) => check(value, member, root).length === 0);
  if (fits >= 0) return fits;
  const kinds: Partial<Record<string, Kind[]>> = { string: ["text"], number: ["integer", "number"], boolean: ["boolean"], object: Array.isArray(value) ? ["array"] : ["object", "file"] };
  return Math.max(0, members.findIndex((member) => kinds[typeof value]?.includes(shape(member, root).kind)));
}

/** A short name of what a schema accepts. */
export function named(schema: unknown, root: Schema): string {
  const { kind, schema: own } = shape(schema, root);
  return text(own["title"]) || { text: "text", integer: "whole number", number: "number", boolean: "yes or no", choice: "choice", file: "file", array: "list", object: "fields", union: "one of several", null: "nothing", json: "JSON" }[kind];
}

/** The bounds that are shown beside a control. */
export function bounds({ kind, schema: own }: Shape): string {
  const of = (key: string) => number(own[key]);
  if (kind === "integer" || kind === "number") {
    const [least, most, above, below] = [of("minimum"), of("maximum"), of("exclusiveMinimum"), of("exclusiveMaximum")];
    if (least !== undefined && most !== undefined) return `${least} to ${most}`;
    return [least !== undefined && `at least ${least}`, most !== undefined && `at most ${most}`, above !== undefined && `more than ${above}`, below !== undefined && `less than ${below}`].filter(Boolean).join(", ");
  }
  const [least, most] = kind === "array" ? [of("minItems"), of("maxItems")] : kind === "text" ? [of("minLength"), of("maxLength")] : [undefined, undefined];
  const unit = kind === "array" ? "items" : "characters";
  if (least !== undefined && most !== undefined) return least === most ? `${least} ${unit}` : `${least} to ${most} ${unit}`;
  return most !== undefined ? `at most ${most} ${unit}` : least !== undefined && least > 1 ? `at least ${least} ${unit}` : "";
}
