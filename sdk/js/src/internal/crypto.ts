// Random ids, SHA-256 and HMAC of the platform.

/** Not a literal, so that bundlers for browsers ignore it. Only Node 18 has no global `crypto`. */
const NODE_CRYPTO: string = "node:crypto";

async function webCrypto(): Promise<Crypto> {
  return globalThis.crypto ?? ((await import(NODE_CRYPTO)) as { webcrypto: Crypto }).webcrypto;
}

/** A random UUID. Pages on plain http have no `randomUUID`. */
export async function uuid(): Promise<string> {
  const crypto = await webCrypto();
  if (typeof crypto.randomUUID === "function") return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6]! & 0x0f) | 0x40;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  return hex(bytes).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** SHA-256 in lower-case hex. */
export async function sha256(bytes: ArrayBuffer): Promise<string> {
  return hex(new Uint8Array(await (await subtle()).digest("SHA-256", bytes)));
}

/** HMAC-SHA256. */
export async function hmacSha256(key: Uint8Array<ArrayBuffer>, bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const crypto = await subtle();
  const imported = await crypto.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await crypto.sign("HMAC", imported, bytes));
}

async function subtle(): Promise<SubtleCrypto> {
  const crypto = await webCrypto();
  if (crypto.subtle === undefined) {
    throw new TypeError("files and webhooks require SHA-256, which browsers have only on https and localhost pages");
  }
  return crypto.subtle;
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
