"""Deploying a folder, as one plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stokehold._models import Endpoint
from stokehold._package import Package, prepare
from stokehold._request import Plan, Work
from stokehold._transfer import OnProgress

if TYPE_CHECKING:
    from stokehold._api import Api


def deploy(
    api: Api, target: str, name: str | None, python: str | None, options: dict[str, Any], on_progress: OnProgress | None
) -> Plan[Endpoint]:
    """Prepares the package on this machine, then sends what the API does not have yet."""
    package: Package = yield Work(lambda: prepare(target, name, python, options))
    try:
        return (yield from api.deploy(package.version, package.archive, on_progress))
    finally:
        package.archive.unlink(missing_ok=True)
