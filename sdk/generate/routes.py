"""The resources of the clients whose methods are generated: which operation each method calls, and how it is described.

A new parameter or member of an operation needs no entry here. A new operation needs one, or a method by hand: the tests
of both SDKs fail for an operation without a method.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from generate.operations import Operation
from generate.schema import Document, Field


@dataclass(frozen=True)
class Route:
    """A method that calls an operation.

    name: in Python; `for_endpoint` is `forEndpoint` in TypeScript.
    doc: its description. `{Raises}` is "Throws" in TypeScript, and `{None}` is "null".
    item: the member of the answer that it returns; default: the whole answer.
    positional: parameters that are positional, beside those of the path.
    is_whole: returns a page as it is, instead of an iterator over all pages.
    skip: parameters that it does not have.
    once: whether the request is not repeated, because it would be carried out twice.
    """

    operation: str
    name: str
    doc: str
    item: str = ""
    positional: tuple[str, ...] = ()
    is_whole: bool = False
    skip: tuple[str, ...] = ()
    once: bool = False


@dataclass(frozen=True)
class Resource:
    """A resource of the clients, e.g. `client.tokens`.

    is_base: whether it is only a part of a class that is written by hand.
    is_in_typescript: whether TypeScript has it. There, options are objects of their own.
    """

    attribute: str
    name: str
    doc: str
    routes: tuple[Route, ...]
    is_base: bool = False
    is_in_typescript: bool = True


_DEPENDENTS = (
    "With `dry_run`, deletes nothing and returns what depends on it. {Raises} `InUse`, which has "
    "them, if something does and `force` is not set."
)

RESOURCES = (
    Resource(
        "endpoints",
        "EndpointRoutes",
        "`client.endpoints`: endpoints, their versions and what they were seen to need.",
        (
            Route("list_endpoints", "list", "Returns the current version of every endpoint.", "endpoints"),
            Route("get_endpoint", "retrieve", "Returns the version of an endpoint that new jobs run on."),
            Route(
                "list_endpoint_versions", "versions", "Returns every version of an endpoint, newest first.", "versions"
            ),
            Route(
                "get_endpoint_stats",
                "stats",
                "Returns the runs, the times and the cost of each version that ran, newest first.",
                "versions",
            ),
            Route(
                "get_endpoint_needs", "needs", "Returns the GPU memory that its versions were seen to need.", "needs"
            ),
            Route(
                "forget_endpoint_needs",
                "forget_needs",
                "Resets the GPU memory that its versions were seen to need. Returns the number of values.",
                "forgotten",
            ),
            Route(
                "delete_endpoint",
                "delete",
                f"Deletes an endpoint and all its versions. {_DEPENDENTS} With `force`, open jobs are cancelled and "
                "schedules paused.",
            ),
            Route(
                "delete_endpoint_version",
                "delete_version",
                f"Deletes a version of an endpoint. {_DEPENDENTS} With `force`, its open jobs are cancelled and its "
                "schedules paused.",
            ),
        ),
        is_base=True,
    ),
    Resource(
        "jobs",
        "JobRoutes",
        "`client.jobs`: jobs, one or many at a time.",
        (
            Route(
                "get_job_trace",
                "trace",
                "Returns the trace of a job as OTLP/JSON: SDK, API, queue, the parts of each attempt, webhooks. For "
                "a job that has not ended, it covers what has happened so far.",
            ),
        ),
        is_base=True,
    ),
    Resource(
        "batches",
        "BatchRoutes",
        "`client.batches`: many jobs from one file of lines.",
        (
            Route(
                "estimate_batch",
                "estimate",
                "Estimates the cost of a batch, from the jobs of the endpoint that ended lately. Creates nothing. "
                "Amounts are micro-dollars.",
                positional=("endpoint",),
            ),
        ),
        is_base=True,
    ),
    Resource(
        "limits",
        "LimitRoutes",
        "`client.limits`: limits of tenants. Those of other tenants require the scopes `limits:read` and "
        "`limits:write`.",
        (
            Route("get_own_limits", "own", "Returns your limits and how much of them is used."),
            Route("get_limits", "retrieve", "Returns the limits of a tenant."),
            Route("set_limits", "replace", "Replaces all limits of a tenant. A limit that is not given is removed."),
            Route("get_endpoint_limits", "retrieve_for_endpoint", "Returns the limits of a tenant on an endpoint."),
            Route(
                "set_endpoint_limits",
                "replace_for_endpoint",
                "Replaces all limits of a tenant on an endpoint. They apply in addition to those of the tenant.",
            ),
        ),
        is_base=True,
        is_in_typescript=False,
    ),
    Resource(
        "workers",
        "WorkerRoutes",
        "`client.workers`: workers that have joined.",
        (
            Route("list_workers", "list", "Returns the workers that have joined.", "workers"),
            Route(
                "evict_worker",
                "evict",
                "Evicts a worker. Its jobs are requeued, which does not count towards their `max_attempts`, and it "
                "cannot join again under its name with the token that it joined with.",
            ),
            Route(
                "list_worker_readings",
                "readings",
                "Returns what a worker measured lately: its GPUs, memory, disk and network.",
                "readings",
            ),
        ),
        is_base=True,
    ),
    Resource(
        "files",
        "FileRoutes",
        "`client.files`: uploaded files.",
        (
            Route(
                "list_files",
                "list",
                "Iterates over the uploaded files, by id. Includes the files that the API makes of large inputs.",
                "files",
            ),
            Route("DELETE /v1/files/{id}", "delete", f"Deletes an uploaded file. {_DEPENDENTS}"),
        ),
        is_base=True,
    ),
    Resource(
        "requirement_sets",
        "RequirementSets",
        "`client.requirement_sets`: what endpoints require of workers besides memory, each set once.",
        (
            Route("GET /v1/requirement-sets", "list", "Returns every set of requirements.", "*"),
            Route("DELETE /v1/requirement-sets/{id}", "delete", f"Deletes a set of requirements. {_DEPENDENTS}"),
        ),
    ),
    Resource(
        "fleet",
        "FleetRoutes",
        "`client.fleet`: instances, what the autoscaler decided, and the ready jobs. Requires `workers:read`.",
        (
            Route("get_fleet", "retrieve", "Returns every instance, the latest decisions and the notices."),
            Route("get_queue", "queue", "Returns the ready jobs by endpoint, priority and GPU class.", "lanes"),
            Route(
                "healthz",
                "health",
                "Returns the health of the API: whether it accepts work, its durability, and the memory of Redis.",
            ),
        ),
    ),
    Resource(
        "costs",
        "CostsRoutes",
        "`client.costs`: what was spent, and on what.",
        (
            Route(
                "get_costs",
                "retrieve",
                "Returns the costs of a range of days and their parts, the most expensive row first. All rows together "
                "equal the cost of the instances. Amounts are micro-dollars.",
            ),
        ),
    ),
    Resource(
        "secrets",
        "Secrets",
        "`client.secrets`: secrets, which endpoints get as environment variables. Values are never returned.",
        (
            Route("list_secrets", "list", "Returns every secret, without its value.", "secrets"),
            Route(
                "set_secret",
                "set",
                "Sets a secret. Runners that start later get the new value.",
                positional=("value",),
            ),
            Route("delete_secret", "delete", "Deletes a secret. {Raises} `NotFound` if there is none of this name."),
            Route(
                "rewrap_secrets",
                "rewrap",
                "Seals all secrets with the current key of the API. For operators.",
            ),
        ),
    ),
    Resource(
        "tenants",
        "Tenants",
        "`client.tenants`: tenants. For operators.",
        (
            Route("list_tenants", "list", "Returns every tenant.", "tenants"),
            Route("create_tenant", "create", "Creates a tenant, or returns the one that exists.", positional=("name",)),
            Route(
                "disable_tenant",
                "disable",
                "Disables a tenant: its requests are refused, and none of its jobs start.",
            ),
            Route("enable_tenant", "enable", "Enables a tenant that was disabled."),
        ),
    ),
    Resource(
        "tokens",
        "Tokens",
        "`client.tokens`: API tokens, and join tokens for workers.",
        (
            Route("list_tokens", "list", "Returns the tokens of a tenant, by name, without their secrets.", "tokens"),
            Route(
                "create_token",
                "create",
                "Creates a token with roles, scopes or both. The returned `token` is not returned again. A token can "
                "grant only scopes that it has itself. The request is not repeated after a lost connection: list the "
                "tokens and revoke the one that you did not receive.",
                positional=("name",),
                once=True,
            ),
            Route(
                "revoke_token",
                "revoke",
                "Revokes a token. Every replica of the API refuses it within five seconds.",
            ),
            Route(
                "rotate_token",
                "rotate",
                "Replaces the secret of a token. The request is not repeated after a lost connection.",
                once=True,
            ),
        ),
    ),
    Resource(
        "audit",
        "Audit",
        "`client.audit`: the log of every change, except jobs and batches, which are their own records.",
        (
            Route(
                "list_changes",
                "list",
                "Lists changes, newest first, fetched page by page.",
                "changes",
                skip=("after",),
            ),
            Route(
                "list_changes",
                "page",
                "Returns one page of changes. Pass its `newest` as `after` to read later changes, oldest first.",
                is_whole=True,
            ),
        ),
    ),
    Resource(
        "quarantine",
        "QuarantineRoutes",
        "`client.quarantine`: jobs whose records cannot be read. For operators.",
        (
            Route("get_quarantine", "retrieve", "Returns the jobs whose records cannot be read."),
            Route(
                "readmit_quarantined",
                "readmit",
                "Queues quarantined jobs again, if their records can be read now. Returns the outcome of each.",
                "jobs",
                positional=("ids",),
            ),
            Route(
                "discard_quarantined",
                "discard",
                "Deletes quarantined jobs. Returns the outcome of each.",
                "jobs",
                positional=("ids",),
            ),
        ),
    ),
)

# Names of parameters that are words of Python.
PYTHON_NAMES = {"from": "from_"}


def described(route: Route, raises: str, none: str) -> str:
    """The description of a method, in the words of a language."""
    return route.doc.replace("{Raises}", raises).replace("{None}", none)


def parameters(route: Route, operation: Operation) -> tuple[list[Field], list[Field]]:
    """The parameters that are positional, and the others, without the cursor of a list that is read whole."""
    given = [one for one in (*operation.query, *operation.body) if one.name not in route.skip]
    if operation.is_paged and not route.is_whole:
        given = [one for one in given if one.name not in ("cursor", "limit")]
    first = [*operation.path_fields, *(one for one in given if one.name in route.positional)]
    return first, [one for one in given if one.name not in route.positional]


def fields(document: Document, operations: dict[str, Operation]) -> Iterator[Field]:
    """Every parameter of every method."""
    for resource in RESOURCES:
        for route in resource.routes:
            first, others = parameters(route, operations[route.operation])
            yield from (*first, *others)
