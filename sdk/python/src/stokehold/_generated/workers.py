# Generated from api/openapi.json by `make models`; do not edit.
"""The workers of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from stokehold._generated.endpoints import (
    SandboxLevel,
    Trust,
)
from stokehold._read import decode_time, word

if TYPE_CHECKING:
    from typing_extensions import Self


ModelState = Literal["loading", "idle", "busy"]
"""The state of a model on a worker."""

GpuHealth = Literal["healthy", "hot", "faulty"]
"""Whether a GPU takes work."""

WorkerState = Literal["ready", "draining", "lost"]
"""The state of a worker."""


@dataclass(frozen=True)
class WorkerHost:
    """A worker's machine; zeros before the first reading.

    environments_bytes: Bytes of cached environments.
    weights_bytes: Bytes of cached weights.
    received_bytes: Bytes since the machine started, over all interfaces except loopback.
    """

    disk_free_bytes: int
    disk_total_bytes: int
    environments_bytes: int
    weights_bytes: int
    memory_free_bytes: int
    memory_total_bytes: int
    received_bytes: int
    sent_bytes: int

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            disk_free_bytes=raw.get("disk_free_bytes") or 0,
            disk_total_bytes=raw.get("disk_total_bytes") or 0,
            environments_bytes=raw.get("environments_bytes") or 0,
            weights_bytes=raw.get("weights_bytes") or 0,
            memory_free_bytes=raw.get("memory_free_bytes") or 0,
            memory_total_bytes=raw.get("memory_total_bytes") or 0,
            received_bytes=raw.get("received_bytes") or 0,
            sent_bytes=raw.get("sent_bytes") or 0,
        )


@dataclass(frozen=True)
class ModelOnGpu:
    """The memory of a model on a GPU.

    index: The GPU's index.
    held_mib: The memory reserved for the model.
    seen_mib: The memory that its processes use; None if that cannot be measured.
    """

    index: int
    held_mib: int
    seen_mib: int | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            index=raw.get("index") or 0,
            held_mib=raw.get("held_mib") or 0,
            seen_mib=raw.get("seen_mib"),
        )


@dataclass(frozen=True)
class LoadedModel:
    """A model on a worker.

    name: `name@version`.
    state: The state of a model on a worker.
    cards: The GPUs that it uses; none on the CPU.
    mean_ms: The mean of its last runs, at most a hundred.
    p95_ms: The 95th percentile of its last runs, at most a hundred.
    succeeded_at: When a run of it last succeeded.
    """

    tenant: str
    name: str
    state: ModelState
    cards: tuple[ModelOnGpu, ...]
    mean_ms: int | None = None
    p95_ms: int | None = None
    succeeded_at: datetime | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            tenant=raw["tenant"],
            name=raw.get("name") or "",
            state=raw["state"],
            cards=tuple(ModelOnGpu.decode(each) for each in raw.get("cards") or ()),
            mean_ms=raw.get("mean_ms"),
            p95_ms=raw.get("p95_ms"),
            succeeded_at=decode_time(raw.get("succeeded_at")),
        )


@dataclass(frozen=True)
class WorkerGpu:
    """A GPU.

    vram_mib: The total memory.
    health: Whether a GPU takes work.
    compute_capability: E.g. `8.9`.
    ecc_uncorrected: Uncorrected ECC errors since the driver was loaded.
    vram_foreign_mib: Memory in use by processes that do not belong to the worker.
    vram_free_mib: Memory that a model could still reserve.
    vram_held_mib: Memory reserved for models.
    vram_used_mib: Memory in use by any process.
    why: Why the GPU takes no work.
    """

    index: int
    uuid: str
    name: str
    vram_mib: int
    health: GpuHealth
    compute_capability: str | None = None
    ecc_uncorrected: int | None = None
    power_w: int | None = None
    temperature_c: int | None = None
    utilisation_pct: int | None = None
    vram_foreign_mib: int | None = None
    vram_free_mib: int | None = None
    vram_held_mib: int | None = None
    vram_used_mib: int | None = None
    why: str | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            index=raw.get("index") or 0,
            uuid=raw.get("uuid") or "",
            name=raw.get("name") or "",
            vram_mib=raw.get("vram_mib") or 0,
            health=word(raw, "health"),
            compute_capability=raw.get("compute_capability"),
            ecc_uncorrected=raw.get("ecc_uncorrected"),
            power_w=raw.get("power_w"),
            temperature_c=raw.get("temperature_c"),
            utilisation_pct=raw.get("utilisation_pct"),
            vram_foreign_mib=raw.get("vram_foreign_mib"),
            vram_free_mib=raw.get("vram_free_mib"),
            vram_held_mib=raw.get("vram_held_mib"),
            vram_used_mib=raw.get("vram_used_mib"),
            why=raw.get("why"),
        )


@dataclass(frozen=True)
class Worker:
    """A worker.

    id: Its id.
    name: The name that its operator gave it.
    release: Its release.
    state: Whether it takes jobs.
    joined_at: When it joined.
    seen_at: When it last called the gateway.
    slots: Attempts that it runs concurrently.
    running: Attempts that it is running now.
    loaded: Loaded endpoint versions, as `name@version`.
    trust: The owner of the machine, as set on its join token.
    region: The region, as set on its join token; empty if the token sets none.
    gpus: Its GPUs; none on a CPU worker.
    models: Its models, by name.
    host: A worker's machine; zeros before the first reading.
    cuda: The newest CUDA version that the driver supports, e.g. `12.8`.
    driver: The GPU driver's version.
    sandbox: The sandbox level that the worker reports: `L0` none, `L1` system calls and files, `L2` also namespaces.
    """

    id: str
    name: str
    release: str
    state: WorkerState
    joined_at: datetime | None
    seen_at: datetime | None
    slots: int
    running: int
    loaded: tuple[str, ...]
    trust: Trust
    region: str
    gpus: tuple[WorkerGpu, ...]
    models: tuple[LoadedModel, ...]
    host: WorkerHost
    cuda: str | None = None
    driver: str | None = None
    sandbox: SandboxLevel | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            id=raw["id"],
            name=raw.get("name") or "",
            release=raw.get("release") or "",
            state=raw["state"],
            joined_at=decode_time(raw.get("joined_at")),
            seen_at=decode_time(raw.get("seen_at")),
            slots=raw.get("slots") or 0,
            running=raw.get("running") or 0,
            loaded=tuple(raw.get("loaded") or ()),
            trust=word(raw, "trust"),
            region=raw.get("region") or "",
            gpus=tuple(WorkerGpu.decode(each) for each in raw.get("gpus") or ()),
            models=tuple(LoadedModel.decode(each) for each in raw.get("models") or ()),
            host=WorkerHost.decode(raw.get("host") or {}),
            cuda=raw.get("cuda"),
            driver=raw.get("driver"),
            sandbox=raw.get("sandbox"),
            raw=raw,
        )
