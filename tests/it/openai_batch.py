"""A batch through the official client of OpenAI, while the engine, the worker and the replica of the API are killed.

Usage: python openai_batch.py LINES BUDGET_USD TOKENS. Prints the id of the batch when it exists, and the outcome as JSON
when it has ended. OPENAI_BASE_URL is a replica that may be killed once the id is printed; LASTING_URL is one that stays.
"""

import datetime
import json
import os
import sys
import time
import urllib.request

import openai

LINES, BUDGET_USD, TOKENS = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
URL = "/v1/chat/completions"


def line(n: int) -> dict:
    # The model is random, so that its end of text is, too.
    body = {"model": "chat", "max_tokens": TOKENS, "ignore_eos": True}
    body["messages"] = [{"role": "user", "content": f"line {n}"}]
    return {"custom_id": f"line-{n}", "method": "POST", "url": URL, "body": body}


def stoke(path: str) -> dict:
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    request = urllib.request.Request(os.environ["LASTING_URL"] + path, headers=headers)
    with urllib.request.urlopen(request, timeout=90) as response:
        return json.load(response)


def ran_s(batch_id: str) -> float:
    """Seconds from the start of the first attempt at a line to the end of the last one."""
    jobs = stoke(f"/v1/jobs?limit=100&batch={batch_id}")["jobs"]
    attempts = [attempt for job in jobs for attempt in stoke(f"/v1/jobs/{job['id']}")["attempts"]]
    times = {
        end: [datetime.datetime.fromisoformat(attempt[end]) for attempt in attempts] for end in ("started_at", "ended_at")
    }
    return (max(times["ended_at"]) - min(times["started_at"])).total_seconds()


client = openai.OpenAI()
data = "".join(json.dumps(line(n)) + "\n" for n in range(LINES)).encode()
file = client.files.create(file=("lines.jsonl", data), purpose="batch")
batch = client.batches.create(
    input_file_id=file.id,
    endpoint=URL,
    completion_window="24h",
    metadata={"budget_usd": BUDGET_USD},
    extra_body={"at_budget": "stop"},
)
print(batch.id, flush=True)

lasting = openai.OpenAI(base_url=os.environ["LASTING_URL"] + "/openai/v1")
# OpenAI's API has no call that waits.
while batch.status not in ("completed", "failed", "cancelled", "expired"):
    time.sleep(0.2)
    batch = lasting.batches.retrieve(batch.id)

read = {
    name: [json.loads(text) for text in lasting.files.content(file_id).text.splitlines()]
    for name, file_id in (("output", batch.output_file_id), ("errors", batch.error_file_id))
    if file_id
}
bodies = [answered["response"]["body"] for answered in read.get("output", [])]
print(
    json.dumps(
        {
            "status": batch.status,
            "counts": batch.request_counts.model_dump(),
            # A list of jobs has at most 100.
            "ran_s": ran_s(batch.id) if LINES <= 100 else None,
            "usage": batch.usage.model_dump() if batch.usage else None,
            "output": [answered["custom_id"] for answered in read.get("output", [])],
            "errors": [[answered["custom_id"], answered["error"]["code"]] for answered in read.get("errors", [])],
            "prompt_tokens": sum(body["usage"]["prompt_tokens"] for body in bodies),
            "completion_tokens": sum(body["usage"]["completion_tokens"] for body in bodies),
        }
    )
)
