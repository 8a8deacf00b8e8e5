"""Which schemas the SDKs have, under which names, and where an SDK differs from the API.

A new member of a schema needs no entry here: it appears in both SDKs and in the reference under its name in the API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from generate.schema import Document, Field, Object, Type

# Words that a newer server may extend, so that the SDKs take any text.
OPEN_WORDS = frozenset({"JobErrorCode"})

# Names of words that differ from the API's.
WORD_NAMES = {"WebhookDeliveryState": "DeliveryState"}


@dataclass(frozen=True)
class Shape:
    """A schema, and how the SDKs show it.

    python, typescript: the name of its class and of its interface; none if that SDK does not have it.
    form: in Python, a "dataclass", a "tuple" (a NamedTuple), a "dict" (a TypedDict), or a "record", whose members are
        properties that are decoded when they are read.
    rename: names in Python that differ from the API's.
    python_skip: members that Python does not have.
    empty: members that are 0 or an empty text in Python if they are absent or null.
    defaults: values in Python, as code, of words that are absent.
    is_zero: whether an absent object has all members 0 in Python.
    leaves_out: members that the API leaves out if they have no value; for others it has null. "*": all of them.
    pending: members that are null in a job of a bulk submit, which returns only ids, until the job is fetched.
    given: members that the API always has, although the document allows null.
    secret: members that `repr` leaves out in Python.
    has_raw: whether the Python class keeps the decoded JSON as `raw`.
    first: the members that come first in Python, in this order and without defaults.
    except_described: leaves out members whose description contains this text.
    docs_of: a schema whose descriptions of members hold here too.
    """

    schema: str
    python: str = ""
    typescript: str = ""
    form: str = "dataclass"
    rename: Mapping[str, str] = field(default_factory=dict)
    python_skip: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    is_zero: bool = False
    leaves_out: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    has_raw: bool = False
    first: tuple[str, ...] = ()
    except_described: str = ""
    docs_of: str = ""

    def read(self, document: Document) -> Object:
        """The members that the SDKs have."""
        whole = document.object(self.schema)
        docs = {one.name: one.doc for one in document.object(self.docs_of).fields} if self.docs_of else {}
        fields = [self._changed(replace(one, doc=docs.get(one.name) or one.doc)) for one in whole.fields]
        if self.except_described:
            fields = [one for one in fields if self.except_described not in one.doc]
        order = {name: place for place, name in enumerate(self.first)}
        return replace(whole, fields=tuple(sorted(fields, key=lambda one: order.get(one.name, len(order)))))

    def _changed(self, one: Field) -> Field:
        if one.name in self.given:
            one = replace(one, is_required=True, is_nullable=False)
        if one.name in self.pending:
            one = replace(one, is_nullable=True)
        return one


# Part of the descriptions of limits that an endpoint does not have.
_TENANTS_ONLY = "enants only"

JOBS = (
    Shape("Timing", "Timing", "Timing", empty=("worker_wait_ms", "inputs_ms"), is_zero=True, leaves_out=("*",)),
    Shape("Progress", "Progress", "Progress"),
    Shape("JobError", "Failure", "Failure", rename={"class": "class_name"}),
    Shape(
        "Attempt",
        "Attempt",
        "Attempt",
        first=("attempt", "worker_id", "state", "started_at", "ended_at", "timing", "error"),
    ),
    Shape("Dependency", "Dependee", "JobDependency", "tuple", {"job": "job_id"}, defaults={"on": "success"}),
    Shape(
        "StepRun",
        "StepRun",
        "JobStep",
        empty=("state",),
        first=("name", "stage", "endpoint", "job_id", "state", "decision", "reason", "scores", "timing"),
    ),
    Shape("JobCost", "JobCost", "JobCost"),
    Shape("Waiting", "Waiting", "Waiting", leaves_out=("*",)),
    Shape(
        "Job",
        "JobFields",
        "JobRecord",
        "record",
        defaults={"priority": "standard"},
        pending=("version", "created_at"),
        leaves_out=("waiting", "cost", "usage"),
        # `Job.result()` returns it, whatever its size.
        python_skip=("result",),
    ),
    Shape("Retried", "Retried", "RetriedJob", "tuple"),
)
BATCHES = (
    Shape("BatchCounts", "BatchCountsFields", "BatchCounts", is_zero=True),
    Shape("BatchLineError", "InvalidLine", "InvalidLine", "tuple"),
    Shape("Estimate", "BatchEstimate", "BatchEstimate"),
    Shape(
        "Batch",
        "BatchFields",
        "Batch",
        "record",
        rename={"errors": "invalid_lines"},
        empty=("endpoint",),
        given=("endpoint",),
        defaults={"priority": "batch"},
        leaves_out=("usage",),
    ),
)
SCHEDULES = (
    Shape(
        "Schedule",
        "ScheduleFields",
        "Schedule",
        "record",
        rename={"paused": "is_paused"},
        defaults={"missed": "run_once", "time_zone": "UTC"},
    ),
)
ENDPOINTS = (
    Shape("Step", "EndpointStep", "EndpointStep"),
    Shape("RetryPolicy", "EndpointRetry", "EndpointRetry"),
    Shape("Requirements", "EndpointRequirements", "EndpointRequirements", leaves_out=("*",)),
    Shape("Runner", "EndpointRunner", "EndpointRunner", leaves_out=("*",)),
    Shape("Weight", "EndpointWeight", "EndpointWeight"),
    Shape("EndpointVersion", "Endpoint", "Endpoint", leaves_out=("*",), has_raw=True, docs_of="DeployRequest"),
)
WORKERS = (
    Shape("Host", "WorkerHost", "WorkerHost"),
    Shape("ModelOnGpu", "ModelOnGpu", "ModelOnGpu"),
    Shape("Model", "LoadedModel", "LoadedModel"),
    Shape("Gpu", "WorkerGpu", "WorkerGpu"),
    Shape("Worker", "Worker", "Worker", has_raw=True, leaves_out=("sandbox",)),
)
WEBHOOKS = (
    Shape("WebhookTry", "DeliveryTry", "DeliveryTry", "tuple", first=("at", "status", "error", "duration_ms")),
    Shape("WebhookDelivery", "Delivery", "Delivery"),
    Shape("WebhookSecret", "WebhookSecretFields", "WebhookSecret", secret=("secret", "previous")),
)
FEEDBACK = (
    Shape("Feedback", "Feedback", "Feedback"),
    Shape("FeedbackLine", typescript="FeedbackExample", leaves_out=("result", "result_url")),
    Shape("VersionFeedback", "FeedbackStats", "FeedbackStats"),
)
LIMITS = (
    Shape("BudgetOfDay", "BudgetUsage", "BudgetUsage", "dict"),
    Shape("Usage", "Usage", "Usage", "dict", leaves_out=("*",)),
    Shape("LimitsShown", typescript="Limits", leaves_out=("budget",), except_described=_TENANTS_ONLY),
    Shape("LimitsShown", "ShownLimits", "TenantLimits", "dict", leaves_out=("budget",), given=("weight",)),
    Shape("Limits", "TenantLimits", "TenantLimits", "dict"),
    Shape("LimitsOf", "EndpointLimits", "EndpointLimits", "dict", leaves_out=("budget",)),
    Shape("OwnLimits", "Limits", "OwnLimits", leaves_out=("budget",)),
)
ACCESS = (
    Shape("Actor", "Actor", "Actor"),
    Shape("Change", "Change", "Change"),
    Shape("ChangeList", "ChangeList", "ChangeList"),
    Shape("Tenant", "Tenant", "Tenant"),
    Shape("Token", "Token", "Token"),
    Shape("NewToken", "NewToken", "NewToken", secret=("token",)),
    Shape("Secret", "Secret", "Secret"),
    Shape("Rewrapped", "Rewrapped", "Rewrapped"),
)
COSTS = (
    Shape("HostedCost", "HostedCost", "HostedCost"),
    Shape("Savings", "Savings", "Savings"),
    Shape("TokenUsage", "TokenUsage", "TokenUsage"),
    Shape("CostRow", "CostRow", "CostRow", leaves_out=("*",)),
    Shape("Costs", "Costs", "Costs", rename={"from": "from_day", "to": "to_day"}),
)
FLEET = (
    Shape("Decision", "FleetDecision", "FleetDecision"),
    Shape("Notice", "FleetNotice", "FleetNotice"),
    Shape("Machine", "Machine", "Machine"),
    Shape("Fleet", "Fleet", "Fleet"),
    Shape("WaitingByPriority", "WaitingByPriority", "WaitingByPriority"),
    Shape("Lane", "Lane", "Lane"),
    Shape("GpuReading", "GpuReading", "GpuReading"),
    Shape("Reading", "Reading", "Reading"),
    Shape("Evicted", "Evicted", "Evicted"),
    Shape("Memory", "RedisMemory", "RedisMemory"),
    Shape("Admission", "Admission", "Admission"),
    Shape("Health", "Health", "Health"),
)
DELETION = (
    Shape("Dependent", "Dependent", "Dependent"),
    Shape("Deletion", "Deletion", "Deletion"),
    Shape("RequirementSet", "RequirementSet", "RequirementSet"),
)
FILES = (Shape("FileSummary", "FileSummary", "FileSummary"),)
QUARANTINE = (
    Shape("QuarantinedJob", "QuarantinedJob", "QuarantinedJob"),
    Shape("Quarantine", "Quarantine", "Quarantine"),
    Shape("QuarantineOutcome", "QuarantineOutcome", "QuarantineOutcome"),
)
STATS = (
    Shape("Need", "Need", "Need", leaves_out=("gpu",)),
    Shape("Quantiles", "Quantiles", "Quantiles"),
    Shape("TimingStats", "TimingStats", "TimingStats"),
    Shape("VersionStats", "VersionStats", "VersionStats"),
    Shape("BatchEstimate", "LinesEstimate", "LinesEstimate", leaves_out=("*",)),
    Shape("Trace", "Trace", "Trace", "dict"),
)
MODULES: Mapping[str, tuple[Shape, ...]] = {
    "jobs": JOBS,
    "batches": BATCHES,
    "schedules": SCHEDULES,
    "endpoints": ENDPOINTS,
    "workers": WORKERS,
    "webhooks": WEBHOOKS,
    "feedback": FEEDBACK,
    "limits": LIMITS,
    "access": ACCESS,
    "costs": COSTS,
    "fleet": FLEET,
    "deletion": DELETION,
    "files": FILES,
    "quarantine": QUARANTINE,
    "stats": STATS,
}


@dataclass(frozen=True)
class Options:
    """A request, and the options that the SDKs take for it.

    doc: what the options are.
    skip: members that are arguments of their own, or that the SDK sets.
    python_skip, typescript_skip: the same in one SDK.
    takes_null: whether the options of TypeScript can be null.
    except_described: leaves out members whose description contains this text.
    flat: a schema whose members are options too.
    more: options that the API does not have.
    """

    schema: str
    doc: str
    python: str = ""
    typescript: str = ""
    skip: tuple[str, ...] = ()
    python_skip: tuple[str, ...] = ()
    typescript_skip: tuple[str, ...] = ()
    takes_null: bool = False
    except_described: str = ""
    flat: str = ""
    more: tuple[Field, ...] = ()

    def read(self, document: Document, *skip: str) -> Object:
        whole = document.object(self.schema).without(*self.skip, *skip)
        fields = (*self.more, *whole.fields, *(document.object(self.flat).fields if self.flat else ()))
        if self.except_described:
            fields = tuple(one for one in fields if self.except_described not in one.doc)
        return replace(whole, fields=fields)


# What the SDK takes from the folder that is deployed.
PACKAGED = (
    "package_sha256",
    "package_size_bytes",
    "entry",
    "requirements_lock",
    "python",
    "runner",
    "input_schema",
    "output_schema",
)


def _of_folder(name: str, type_: Type, doc: str) -> Field:
    return Field(name, type_, doc, is_required=False, is_nullable=True)


# The members of `stoke.toml` that a deploy turns into those of `PACKAGED`.
FOLDER = (
    _of_folder("kind", Type("words", words=("python", "cog", "runpod", "server", "command")), "What runs the jobs."),
    _of_folder("handler", Type("string"), "The handler in the folder, e.g. `main.py:Greet`, or a script of RunPod."),
    _of_folder("command", Type("list", item=Type("string")), "Program and arguments of a server or a command."),
    _of_folder("server", Type("map", item=Type("any")), "`ready_path`, `path`, `port` and `busy` of a server."),
    _of_folder("requirements", Type("strings"), "The name of a requirements file, or a list of requirements."),
    _of_folder("input_schema", Type("string"), "The name of the JSON Schema file of the input."),
    _of_folder("output_schema", Type("string"), "The name of the JSON Schema file of the result."),
    _of_folder(
        "weights",
        Type("list", item=Type("map", item=Type("string"))),
        "Files for the folder `STOKE_WEIGHTS`, each with `source` and optionally `path` and `sha256`.",
    ),
)

_MISSING = "An option that is missing has the default of the endpoint or of the API."
_LIMITS = "Limits to set. A member that is missing or null means no limit."

OPTIONS = (
    Options(
        "SubmitRequest",
        f"How a job is run. {_MISSING}",
        "JobOptions",
        "JobOptions",
        ("endpoint", "input", "idempotency_key"),
        typescript_skip=("run_after", "depends_on"),
    ),
    Options("JobFilter", "Selects the jobs that match every given member.", "JobFilter", "JobFilter"),
    Options(
        "BatchRequest",
        f"How a batch is run. {_MISSING}",
        "BatchOptions",
        "BatchOptions",
        ("lines", "input_file", "input_key", "idempotency_key"),
        python_skip=("endpoint",),
    ),
    Options(
        "ScheduleRequest",
        f"When a schedule submits its job. {_MISSING}",
        "ScheduleTiming",
        "ScheduleTiming",
        ("job",),
        python_skip=("cron",),
    ),
    Options("FeedbackRequest", "A rating of a result. At least one member is required.", "Rating", "Rating"),
    Options(
        "DeployRequest",
        "Options of a version of an endpoint, as in `stoke.toml`. An option that is missing or None has the value in "
        "`stoke.toml`, else that of `@endpoint`, else the default. `env` is merged with that in `stoke.toml`; any "
        "other option replaces what is there. Paths are relative to the folder.",
        "DeployOptions",
        skip=("name", "demands", "weights", "traffic_percent", *PACKAGED),
        flat="Requirements",
        more=FOLDER,
    ),
    Options(
        "DeployRequest",
        "Options of a version of an endpoint. Objects in them have the members of the API. An option that is missing "
        "has the value of the current version, or the default if a `package` is given.",
        typescript="DeployOptions",
        skip=("name", "package_sha256", "package_size_bytes"),
    ),
    Options("Limits", _LIMITS, typescript="LimitsOptions", takes_null=True, except_described=_TENANTS_ONLY),
    Options("Limits", _LIMITS, typescript="TenantLimitsOptions", takes_null=True),
)

# The members whose default is in the description only, as a number that `@endpoint` has too.
NUMBERED_DEFAULTS = frozenset({"gpus"})

# The options of `@endpoint`: those of a deploy that are not in `stoke.toml`, and the requirements for workers.
DECORATOR_SKIP = (*PACKAGED, "name", "demands", "traffic_percent", "env", "weights", "allow_pickle")


def decorator_fields(document: Document) -> tuple[Field, ...]:
    """The options of `@endpoint`, except its name, in alphabetical order."""
    deployed = document.object("DeployRequest").without(*DECORATOR_SKIP).fields
    return tuple(sorted((*deployed, *document.object("Requirements").fields), key=lambda one: one.name))


def python_shape(schema: str) -> Shape | None:
    """The shape of a schema in Python."""
    return next((shape for shape in all_shapes() if shape.schema == schema and shape.python), None)


def typescript_shape(schema: str) -> Shape | None:
    """The shape of a schema in TypeScript."""
    return next((shape for shape in all_shapes() if shape.schema == schema and shape.typescript), None)


def all_shapes() -> Iterator[Shape]:
    for found in MODULES.values():
        yield from found


def word_name(schema: str) -> str:
    """The name of words in the SDKs."""
    return WORD_NAMES.get(schema, schema)


def check(document: Document) -> None:
    """Fails for a schema that a member of the SDKs refers to and that has no shape."""
    for shape in all_shapes():
        find = python_shape if shape.python else typescript_shape
        for one in shape.read(document).fields:
            for part in one.type.parts():
                if part.kind == "object" and find(part.ref) is None:
                    raise SystemExit(f"{shape.schema}.{one.name} is a {part.ref}, which generate/shapes.py lacks")
