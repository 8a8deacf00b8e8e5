"""Accepts a result that has the number which the line asked for, doubled."""

import json
import sys

for text in sys.stdin:
    done = json.loads(text)
    wanted = done["case"]["input"]["n"] * 2
    print(json.dumps({"line": done["line"], "accepted": done["result"] == wanted, "comment": f"wants {wanted}"}))
