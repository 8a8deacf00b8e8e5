"""The generated models: up to date, complete, and extended by a new member of the API without a line by hand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import stokehold
from stokehold import types
from stokehold._generated import decorator, endpoints, limits, workers
from stokehold._generated.options import ScheduleTiming
from stokehold.runner.decorator import Options

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "sdk"))

from generate import shapes  # noqa: E402 (the generator is not installed)

DOCUMENT = json.loads((ROOT / "api/openapi.json").read_text(encoding="utf-8"))
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]

# The objects that responses consist of, and their classes.
OBJECTS: dict[str, Any] = {
    "Job": stokehold.Job,
    "Attempt": stokehold.Attempt,
    "Timing": stokehold.Timing,
    "JobError": stokehold.Failure,
    "Progress": stokehold.Progress,
    "JobCost": stokehold.JobCost,
    "Waiting": stokehold.Waiting,
    "Dependency": stokehold.Dependee,
    "StepRun": stokehold.StepRun,
    "Retried": stokehold.Retried,
    "Batch": stokehold.Batch,
    "BatchCounts": stokehold.BatchCounts,
    "BatchLineError": stokehold.InvalidLine,
    "Estimate": stokehold.BatchEstimate,
    "Schedule": stokehold.Schedule,
    "EndpointVersion": stokehold.Endpoint,
    "Step": endpoints.EndpointStep,
    "RetryPolicy": endpoints.EndpointRetry,
    "Requirements": endpoints.EndpointRequirements,
    "Runner": endpoints.EndpointRunner,
    "Weight": endpoints.EndpointWeight,
    "Worker": stokehold.Worker,
    "Gpu": workers.WorkerGpu,
    "Host": workers.WorkerHost,
    "Model": workers.LoadedModel,
    "ModelOnGpu": workers.ModelOnGpu,
    "WebhookSecret": stokehold.WebhookSecret,
    "WebhookDelivery": stokehold.Delivery,
    "WebhookTry": stokehold.DeliveryTry,
    "Feedback": stokehold.Feedback,
    "VersionFeedback": stokehold.FeedbackStats,
    "OwnLimits": stokehold.Limits,
    "Limits": limits.TenantLimits,
    "LimitsOf": limits.EndpointLimits,
    "Usage": limits.Usage,
    "BudgetOfDay": limits.BudgetUsage,
}
# The others have the names in the table of the generator, and are in `stokehold.types`.
OBJECTS |= {
    shape.schema: getattr(types, shape.python)
    for shape in shapes.all_shapes()
    if shape.python and shape.schema not in OBJECTS and shape.schema in SCHEMAS
}

# Answers whose only member the clients return, or that are pages of a list, and those of operations without a method.
WRAPPERS = {
    *("BatchList", "BulkReply", "CancelledMany", "DeadLetters", "DeliveryList", "EndpointList"),
    *("EndpointStats", "FeedbackSummary", "FileList", "ForgottenNeeds", "JobList", "Needs", "QuarantineOutcomes"),
    *("QueueView", "ReadingList", "RequirementSetList", "RetriedMany", "ScheduleList", "SecretList", "TenantList"),
    *("TokenList", "Traffic", "TrafficPart", "VersionList", "WorkerList"),
}
# What an upload, a deploy and the streams of events and examples decode by hand, and what the dashboard reads.
BY_HAND = {"File", "FileUpload", "PackageReply", "WeightsReply", "WeightsUrl", "StreamEvent", "FeedbackLine"}
OTHERS = {"LiveEvent", "Ready", "Series", "SeriesPoint", "Session"}
NAMES = {
    ("Costs", "from"): "from_day",
    ("Costs", "to"): "to_day",
    ("JobError", "class"): "class_name",
    ("Dependency", "job"): "job_id",
    ("Batch", "errors"): "invalid_lines",
    ("Schedule", "paused"): "is_paused",
}

# That of before the fixtures, which change HOME: rustfmt finds its toolchain there.
ENVIRONMENT = dict(os.environ)

# What the generator writes beside Python, TypeScript and the docs.
MANIFEST = "crates/package/src/manifest/fields.rs"

# The requests, their options, and the members that are arguments of the call or that the client sets.
PACKAGED = {"package_sha256", "package_size_bytes", "entry", "requirements_lock", "runner"}
PACKAGED |= {"input_schema", "output_schema"}
REQUESTS: dict[str, tuple[set[str], set[str]]] = {
    "SubmitRequest": (set(stokehold.JobOptions.__annotations__), {"endpoint", "input", "idempotency_key"}),
    "JobFilter": (set(stokehold.JobFilter.__annotations__), set()),
    "BatchRequest": (
        set(stokehold.BatchOptions.__annotations__),
        {"endpoint", "lines", "input_file", "input_key", "idempotency_key"},
    ),
    "ScheduleRequest": (set(ScheduleTiming.__annotations__), {"cron", "job"}),
    "FeedbackRequest": (set(stokehold.Rating.__annotations__), set()),
    "DeployRequest": (
        set(stokehold.DeployOptions.__annotations__),
        PACKAGED - {"input_schema", "output_schema"} | {"name", "python", "demands", "traffic_percent"},
    ),
    # Of the decorator; its options that are in stoke.toml are missing.
    "Requirements": (set(decorator.EndpointOptions.__annotations__), set()),
    "Step": ({field.name for field in fields(stokehold.Step)}, set()),
    "RetryPolicy": ({field.name for field in fields(stokehold.JobRetry)}, set()),
}


def properties(schema: str) -> set[str]:
    raw = SCHEMAS[schema]
    return {name for one in (raw, *raw.get("oneOf", ())) for name in one.get("properties", ())}


@pytest.mark.parametrize("schema", OBJECTS)
def test_a_class_has_every_member_of_its_schema(schema: str) -> None:
    found = OBJECTS[schema]
    names = {field.name for field in fields(found)} if is_dataclass(found) else {*dir(found), *found.__annotations__}
    assert properties(schema)
    assert {name for name in properties(schema) if NAMES.get((schema, name), name) not in names} == set()


def test_every_object_that_a_member_refers_to_has_a_class() -> None:
    for schema in OBJECTS:
        for ref in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(SCHEMAS[schema])):
            assert ref in OBJECTS or "enum" in SCHEMAS[ref], f"{schema} refers to {ref}"


def test_every_object_that_the_api_answers_has_a_class() -> None:
    answers = [one["responses"] for methods in DOCUMENT["paths"].values() for one in methods.values()]
    good = [{status: each for status, each in one.items() if status[0] == "2"} for one in answers]
    left, seen = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(good))), set()
    while left:
        seen.add(schema := left.pop())
        left |= set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(SCHEMAS[schema]))) - seen
    assert {one for one in seen if "enum" not in SCHEMAS[one]} - set(OBJECTS) - WRAPPERS - BY_HAND - OTHERS == set()


@pytest.mark.parametrize("schema", REQUESTS)
def test_options_have_every_member_of_their_request(schema: str) -> None:
    options, others = REQUESTS[schema]
    assert properties(schema) - options == others


def test_the_decorator_has_every_option_of_a_deploy() -> None:
    kept_in_files = {"env", "weights", "allow_pickle", "python", "traffic_percent"}
    options = set(decorator.EndpointOptions.__annotations__)
    assert options == {field.name for field in fields(Options)}
    assert properties("DeployRequest") - options == PACKAGED | kept_in_files | {"demands"}
    defaults = {field.name: field.default for field in fields(Options)}
    for name, raw in SCHEMAS["DeployRequest"]["properties"].items():
        if name in options and "default" in raw:
            assert defaults[name] == raw["default"], name


def generate(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "generate", *arguments]
    return subprocess.run(
        command, cwd=root / "sdk", env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_generated_files_are_up_to_date() -> None:
    check = generate(ROOT, "--check")
    assert check.returncode == 0, check.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the document, the generator and what it writes, for a test to change."""
    for name in ("sdk/generate", "sdk/python/src/stokehold", "sdk/js/src", "docs/reference"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("api/openapi.json", "sdk/python/pyproject.toml", "rustfmt.toml", MANIFEST):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_a_new_member_of_the_api_is_in_both_sdks_and_in_the_docs(copy: Path) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    schemas = document["components"]["schemas"]
    schemas["Job"]["properties"]["mood"] = {"type": ["string", "null"], "description": "Its mood."}
    option = {"type": ["integer", "null"], "description": "Its speed. Default 3.", "default": 3, "maximum": 9}
    for schema in ("SubmitRequest", "DeployRequest"):
        schemas[schema]["properties"]["speed_s"] = option
    (copy / "api/openapi.json").write_text(json.dumps(document), encoding="utf-8")
    check = generate(copy, "--check")
    assert check.returncode == 1
    assert "docs/reference/job.md is out of date: run `make models`" in check.stderr
    assert generate(copy).returncode == 0
    assert generate(copy, "--check").returncode == 0
    assert dict(_added(copy)) == {
        "docs/reference/endpoint-options.md": ["| `speed_s` | integer | 0 to 9 | 3 | Its speed. |"],
        "docs/reference/javascript.md": ["| `mood` | `string or null` | Its mood. |"],
        "docs/reference/job.md": ["| `mood` | string or null | Its mood. |"],
        "docs/reference/python.md": ["| `mood` | `str or None` | Its mood. |"],
        "docs/reference/submit-options.md": ["| `speed_s` | integer | 0 to 9 | 3 | Its speed. |"],
        "sdk/js/src/generated/jobs.ts": ["/** Its mood. */", "mood: string | null;"],
        "sdk/js/src/generated/options.ts": ["speedS?: number;"] * 2,
        "sdk/js/src/generated/values.ts": ["mood: null,", *['speedS: "speed_s",'] * 2],
        "sdk/python/src/stokehold/_generated/decorator.py": [
            '"speed_s": Bounds("integer", most=9),',
            "speed_s: Its speed. 0 to 9. Default 3.",
            "speed_s: int",
            "speed_s: int = 3",
        ],
        "sdk/python/src/stokehold/_generated/jobs.py": [
            "def mood(self) -> str | None:",
            '"""Its mood."""',
            'return self.raw.get("mood")',
        ],
        "sdk/python/src/stokehold/_generated/options.py": [
            *["speed_s: Its speed. 0 to 9. Default 3.", "speed_s: int | None"] * 2
        ],
    }


def _added(copy: Path) -> Iterator[tuple[str, list[str]]]:
    """The lines with the new members, by file."""
    for path in sorted(copy.rglob("*.*")):
        if path.suffix in (".py", ".ts", ".md") and "generate" not in path.relative_to(copy).parts:
            lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
            if found := [line for line in lines if re.search("mood|speed_?s", line, re.IGNORECASE)]:
                yield path.relative_to(copy).as_posix(), found
