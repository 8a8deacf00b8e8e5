"""Makes generated requests valid where the document cannot express a rule, so that not only rejections are tested."""

import os
from pathlib import Path

import schemathesis

DEPLOYED = "echo"

# Members that a valid body of these operations must have, and members that are allowed only together with
# another.
WANTED = {
    "/v1/jobs": {"endpoint": DEPLOYED, "input": {"text": "hello"}},
    "/v1/jobs/bulk": {"jobs": [{"endpoint": DEPLOYED, "input": {"text": "hello"}}] * 2},
    "/v1/batches": {"endpoint": DEPLOYED, "lines": [{"input": {"text": "hello"}}]},
    "/v1/schedules": {"cron": "30 9 * * MON-FRI", "job": {"endpoint": DEPLOYED, "input": {"text": "hello"}}},
    "/v1/files": {"name": "a.txt", "size_bytes": 5},
}
REFUSED = (
    "version",
    "run_after",
    "depends_on",
    "webhook",
    "webhook_events",
    "concurrency_key",
    "concurrency_max",
    "metadata",
    "input_file",
    "input_key",
    "format",
    "time_zone",
    "name",
    "content_type",
    "idempotency_key",
)


@schemathesis.hook
def before_call(context, case, kwargs):
    """Inserts valid references into valid calls that create something, and shortens waits for jobs that never end."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if case.query and case.query.get("wait_s"):
        case.query["wait_s"] = 1
    if case.query:
        # It would evict the stack's only worker.
        case.query.pop("with_workers", None)
    for header, value in {"Prefer": "wait=1", "Idempotency-Key": None}.items():
        if case.headers and header in case.headers:
            if value is None:
                del case.headers[header]
            else:
                case.headers[header] = value
    if case.method == "POST" and case.path in WANTED and isinstance(case.body, dict):
        kept = {member: value for member, value in case.body.items() if member not in REFUSED}
        case.body = kept | WANTED[case.path]


@schemathesis.hook
def after_call(context, case, response):
    """Records each response: run.sh fails if every submit was rejected, because such a run would prove nothing."""
    with Path(os.environ["SCHEMA_TALLY"]).open("a", encoding="utf-8") as tally:
        tally.write(f"{case.method} {case.path} {response.status_code}\n")
