"""docs/reference/errors.md: the codes of problems and of failed jobs, with what to do about each."""

from __future__ import annotations

import re

from advice import JOBS, PROBLEMS
from source import ROOT
from text import header, page, table, wrapped

PROBLEM = ROOT / "api/src/error.rs"
JOB = ROOT / "crates/protocol/src/job/error.rs"

INTRO = (
    "For developers of applications: every error of the API and of a job, and what to do about it. Errors of the API "
    "are `application/problem+json` (RFC 9457): `{type, title, status, code, detail, errors?}`. "
    "`code` is stable, `detail` describes this case, and `errors` lists `{path, message}`: a JSON pointer into the "
    "body, e.g. `/input/text` or `/jobs/2/input/text`, or the name of a query parameter or a header. Every response "
    "has an `x-request-id`, which the log of the API contains too."
)
STATUSES = {
    "BAD_REQUEST": 400,
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "REQUEST_TIMEOUT": 408,
    "CONFLICT": 409,
    "PAYLOAD_TOO_LARGE": 413,
    "UNPROCESSABLE_ENTITY": 422,
    "TOO_MANY_REQUESTS": 429,
    "INTERNAL_SERVER_ERROR": 500,
    "SERVICE_UNAVAILABLE": 503,
}


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def variants(text: str, name: str) -> dict[str, str]:
    """The variants of an enum with their descriptions."""
    body = re.search(rf"pub enum {name} \{{(.*?)\n\}}", text, re.DOTALL)
    if body is None:
        raise SystemExit(f"the enum {name} is not where tests/docs/errors.py looks for it")
    found, doc = {}, []
    for line in body[1].splitlines():
        line = line.strip()
        if line.startswith("///"):
            doc.append(line[3:].strip())
        elif match := re.match(r"^([A-Z]\w+),$", line):
            found[match[1]] = " ".join(doc)
            doc = []
    return found


def complete(kind: str, known: set[str], described: set[str]) -> None:
    """Fail if advice is missing for a code."""
    if missing := sorted(known - described):
        raise SystemExit(f"docs/reference/errors.md: add what to do for {missing} to {kind} in tests/docs/advice.py")


def pages() -> dict[str, str]:
    text = PROBLEM.read_text(encoding="utf-8")
    statuses = dict(re.findall(r"Self::(\w+) => (?:\{\s*)?\(StatusCode::(\w+),", text))
    problems = variants(text, "Code")
    complete("PROBLEMS", {snake(name) for name in problems}, set(PROBLEMS))
    rows = sorted(
        (STATUSES[statuses[name]], order, f"`{snake(name)}`", doc, PROBLEMS[snake(name)])
        for order, (name, doc) in enumerate(problems.items())
    )
    jobs = variants(JOB.read_text(encoding="utf-8"), "ErrorCode")
    complete("JOBS", {snake(name) for name in jobs}, set(JOBS))
    job_rows = [(f"`{snake(name)}`", doc, JOBS[snake(name)]) for name, doc in jobs.items()]
    head = ("Code", "Meaning", "What to do")
    return {
        "errors.md": page(
            "# Error codes",
            header("the code"),
            wrapped(INTRO),
            "## Problems of requests",
            wrapped(
                "A request with an idempotency key can be repeated without a second effect; see "
                "[idempotent submission](retries-and-failures.md#idempotent-submission)."
            ),
            table(("Status", *head), [(str(status), *row) for status, _, *row in rows]),
            "## Errors of jobs",
            wrapped(
                "`error.code` of a job, of one of its attempts, or of a line of a batch. [Retries and "
                "failures](retries-and-failures.md) describes which of them are retried."
            ),
            table(head, job_rows),
        )
    }
