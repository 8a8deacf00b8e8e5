import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";

import { verifyWebhook, WebhookVerificationError } from "stokehold";

const KEY = Buffer.from(Array.from({ length: 24 }, (_, n) => n * 7));
const SECRET = `whsec_${KEY.toString("base64")}`;
const OTHER = `whsec_${Buffer.from("another secret of them").toString("base64")}`;
const BODY = JSON.stringify({ type: "job.completed", timestamp: "2026-11-21T05:50:00Z", data: { id: "a", input: "grüß" } });
const NOW = Math.floor(Date.now() / 1000);

/** @param {{ id?: string, at?: number | string, body?: string | Uint8Array, key?: Buffer }} [of] */
function signature({ id = "msg_a_completed", at = NOW, body = BODY, key = KEY } = {}) {
  return `v1,${createHmac("sha256", key).update(`${id}.${at}.`).update(body).digest("base64")}`;
}

/** @param {Record<string, string>} [changed] */
const headers = (changed = {}) => ({
  "webhook-id": "msg_a_completed",
  "webhook-timestamp": String(NOW),
  "webhook-signature": signature(),
  ...changed,
});

test("the signature of the Standard Webhooks specification's own example", async () => {
  // From the reference libraries' tests, long ago by now.
  const sent = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
  };
  const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
  const event = await verifyWebhook('{"test": 2432232314}', sent, secret, { toleranceS: 1e10 });
  assert.deepEqual(event, { test: 2432232314 });
  await assert.rejects(verifyWebhook('{"test": 2432232315}', sent, secret, { toleranceS: 1e10 }), WebhookVerificationError);
});

test("text and bytes, every kind of headers, every case of names", async () => {
  const shouted = Object.fromEntries(Object.entries(headers()).map(([name, value]) => [name.toUpperCase(), value]));
  const listed = Object.fromEntries(Object.entries(headers()).map(([name, value]) => [name, [value]]));
  for (const given of [headers(), new Headers(headers()), shouted, listed]) {
    for (const payload of [BODY, Buffer.from(BODY), new TextEncoder().encode(BODY)]) {
      assert.deepEqual(await verifyWebhook(payload, given, SECRET), JSON.parse(BODY));
    }
  }
});

test("one good signature among several, by one secret among several", async () => {
  const both = `v1,${"A".repeat(43)}= v1a,xyz ${signature({ key: Buffer.from("x") })} ${signature()} v2,x`;
  await verifyWebhook(BODY, headers({ "webhook-signature": both }), SECRET);
  await verifyWebhook(BODY, headers(), [OTHER, SECRET]);
  await verifyWebhook(BODY, headers(), KEY.toString("base64"));
  await assert.rejects(verifyWebhook(BODY, headers(), OTHER), WebhookVerificationError);
});

const GOOD = signature();

/** @type {Record<string, string>} */
const BAD = {
  "an empty one": "",
  "an empty version 1": "v1,",
  "only a space": " ",
  "a short one": GOOD.slice(0, 20),
  "one without its padding": GOOD.slice(0, -1),
  "a longer one": `${GOOD}=`,
  "one without a version": GOOD.slice(3),
  "another version": GOOD.replace("v1,", "v2,"),
  "the asymmetric version": GOOD.replace("v1,", "v1a,"),
  "a version in capitals": GOOD.replace("v1,", "V1,"),
  "commas between": `v1,AAAA,${GOOD}`,
  "one over another id": signature({ id: "msg_b" }),
  "one over another time": signature({ at: NOW - 1 }),
  "one over another body": signature({ body: `${BODY} ` }),
  "hexadecimal": `v1,${Buffer.from(GOOD.slice(3), "base64").toString("hex")}`,
  "one too many others before it": `${"v1,x ".repeat(40)}${GOOD}`,
};

for (const [what, value] of Object.entries(BAD)) {
  test(`a signature fails that is ${what}`, async () => {
    await assert.rejects(verifyWebhook(BODY, headers({ "webhook-signature": value }), SECRET), WebhookVerificationError);
  });
}

test("a header that is missing, empty or there twice fails", async () => {
  for (const name of ["webhook-id", "webhook-timestamp", "webhook-signature"]) {
    const { [name]: value, ...rest } = /** @type {Record<string, string>} */ (headers());
    for (const given of [rest, { ...rest, [name]: "" }, { ...rest, [name]: [value, value] }, { ...headers(), [name.toUpperCase()]: value }]) {
      await assert.rejects(verifyWebhook(BODY, /** @type {any} */ (given), SECRET), WebhookVerificationError);
    }
    await assert.rejects(verifyWebhook(BODY, new Headers(rest), SECRET), WebhookVerificationError);
  }
});

test("too old and too new fail, to the second, and so does what is no time", async () => {
  /** @param {number | string} at */
  const at = (at) => headers({ "webhook-timestamp": String(at), "webhook-signature": signature({ at }) });
  for (const ok of [NOW - 290, NOW + 290]) await verifyWebhook(BODY, at(ok), SECRET);
  for (const no of [NOW - 302, NOW + 305, 0, "", "soon", "-5", "1e9", `${NOW}.5`, ` ${NOW}`, "NaN", "9".repeat(20)]) {
    await assert.rejects(verifyWebhook(BODY, at(no), SECRET), WebhookVerificationError, `at ${no}`);
  }
  await verifyWebhook(BODY, at(NOW - 3000), SECRET, { toleranceS: 3600 });
  await assert.rejects(verifyWebhook(BODY, at(NOW - 5), SECRET, { toleranceS: 1 }), WebhookVerificationError);
});

test("what is signed but not JSON fails", async () => {
  const given = headers({ "webhook-signature": signature({ body: "hi" }) });
  await assert.rejects(verifyWebhook("hi", given, SECRET), WebhookVerificationError);
});

test("a caller's own mistake is told as one, without the secret", async () => {
  for (const secret of ["", "whsec_", "whsec_%%%", [], ["", SECRET]]) {
    await assert.rejects(verifyWebhook(BODY, headers(), secret), TypeError);
  }
  await assert.rejects(verifyWebhook(BODY, headers(), "whsec_p%ssw"), (/** @type {Error} */ error) => !error.message.includes("p%ssw"));
  await assert.rejects(verifyWebhook(BODY, headers(), SECRET, { toleranceS: NaN }), TypeError);
});
