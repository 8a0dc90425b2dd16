"""The conditions of all devices as they are kept on the node, so that a restarted agent goes on where it was. Pure.

The boot id is kept beside them: a reboot is a fresh start for hardware and driver, and what was known before it says
nothing any more.
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from device_agent.contract.codec import ShapeError, decode, encode
from device_agent.contract.document import Clears
from device_agent.contract.values import dataclass
from device_agent.health.news import Code, DriverLoad, Ruling
from device_agent.health.state_machine import Condition, Failure, State
from device_agent.health.watchlist import Kind, Record

VERSION: Final = 1


class HealthMemoryError(ValueError):
    """What is kept cannot be read. The message is one line."""


@dataclass(frozen=True, slots=True)
class _Failure:
    cause: str
    meaning: str
    message: str
    clears: Clears
    code: Code
    since: str
    asked: bool
    module: str


@dataclass(frozen=True, slots=True)
class _Condition:
    entry: str
    kind: Kind
    name: str
    state: State
    since: str
    cause: str
    message: str
    run: int
    before: State
    failures: tuple[_Failure, ...]
    ended: str = ""


@dataclass(frozen=True, slots=True)
class _Memory:
    version: int
    boot_id: str
    conditions: tuple[_Condition, ...]


def dump(records: Iterable[Record], *, boot_id: str) -> bytes:
    """Equal records give equal bytes."""
    memory = _Memory(version=VERSION, boot_id=boot_id, conditions=tuple(map(_kept, records)))
    return json.dumps(encode(memory), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def parse(raw: bytes, *, boot_id: str, only: Kind | None = None) -> tuple[Record, ...]:
    """What was kept in this boot; nothing of another. `only`: of this kind, which spares the many of others.

    Raises:
        HealthMemoryError: it is not what `dump` writes.
    """
    try:
        data: Any = json.loads(raw)
        if not isinstance(data, dict) or data.get("version") != VERSION:
            raise HealthMemoryError("it is of another version")
        if only is not None:
            data["conditions"] = [c for c in data.get("conditions", ()) if c.get("kind") == only]
        memory = decode(_Memory, data, path="")
        if not boot_id or memory.boot_id != boot_id:
            return ()
        return tuple(map(_record, memory.conditions))
    except (ShapeError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise HealthMemoryError(str(error)) from error


def boot_of(raw: bytes) -> str:
    """In which boot it was written.

    Raises:
        HealthMemoryError: it is not what `dump` writes, in whatever version.
    """
    try:
        boot = json.loads(raw)["bootId"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise HealthMemoryError("it does not say in which boot it was written") from error
    if not isinstance(boot, str) or not boot:
        raise HealthMemoryError("it does not say in which boot it was written")
    return boot


def _kept(record: Record) -> _Condition:
    condition = record.condition
    return _Condition(
        entry=record.entry,
        kind=record.kind,
        name=record.name,
        state=condition.state,
        since=condition.since.isoformat(),
        cause=condition.cause,
        message=condition.message,
        run=condition.run,
        before=condition.before,
        ended=condition.ended.isoformat() if condition.ended else "",
        failures=tuple(
            _Failure(
                cause=f.ruling.cause,
                meaning=f.ruling.meaning,
                message=f.ruling.message,
                clears=f.ruling.clears,
                code=f.code,
                since=f.since.isoformat(),
                asked=f.asked,
                module=f.load.module,
            )
            for f in condition.failures
        ),
    )


def _record(kept: _Condition) -> Record:
    failures = tuple(
        Failure(
            ruling=Ruling(cause=f.cause, meaning=f.meaning, message=f.message, clears=f.clears),
            code=f.code,
            since=_moment(f.since),
            load=DriverLoad(module=f.module),
            asked=f.asked,
        )
        for f in kept.failures
    )
    condition = Condition(
        since=_moment(kept.since),
        state=kept.state,
        cause=kept.cause,
        message=kept.message,
        run=kept.run,
        failures=failures,
        before=kept.before,
        ended=_moment(kept.ended) if kept.ended else None,
    )
    return Record(entry=kept.entry, kind=kept.kind, name=kept.name, condition=condition)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is no time in UTC") from error
