// Whether a webhook is Stokehold's: Standard Webhooks, symmetric signatures (`v1`).

import { hmacSha256 } from "../internal/crypto.js";
import type { Batch } from "../resources/batch_record.js";
import type { JobHookEvent, JobRecord } from "../resources/record.js";
import { WebhookVerificationError } from "./error.js";

/** What a webhook says. A large input or result is left out of a job; look the job up then. */
export type WebhookEvent =
  | { type: JobHookEvent; timestamp: string; data: JobRecord }
  | { type: "batch.completed"; timestamp: string; data: Batch };

/** `Headers`, or an object of them as Node's `request.headers`; names in any case. */
export type WebhookHeaders = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

export interface VerifyOptions {
  /** How old, or how far ahead of this clock, a webhook may be. Default 300. */
  toleranceS?: number;
}

const PREFIX = "whsec_";
const VERSION = "v1,";

/** More than one is for the time after a rotation; a header of thousands would be work for nothing. */
const SIGNATURES_MAX = 32;

/**
 * What a webhook says, once it is sure that it was signed with one of these secrets, within the last `toleranceS`.
 *
 * `payload` is the body exactly as it came: parsed and written again, it is another. Throws `WebhookVerificationError`.
 * A delivery may come more than once; its `webhook-id` header stays the same.
 */
export async function verifyWebhook(
  payload: string | Uint8Array,
  headers: WebhookHeaders,
  secret: string | readonly string[],
  { toleranceS = 300 }: VerifyOptions = {},
): Promise<WebhookEvent> {
  if (!(toleranceS >= 0)) throw new TypeError(`toleranceS is ${toleranceS}; it is a number of seconds`);
  const keys = (typeof secret === "string" ? [secret] : secret).map(keyOf);
  if (keys.length === 0) throw new TypeError("there is no secret to verify a webhook with");

  const id = header(headers, "webhook-id");
  const timestamp = header(headers, "webhook-timestamp");
  const given = header(headers, "webhook-signature").split(" ").filter((part) => part.startsWith(VERSION));
  checkTime(timestamp, toleranceS);

  const body = typeof payload === "string" ? new TextEncoder().encode(payload) : payload;
  const signed = concat(new TextEncoder().encode(`${id}.${timestamp}.`), body);
  let matches = false;
  for (const key of keys) {
    const expected = VERSION + base64(await hmacSha256(key, signed));
    // Every one is compared: how long this takes tells nothing of which it was.
    for (const signature of given.slice(0, SIGNATURES_MAX)) matches = equal(signature, expected) || matches;
  }
  if (!matches) throw new WebhookVerificationError("no signature of the webhook is one by this secret over this body");
  try {
    return JSON.parse(new TextDecoder().decode(body)) as WebhookEvent;
  } catch (cause) {
    throw new WebhookVerificationError("the webhook is signed, but its body is not JSON", { cause });
  }
}

/** The value of a header that is there once and not empty. */
function header(headers: WebhookHeaders, name: string): string {
  const values = isHeaders(headers)
    ? [headers.get(name)]
    : Object.entries(headers).flatMap(([key, value]) => (key.toLowerCase() === name ? (value ?? []) : []));
  const [value] = values;
  if (values.length !== 1 || typeof value !== "string" || value === "") {
    throw new WebhookVerificationError(`the webhook has no ${name} header, or more than one`);
  }
  return value;
}

/** By what it can do: frameworks bring `Headers` of their own. */
function isHeaders(headers: WebhookHeaders): headers is Headers {
  return typeof (headers as Headers).get === "function";
}

function checkTime(timestamp: string, toleranceS: number): void {
  if (!/^\d{1,15}$/.test(timestamp)) {
    throw new WebhookVerificationError("the webhook's timestamp is not in unix seconds");
  }
  const ageS = Math.floor(Date.now() / 1000) - Number(timestamp);
  if (ageS > toleranceS) throw new WebhookVerificationError(`the webhook is ${ageS} s old, more than ${toleranceS}`);
  if (-ageS > toleranceS) {
    throw new WebhookVerificationError(`the webhook is of ${-ageS} s from now, more than ${toleranceS}`);
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
  // Said without the secret, which would end up in a log.
  if (bytes === "") throw new TypeError(`the webhook secret is not one: it is ${PREFIX} and base64`);
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

/** In a time that depends on the length of `given` alone, which is no secret. */
function equal(given: string, expected: string): boolean {
  let different = given.length ^ expected.length;
  for (let at = 0; at < given.length; at += 1) {
    different |= given.charCodeAt(at) ^ expected.charCodeAt(at % expected.length);
  }
  return different === 0;
}
