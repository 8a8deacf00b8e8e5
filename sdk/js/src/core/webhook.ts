// Verifies that a request to your webhook is from your Stokehold: Standard Webhooks, symmetric signatures (`v1`).

import type { Batch } from "../generated/batches.js";
import type { JobHookEvent, JobRecord } from "../generated/jobs.js";
import { hmacSha256 } from "../internal/crypto.js";
import { WebhookVerificationError } from "./error.js";

/**
 * An event. `type` is e.g. "job.completed", and `data` the job or batch.
 *
 * A job does not include a large input or result; fetch the job to read them.
 */
export type WebhookEvent =
  | { type: JobHookEvent; timestamp: string; data: JobRecord }
  | { type: "batch.completed"; timestamp: string; data: Batch };

/** The headers of a request: `Headers`, or an object like `request.headers` of Node. Names can be in any case. */
export type WebhookHeaders = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

export interface VerifyOptions {
  /** The allowed difference between the clocks of the sender and of this machine, in seconds. Default 300. */
  toleranceS?: number;
}

const PREFIX = "whsec_";
const VERSION = "v1,";

/** Far more than a sender has secrets. Each signature costs a comparison. */
const SIGNATURES_MAX = 32;

/**
 * Verifies a delivery and decodes it. Throws `WebhookVerificationError` unless it is authentic and recent.
 *
 * A delivery may arrive more than once: ignore a `webhook-id` that you have already processed.
 *
 * @param payload The body exactly as received. JSON that was decoded and encoded again has another signature.
 * @param headers The headers of the request, with names in any case.
 * @param secret The secret from `client.webhooks.secret()`, or several during a rotation.
 */
export async function verifyWebhook(
  payload: string | Uint8Array,
  headers: WebhookHeaders,
  secret: string | readonly string[],
  { toleranceS = 300 }: VerifyOptions = {},
): Promise<WebhookEvent> {
  if (!(toleranceS >= 0)) throw new TypeError(`toleranceS is ${toleranceS}; pass a number of seconds, at least 0`);
  const keys = (typeof secret === "string" ? [secret] : secret).map(keyOf);
  if (keys.length === 0) throw new TypeError("no secret given; pass at least one");

  const id = header(headers, "webhook-id");
  const timestamp = header(headers, "webhook-timestamp");
  const given = header(headers, "webhook-signature").split(" ").filter((part) => part.startsWith(VERSION));
  checkTime(timestamp, toleranceS);

  const body = typeof payload === "string" ? new TextEncoder().encode(payload) : payload;
  const signed = concat(new TextEncoder().encode(`${id}.${timestamp}.`), body);
  let matches = false;
  for (const key of keys) {
    const expected = VERSION + base64(await hmacSha256(key, signed));
    // Every pair is compared, so that the time does not reveal which one matches.
    for (const signature of given.slice(0, SIGNATURES_MAX)) matches = equal(signature, expected) || matches;
  }
  if (!matches) {
    throw new WebhookVerificationError("no signature matches: the secret is another one, or the body was changed");
  }
  try {
    return JSON.parse(new TextDecoder().decode(body)) as WebhookEvent;
  } catch (cause) {
    throw new WebhookVerificationError("the body is signed, but it is not JSON", { cause });
  }
}

/** The value of a header. Throws if the header is missing, empty or repeated. */
function header(headers: WebhookHeaders, name: string): string {
  const values = isHeaders(headers)
    ? [headers.get(name)]
    : Object.entries(headers).flatMap(([key, value]) => (key.toLowerCase() === name ? (value ?? []) : []));
  const [value] = values;
  if (values.length !== 1 || typeof value !== "string" || value === "") {
    throw new WebhookVerificationError(`the header ${name} is missing or repeated`);
  }
  return value;
}

/** Checks for the method instead of the class, because some frameworks have their own `Headers`. */
function isHeaders(headers: WebhookHeaders): headers is Headers {
  return typeof (headers as Headers).get === "function";
}

function checkTime(timestamp: string, toleranceS: number): void {
  if (!/^\d{1,15}$/.test(timestamp)) {
    throw new WebhookVerificationError("the header webhook-timestamp is not a number of seconds");
  }
  const ageS = Math.floor(Date.now() / 1000) - Number(timestamp);
  if (ageS > toleranceS) {
    throw new WebhookVerificationError(`the delivery is ${ageS} s old; check the clock of this machine`);
  }
  if (-ageS > toleranceS) {
    const what = `the delivery is dated ${-ageS} s in the future`;
    throw new WebhookVerificationError(`${what}; check the clock of this machine`);
  }
}

function keyOf(secret: string): Uint8Array<ArrayBuffer> {
  const text = secret.startsWith(PREFIX) ? secret.slice(PREFIX.length) : secret;
  let bytes: string;
  try {
    bytes = atob(text);
  } catch {
    bytes = "";
  }
  // The message does not contain the secret, which would end up in a log.
  if (bytes === "") throw new TypeError(`the secret is empty or not base64; a secret looks like ${PREFIX}MfKQ...`);
  return Uint8Array.from(bytes, (char) => char.charCodeAt(0));
}

function base64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}

function concat(head: Uint8Array, tail: Uint8Array): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(head.length + tail.length);
  all.set(head);
  all.set(tail, head.length);
  return all;
}

/** Compares in a time that depends only on the length of `given`, which is not secret. */
function equal(given: string, expected: string): boolean {
  let different = given.length ^ expected.length;
  for (let at = 0; at < given.length; at += 1) {
    different |= given.charCodeAt(at) ^ expected.charCodeAt(at % expected.length);
  }
  return different === 0;
}
