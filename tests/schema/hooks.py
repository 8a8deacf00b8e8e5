"""What the document cannot say, so that more than refusals is tried."""

import schemathesis

DEPLOYED = "echo"


@schemathesis.hook
def map_body(context, body):
    """Most submits name the endpoint that is there, and give it what it takes. One in four stays as it was."""
    if not isinstance(body, dict) or len(str(body)) % 4 == 3:
        return body
    if isinstance(body.get("lines"), list):
        body["lines"] = [{"input": {"text": "hello"}} for _ in body["lines"]]
        body.pop("input_file", None)
        body.pop("input_key", None)
    for job in [body, body.get("job"), *(body.get("jobs") if isinstance(body.get("jobs"), list) else [])]:
        if isinstance(job, dict) and "endpoint" in job:
            job["endpoint"] = DEPLOYED
            for late in ("version", "run_after", "depends_on", "webhook", "webhook_events"):
                job.pop(late, None)
            if "input" in job:
                job["input"] = {"text": "hello"}
    return body


@schemathesis.hook
def map_query(context, query):
    """Nobody waits long for jobs that never end."""
    if isinstance(query, dict) and query.get("wait_s"):
        query["wait_s"] = 1
    return query


@schemathesis.hook
def map_headers(context, headers):
    if headers and "Prefer" in headers:
        headers["Prefer"] = "wait=1"
    return headers
