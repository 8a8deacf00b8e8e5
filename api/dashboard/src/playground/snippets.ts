// The call that the form makes, in Python, JavaScript, curl and as a command. Pure. None contains a token: each reads STOKE_TOKEN.
import type { Json } from "./schema";

export interface SnippetFile { id: string; name: string; type: string }
/** `savesFiles`: whether the result has files, which the call then saves to the folder `results`. */
export interface Call { url: string; endpoint: string; version: number | null; input: Json; files: (id: string) => SnippetFile | undefined; savesFiles: boolean }
export const LANGUAGES = [["python", "Python"], ["javascript", "JavaScript"], ["curl", "curl"], ["cli", "CLI"]] as const;
export type Language = (typeof LANGUAGES)[number][0];

/** Code in the place of a value. */
class Code { constructor(readonly text: string) {} }
type Tree = Code | null | boolean | number | string | Tree[] | Map<string, Tree>;

/** A word of a shell: in single quotes, which leave everything as it is. zsh expands a leading `=`. */
export const word = (text: string): string => (/^[\w@%+:,./-][\w@%+=:,./-]*$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

/** An option and its value. A value with a leading `-`, e.g. a negative number, would be read as another option. */
const option = (name: string, value: string): string => `${name}${value.startsWith("-") ? "=" : " "}${word(value)}`;

/** The uploaded files that a value names, each once, with those of unknown name left as their ids. */
function filesIn({ input, files }: Call): SnippetFile[] {
  const found = new Map<string, SnippetFile>();
  const look = (value: Json): void => {
    const id = fileId(value);
    const file = id === null ? undefined : files(id);
    if (file) found.set(file.id, file);
    else if (typeof value === "object" && value !== null) Object.values(value).forEach((each) => look(each as Json));
  };
  look(input);
  return [...found.values()];
}

function fileId(value: Json): string | null {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return null;
  const { $file } = value;
  return typeof $file === "string" && Object.keys(value).length === 1 ? $file : null;
}

/** A value with code in the place of its files. */
function tree(value: Json, code: (id: string) => string | null): Tree {
  if (typeof value !== "object" || value === null) return value;
  const id = fileId(value);
  const text = id === null ? null : code(id);
  if (text !== null) return new Code(text);
  if (Array.isArray(value)) return value.map((each) => tree(each, code));
  return new Map(Object.entries(value).map(([key, each]) => [key, tree(each, code)]));
}

interface Words { scalar: (value: null | boolean | number | string) => string; key: (name: string) => string }
const WIDTH = 72;

/** A value as source code: on one line where it fits. */
function source(value: Tree, words: Words, indent: string): string {
  if (value instanceof Code) return value.text;
  if (typeof value !== "object" || value === null) return words.scalar(value);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  const inner = `${indent}    `;
  const parts = (at: string) => (Array.isArray(value) ? value.map((each) => source(each, words, at)) : [...value].map(([key, each]) => `${words.key(key)}: ${source(each, words, at)}`));
  const line = `${open}${parts(indent).join(", ")}${close}`;
  if (line.length <= WIDTH && !line.includes("\n")) return line;
  return `${open}\n${parts(inner).map((each) => `${inner}${each},\n`).join("")}${indent}${close}`;
}

const PYTHON: Words = { scalar: (value) => (value === null ? "None" : value === true ? "True" : value === false ? "False" : JSON.stringify(value)), key: (name) => JSON.stringify(name) };
const JAVASCRIPT: Words = { scalar: (value) => JSON.stringify(value), key: (name) => (name === "__proto__" ? '["__proto__"]' : /^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name)) };

const PYTHON_FILES = `

def files(value):
    """Yield the files of a result."""
    if isinstance(value, FileRef):
        yield value
    elif isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from files(part)

`;
const PYTHON_SAVE = `    result = job.result()
    print(result)
    folder = Path("results")
    folder.mkdir(exist_ok=True)
    for file in files(result):
        print("saved", file.save(folder))
`;

function python(call: Call): string {
  const files = new Map(filesIn(call).map((file) => [file.id, `Path(${JSON.stringify(file.name)})`]));
  const input = source(tree(call.input, (id) => files.get(id) ?? null), PYTHON, "    ");
  const version = call.version === null ? "" : `, version=${call.version}`;
  return `${files.size > 0 || call.savesFiles ? "from pathlib import Path\n\n" : ""}from stokehold import Client${call.savesFiles ? ", FileRef" : ""}
${call.savesFiles ? PYTHON_FILES : ""}
with Client(${JSON.stringify(call.url)}) as client:  # reads STOKE_TOKEN
    job = client.submit(${JSON.stringify(call.endpoint)}, ${input}${version})
${call.savesFiles ? PYTHON_SAVE : "    print(job.result())\n"}`;
}

const JAVASCRIPT_SAVE = `const result = await job.result();
console.log(result);

// Save the files of the result.
const files = (value) => (value instanceof FileRef ? [value] : value instanceof Object ? Object.values(value).flatMap(files) : []);
await mkdir("results", { recursive: true });
for (const each of files(result)) await writeFile(join("results", basename(each.name)), await each.bytes());
`;

function javascript(call: Call): string {
  const files = filesIn(call);
  const names = new Map(files.map((file, n) => [file.id, files.length === 1 ? "file" : `file${n + 1}`]));
  const input = source(tree(call.input, (id) => names.get(id) ?? null), JAVASCRIPT, "");
  const version = call.version === null ? "" : `, { version: ${call.version} }`;
  const uploads = files.map((file) => `const ${names.get(file.id)} = await stokehold.upload(await readFile(${JSON.stringify(file.name)}), { name: ${JSON.stringify(file.name)}, contentType: ${JSON.stringify(file.type)} });\n`);
  const fs = [...(call.savesFiles ? ["mkdir"] : []), ...(files.length > 0 ? ["readFile"] : []), ...(call.savesFiles ? ["writeFile"] : [])];
  return `${fs.length > 0 ? `import { ${fs.join(", ")} } from "node:fs/promises";\n` : ""}${call.savesFiles ? 'import { basename, join } from "node:path";\n' : ""}import { ${call.savesFiles ? "FileRef, " : ""}Stokehold } from "stokehold";

const stokehold = new Stokehold({ baseUrl: ${JSON.stringify(call.url)} }); // reads STOKE_TOKEN
${uploads.join("")}const job = await stokehold.submit(${JSON.stringify(call.endpoint)}, ${input}${version});
${call.savesFiles ? JAVASCRIPT_SAVE : "console.log(await job.result());\n"}`;
}

const BEARER = '-H "Authorization: Bearer $STOKE_TOKEN"';

function curl(call: Call): string {
  const files = filesIn(call);
  const names = new Map(files.map((file, n) => [file.id, files.length === 1 ? "FILE" : `FILE${n + 1}`]));
  const uploads = files.map((file) => `${names.get(file.id)}=$(curl -fsS ${word(`${call.url}/v1/files/upload?name=${encodeURIComponent(file.name)}`)} \\
  ${BEARER} -H ${word(`Content-Type: ${file.type}`)} \\
  --data-binary ${word(`@${file.name}`)} | grep -o 'file_[0-9a-f]\\{32\\}' | head -n 1)
`);
  // A mark that is nowhere in the inputs; a variable of the shell takes its place once the JSON is quoted.
  let mark = "upload:";
  for (const text = JSON.stringify(call.input); text.includes(mark); ) mark += ":";
  const marked = (value: Json): Json => {
    const name = names.get(fileId(value) ?? "");
    if (name !== undefined) return { $file: mark + name };
    if (Array.isArray(value)) return value.map(marked);
    return typeof value === "object" && value !== null ? Object.fromEntries(Object.entries(value).map(([key, each]) => [key, marked(each)])) : value;
  };
  const body = JSON.stringify({ endpoint: call.endpoint, ...(call.version === null ? {} : { version: call.version }), input: marked(call.input) });
  let quoted = word(body);
  for (const name of names.values()) quoted = quoted.replaceAll(`"${mark}${name}"`, () => `"'"\${${name}:?the upload failed}"'"`);
  const save = call.savesFiles ? ` | tee job.json
grep -o '/v1/jobs/[0-9a-f]*/files/[^"]*' job.json | sort -u | while read -r file; do
  curl -fsSL --create-dirs --output-dir results -O ${word(call.url)}"$file" ${BEARER}
done` : "";
  return `${uploads.join("")}curl -sS --fail-with-body ${word(`${call.url}/v1/jobs`)} \\
  ${BEARER} \\
  -H 'Content-Type: application/json' -H 'Prefer: wait=60' \\
  -d ${quoted}${save}
`;
}

function cli(call: Call): string {
  const files = new Map(filesIn(call).map((file) => [file.id, file]));
  const top = typeof call.input === "object" && call.input !== null && !Array.isArray(call.input) ? call.input : null;
  const uploads = Object.entries(top ?? {}).flatMap(([key, value]) => { const file = files.get(fileId(value) ?? ""); return file && !key.includes("=") ? [[key, file] as const] : []; });
  const own = new Set(uploads.map(([key]) => key));
  const input = top ? Object.fromEntries(Object.entries(top).filter(([key]) => !own.has(key))) : call.input;
  const isEmpty = typeof input === "object" && input !== null && Object.keys(input).length === 0 && !Array.isArray(input);
  const parts = [`stoke submit ${word(call.version === null ? call.endpoint : `${call.endpoint}@${call.version}`)}`, ...(isEmpty ? [] : [option("--input", JSON.stringify(input))]), ...uploads.map(([key, file]) => option("--file", `${key}=${file.name}`)), "--wait", ...(call.savesFiles ? ["--out results"] : [])];
  return `export STOKE_URL=${word(call.url)}
${parts.join(" \\\n  ")}
`;
}

export function snippet(language: Language, call: Call): string { return { python, javascript, curl, cli }[language](call); }
