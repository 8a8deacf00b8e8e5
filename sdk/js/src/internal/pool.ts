// The connections of the client in Node, over node:net and node:tls. One request at a time is sent over each.

import { ResponseReader, writeHead, type Bytes } from "./http1.js";
import type { ShortResponse } from "./node.js";
import type { IdleTimer } from "./signal.js";

// What is used of Node; its types are not those of browsers.
interface Socket {
  on: ((event: "data", listener: (data: Bytes) => void) => Socket) &
    ((event: "error", listener: (error: Error) => void) => Socket) &
    ((event: "end" | "close", listener: () => void) => Socket);
  write: ((text: string, encoding: "latin1" | "utf8") => boolean) &
    ((data: Bytes, done: (error?: Error | null) => void) => boolean);
  destroy: () => void;
  ref: () => void;
  unref: () => void;
  readonly writableLength: number;
}
type Connect = (options: object) => Socket;
interface NodeBuffer {
  byteLength: (text: string) => number;
  from: (source: string | Bytes) => Bytes;
  alloc: (size: number) => Bytes;
}
interface NodeGlobals {
  Buffer: NodeBuffer;
  setImmediate: (run: () => void) => void;
}
// Undefined in browsers, where nothing here is called.
const { Buffer, setImmediate } = globalThis as unknown as NodeGlobals;

/** Idle connections are kept for a minute, so that occasional jobs do not need a new one each. */
const IDLE_MS = 60_000;
const IDLE_CONNECTIONS_MAX = 20;

/** The most that is written at once. Each piece that is sent counts as progress. */
const WRITE_BYTES = 64 << 10;

const READ_BYTES = 64 << 10;

/** Keeps connections to one server open. */
export class Pool {
  readonly #connect: Connect;
  readonly #options: object;
  readonly #host: string;
  readonly #idle: Connection[] = [];
  #sweep: ReturnType<typeof setTimeout> | undefined;

  private constructor(connect: Connect, base: URL) {
    const host = base.hostname.replace(/^\[|\]$/g, "");
    const isTls = base.protocol === "https:";
    const port = Number(base.port || (isTls ? 443 : 80));
    // An address is not a name that TLS can ask for.
    const tls = { ALPNProtocols: ["http/1.1"], servername: /^[\d.]+$|:/.test(host) ? "" : host };
    this.#connect = connect;
    this.#options = { host, port, noDelay: true, ...(isTls ? tls : {}) };
    this.#host = base.host;
  }

  static async open(base: URL): Promise<Pool> {
    // Not a literal, so that bundlers for browsers ignore it.
    const name: string = base.protocol === "https:" ? "node:tls" : "node:net";
    const { connect } = (await import(name)) as { connect: Connect };
    return new Pool(connect, base);
  }

  /** Sends a request and reads the whole response. */
  send(
    method: string,
    target: string,
    headers: Readonly<Record<string, string>>,
    body: string | undefined,
    timer: IdleTimer,
  ): Promise<ShortResponse> {
    return new Promise((resolve, reject) => {
      if (timer.isOver) throw new Error("stopped before it was sent");
      const size = body === undefined ? undefined : Buffer.byteLength(body);
      const head = writeHead(method, target, this.#host, headers, size);
      const connection = this.#take() ?? new Connection(this, this.#connect, this.#options);
      connection.exchange(body === undefined ? head : head + body, head.length + (size ?? 0), timer, resolve, reject);
    });
  }

  /** Keeps a connection for another request. */
  keep(connection: Connection): void {
    connection.idleSinceMs = performance.now();
    this.#idle.push(connection);
    if (this.#idle.length > IDLE_CONNECTIONS_MAX) this.#idle[0]?.close();
    this.#sweep ??= this.#later();
  }

  /** Drops a connection that was closed. */
  drop(connection: Connection): void {
    const at = this.#idle.indexOf(connection);
    if (at >= 0) this.#idle.splice(at, 1);
  }

  /** The connection that was used last. */
  #take(): Connection | undefined {
    const connection = this.#idle.pop();
    if (connection === undefined || performance.now() - connection.idleSinceMs <= IDLE_MS) return connection;
    connection.close(); // the timer is late, e.g. because the machine was suspended
    return this.#take();
  }

  /** Closes connections that have been idle for long, from time to time, until there are none. */
  #later(): ReturnType<typeof setTimeout> {
    const sweep = setTimeout(() => {
      for (const connection of [...this.#idle]) {
        if (performance.now() - connection.idleSinceMs > IDLE_MS / 2) connection.close();
      }
      this.#sweep = this.#idle.length > 0 ? this.#later() : undefined;
    }, IDLE_MS / 2);
    (sweep as unknown as Socket).unref(); // the process may end
    return sweep;
  }
}

/** A connection to the server. */
class Connection {
  idleSinceMs = 0;
  readonly #pool: Pool;
  readonly #socket: Socket;
  #reader: ResponseReader | undefined;
  #timer: IdleTimer | undefined;
  #resolve: ((response: ShortResponse) => void) | undefined;
  #reject: ((error: unknown) => void) | undefined;
  /** What is not written yet of a large request. */
  #rest: Bytes | undefined;
  #isClosed = false;

  constructor(pool: Pool, connect: Connect, options: object) {
    this.#pool = pool;
    // Without it, Node allocates 64 KiB for each read. TLS ignores it.
    const callback = (size: number, buffer: Bytes): boolean => {
      this.#receive(Buffer.from(buffer.subarray(0, size)));
      return true;
    };
    const socket = connect({ ...options, onread: { buffer: Buffer.alloc(READ_BYTES), callback } });
    this.#socket = socket;
    socket.on("data", (data) => this.#receive(data));
    socket.on("end", () => this.#receive(undefined));
    socket.on("error", (error) => this.#fail(error));
    socket.on("close", () => this.#receive(undefined));
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#pool.drop(this);
    this.#socket.destroy();
  }

  /** Sends a request of `size` bytes. Calls `resolve` with the whole response, or `reject`. */
  exchange(
    request: string,
    size: number,
    timer: IdleTimer,
    resolve: (response: ShortResponse) => void,
    reject: (error: unknown) => void,
  ): void {
    this.#reader = new ResponseReader();
    this.#timer = timer;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#socket.ref();
    timer.onOver = () => this.#fail(new Error("stopped"));
    // Node writes latin1 without a conversion.
    if (size <= WRITE_BYTES) this.#socket.write(request, size === request.length ? "latin1" : "utf8");
    else {
      this.#rest = Buffer.from(request);
      this.#writeRest(this.#reader);
    }
  }

  /** Writes a large request in pieces. Between them, the event loop reads: the server may have refused the request. */
  #writeRest(reader: ResponseReader): void {
    const rest = this.#rest;
    if (rest === undefined || this.#reader !== reader) return;
    this.#socket.write(rest.subarray(0, WRITE_BYTES), (error) => {
      if (error || this.#reader !== reader) return; // an error is reported by its event, too
      this.#timer?.restart();
      this.#rest = rest.length > WRITE_BYTES ? rest.subarray(WRITE_BYTES) : undefined;
      if (this.#rest !== undefined) setImmediate(() => this.#writeRest(reader));
    });
  }

  /** Takes the next bytes; undefined at the end of the connection. */
  #receive(data: Bytes | undefined): void {
    const reader = this.#reader;
    // Idle: what a server sends here belongs to no request.
    if (reader === undefined) return this.close();
    try {
      const isComplete = data === undefined ? reader.end() : reader.feed(data);
      if (isComplete) this.#succeed(reader);
      else if (reader.status !== 0) this.#timer?.restart(); // until then, the timeout is that of the whole head
    } catch (error) {
      this.#fail(error);
    }
  }

  #succeed(reader: ResponseReader): void {
    const resolve = this.#resolve;
    const isSent = this.#rest === undefined && this.#socket.writableLength === 0;
    this.#release();
    if (reader.reusable && isSent && !this.#isClosed) this.#pool.keep(this);
    else this.close();
    resolve?.(new Whole(reader));
  }

  #fail(error: unknown): void {
    const reject = this.#reject;
    this.#release();
    this.close();
    reject?.(error);
  }

  #release(): void {
    if (this.#timer !== undefined) this.#timer.onOver = undefined;
    this.#reader = this.#timer = this.#resolve = this.#reject = this.#rest = undefined;
    this.#socket.unref();
  }
}

class Whole implements ShortResponse {
  readonly ok: boolean;
  readonly status: number;
  readonly headers: Pick<Headers, "get">;
  readonly #reader: ResponseReader;

  constructor(reader: ResponseReader) {
    this.#reader = reader;
    this.status = reader.status;
    this.ok = reader.status >= 200 && reader.status < 300;
    this.headers = { get: (name) => reader.header(name) ?? null };
  }

  text(): Promise<string> {
    return Promise.resolve(this.#reader.text());
  }
}
