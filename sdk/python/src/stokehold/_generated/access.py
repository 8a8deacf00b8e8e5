# Generated from api/openapi.json by `make models`; do not edit.
"""The access of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from stokehold._read import decode_time, word

if TYPE_CHECKING:
    from typing_extensions import Self


ChangeOutcome = Literal["done", "refused", "failed", "unknown"]
"""The outcome of a change."""

TokenKind = Literal["api", "join"]
"""The kind of a token."""

TokenTrust = Literal["community", "datacenter", "owned"]
"""The owner of a machine."""


@dataclass(frozen=True)
class Actor:
    """The actor of a change.

    A tenant sees only that an operator made a change, not which one.

    token_name: The token's name; `operator` for operators.
    token_id: The token's id; None for operators.
    user: The user that the token names, if any.
    """

    token_name: str
    token_id: str | None = None
    user: str | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            token_name=raw.get("token_name") or "",
            token_id=raw.get("token_id"),
            user=raw.get("user"),
        )


@dataclass(frozen=True)
class Change:
    """An entry of the audit log.

    id: The entry's unique id.
    at: When the change began.
    tenant: The tenant whose resources were changed.
    actor: The actor of a change. A tenant sees only that an operator made a change, not which one.
    action: Method and route, e.g. `PUT /v1/secrets/{name}`; `stoke ...` for a change that an operator made directly in
        Redis.
    object: The changed resource, e.g. `HF_TOKEN`; empty if the route has only one or it is not known.
    outcome: The outcome of a change.
    address: The client's address as reported by trusted proxies; None if it is not known or the caller may not see it.
    request_id: The `x-request-id` of the response.
    """

    id: str
    at: datetime | None
    tenant: str
    actor: Actor
    action: str
    object: str
    outcome: ChangeOutcome
    address: str | None = None
    request_id: str | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            id=raw["id"],
            at=decode_time(raw.get("at")),
            tenant=raw["tenant"],
            actor=Actor.decode(raw.get("actor") or {}),
            action=raw.get("action") or "",
            object=raw.get("object") or "",
            outcome=word(raw, "outcome"),
            address=raw.get("address"),
            request_id=raw.get("request_id"),
        )


@dataclass(frozen=True)
class ChangeList:
    """One page of the audit log.

    newest: Pass this as `after` to read later entries; None if the page is empty.
    next_cursor: The cursor of the next page in the same direction; None at the end.
    """

    changes: tuple[Change, ...]
    newest: str | None = None
    next_cursor: str | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            changes=tuple(Change.decode(each) for each in raw.get("changes") or ()),
            newest=raw.get("newest"),
            next_cursor=raw.get("next_cursor"),
        )


@dataclass(frozen=True)
class Tenant:
    """A tenant.

    open_jobs: Jobs that have not ended; those of a disabled tenant wait.
    created_at: When it was created; None for a tenant that was created with its first token.
    disabled_at: When it was disabled: its requests are refused and none of its jobs start. None: it is not disabled.
    """

    name: str
    open_jobs: int
    created_at: datetime | None = None
    disabled_at: datetime | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            name=raw.get("name") or "",
            open_jobs=raw.get("open_jobs") or 0,
            created_at=decode_time(raw.get("created_at")),
            disabled_at=decode_time(raw.get("disabled_at")),
        )


@dataclass(frozen=True)
class Token:
    """A token, without its secret, which is returned only once.

    id: The part of the token after the first `_`.
    kind: The kind of a token.
    scopes: The token's scopes; none for a join token.
    created_at: RFC 3339.
    single_use: Whether only one worker may join with it.
    expires_at: RFC 3339; None: the token does not expire.
    last_used_at: When the token was last used, within a minute or two; None: not in the last 400 days.
    previous_until: Until when the secret before the last rotation is also valid.
    region: For a join token: the region of those machines, as endpoints name it; None if none is set.
    trust: For a join token: the owner of the machines that join with it; None for an API token.
    user: The user of the token, if set.
    """

    id: str
    kind: TokenKind
    tenant: str
    name: str
    scopes: tuple[str, ...]
    created_at: datetime | None
    single_use: bool
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    previous_until: datetime | None = None
    region: str | None = None
    trust: TokenTrust | None = None
    user: str | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            id=raw["id"],
            kind=word(raw, "kind"),
            tenant=raw["tenant"],
            name=raw.get("name") or "",
            scopes=tuple(raw.get("scopes") or ()),
            created_at=decode_time(raw.get("created_at")),
            single_use=bool(raw.get("single_use")),
            expires_at=decode_time(raw.get("expires_at")),
            last_used_at=decode_time(raw.get("last_used_at")),
            previous_until=decode_time(raw.get("previous_until")),
            region=raw.get("region"),
            trust=raw.get("trust"),
            user=raw.get("user"),
        )


@dataclass(frozen=True)
class NewToken:
    """A created token.

    token: The token itself, returned only once.
    record: The token's stored record.
    """

    token: str = field(repr=False)
    record: Token

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            token=raw.get("token") or "",
            record=Token.decode(raw.get("record") or {}),
        )


@dataclass(frozen=True)
class Secret:
    """A secret, without its value, which is never returned.

    updated_at: When it was set.
    key_id: The id of the API key that seals it.
    used_by: The endpoints whose current version uses it.
    """

    name: str
    updated_at: datetime | None
    key_id: str
    used_by: tuple[str, ...]

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            name=raw.get("name") or "",
            updated_at=decode_time(raw.get("updated_at")),
            key_id=raw.get("key_id") or "",
            used_by=tuple(raw.get("used_by") or ()),
        )


@dataclass(frozen=True)
class Rewrapped:
    """The outcome of sealing all secrets with the current key.

    key_id: The id of the current key.
    rewrapped: The number of secrets that were sealed with another key and are now sealed with this one.
    unreadable: Secrets that cannot be opened, `<tenant>/<name>`; they are not changed.
    """

    key_id: str
    rewrapped: int
    unreadable: tuple[str, ...]

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            key_id=raw.get("key_id") or "",
            rewrapped=raw.get("rewrapped") or 0,
            unreadable=tuple(raw.get("unreadable") or ()),
        )
