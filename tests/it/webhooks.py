"""Checks that the official Standard Webhooks verifier accepts what it should. Argument: a file of cases, see webhooks.rs."""

import json
import sys
from pathlib import Path

from standardwebhooks import Webhook, WebhookVerificationError

cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
for case in cases:
    try:
        event = Webhook(case["secret"]).verify(case["body"].encode(), case["headers"])
        accepted = event["type"] == case["type"]
    except WebhookVerificationError:
        accepted = False
    assert accepted == case["good"], case
print(len(cases))
