// What a shell, Python and Node make of a snippet is what the form has, whatever was typed.
import { execFileSync } from "node:child_process";
import { expect, test } from "@playwright/test";
import type { Json } from "../../src/playground/schema";
import { type Call, type Language, snippet } from "../../src/playground/snippets";
import { hasFiles } from "../../src/views/result";

const ID = `file_${"0".repeat(32)}`;
const call = (input: Json, more: Partial<Call> = {}): Call => ({ url: "http://127.0.0.1:7070", endpoint: "chat", version: null, input, files: (id) => (id === ID ? { id, name: "it's =1.txt", type: "text/plain" } : undefined), savesFiles: false, ...more });

/** The arguments of each call of a command in a snippet that bash runs. */
function words(language: Language, command: string, of: Call, prints = ""): string[][] {
  // The command is in a pipe in places, so it writes to descriptor 3.
  const script = `${command}() { printf '%s\\0' "$@" "" >&3; printf '%s' '${prints}'; }\ntee() { cat >/dev/null; }\n{ ${snippet(language, of)} } 3>&1 >/dev/null`;
  const text = execFileSync("bash", ["--norc", "-euc", script], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], env: { PATH: process.env["PATH"], HOME: "/home/me", STOKE_TOKEN: "t" } });
  return text.split("\0\0").filter((part) => part !== "").map((part) => part.split("\0"));
}
const after = (args: string[] | undefined, name: string): string => args?.[args.indexOf(name) + 1] ?? "";

const INPUTS: Json[] = [
  -5, 0, "", "-5", "@here", null, true, [], [[-1]],
  { text: "it's \"quoted\" \\ $HOME `id` $(id) !! %s ünï 🙂\u2028\u0007\nsecond line", "a key's \"name\"": 1 },
  JSON.parse('{"__proto__": {"a": 1}, "constructor": null}') as Json,
  { mark: "upload:FILE", other: "\u0001FILE\u0001" },
];

for (const input of INPUTS) {
  const shown = JSON.stringify(input);
  test(`curl sends ${shown}`, () => {
    const [args] = words("curl", "curl", call(input));
    expect(args?.slice(0, 3)).toEqual(["-sS", "--fail-with-body", "http://127.0.0.1:7070/v1/jobs"]);
    expect(JSON.parse(after(args, "-d"))).toEqual({ endpoint: "chat", input });
  });

  test(`the command has ${shown}`, () => {
    const [args] = words("cli", "stoke", call(input, { version: 3 }));
    expect(args?.slice(0, 2)).toEqual(["submit", "chat@3"]);
    const joined = args?.find((each) => each.startsWith("--input="))?.slice("--input=".length);
    expect(JSON.parse(joined ?? after(args, "--input"))).toEqual(input);
    // An option whose value is another word takes none that begins with a hyphen.
    expect(args?.filter((each) => each.startsWith("-") && !each.startsWith("--"))).toEqual([]);
  });

  test(`Python reads ${shown}`, () => {
    const text = snippet("python", call(input)).replace("from stokehold import Client", "import json, contextlib\nclass Client(contextlib.nullcontext):\n    def submit(self, *a): print(json.dumps(a[1])); return self\n    def result(self): return ''").replace("with Client(\"http://127.0.0.1:7070\") as client", "with contextlib.nullcontext(Client()) as client");
    expect(JSON.parse(execFileSync("python3", ["-c", text], { encoding: "utf8" }).trim())).toEqual(input);
  });

  test(`JavaScript reads ${shown}`, () => {
    const text = snippet("javascript", call(input)).replace('import { Stokehold } from "stokehold";', "class Stokehold { submit(_, input) { console.log(JSON.stringify(input)); return { result: () => 0 }; } }");
    expect(JSON.parse(execFileSync(process.execPath, ["--input-type=module", "-e", text], { encoding: "utf8" }).split("\n")[0] ?? "")).toEqual(input);
  });
}

test("an upload takes the place of its file alone, and one that fails stops the call", () => {
  const input = { file: { $file: ID }, other: { $file: "file_unknown" }, text: '"upload:FILE" ${FILE}' };
  const [upload, submit] = words("curl", "curl", call(input), `{"id":"file_${"a".repeat(32)}"}`);
  expect([upload?.[1], after(upload, "--data-binary")]).toEqual(["http://127.0.0.1:7070/v1/files/upload?name=it's%20%3D1.txt", "@it's =1.txt"]);
  expect(JSON.parse(after(submit, "-d"))).toEqual({ endpoint: "chat", input: { ...input, file: { $file: `file_${"a".repeat(32)}` } } });
  expect(() => words("curl", "curl", call(input), "")).toThrow("FILE: the upload failed");
  const [args] = words("cli", "stoke", call({ "-k": { $file: ID } }));
  expect(args).toEqual(["submit", "chat", "--file=-k=it's =1.txt", "--wait"]);
});

test("files of a result are saved where there are some", () => {
  const saves = (savesFiles: boolean) => (["python", "javascript", "curl", "cli"] as const).map((language) => snippet(language, call({}, { savesFiles })).includes("results"));
  expect([saves(true), saves(false)]).toEqual([[true, true, true, true], [false, false, false, false]]);
  const file = { type: "object", format: "stokehold-file" };
  expect([hasFiles({ properties: { picture: file } }), hasFiles({ type: "string" }), hasFiles(undefined)]).toEqual([true, false, false]);
});
