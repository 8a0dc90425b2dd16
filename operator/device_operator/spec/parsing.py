"""Parses JSON to a typed spec: applies defaults, and checks what the API server cannot check. Pure.

`device_agent.contract` parses and checks the entries of `resources`, with the same messages that an agent gives.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from device_agent.contract import check, names
from device_agent.contract.codec import ShapeError, decode, json_names, unknown_field
from device_agent.contract.document import ContractError, CordonRule, Document, Resource, dump, parse_resource

from device_operator.runtime.errors import InvalidSpecError
from device_operator.spec import agent_settings, catalogue, scheduling
from device_operator.spec.agent_settings import AgentSettings, merged
from device_operator.spec.model import DEFAULT_MAX_UNAVAILABLE, DEFAULT_POOL, Pool, Spec

T = TypeVar("T")

MAX_CONFIG_NAME: Final = 40
MAX_POOL_NAME: Final = 20
MAX_RESOURCES: Final = 64
MAX_POOLS: Final = 32
MAX_CORDONS: Final = 32
MAX_INT32: Final = 2**31 - 1
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_PERCENT = re.compile(r"(?:[1-9][0-9]?|100)%")


def parse_spec(obj: Mapping[str, Any]) -> Spec:
    """The object's spec; `obj` is the whole DevicePluginConfig as JSON.

    Raises:
        InvalidSpecError: with every problem found. An entry that cannot be parsed adds its first problem only.
    """
    problems: list[str] = []
    name = str(obj.get("metadata", {}).get("name", ""))
    if not _LABEL.fullmatch(name) or len(name) > MAX_CONFIG_NAME:
        problems.append(
            f"metadata.name: {name!r} must be at most {MAX_CONFIG_NAME} lower-case letters, digits and '-', "
            "alphanumeric at both ends: it is part of the names of DaemonSets and inventories"
        )
    raw = obj.get("spec")
    if not isinstance(raw, dict):
        what = "is missing; it needs" if raw is None else f"{raw!r:.40} must be an object, with"
        raise InvalidSpecError((*problems, f"spec: {what} at least spec.resources"))
    unknown = sorted(map(str, raw.keys() - _SPEC_FIELDS))
    problems += (unknown_field(key, sorted(_SPEC_FIELDS), path="spec") for key in unknown)

    resources = tuple(_resources(raw.get("resources"), problems))
    paused = raw.get("paused", False)
    if not isinstance(paused, bool):
        problems.append(f"spec.paused: must be true or false, not {paused!r:.40}")
    cordon = _cordon(raw.get("cordon", []), problems)
    agent = _agent(raw.get("agent", {}), "spec.agent", problems)
    pools = _pools(raw.get("nodePools"), agent, [r.name for r in resources], problems)
    spec = Spec(resources, pools, _max_unavailable(raw.get("updateStrategy"), problems), bool(paused), cordon)
    problems += _size(spec)
    if problems:
        raise InvalidSpecError(tuple(problems))
    return spec


_ENTRY_FIELDS = ("name", catalogue.PRESET, *(name for name in json_names(Resource) if name != "name"))
_SPEC_FIELDS = {"paused", "cordon", "resources", "nodePools", "agent", "updateStrategy"}


def _resources(raw: object, problems: list[str]) -> Iterator[Resource]:
    if not isinstance(raw, list) or not raw:
        problems.append("spec.resources: must list at least one resource")
        return
    if len(raw) > MAX_RESOURCES:
        problems.append(
            f"spec.resources: {len(raw)} resources, at most {MAX_RESOURCES} in one object; divide them among several"
        )
        return
    parsed: list[Resource | None] = []
    for index, entry in enumerate(raw):
        try:
            path = f"spec.resources[{index}]"
            parsed.append(_parsed(entry, path))
        except (ContractError, catalogue.PresetError) as error:
            problems.append(str(error))
            parsed.append(None)
    good = tuple(r for r in parsed if r is not None)
    if len(good) == len(parsed):  # if an entry is missing, the messages would have wrong indexes
        problems += check.problems(Document(good))
    yield from good


def _parsed(entry: object, path: str) -> Resource:
    for key in entry if isinstance(entry, dict) else ():
        if key not in _ENTRY_FIELDS:
            raise ContractError(unknown_field(str(key), _ENTRY_FIELDS, path=path))
    whole = catalogue.expand(entry, path=path)
    if isinstance(whole, dict) and "name" in whole and "devices" not in whole:
        raise ContractError(
            f"{path}.devices: is missing; name a source such as files: {{paths: [/dev/kvm]}}, or a preset that has "
            "devices (device-operator presets lists them)"
        )
    return parse_resource(whole, path=path)  # type: ignore[arg-type] # parse_resource reports another shape


def _cordon(raw: object, problems: list[str]) -> tuple[CordonRule, ...]:
    if not isinstance(raw, list) or len(raw) > MAX_CORDONS:
        problems.append(f"spec.cordon: must be a list of at most {MAX_CORDONS} rules")
        return ()
    found = (_shaped(CordonRule, rule, f"spec.cordon[{i}]", problems) for i, rule in enumerate(raw))
    rules = tuple(rule for rule in found if rule is not None)
    problems += check.problems(Document((), rules))
    return rules


def _pools(raw: object, agent: AgentSettings, entries: list[str], problems: list[str]) -> tuple[Pool, ...]:
    if raw is None:
        return (Pool(DEFAULT_POOL, serves=tuple(entries), agent=agent),)
    if not isinstance(raw, list) or not raw:
        problems.append("spec.nodePools: must list at least one pool; omit it for one pool on every Linux node")
        return ()
    if len(raw) > MAX_POOLS:
        problems.append(
            f"spec.nodePools: {len(raw)} pools, at most {MAX_POOLS} in one object; divide them among several"
        )
        return ()
    pools: list[Pool] = []
    for index, entry in enumerate(raw):
        at = f"spec.nodePools[{index}]"
        given = dict(entry) if isinstance(entry, dict) else {}
        own = _agent(given.pop("agent", {}), f"{at}.agent", problems)
        pool = _shaped(Pool, given if isinstance(entry, dict) else entry, at, problems)
        if pool is None:
            continue
        problems += _pool_problems(pool, at, entries)
        if pool.name in [p.name for p in pools]:
            problems.append(f"{at}.name: {pool.name} is already the name of another pool; choose another")
        pools.append(replace(pool, serves=pool.serves or tuple(entries), agent=merged(agent, own)))
    return tuple(pools)


def _pool_problems(pool: Pool, at: str, entries: list[str]) -> Iterator[str]:
    if not _LABEL.fullmatch(pool.name) or len(pool.name) > MAX_POOL_NAME:
        yield (
            f"{at}.name: {pool.name!r} must be at most {MAX_POOL_NAME} lower-case letters, digits and '-', "
            "alphanumeric at both ends"
        )
    yield from scheduling.selector_problems(pool.node_selector, f"{at}.nodeSelector")
    for i, term in enumerate(pool.node_selector_terms):
        yield from scheduling.term_problems(term, f"{at}.nodeSelectorTerms[{i}]")
    for i, toleration in enumerate(pool.tolerations or ()):
        yield from scheduling.toleration_problems(toleration, f"{at}.tolerations[{i}]")
    for i, name in enumerate(pool.serves):
        if name not in entries:
            near = difflib.get_close_matches(name, entries, n=1)
            hint = f": did you mean {near[0]}? There are: " if near else "; there are: "
            yield f"{at}.serves[{i}]: {name!r} is no entry of spec.resources{hint}{', '.join(entries)}"


def _agent(raw: object, at: str, problems: list[str]) -> AgentSettings:
    agent = _shaped(AgentSettings, agent_settings.quantities_as_text(raw), at, problems)
    if agent is None:
        return AgentSettings()
    problems += agent_settings.problems(agent, at)
    return agent


def _max_unavailable(raw: object, problems: list[str]) -> int | str:
    at = "spec.updateStrategy"
    if raw is None:
        return DEFAULT_MAX_UNAVAILABLE
    if not isinstance(raw, dict) or raw.keys() - {"maxUnavailable"}:
        problems.append(f"{at}: must be an object whose only field is maxUnavailable")
        return DEFAULT_MAX_UNAVAILABLE
    value = raw.get("maxUnavailable", DEFAULT_MAX_UNAVAILABLE)
    whole = type(value) is int and 1 <= value <= MAX_INT32
    if whole or (isinstance(value, str) and _PERCENT.fullmatch(value)):
        return value  # type: ignore[no-any-return]
    problems.append(f"{at}.maxUnavailable: {value!r} must be a whole number from 1, or a percentage from 1% to 100%")
    return DEFAULT_MAX_UNAVAILABLE


def _size(spec: Spec) -> Iterator[str]:
    for pool in spec.pools:
        document = spec.document(pool)
        size = len(dump(document))
        if size > names.MAX_DOCUMENT_BYTES:
            yield (
                f"spec: the configuration of pool {pool.name} would be {size:,} bytes "
                f"({len(document.resources)} resources), but a ConfigMap holds at most {names.MAX_DOCUMENT_BYTES:,}: "
                f"{size - names.MAX_DOCUMENT_BYTES:,} too many; shorten values below inject, "
                "or divide the resources among pools with serves"
            )


def _shaped(cls: type[T], raw: object, at: str, problems: list[str]) -> T | None:
    try:
        return decode(cls, raw, path=at)
    except ShapeError as error:
        problems.append(str(error))
        return None
