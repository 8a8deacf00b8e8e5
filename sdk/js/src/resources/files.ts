// Files, and files in JSON: an input refers to them by id, and files in a result become readable objects.

import { ConnectionFailed } from "../core/error.js";
import { sha256 } from "../internal/crypto.js";
import { FileRoutes } from "../generated/routes.js";
import type { Http } from "../internal/http.js";
import { part, type CallOptions, type Id } from "../internal/options.js";

export interface UploadOptions {
  /** Default: the name of the `File`, or `file`. */
  name?: string;
  /** Default: the type of the `Blob`, or `application/octet-stream`. */
  contentType?: string;
  signal?: AbortSignal;
}

export interface FileInfo {
  name: string;
  url: string;
  id?: string | undefined;
  sizeBytes?: number | undefined;
  sha256?: string | undefined;
  contentType?: string | undefined;
}

/** A file: an uploaded file, which inputs refer to by its `id`, or a file in a result, which has no id. */
export class FileRef {
  readonly id: string | undefined;
  readonly name: string;
  /** The URL of the file at the API. It requires the token. */
  readonly url: string;
  readonly sizeBytes: number | undefined;
  readonly sha256: string | undefined;
  readonly contentType: string | undefined;
  readonly #http: Http;

  /** @internal */
  constructor(http: Http, info: FileInfo) {
    this.#http = http;
    this.id = info.id;
    this.name = info.name;
    this.url = info.url;
    this.sizeBytes = info.sizeBytes;
    this.sha256 = info.sha256;
    this.contentType = info.contentType;
  }

  /** Downloads the file into memory. Checks its SHA-256 if that is known. */
  async bytes({ signal }: { signal?: AbortSignal } = {}): Promise<Uint8Array<ArrayBuffer>> {
    const path = this.url.slice(this.#http.baseUrl.length);
    const from = this.id === undefined ? path : (await this.#http.get<{ url: string }>(path, { signal })).url;
    const bytes = await this.#http.bytes(from, signal);
    const wanted = this.sha256;
    const got = wanted === undefined ? undefined : await sha256(bytes);
    if (got !== wanted) {
      const what = `the downloaded file has the SHA-256 ${got} instead of ${wanted}`;
      throw new ConnectionFailed(`${what}; download it again`);
    }
    return new Uint8Array(bytes);
  }

  /** Downloads the file into memory, as a `Blob` of its type. */
  async blob(options: { signal?: AbortSignal } = {}): Promise<Blob> {
    return new Blob([await this.bytes(options)], { type: this.contentType ?? "application/octet-stream" });
  }
}

interface Stored {
  id: string;
  name: string;
  size_bytes: number;
  content_type: string;
}

/** `client.files`: uploaded files. */
export class Files extends FileRoutes {
  /** Uploads bytes. The returned file can be used anywhere in an input. */
  upload(source: Blob | Uint8Array, options: UploadOptions = {}): Promise<FileRef> {
    return upload(this.http, source, options);
  }

  /** Returns an uploaded file by its id. Its bytes are not downloaded; see `FileRef.bytes`. */
  async retrieve(id: Id, { signal }: CallOptions = {}): Promise<FileRef> {
    const path = `/v1/files/${part(id)}`;
    const { id: fileId, name, size_bytes, content_type } = await this.http.get<Stored>(path, { signal });
    const url = this.http.baseUrl + path;
    return new FileRef(this.http, { id: fileId, name, url, sizeBytes: size_bytes, contentType: content_type });
  }
}

interface Announced {
  id: string;
  upload_url: string;
  headers: Record<string, string>;
}

/** Uploads bytes. The returned file can be used anywhere in an input. */
export async function upload(http: Http, source: Blob | Uint8Array, options: UploadOptions): Promise<FileRef> {
  const { signal } = options;
  // The copy converts a view of a larger or shared buffer to a plain one.
  const blob = source instanceof Blob ? source : new Blob([new Uint8Array(source)]);
  const name = options.name ?? (("name" in blob && typeof blob.name === "string" && blob.name) || "file");
  const contentType = options.contentType ?? (blob.type || "application/octet-stream");
  const hash = await sha256(await blob.arrayBuffer());
  const asked = { name, size_bytes: blob.size, sha256: hash, content_type: contentType };
  const file = await http.post<Announced>("/v1/files", JSON.stringify(asked), { signal });
  await http.put(new URL(file.upload_url, `${http.baseUrl}/`).href, file.headers, blob.slice(0, blob.size, ""), signal);
  const url = `${http.baseUrl}/v1/files/${encodeURIComponent(file.id)}`;
  return new FileRef(http, { id: file.id, name, url, sizeBytes: blob.size, sha256: hash, contentType });
}

type Embedded = Blob | Uint8Array | FileRef;

/** Encodes inputs as JSON. Uploads each `Blob`, `Uint8Array` and file without an id in them once. */
export class InputEncoder {
  /** Weak, because the lines of a batch may contain more bytes than fit into memory. */
  readonly #ids = new WeakMap<Embedded, string>();

  constructor(
    private readonly http: Http,
    private readonly signal: AbortSignal | undefined,
  ) {}

  /** Encodes JSON and uploads the files in it. Without files, this is a single pass. */
  async encode(body: object): Promise<string> {
    const missing = new Set<Embedded>();
    const text = this.#stringify(body, missing);
    if (missing.size === 0) return text;
    for (const file of missing) {
      // Uploads a file of a result, to use it in an input. Only uploaded files have an id.
      const source = file instanceof FileRef ? await file.blob(this.#options()) : file;
      const name = file instanceof FileRef ? { name: file.name } : {};
      const { id } = await upload(this.http, source, { ...name, ...this.#options() });
      this.#ids.set(file, id ?? "");
    }
    return this.#stringify(body, missing);
  }

  #options(): { signal?: AbortSignal } {
    return this.signal === undefined ? {} : { signal: this.signal };
  }

  #stringify(body: object, missing: Set<Embedded>): string {
    const ids = this.#ids;
    return JSON.stringify(body, function (this: Record<string, unknown>, key, value: unknown) {
      const raw = this[key];
      if (raw instanceof Blob || raw instanceof Uint8Array || raw instanceof FileRef) {
        const id = raw instanceof FileRef && raw.id !== undefined ? raw.id : ids.get(raw);
        if (id === undefined) missing.add(raw);
        return { $file: id };
      }
      if (typeof value === "number" && !Number.isFinite(value)) {
        throw new TypeError(`the input cannot be sent as JSON: ${key} is ${value}`);
      }
      return value;
    });
  }
}

/**
 * Replaces each reference to a file in `value` by a readable file.
 *
 * Only paths of the API count as references. A model controls its result, and must not control which servers the client
 * connects to.
 */
export function hydrate(http: Http, value: unknown): unknown {
  if (Array.isArray(value)) return value.map((item) => hydrate(http, item));
  if (typeof value !== "object" || value === null) return value;
  const { $file: name, url, size_bytes, sha256, content_type } = value as Record<string, unknown>;
  if (typeof name === "string" && typeof url === "string" && url.startsWith("/v1/")) {
    return new FileRef(http, {
      name,
      url: http.baseUrl + url,
      sizeBytes: typeof size_bytes === "number" ? size_bytes : undefined,
      sha256: typeof sha256 === "string" ? sha256 : undefined,
      contentType: typeof content_type === "string" ? content_type : undefined,
    });
  }
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, hydrate(http, item)]));
}
