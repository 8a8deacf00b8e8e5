// The stack that the page is tried against: `stoke dev` with data of its own, and its API as programs see it.
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createConnection } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import type { components } from "../src/openapi";

export type Schemas = components["schemas"];

const STOKE = process.env["STOKE_BIN"] ?? resolve(import.meta.dirname, "../../../target/debug/stoke");
const HANDLERS = resolve(import.meta.dirname, "handlers");
const READY_MS = 120_000;
const STOP_MS = 20_000;
const ANSWER_MS = 30_000;
const LOOK_EVERY_MS = 100;
const LOG_LINES_MAX = 200;

/** The API at `url`, for the bearer of `token`. */
export class Api {
  constructor(readonly url: string, readonly token: string) {}

  async ask<T>(path: string, init: { method?: string; body?: unknown } = {}): Promise<T> {
    const answer = await fetch(this.url + path, {
      method: init.method ?? "GET",
      headers: { Authorization: `Bearer ${this.token}`, "Content-Type": "application/json" },
      body: init.body === undefined ? null : JSON.stringify(init.body),
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    if (!answer.ok) throw new Error(`${init.method ?? "GET"} ${path}: ${answer.status} ${await answer.text()}`);
    return (await answer.json()) as T;
  }

  submit(job: Partial<Schemas["SubmitRequest"]>): Promise<Schemas["Job"]> { return this.ask("/v1/jobs", { method: "POST", body: job }); }

  /** Asks until it is as it should be. No signal crosses processes for this. */
  async until<T>(what: string, path: string, good: (answer: T) => boolean, limitMs = READY_MS): Promise<T> {
    for (const giveUp = Date.now() + limitMs; ;) {
      const answer = await this.ask<T>(path);
      if (good(answer)) return answer;
      if (Date.now() > giveUp) throw new Error(`${what}: ${JSON.stringify(answer).slice(0, 2000)}`);
      await new Promise((done) => setTimeout(done, LOOK_EVERY_MS));
    }
  }

  ended(id: string): Promise<Schemas["Job"]> { return this.until("it does not end", `/v1/jobs/${id}`, (job: Schemas["Job"]) => job.ended_at != null); }
}

/** `stoke dev`, which ends with everything that it started when it is stopped. */
export class Stack {
  private child: ChildProcess | null = null;
  private log: string[] = [];
  readonly data = mkdtempSync(join(tmpdir(), "stokehold-dashboard-"));
  api = new Api("", "");

  private readonly more: Record<string, string> = {};

  constructor(private readonly args: string[]) {}

  /** Sets a variable of everything that starts from now on. */
  set(name: string, value: string): void { this.more[name] = value; }

  private env(): NodeJS.ProcessEnv {
    const { STOKE_URL: _url, STOKE_TOKEN: _token, ...env } = process.env;
    // Handlers of a test need not be shut in, and what it makes lies in a folder of its own.
    return { ...env, STOKE_CREDENTIALS: join(this.data, "credentials.json"), STOKE_SANDBOX: "L0", STOKE_LOG: "warn", ...this.more };
  }

  /** Starts it, or starts it again on the same data: then it is at the same address. */
  async start(): Promise<void> {
    const child = spawn(STOKE, ["dev", "--data", this.data, "--listen", "127.0.0.1:0", ...this.args], { env: this.env(), stdio: ["ignore", "pipe", "pipe"] });
    this.child = child;
    const isReady = new Promise<void>((ready, failed) => {
      const give = (why: string) => failed(new Error(`stoke dev ${why}:\n${this.log.join("\n")}`));
      const timer = setTimeout(() => give("is not ready in time"), READY_MS);
      for (const stream of [child.stdout, child.stderr]) {
        createInterface(stream).on("line", (line) => {
          this.log = [...this.log.slice(1 - LOG_LINES_MAX), line];
          if (line.trim() === "ready") { clearTimeout(timer); ready(); }
        });
      }
      child.once("error", (error) => give(error.message));
      child.once("exit", (code) => { clearTimeout(timer); give(`ended with ${code}`); });
    });
    await isReady;
    const { url, token } = JSON.parse(readFileSync(join(this.data, "credentials.json"), "utf8")) as { url: string; token: string };
    this.api = new Api(url, token);
  }

  /** Ends it: in order or, with SIGKILL, as a crash would. Its Redis and its workers go with it. */
  async stop(): Promise<void> {
    const child = this.child;
    this.child = null;
    if (!child || child.exitCode !== null) return;
    const isGone = new Promise((gone) => child.once("exit", gone));
    child.kill("SIGINT");
    // The second one says not to wait for the jobs.
    const hurry = setTimeout(() => child.kill("SIGINT"), 1000);
    const giveUp = setTimeout(() => child.kill("SIGKILL"), STOP_MS);
    await isGone;
    clearTimeout(hurry);
    clearTimeout(giveUp);
  }

  remove(): void { rmSync(this.data, { recursive: true, force: true }); }

  /** Sets a field of a job's record in the stack's own Redis, past everything that keeps records whole. */
  async setField(job: string, field: string, value: string): Promise<void> {
    const { redis_url, redis_prefix } = JSON.parse(readFileSync(join(this.data, "stack.json"), "utf8")) as { redis_url: string; redis_prefix: string };
    const at = new URL(redis_url);
    const commands = [["AUTH", at.searchParams.get("pass") ?? ""], ["HSET", `{${redis_prefix}:0}:j:${job}`, field, value]];
    const socket = createConnection({ path: decodeURIComponent(at.pathname), timeout: ANSWER_MS });
    const replies = await new Promise<string[]>((answer, failed) => {
      let text = "";
      socket.on("data", (bytes) => {
        text += bytes.toString();
        const lines = text.split("\r\n");
        if (lines.length > commands.length) answer(lines);
      });
      socket.once("error", failed);
      socket.once("timeout", () => failed(new Error("Redis does not answer")));
      socket.once("close", () => failed(new Error("Redis has closed the connection")));
      socket.write(commands.map((words) => `*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join("")}`).join(""));
    }).finally(() => socket.destroy());
    if (!replies[1]?.startsWith(":")) throw new Error(`HSET: ${replies.join(" ")}`);
  }

  /** `stoke` with these arguments against it; what it prints. */
  async stoke(...args: string[]): Promise<string> {
    const { stdout } = await promisify(execFile)(STOKE, args, { env: { ...this.env(), STOKE_URL: this.api.url, STOKE_TOKEN: this.api.token }, timeout: READY_MS });
    return stdout;
  }

  /** Uploads a text through the API; returns the id of its file. */
  async upload(name: string, text: string): Promise<string> {
    const answer = await fetch(`${this.api.url}/v1/files/upload?name=${name}`, { method: "POST", body: text, headers: { Authorization: `Bearer ${this.api.token}`, "Content-Type": "text/plain" }, signal: AbortSignal.timeout(ANSWER_MS) });
    if (!answer.ok) throw new Error(`POST /v1/files/upload: ${answer.status} ${await answer.text()}`);
    return ((await answer.json()) as { id: string }).id;
  }

  async token(name: string, ...scopes: string[]): Promise<string> {
    const made = JSON.parse(await this.stoke("token", "create", "--name", name, "--json", ...scopes.flatMap((scope) => ["--scope", scope]))) as { token: string };
    return made.token;
  }

  deploy(file: string, name: string, ...args: string[]): Promise<string> { return this.stoke("deploy", `${join(HANDLERS, file)}:${name}`, ...args); }
}
