// A form for a JSON Schema: a control for each input, with its description, its bounds and what is wrong with it beside it.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { FileField } from "./file";
import { bounds, check, equal, initial, isObject, type Json, list, memberOf, type Misfit, named, number, part, type Schema, schemas, type Shape, shape, text } from "./schema";

/** Items of a list and members of an object that are drawn; more are edited as JSON. */
const ROWS_MAX = 100;
const DEPTH_MAX = 12;
const RANGE_STEPS_MAX = 10_000;

/** `isUnset`: the object around this one has no value yet. */
interface Common { root: Schema; misfits: Misfit[]; isOff: boolean; depth: number; tag?: string; isUnset?: boolean }
interface FieldProps extends Common { path: string; name: string; schema: unknown; value: Json | undefined; isRequired: boolean; change: (value: Json | undefined) => void; remove?: (() => void) | undefined }

/** The id of the control at a JSON pointer; `tag` is that of a union's member. A group has another one. */
export const idOf = (path: string, tag = ""): string => `input${path.replace(/[^\w]/g, (each) => `-${each.charCodeAt(0)}`)}${tag}`;
export const groupOf = (id: string): string => `${id}-group`;

/** The message for a control: its own, and those of parts that have no control. */
function messageAt(misfits: Misfit[], path: string): string { return misfits.filter((misfit) => misfit.path === path).map((misfit) => misfit.message).join("; "); }

function Row({ props, its, children, isGroup = false }: { props: FieldProps; its: Shape; children: ComponentChildren; isGroup?: boolean }) {
  const { path, name, isRequired, remove, misfits, isOff, tag } = props;
  const id = idOf(path, tag);
  const message = messageAt(misfits, path);
  const title = text(its.schema["title"]);
  const about = [bounds(its), its.schema["default"] != null && its.schema["default"] !== "" ? `default ${(typeof its.schema["default"] === "string" ? its.schema["default"] : JSON.stringify(its.schema["default"])).slice(0, 60)}` : "", !isRequired && its.schema["default"] == null ? "optional" : ""].filter(Boolean).join(" · ");
  const heading = <><span class="name">{name}</span>{isRequired && !remove && <span class="bad" aria-hidden="true" title="required"> *</span>} {title && title.toLowerCase() !== name.toLowerCase().replaceAll("_", " ") && <span class="quiet">{title}</span>} <span class="quiet about">{about}</span></>;
  const help = text(its.schema["description"]);
  const off = remove && <button type="button" class="small" disabled={isOff} aria-label={`Remove ${name}`} onClick={remove}>✕</button>;
  const notes = <>{help && <p class="help" id={`${id}-help`}>{help}</p>}{message && <p class="wrong" id={`${id}-wrong`}>{message}</p>}</>;
  if (isGroup) return <fieldset id={groupOf(id)} tabIndex={-1} class={message ? "field invalid" : "field"}><legend>{heading}{off}</legend>{notes}{children}</fieldset>;
  return <div class={message ? "field invalid" : "field"}><div class="top"><label for={id}>{heading}</label>{off}</div>{children}{notes}</div>;
}

/** What every control carries: its id, and where its help and its error are. */
function control({ path, isOff, misfits, isRequired, tag }: FieldProps, its: Shape) {
  const id = idOf(path, tag);
  const wrong = messageAt(misfits, path) !== "";
  const described = [text(its.schema["description"]) && `${id}-help`, wrong && `${id}-wrong`].filter(Boolean).join(" ");
  return { id, disabled: isOff, "aria-required": isRequired, "aria-invalid": wrong, "aria-describedby": described || undefined };
}

/** The value of a control that was emptied. */
function emptied({ isRequired }: FieldProps, its: Shape): Json | undefined {
  const { default: preset } = its.schema;
  if (its.isNullable && (isRequired || (preset !== undefined && preset !== null))) return null;
  return undefined;
}

function TextField({ props, its }: { props: FieldProps; its: Shape }) {
  const { value, change, remove } = props;
  const { schema } = its;
  const shown = typeof value === "string" ? value : value === undefined ? text(schema["default"]) : "";
  // An empty text is a value where leaving it out would mean another one.
  const set = (next: string) => change(next !== "" ? next : its.isNullable ? emptied(props, its) : remove || text(schema["default"]) !== "" ? "" : undefined);
  const common = { ...control(props, its), value: shown, spellcheck: false, onInput: (event: { currentTarget: HTMLInputElement }) => set(event.currentTarget.value) };
  const format = text(schema["format"]);
  if (format === "date") return <input {...common} type="date" />;
  if (format === "password") return <input {...common} type="password" autocomplete="off" />;
  if (format !== "" || schema["pattern"] !== undefined) return <input {...common} type="text" inputMode={format === "email" ? "email" : format === "uri" ? "url" : "text"} />;
  const isLong = (number(schema["maxLength"]) ?? 0) > 200 || /prompt|text|content|message|body|code|script|lyrics|document/i.test(props.name);
  return <textarea {...control(props, its)} class="grows" rows={isLong ? 3 : 1} value={shown} onInput={(event) => set(event.currentTarget.value)} />;
}

function NumberField({ props, its }: { props: FieldProps; its: Shape }) {
  const { value, change } = props;
  const { schema, kind } = its;
  const [least, most] = [number(schema["minimum"]), number(schema["maximum"])];
  const preset = number(schema["default"]);
  const shown = typeof value === "number" ? value : value === undefined ? preset : undefined;
  const step = number(schema["multipleOf"]) ?? (kind === "integer" ? 1 : undefined);
  const set = (typed: string, isBad: boolean) => change(typed === "" && !isBad ? emptied(props, its) : Number.isFinite(Number(typed)) && !isBad ? Number(typed) : typed);
  const span = least !== undefined && most !== undefined && most > least ? most - least : undefined;
  const stride = step ?? (span === undefined ? 1 : span <= 2 ? 0.01 : span <= 20 ? 0.1 : 1);
  return (
    <div class="number">
      {span !== undefined && span / stride <= RANGE_STEPS_MAX && <input type="range" aria-label={`${props.name}, slider`} disabled={props.isOff} min={least} max={most} step={stride} value={shown ?? least} onInput={(event) => change(Number(event.currentTarget.value))} />}
      <input {...control(props, its)} type="number" inputMode={kind === "integer" ? "numeric" : "decimal"} min={least} max={most} step={step ?? "any"} value={shown ?? (typeof value === "string" ? value : "")} onInput={(event) => set(event.currentTarget.value, event.currentTarget.validity.badInput)} />
    </div>
  );
}

function ChoiceField({ props, its }: { props: FieldProps; its: Shape }) {
  const { value, change, isRequired } = props;
  const choices = list(its.schema["enum"]) as Json[];
  const now = value === undefined ? its.schema["default"] : value;
  const at = choices.findIndex((each) => equal(each, now));
  const label = (each: Json) => (each === null ? "none" : typeof each === "string" ? each : JSON.stringify(each));
  return (
    <select {...control(props, its)} value={String(at)} onChange={(event) => change(choices[Number(event.currentTarget.value)])}>
      {(at < 0 || (!isRequired && its.schema["default"] === undefined)) && <option value="-1">{isRequired ? "Choose" : "Not set"}</option>}
      {choices.map((each, n) => <option key={n} value={String(n)}>{label(each)}</option>)}
    </select>
  );
}

function BooleanField({ props, its }: { props: FieldProps; its: Shape }) {
  const { value, change, isRequired } = props;
  if (its.isNullable || (!isRequired && its.schema["default"] === undefined)) {
    const words = ["", "true", "false"];
    return <select {...control(props, its)} value={words.find((each) => each === String(value)) ?? ""} onChange={(event) => change(event.currentTarget.value === "" ? emptied(props, its) : event.currentTarget.value === "true")}><option value="">Not set</option><option value="true">Yes</option><option value="false">No</option></select>;
  }
  const { "aria-required": _required, ...rest } = control(props, its);
  return <label class="check"><input {...rest} type="checkbox" checked={(value === undefined ? its.schema["default"] : value) === true} onChange={(event) => change(event.currentTarget.checked)} /> <span aria-hidden="true">{(value === undefined ? its.schema["default"] : value) === true ? "yes" : "no"}</span></label>;
}

/** A part that has no control of its own, as JSON. */
function JsonField({ props, its }: { props: FieldProps; its: Shape }) {
  const { value, change } = props;
  const [typed, setTyped] = useState<string | null>(null);
  const [wrong, setWrong] = useState(false);
  const shown = value === undefined ? (its.schema["default"] === undefined ? "" : JSON.stringify(its.schema["default"], null, 2)) : JSON.stringify(value, null, 2);
  const set = (next: string) => {
    setTyped(next);
    if (next.trim() === "") { setWrong(false); change(emptied(props, its)); return; }
    try { change(JSON.parse(next) as Json); setWrong(false); } catch { setWrong(true); }
  };
  return <><textarea {...control(props, its)} class="mono grows" rows={3} spellcheck={false} value={typed ?? shown} placeholder="JSON" onInput={(event) => set(event.currentTarget.value)} onBlur={() => { if (!wrong) setTyped(null); }} />{wrong && <p class="wrong">is not JSON yet; the input keeps its last valid value</p>}</>;
}

function ListField({ props, its }: { props: FieldProps; its: Shape }) {
  const { root, path, change, isOff, depth } = props;
  const value = Array.isArray(props.value) ? props.value : props.value === undefined && Array.isArray(its.schema["default"]) ? (its.schema["default"] as Json[]) : [];
  const tuple = list(its.schema["prefixItems"]);
  const most = number(its.schema["maxItems"]) ?? ROWS_MAX;
  const of = (n: number) => tuple[n] ?? its.schema["items"];
  const set = (n: number, next: Json | undefined) => change(value.map((each, at) => (at === n ? (next ?? null) : each)));
  const add = () => change([...value, initial(of(value.length), root) ?? (shape(of(value.length), root).kind === "file" ? { $file: "" } : shape(of(value.length), root).kind === "text" ? "" : null)]);
  if (value.length > ROWS_MAX) return <JsonField props={props} its={its} />;
  return (
    <>
      {value.map((each, n) => <Field key={n} {...props} tag="" depth={depth + 1} path={path + part(n)} name={String(n + 1)} schema={of(n)} value={each} isRequired change={(next) => set(n, next)} remove={tuple.length > n ? undefined : () => change(value.filter((_, at) => at !== n))} />)}
      {value.length < most && !(tuple.length > 0 && value.length >= tuple.length) && <button type="button" disabled={isOff} onClick={add}>Add {value.length === 0 ? "an item" : "another"}</button>}
    </>
  );
}

/** Members of any name. */
function Others({ props, its, known }: { props: FieldProps; its: Shape; known: string[] }) {
  const { root, path, change, isOff, depth } = props;
  const [name, setName] = useState("");
  const value = isObject(props.value) ? props.value : {};
  const others = Object.keys(value).filter((each) => !known.includes(each)).slice(0, ROWS_MAX);
  const schema = its.schema["additionalProperties"];
  const add = () => { if (name !== "" && !Object.hasOwn(value, name)) { change({ ...value, [name]: initial(schema, root) ?? "" }); setName(""); } };
  return (
    <>
      {others.map((each) => <Field key={each} {...props} tag="" depth={depth + 1} path={path + part(each)} name={each} schema={schema} value={value[each]} isRequired change={(next) => change({ ...value, [each]: next ?? null })} remove={() => { const { [each]: _gone, ...rest } = value; change(rest); }} />)}
      <div class="row"><input aria-label={`Name of a new member of ${props.name}`} placeholder="name" value={name} disabled={isOff} onInput={(event) => setName(event.currentTarget.value)} /><button type="button" disabled={isOff || name === ""} onClick={add}>Add</button></div>
    </>
  );
}

/** The members of an object, in the order of `x-order`: a list of names, or, as Cog writes it, a number for each. Without one, those that are
 * required come first. */
function Members({ props, its }: { props: FieldProps; its: Shape }) {
  const { path, change, depth } = props;
  const value = isObject(props.value) ? props.value : props.value === undefined && isObject(its.schema["default"]) ? its.schema["default"] : {};
  const required = list(its.schema["required"]);
  const names = list(its.schema["x-order"]);
  const rank = (name: string, among: unknown[], other: number) => (among.includes(name) ? among.indexOf(name) : other);
  const order = ([name, schema]: [string, Schema]) => number(schema["x-order"]) ?? rank(name, names, ROWS_MAX + rank(name, required, ROWS_MAX));
  const members = schemas(its.schema["properties"]).slice(0, ROWS_MAX);
  members.sort((one, other) => order(one) - order(other));
  const set = (name: string, next: Json | undefined) => { const { [name]: _before, ...rest } = value; change(next === undefined ? rest : Object.hasOwn(value, name) ? { ...value, [name]: next } : { ...rest, [name]: next }); };
  return (
    <>
      {members.map(([name, schema]) => {
        const its = Object.hasOwn(value, name) ? value[name] : undefined;
        const isRequired = required.includes(name);
        const remove = !isRequired && its !== undefined && isFolded(shape(schema, props.root)) ? () => set(name, undefined) : undefined;
        return <Field key={name} root={props.root} misfits={props.misfits} isOff={props.isOff} isUnset={depth > 0 && props.value === undefined} depth={depth + 1} path={path + part(name)} name={name} schema={schema} value={its} isRequired={isRequired} change={(next) => set(name, next)} remove={remove} />;
      })}
      {isObject(its.schema["additionalProperties"]) && <Others props={{ ...props, value }} its={its} known={members.map(([name]) => name)} />}
    </>
  );
}

function UnionField({ props, its }: { props: FieldProps; its: Shape }) {
  const { value, root, change, isOff } = props;
  const now = value === undefined ? its.schema["default"] : value;
  const [chosen, setChosen] = useState<number | null>(null);
  const matching = memberOf(now, its.members, root);
  const at = chosen !== null && (now === undefined || now === null || check(now, its.members[chosen], root).length === 0 || check(now, its.members[matching], root).length > 0) ? chosen : matching;
  const pick = (n: number) => { setChosen(n); change(initial(its.members[n], root)); };
  return (
    <>
      <select aria-label={`Kind of ${props.name}`} disabled={isOff} value={String(at)} onChange={(event) => pick(Number(event.currentTarget.value))}>{its.members.map((member, n) => <option key={n} value={String(n)}>{named(member, root)}</option>)}</select>
      <Field key={at} {...props} tag={`${props.tag ?? ""}-in`} misfits={props.misfits.filter((misfit) => misfit.path !== props.path)} depth={props.depth + 1} name={named(its.members[at], root)} schema={its.members[at]} isRequired={props.isRequired && !its.isNullable} remove={undefined} />
    </>
  );
}

/** Whether an unset value within an unset one is drawn as a button, which adds it. */
const isFolded = ({ kind }: Shape): boolean => kind === "object" || kind === "union";

export function Field(props: FieldProps) {
  const its = shape(props.schema, props.root);
  const plain = (children: ComponentChildren) => <Row props={props} its={its}>{children}</Row>;
  const group = (children: ComponentChildren) => <Row props={props} its={its} isGroup>{children}</Row>;
  if (props.depth > DEPTH_MAX) return plain(<JsonField props={props} its={its} />);
  // A schema that refers to itself would fill the page with controls.
  if (props.isUnset && props.value === undefined && isFolded(its)) return group(<button type="button" disabled={props.isOff} onClick={() => props.change(initial(props.schema, props.root) ?? {})}>Add {props.name}</button>);
  switch (its.kind) {
    case "text": return plain(<TextField props={props} its={its} />);
    case "integer": case "number": return plain(<NumberField props={props} its={its} />);
    case "boolean": return plain(<BooleanField props={props} its={its} />);
    case "choice": return plain(<ChoiceField props={props} its={its} />);
    case "file": return plain(<FileField control={control(props, its)} name={props.name} value={props.value} change={(next) => props.change(next === undefined ? (props.remove ? { $file: "" } : emptied(props, its)) : next)} />);
    case "array": return group(<ListField props={props} its={its} />);
    case "object": return group(<Members props={props} its={its} />);
    case "union": return group(<UnionField props={props} its={its} />);
    case "null": return plain(<input {...control(props, its)} value="null" readOnly />);
    default: return plain(<JsonField props={props} its={its} />);
  }
}

/** The inputs of a version. An input that is not an object is one field. */
export function Form({ schema, value, misfits, isOff, change }: { schema: Schema; value: Json | undefined; misfits: Misfit[]; isOff: boolean; change: (value: Json | undefined) => void }) {
  const its = shape(schema, schema);
  const props: FieldProps = { root: schema, misfits, isOff, depth: 0, path: "", name: "input", schema, value, isRequired: true, change };
  if (its.kind !== "object") return <Field {...props} />;
  if (schemas(its.schema["properties"]).length === 0 && !isObject(its.schema["additionalProperties"])) return <p class="quiet">This version has no inputs.</p>;
  return <Members props={props} its={its} />;
}
