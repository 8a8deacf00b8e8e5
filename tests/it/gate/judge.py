"""Accepts a result that is twice the number in its line."""

import json
import sys

for text in sys.stdin:
    done = json.loads(text)
    wanted = done["case"]["input"]["n"] * 2
    print(json.dumps({"line": done["line"], "accepted": done["result"] == wanted, "comment": f"wants {wanted}"}))
