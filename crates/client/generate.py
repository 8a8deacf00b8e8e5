"""Writes the Rust models of the API, and the flags of `stoke submit` and `stoke batch submit`, from api/openapi.json.

`make openapi` runs it; with --check it writes nothing and fails if a file is out of date.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "api" / "openapi.json"
MODELS = ROOT / "crates" / "client" / "src" / "models.rs"
FLAGS = ROOT / "cli" / "src" / "submit" / "flags.rs"
WIDTH = 120

# What the programs of this repository decode and send. Schemas that these name are generated too.
RESPONSES = [
    "Batch", "BatchEstimate", "CancelledMany", "ChangeList", "Costs", "Deletion", "DeliveryList", "EndpointList",
    "Evicted", "Feedback", "FeedbackSummary", "File", "FileList", "FileUpload", "Fleet", "ForgottenNeeds", "Health",
    "Job", "LimitsShown", "Needs", "OwnLimits", "PackageReply", "Quarantine", "QuarantineOutcomes", "QueueView",
    "Ready", "RequirementSetList", "RetriedMany", "Rewrapped", "Schedule", "SecretList", "Session", "Tenant",
    "TenantList", "Traffic", "VersionList", "WebhookDelivery", "WebhookSecret", "WeightsReply", "WeightsUrl",
    "WorkerList",
]  # fmt: skip
REQUESTS = [
    "BatchRequest", "EstimateRequest", "Eviction", "FeedbackRequest", "FileRequest", "JobFilter", "ManyRequest",
    "QuarantineRequest", "RetryRequest", "RotateRequest", "ScheduleRequest", "SubmitRequest", "TenantRequest",
    "TokenRequest", "TrafficRequest", "WeightsRequest",
]  # fmt: skip

# Words that the programs of this repository print, or send as they are typed: they stay text.
TEXTS = {
    "BatchHookEvent", "DecisionAction", "DependencyOn", "HookEvent", "JobHookEvent", "StepDecision", "StepStage",
    "StreamEventKind",
}  # fmt: skip

NUMBERS = {"uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "int32": "i32", "int64": "i64"}
COPY = {*NUMBERS.values(), "bool", "f64"}
KEYWORDS = {"as", "async", "const", "enum", "fn", "for", "in", "loop", "match", "mod", "move", "ref", "type", "use"}

# Members of a request without a flag of their own, and how they are given: positional, in another flag, or in a flag
# that is written by hand because it is not sent as it is typed.
ELSEWHERE = {
    "SubmitRequest": {
        "concurrency_max": "--concurrency-key KEY:MAX",
        "endpoint": "ENDPOINT",
        "idempotency_key": "--idempotency-key, sent as a header",
        "input": "--input and --file",
        "version": "ENDPOINT@VERSION",
    },
    "BatchRequest": {
        "endpoint": "--endpoint NAME[@VERSION], also for the estimate",
        "idempotency_key": "--idempotency-key, sent as a header",
        "input_file": "the lines are sent as the body",
        "input_key": "the lines are sent as the body",
        "lines": "the lines are sent as the body",
        "version": "--endpoint NAME@VERSION",
        "webhook_events": "there is one event",
    },
    "ScheduleRequest": {"job": "the flags of jobs"},
}
# Members that a schedule's job does not have.
SUBMIT_ONLY = ["depends_on", "run_after"]
# What a schema does not express: the name of a flag and of its value, further clap attributes, and short forms with
# the statement that sets their members.
SHORT_FORMS = {
    "deadline_s": {
        "help": "How long the job or batch may take from its submit to its end, e.g. 10m; what is left then expires"
    },
    "queue_timeout_s": {
        "help": "How long the job may wait for its start, e.g. 1h; then it expires [default: the endpoint's, else 7d]"
    },
    "retention_s": {
        "help": "How long after its end the job stays in the queue's memory before it moves to the archive, e.g. 1h "
        "[default: the server's]"
    },
    "timeout_s": {"help": "The longest that one attempt may run, e.g. 90s or 10m [default: the endpoint's]"},
    "grace_s": {"help": "How late a tick may start before it counts as missed, 1s to 7d [default: 60s]"},
    "missed": {"help": "What to do with missed ticks: those later than --grace [default: run_once]"},
    "at_budget": {"value": "WHAT", "more": ['requires = "budget_usd"']},
    "budget_usd_micros": {
        "name": "budget_usd",
        "help": "Budget of the batch in US dollars; once it is spent, lines that have not started are cancelled",
        "value": "USD",
        "more": ["value_parser = money::micros"],
    },
    "concurrency_key": {
        "help": "Run at most MAX jobs with this key at the same time [default MAX: 1]",
        "value": "KEY[:MAX]",
        "set": "(request.concurrency_key, request.concurrency_max) =\n"
        "            parse::concurrency(self.concurrency_key.as_deref())?;",
    },
    "cron": {"value": "EXPR"},
    "depends_on": {
        "help": "Run after this job succeeds (ID) or ends in any state (ID:completion); may be repeated",
        "value": "ID[:completion]",
        "set": "request.depends_on = parse::dependencies(&self.depends_on)?;",
    },
    "run_after": {"value": "TIME"},
    "time_zone": {"value": "ZONE"},
    "webhook": {"value": "URL"},
    "webhook_events": {
        "value": "EVENT",
        "more": [
            'requires = "webhook"',
            '\n        value_parser = ["job.started", "job.output", "job.progress", "job.completed"]',
        ],
    },
}
# Members in a unit of time are flags without it, which take a duration: the function that parses one, per unit.
DURATIONS = {"_s": "duration::seconds", "_ms": "duration::millis"}
UNITS = {"_s": "SECONDS", "_ms": "MILLISECONDS", "_mib": "MIB", "_bytes": "BYTES", "_usd_micros": "MICRODOLLARS"}


class Schemas:
    """The component schemas of the document."""

    def __init__(self, document: dict) -> None:
        self.all = document["components"]["schemas"]

    def named_by(self, node: object) -> set[str]:
        """Names of the schemas that a part of the document refers to."""
        if isinstance(node, list):
            return set().union(*map(self.named_by, node)) if node else set()
        if not isinstance(node, dict):
            return set()
        found = set().union(*map(self.named_by, node.values())) if node else set()
        if reference := node.get("$ref"):
            found.add(reference.rsplit("/", 1)[1])
        return found

    def closure(self, roots: list[str]) -> set[str]:
        """These schemas and all that they name."""
        found, left = set(), list(roots)
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left.extend(self.named_by(self.all[name]))
        return found

    def is_model(self, name: str) -> bool:
        """Whether a schema becomes a type of its own. Unions stay JSON."""
        return "enum" in self.all[name] or "properties" in self.all[name]


def without_null(schema: dict) -> tuple[dict, bool]:
    """The schema without its null alternative, and whether it has one."""
    if "oneOf" in schema:
        others = [option for option in schema["oneOf"] if option.get("type") != "null"]
        if len(others) == 1 and len(schema["oneOf"]) == 2:
            return {**others[0], "description": others[0].get("description", schema.get("description", ""))}, True
    if isinstance(schema.get("type"), list):
        (kind,) = [kind for kind in schema["type"] if kind != "null"]
        return {**schema, "type": kind}, "null" in schema["type"]
    return schema, False


def rust_type(schemas: Schemas, schema: dict) -> str:
    """The Rust type of a schema that is not null."""
    if reference := schema.get("$ref"):
        name = reference.rsplit("/", 1)[1]
        if name in TEXTS:
            return "String"
        return name if schemas.is_model(name) else "Value"
    kind = schema.get("type")
    if kind == "string":
        return "String"
    if kind == "boolean":
        return "bool"
    if kind == "number":
        return "f64"
    if kind == "integer":
        return NUMBERS.get(schema.get("format"), "u64" if schema.get("minimum") == 0 else "i64")
    if kind == "array":
        return f"Vec<{rust_type(schemas, without_null(schema['items'])[0])}>"
    if kind == "object" and "additionalProperties" in schema:
        return f"BTreeMap<String, {rust_type(schemas, without_null(schema['additionalProperties'])[0])}>"
    if kind is None or kind == "object":
        return "Value"
    raise SystemExit(f"{DOCUMENT}: no Rust type for {schema}")


def doc(text: str, indent: str = "") -> list[str]:
    """A doc comment."""
    text = " ".join(text.split())
    return [f"{indent}/// {line}" for line in textwrap.wrap(text, WIDTH - len(indent) - 4, break_on_hyphens=False)]


def enum(name: str, schema: dict) -> list[str]:
    """An enum of words."""
    lines = [*doc(schema.get("description", ""), "    "), f"    pub enum {name} {{"]
    for word in schema["enum"]:
        variant = "".join(part[:1].upper() + part[1:] for part in re.split(r"\W|_", word))
        lines.append(f'        {variant} = "{word}",')
    return ["words! {", *lines, "    }", "}", ""]


def struct(schemas: Schemas, name: str, *, is_response: bool, is_request: bool) -> list[str]:
    """A struct of a schema with properties."""
    schema = schemas.all[name]
    required = schema.get("required", [])
    kinds = {rust_type(schemas, without_null(member)[0]) for member in schema["properties"].values()}
    derives = ["Clone", *(["Copy"] if kinds <= COPY else []), "Debug", "Default", "PartialEq"]
    derives += ["Deserialize", *(["Serialize"] if is_request else [])]
    lines = [*doc(schema.get("description", "")), f"#[derive({', '.join(derives)})]", f"pub struct {name} {{"]
    for member, whole in schema["properties"].items():
        inner, is_nullable = without_null(whole)
        kind = rust_type(schemas, inner)
        is_optional = is_nullable or member not in required
        field = f"r#{member}" if member in KEYWORDS else member
        # The first member that a response requires, e.g. its id or its list, is what makes it this kind of response.
        is_identity = name in RESPONSES and required[:1] == [member]
        serde = []
        if is_response and not is_optional and not is_identity:
            serde += ["default", 'deserialize_with = "or_empty"']
        if is_request and is_optional:
            serde += ["default"] if is_response else []
            serde += ['skip_serializing_if = "Option::is_none"']
        lines += doc(inner.get("description") or f"The {member.replace('_', ' ')}.", "    ")
        lines += [f"    #[serde({', '.join(serde)})]"] if serde else []
        lines.append(f"    pub {field}: {f'Option<{kind}>' if is_optional else kind},")
    lines.append("}")
    if is_response:
        lines += ["", f"impl Response for {name} {{", f'    const NAME: &\'static str = "{name}";', "}"]
    return [*lines, ""]


def models(schemas: Schemas) -> str:
    """The source of the models."""
    responses, requests = schemas.closure(RESPONSES), schemas.closure(REQUESTS)
    lines = [
        "// Generated by `make openapi` from api/openapi.json.",
        "//! The objects of the API: those that its clients in this repository read and send.",
        "//!",
        "//! A member that a response lacks reads as empty, because an API of an older release does not send it. A",
        "//! response without the member that identifies it, e.g. its id, is an error.",
        "",
        "use std::collections::BTreeMap;",
        "",
        "use serde::{Deserialize, Serialize};",
        "use serde_json::Value;",
        "",
        "use crate::decode::{Response, or_empty};",
        "use crate::word::words;",
        "",
    ]
    for name in sorted(name for name in (responses | requests) - TEXTS if schemas.is_model(name)):
        if "enum" in schemas.all[name]:
            lines += enum(name, schemas.all[name])
        else:
            lines += struct(schemas, name, is_response=name in responses, is_request=name in requests)
    return "\n".join(lines)


def help_of(description: str, *, is_list: bool) -> str:
    """The help text of a flag: the description, with its default in brackets."""
    text = " ".join(description.split())
    default = re.search(r"[.,;] [Dd]efault:? (.+?)\.?$", text)
    if default:
        text = text[: default.start()]
    text = text.rstrip(".") + ("; may be repeated" if is_list else "")
    if not default:
        return text
    word = re.fullmatch("`([^`]+)`", default[1])
    return f"{text} [default: {word[1] if word else default[1]}]"


def flag(schemas: Schemas, member: str, whole: dict, *, is_required: bool) -> tuple[list[str], str]:
    """The field of a flag, and the statement that sets the member."""
    schema, _ = without_null(whole)
    kind = rust_type(schemas, schema)
    special = SHORT_FORMS.get(member, {})
    is_enum = "enum" in schemas.all.get(kind, {})
    is_list = kind in ("Vec<String>", "BTreeMap<String, String>") or (kind.startswith("Vec<") and "set" in special)
    name = special.get("name") or (member.removesuffix("s") if kind == "Vec<String>" else member)
    parse_duration = next((parse for suffix, parse in DURATIONS.items() if member.endswith(suffix)), None)
    if parse_duration:
        name = member.removesuffix(next(suffix for suffix in DURATIONS if member.endswith(suffix)))
        given = f"self.{name}"
    unit = next((unit for suffix, unit in UNITS.items() if member.endswith(suffix)), "N" if kind in COPY else None)
    value = "DURATION" if parse_duration else unit
    field, given = f"Option<{kind}>", f"self.{name}" if kind in COPY else f"self.{name}.clone()"
    if kind == "BTreeMap<String, String>":
        value, field, given = "KEY=VALUE", "Vec<String>", f"parse::labels(&self.{name})?"
    elif kind == "Vec<String>":
        field, given = "Vec<String>", f"parse::list(&self.{name})"
    elif kind not in COPY and kind != "String" and not is_enum:
        value, field, given = "JSON", "Option<String>", f"self.{name}.as_deref().map(serde_json::from_str).transpose()?"
    elif kind == "bool":
        value, field, given = None, "bool", f"self.{name}.then_some(true)"
    if "set" in special:
        field = "Vec<String>" if is_list else "Option<String>"
    if is_required:
        field = field.removeprefix("Option<").removesuffix(">") if field.startswith("Option<") else field
    value = special.get("value", value)
    arguments = ["long", *([f'value_name = "{value}"'] if value else []), *special.get("more", [])]
    if not any("value_parser" in argument for argument in arguments):
        if parse_duration:
            low, high = schema.get("minimum", 0), schema["maximum"]
            arguments.append(f"value_parser = {parse_duration}({low:_}..={high:_})")
        else:
            arguments += bounds(kind, schema) if kind in NUMBERS.values() else []
        arguments += [f"value_parser = parse::words::<{kind}>()"] if is_enum else []
    text = special.get("help") or help_of(schema.get("description", ""), is_list=is_list)
    attribute = f"    #[arg({', '.join(arguments)})]".replace(", \n", ",\n")
    setting = special.get("set", f"request.{member} = {given};")
    return [*doc(text, "    "), attribute, f"    {name}: {field},"], f"        {setting}"


def bounds(kind: str, schema: dict) -> list[str]:
    """The parser of a number with the bounds of its schema."""
    low, high = schema.get("minimum", 0), schema.get("maximum")
    if not low and high is None:
        return []
    until = "" if high is None else f"={high:_}"
    return [f"value_parser = clap::value_parser!({kind}).range({low:_}..{until})"]


def flag_struct(schemas: Schemas, request: str, name: str, about: str, members: list[str]) -> list[str]:
    """A struct of flags, and the function that sets the members of a request."""
    properties, required = schemas.all[request]["properties"], schemas.all[request].get("required", [])
    flags = [flag(schemas, member, properties[member], is_required=member in required) for member in members]
    return [
        *doc(about),
        "#[derive(Args, Clone, Debug, Default)]",
        f"pub(crate) struct {name} {{",
        *[line for field, _ in flags for line in field],
        "}",
        "",
        f"impl {name} {{",
        "    /// Sets the members whose flags were given.",
        f"    pub(crate) fn set(&self, request: &mut {request}) -> Result<()> {{",
        *[setting for _, setting in flags],
        "        Ok(())",
        "    }",
        "}",
        "",
    ]


def flags(schemas: Schemas) -> str:
    """The source of the flags of `stoke submit`, `stoke schedule create` and `stoke batch submit`."""
    of_job, of_batch, of_schedule = (
        [name for name in schemas.all[request]["properties"] if name not in elsewhere]
        for request, elsewhere in ELSEWHERE.items()
    )
    shared = [name for name in of_job if name not in SUBMIT_ONLY]
    body = [
        *flag_struct(schemas, "SubmitRequest", "JobFlags", "Flags of jobs, submitted now or by a schedule.", shared),
        *flag_struct(schemas, "SubmitRequest", "StartFlags", "Flags of jobs that are submitted now.", SUBMIT_ONLY),
        *flag_struct(schemas, "BatchRequest", "BatchFlags", "Flags of batches.", of_batch),
        *flag_struct(schemas, "ScheduleRequest", "ScheduleFlags", "Flags of schedules.", of_schedule),
    ]
    used = {name for name in schemas.all if re.search(rf"\b{name}\b", "\n".join(body))}
    elsewhere = [
        f'    ("{request}", "{member}", "{where}"),'
        for request, members in ELSEWHERE.items()
        for member, where in members.items()
    ]
    return "\n".join(
        [
            "// Generated by `make openapi` from api/openapi.json.",
            "//! The flags of jobs and batches: one for each member of the request.",
            "",
            "use anyhow::Result;",
            "use clap::Args;",
            f"use stokehold_client::models::{{{', '.join(sorted(used))}}};",
            "",
            "use super::options as parse;",
            "use crate::{duration, money};",
            "",
            "/// Request, member, and how it is given: members without a flag of their own.",
            "#[cfg(test)]",
            f"pub(super) const ELSEWHERE: [(&str, &str, &str); {len(elsewhere)}] = [",
            *elsewhere,
            "];",
            "",
            *body,
        ]
    )


def formatted(source: str) -> str:
    command = ["rustfmt", "--edition", "2024", "--config-path", str(ROOT), "--emit", "stdout"]
    return subprocess.run(command, input=source, check=True, capture_output=True, text=True).stdout


def main() -> None:
    schemas = Schemas(json.loads(DOCUMENT.read_text(encoding="utf-8")))
    stale = []
    for path, source in [(MODELS, models(schemas)), (FLAGS, flags(schemas))]:
        source = formatted(source)
        if "--check" not in sys.argv:
            path.write_text(source, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != source:
            stale.append(str(path.relative_to(ROOT)))
    if stale:
        raise SystemExit(f"out of date with api/openapi.json: {', '.join(stale)}; run `make models`")


if __name__ == "__main__":
    main()
