"""Deploying a folder, as one plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stokehold._models import Endpoint
from stokehold._package import Opened, Packed, pack, prepare, sources_to_sign
from stokehold._request import Plan, Work
from stokehold._transfer import OnProgress

if TYPE_CHECKING:
    from stokehold._api import Api


def deploy(
    api: Api, target: str, overlay: Mapping[str, Any], traffic_percent: int, on_progress: OnProgress | None
) -> Plan[Endpoint]:
    """Prepares the package on this machine, then sends what the API does not have yet."""
    opened: Opened = yield Work(lambda: prepare(target, overlay))
    signed = {}
    for source in sources_to_sign(opened):
        signed[source] = yield from api.weights_url(source)
    packed: Packed = yield Work(lambda: pack(opened, signed, traffic_percent))
    try:
        for _, path, sha256, size_bytes in packed.weights:
            yield from api.upload_weights(path, sha256, size_bytes, on_progress)
        return (yield from api.deploy(packed.body, packed.archive, on_progress))
    finally:
        packed.archive.unlink(missing_ok=True)
