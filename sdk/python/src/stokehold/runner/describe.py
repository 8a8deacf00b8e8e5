"""What `stoke deploy` asks a package: its handler's name, options and schemas, as one JSON document."""

from __future__ import annotations

from typing import Any

from stokehold.runner import failure, handler
from stokehold.runner.decorator import Options, default_name
from stokehold.runner.inputs import result_schema


def describe(where: str) -> tuple[dict[str, Any], int]:
    """The document, and the exit code. The package's code is imported, `setup()` is not called."""
    try:
        target = handler.find(where)
        planned = handler.plan(target.value)
        output_schema = result_schema(planned.call, yields=planned.kind.yields, is_batched=planned.is_batched)
    except BaseException as error:
        failed = failure.describe(error)
        return {"error": {"class": failed.class_name, "message": failed.message, "traceback": failed.traceback}}, 1
    options = target.options
    return {
        "name": options.name or default_name(target.value),
        "entry": target.entry,
        "kind": planned.kind.value,
        "options": {
            "vram_gib": options.vram_gib,
            "max_concurrency": options.max_concurrency,
            "timeout_s": options.timeout_s,
            "max_attempts": options.max_attempts,
            **_policy(options),
        },
        "input_schema": planned.inputs.schema,
        "output_schema": output_schema,
    }, 0


def _policy(options: Options) -> dict[str, Any]:
    """Only what was given: an API that knows none of it takes the rest."""
    found: dict[str, Any] = {}
    if options.before:
        found["before"] = [step.to_json() for step in options.before]
    if options.after:
        found["after"] = [step.to_json() for step in options.after]
    if options.retry is not None:
        found["retry"] = options.retry.to_json()
    demands: dict[str, Any] = {"gpus": options.gpus} if options.gpus > 1 else {}
    demands |= {
        name: list(value) if isinstance(value, tuple) else value
        for name in ("gpu_models", "min_compute_capability", "min_cuda", "regions", "min_trust")
        if (value := getattr(options, name))
    }
    if demands:
        found["demands"] = demands
    if options.max_batch_size > 1:
        found["max_batch_size"] = options.max_batch_size
        found["max_wait_ms"] = options.max_wait_ms
    for name in ("keep_warm_s", "min_warm"):
        if value := getattr(options, name):
            found[name] = value
    if options.warmup:
        found["warmup"] = list(options.warmup)
    return found
