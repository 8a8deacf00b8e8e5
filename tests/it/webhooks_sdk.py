"""Checks the same as webhooks.py with the verifier of the Python SDK."""

import json
import sys
from pathlib import Path

from stokehold import WebhookVerificationError, verify_webhook

cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
for case in cases:
    try:
        event = verify_webhook(case["body"].encode(), case["headers"], case["secret"])
        accepted = (event.id, event.type) == (case["headers"]["webhook-id"], case["type"])
    except WebhookVerificationError:
        accepted = False
    assert accepted == case["good"], case
print(len(cases))
