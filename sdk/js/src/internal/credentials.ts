import { env } from "./env.js";

/** A profile of the credentials file that `stoke dev` and `stoke login` write. */
export interface Saved {
  url: string;
  token: string;
}

interface Modules {
  process?: { getBuiltinModule?: (name: string) => unknown };
}

interface Files {
  readFileSync(path: string, encoding: "utf8"): string;
}

interface Machine {
  homedir(): string;
}

/**
 * The profile that STOKE_PROFILE names, else the default one. Undefined without the file: in browsers, in Node.js before
 * 20.16, and where neither command ran.
 */
export function savedProfile(): Saved | undefined {
  const profile = env("STOKE_PROFILE") ?? "default";
  const file = read();
  // The default profile is at the top of the file.
  const saved = profile === "default" ? file : member(member(file, "profiles"), profile);
  if (saved === undefined && profile !== "default") {
    throw new TypeError(
      `there is no profile ${profile}; save it with \`stoke login --profile ${profile} --url URL\`, or unset STOKE_PROFILE`,
    );
  }
  const [url, token] = [member(saved, "url"), member(saved, "token")];
  return typeof url === "string" && typeof token === "string" ? { url, token } : undefined;
}

/** Whether two URLs are of one API: a saved token is sent to no other. */
export function isSameOrigin(one: string, other: string): boolean {
  const [first, second] = [origin(one), origin(other)];
  return first !== undefined && first === second;
}

function origin(url: string): string | undefined {
  try {
    return new URL(url).origin.replace("//localhost", "//127.0.0.1");
  } catch {
    return undefined;
  }
}

function read(): unknown {
  try {
    const modules = (globalThis as Modules).process;
    const files = modules?.getBuiltinModule?.("node:fs") as Files | undefined;
    const machine = modules?.getBuiltinModule?.("node:os") as Machine | undefined;
    if (files === undefined || machine === undefined) return undefined;
    const path = env("STOKE_CREDENTIALS") ?? `${machine.homedir()}/.config/stokehold/credentials.json`;
    return JSON.parse(files.readFileSync(path, "utf8")) as unknown;
  } catch {
    return undefined; // no file, no right to read it, or another program's file
  }
}

function member(value: unknown, name: string): unknown {
  if (typeof value !== "object" || value === null || !Object.hasOwn(value, name)) return undefined;
  return (value as Record<string, unknown>)[name];
}
