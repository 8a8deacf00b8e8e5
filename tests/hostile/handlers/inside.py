"""A hostile handler. Each attack counts its attempts and reports what the successful ones got.

An attempt that raises an OSError was refused. Anything else that an attempt returns, other than nothing, is what it got.
"""

import os
from typing import Any

import files
import network
import processes
import results
from stokehold import current_job, endpoint


@endpoint(name="inside", max_attempts=1)
def inside(attack: str, targets: list[str] = [], canary: str = "") -> Any:  # noqa: B006
    return ATTACKS[attack](targets, canary)


def try_nothing(_targets: list[str], _canary: str) -> Any:
    """Reports the user, the process and the folder, which show whether the handler is in a sandbox."""
    return {"uid": os.getuid(), "pid": os.getpid(), "scratch": str(current_job().scratch)}


ATTACKS = {
    "reads": files.try_reads,
    "writes": files.try_writes,
    "poison": files.try_poison,
    "processes": processes.try_processes,
    "calls": processes.try_calls,
    "rights": processes.try_rights,
    "network": network.try_network,
    "redis": network.try_redis,
    "result": results.try_result,
    "names": results.try_names,
    "nothing": try_nothing,
}
