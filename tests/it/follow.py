"""Follows a job and prints each event as a line of JSON. Argument: the job's id."""

import json
import sys

from stokehold import Client

with Client() as client:
    for event in client.events(sys.argv[1]):
        line = {"type": event.type}
        for name in ("value", "text", "state"):
            if hasattr(event, name):
                line[name] = getattr(event, name)
        print(json.dumps(line))
