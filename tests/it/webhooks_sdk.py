"""The same as webhooks.py, by the Python SDK's own verifier."""

import json
import sys
from pathlib import Path

from stokehold import WebhookVerificationError, verify_webhook

cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
for case in cases:
    try:
        event = verify_webhook(case["body"].encode(), case["headers"], case["secret"])
        taken = (event.id, event.type) == (case["headers"]["webhook-id"], case["type"])
    except WebhookVerificationError:
        taken = False
    assert taken == case["good"], case
print(len(cases))
