// The same as webhooks.py, in JavaScript: by the official verifier, and by the SDK's own. Arguments: the cases, the SDK's built module.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [file, sdk] = process.argv.slice(2);
const official = createRequire(sdk)("standardwebhooks");
const ours = await import(pathToFileURL(sdk).href);

const verifiers = {
  "the official one": {
    verify: ({ body, headers, secret }) => new official.Webhook(secret).verify(Buffer.from(body), headers),
    refuses: official.WebhookVerificationError,
  },
  "the SDK's": {
    verify: ({ body, headers, secret }) => ours.verifyWebhook(Buffer.from(body), headers, secret),
    refuses: ours.WebhookVerificationError,
  },
};

const cases = JSON.parse(readFileSync(file, "utf8"));
for (const [name, { verify, refuses }] of Object.entries(verifiers)) {
  for (const one of cases) {
    let taken = false;
    try {
      taken = (await verify(one)).type === one.type;
    } catch (error) {
      if (!(error instanceof refuses)) throw error;
    }
    assert.equal(taken, one.good, `${name}: ${JSON.stringify(one)}`);
  }
}
console.log(cases.length);
