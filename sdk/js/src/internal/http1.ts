// HTTP/1.1 without I/O: writes the head of a request, and reads a whole response from bytes as they arrive. The Python
// client has the same in `_http1.py`.

/** The parts of Node's `Buffer` that are used; the types of Node are not those of browsers. */
export interface Bytes extends Uint8Array {
  indexOf: Uint8Array["indexOf"] & ((text: string, from: number, encoding: "latin1") => number);
  subarray: (start: number, end?: number) => Bytes;
  toString: (encoding?: "latin1" | "utf8", start?: number, end?: number) => string;
}

/** Far above the heads of the API; a proxy may add some headers. */
export const HEAD_BYTES_MAX = 64 << 10;

/** The most bytes in the body of a response that is held in memory. The largest ones of the API are lists of jobs. */
export const RESPONSE_BYTES_MAX = 256 << 20;

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: [^\r\n]*)?(?=\r\n|$)/;
/** All header lines, in one go: most of the time, the code here is interpreted, and regular expressions are compiled. */
const HEADER_LINES = /^(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n]*)*$/;
const CHUNK_SIZE = /^([0-9A-Fa-f]{1,13})[ \t]*(?:;.*)?$/;
const HEADER_VALUE = /^[\t\x20-\x7e]*$/;

const TARGET = /^[\x21-\x7e]+$/;

const SWITCHING_PROTOCOLS = 101;
const NO_CONTENT = 204;
const NOT_MODIFIED = 304;

/** The request cannot be sent, or its response cannot be read, however often it is repeated. */
export class HttpError extends Error {}

/** The error for a body above `RESPONSE_BYTES_MAX`. */
export function tooLarge(): HttpError {
  const limit = `${RESPONSE_BYTES_MAX >> 20} MiB`;
  return new HttpError(`the response has more than ${limit}; request less at once, e.g. with a smaller page size`);
}

/** Writes the request line and the headers. `size` is the number of bytes in the body. */
export function writeHead(
  method: string,
  target: string,
  host: string,
  headers: Readonly<Record<string, string>>,
  size: number | undefined,
): string {
  if (!TARGET.test(target)) throw new HttpError("the request cannot be sent: its path has a character that is not ASCII");
  let head = `${method} ${target} HTTP/1.1\r\nhost: ${host}\r\naccept-encoding: identity\r\n`;
  for (const name in headers) {
    const value = headers[name]!;
    if (!HEADER_VALUE.test(value)) {
      throw new HttpError(`the request cannot be sent: the header ${name} contains a character that is not ASCII`);
    }
    head += `${name}: ${value}\r\n`;
  }
  return size === undefined ? `${head}\r\n` : `${head}content-length: ${size}\r\n\r\n`;
}

/** Reads one response. `feed` and `end` return whether it is complete. */
export class ResponseReader {
  status = 0;
  /** Whether another request can be sent over the connection, once the response is complete. */
  reusable = false;
  /** The header lines, each after a line break. */
  #headers = "";
  #buffer: Bytes | undefined;
  readonly #parts: Bytes[] = [];
  /** The bytes until the end of the body or of a chunk. -1: the line break after a chunk. */
  #left = 0;
  #size = 0;
  #isChunked = false;
  #endsWithConnection = false;

  /** The value of a header, or its values, joined. */
  header(name: string): string | undefined {
    const lines = this.#headers.match(lineOf(name));
    return lines?.map((line) => line.slice(name.length + 3).replace(/^[ \t]+|[ \t]+$/g, "")).join(", ");
  }

  /** The body. */
  text(): string {
    const parts = this.#parts;
    if (parts.length <= 1) return parts[0]?.toString("utf8") ?? "";
    const decoder = new TextDecoder();
    return parts.map((part) => decoder.decode(part, { stream: true })).join("") + decoder.decode();
  }

  /** Takes the next bytes. */
  feed(data: Bytes): boolean {
    if (this.status === 0) {
      const rest = this.#readHead(this.#buffer === undefined ? data : concat(this.#buffer, data));
      if (rest === undefined) return false;
      data = rest;
    }
    if (this.#isChunked) return this.#readChunks(this.#buffer === undefined ? data : concat(this.#buffer, data));
    if (this.#endsWithConnection) {
      this.#count(data.length);
      this.#parts.push(data);
      return false;
    }
    if (data.length > this.#left) {
      // More than the response: the connection is out of step with its requests.
      data = data.subarray(0, this.#left);
      this.reusable = false;
    }
    if (data.length > 0) this.#parts.push(data);
    this.#left -= data.length;
    return this.#left === 0;
  }

  /** Takes the end of the connection. Throws if the response is incomplete. */
  end(): boolean {
    if (this.#endsWithConnection) return true;
    const isEmpty = this.status === 0 && this.#buffer === undefined;
    throw new Error(`the server closed the connection ${isEmpty ? "without a response" : "before the end of the response"}`);
  }

  /** Reads the head once it is whole, skips interim responses, and returns what follows. */
  #readHead(data: Bytes): Bytes | undefined {
    for (;;) {
      const end = data.indexOf("\r\n\r\n", 0, "latin1");
      if ((end < 0 ? data.length : end) > HEAD_BYTES_MAX) {
        throw new Error(`the head of the response has more than ${HEAD_BYTES_MAX >> 10} KiB`);
      }
      if (end < 0) {
        this.#buffer = data.length > 0 ? data : undefined;
        return undefined;
      }
      const head = data.toString("latin1", 0, end);
      data = data.subarray(end + 4);
      const parsed = STATUS_LINE.exec(head);
      if (parsed === null) throw new Error(`the response starts with ${quote(head)}, which is not HTTP/1.1`);
      const status = Number(parsed[2]);
      if (status === SWITCHING_PROTOCOLS) throw new Error("the server switched to another protocol");
      if (status < 200) continue;
      this.#headers = head.slice(parsed[0].length);
      if (!HEADER_LINES.test(this.#headers)) throw new Error(`the response has invalid headers: ${quote(head)}`);
      this.status = status;
      this.#buffer = undefined;
      this.#frame(parsed[1] === "0");
      return data;
    }
  }

  /** Determines where the body ends (RFC 9112, section 6.3), and whether the connection outlives it. */
  #frame(isOld: boolean): void {
    const options = this.header("connection")?.toLowerCase() ?? "";
    this.reusable = !options.includes("close") && (!isOld || options.includes("keep-alive"));
    if (this.status === NO_CONTENT || this.status === NOT_MODIFIED) return;
    const length = this.header("content-length");
    const coding = this.header("transfer-encoding");
    if (coding !== undefined) {
      if (coding.toLowerCase() !== "chunked" || isOld) {
        throw new Error(`the response has the transfer coding ${quote(coding)} instead of chunked`);
      }
      this.#isChunked = true;
      if (length !== undefined) this.reusable = false;
    } else if (length !== undefined) {
      const [first = "", ...others] = length.split(",").map((text) => text.trim());
      if (!/^\d{1,15}$/.test(first) || others.some((other) => other !== first)) {
        throw new Error(`the response has the Content-Length ${quote(length)}`);
      }
      this.#left = Number(first);
      this.#count(this.#left);
    } else {
      this.#endsWithConnection = true;
      this.reusable = false;
    }
  }

  #count(more: number): void {
    this.#size += more;
    if (this.#size > RESPONSE_BYTES_MAX) throw tooLarge();
  }

  /** Moves whole chunks to the body, and keeps the rest in the buffer. */
  #readChunks(buffer: Bytes): boolean {
    this.#buffer = undefined;
    for (let at = 0; ; ) {
      if (this.#left > 0) {
        const part = buffer.subarray(at, at + this.#left);
        if (part.length > 0) this.#parts.push(part);
        this.#left -= part.length;
        at += part.length;
        if (this.#left > 0) return false;
        this.#left = -1;
      }
      if (this.#left === -1 && buffer.length >= at + 2) {
        if (buffer[at] !== 13 || buffer[at + 1] !== 10) throw new Error("a chunk of the response is longer than its size");
        at += 2;
        this.#left = 0;
      }
      const end = this.#left === -1 ? -1 : buffer.indexOf("\r\n", at, "latin1");
      if (end < 0) return this.#keep(buffer.subarray(at));
      const line = buffer.toString("latin1", at, end);
      const size = CHUNK_SIZE.exec(line);
      if (size === null) throw new Error(`the response has the chunk size ${quote(line)}`);
      this.#left = parseInt(size[1]!, 16);
      if (this.#left > 0) {
        this.#count(this.#left);
        at = end + 2;
        continue;
      }
      // The last chunk, of size 0, then trailers, which are dropped, and an empty line.
      const last = buffer.indexOf("\r\n\r\n", end, "latin1");
      if (last < 0) return this.#keep(buffer.subarray(at));
      if (buffer.length > last + 4) this.reusable = false;
      return true;
    }
  }

  #keep(rest: Bytes): boolean {
    if (rest.length > HEAD_BYTES_MAX) {
      throw new Error(`the response has a chunk size or trailers of more than ${HEAD_BYTES_MAX >> 10} KiB`);
    }
    if (rest.length > 0) this.#buffer = rest;
    return false;
  }
}

const lines = new Map<string, RegExp>();

/** Matches the lines of a header. */
function lineOf(name: string): RegExp {
  let found = lines.get(name);
  if (found === undefined) lines.set(name, (found = new RegExp(`\\r\\n${name}:[^\\r\\n]*`, "gi")));
  return found;
}

function quote(text: string): string {
  return JSON.stringify(text.slice(0, 60));
}

function concat(...parts: Bytes[]): Bytes {
  return (globalThis as unknown as { Buffer: { concat: (parts: Bytes[]) => Bytes } }).Buffer.concat(parts);
}
