"""DevicePluginConfigs from a file or from the cluster, and what the agents of one pool would get of them. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from device_agent.contract import attributes, names
from device_agent.contract.document import Document
from device_operator.runtime.errors import InvalidSpecError
from device_operator.spec.model import Pool, Spec
from device_operator.spec.parsing import parse_spec
from device_operator.spec.placement import matches
from device_operator.spec.written import parse_written

from kubectl_devices import errors
from kubectl_devices.model.soundness.of_nodes import view

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """`document`: what the pool's agents serve."""

    name: str
    spec: Spec
    pool: Pool

    @property
    def document(self) -> Document:
        return self.spec.document(self.pool)


def configs(documents: Iterable[Any]) -> Iterator[Object]:
    """The DevicePluginConfigs among the documents of a file, also those in a List. Other kinds are skipped."""
    for document in documents:
        if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
            yield from configs(document.get("items") or ())
        elif isinstance(document, dict) and document.get("kind") == "DevicePluginConfig":
            if document.get("apiVersion") != names.API_VERSION:
                raise errors.UsageError(f"apiVersion {document.get('apiVersion')!r} must be {names.API_VERSION}")
            yield document


def chosen(found: Iterable[Object], name: str, *, source: str) -> Object:
    """The object of this name, or the only one.

    Raises:
        errors.UsageError: there is none, or several and no name.
    """
    every = list(found)
    titles = [str((o.get("metadata") or {}).get("name", "")) for o in every]
    if not every:
        raise errors.UsageError(f"{source} has no DevicePluginConfig")
    if not name and len(every) > 1:
        raise errors.UsageError(f"{source} has several DevicePluginConfigs; name one of: {', '.join(titles)}")
    if name and name not in titles:
        raise errors.UsageError(f"{source} has no DevicePluginConfig {name}; it has: {', '.join(titles)}")
    return every[titles.index(name)] if name else every[0]


def wanted(raw: Object, *, pool: str = "", node: Object | None = None, written: bool = False) -> Wanted:
    """The pool of this name; else the one that matches the node; else the only one.

    `written`: it is from a file, so the API server has not checked it yet.

    Raises:
        errors.UsageError: the spec would be rejected, or it is not clear which pool is meant.
    """
    try:
        spec = parse_written(raw) if written else parse_spec(raw)
    except InvalidSpecError as error:
        problems = "".join(f"\n  {problem}" for problem in error.problems)
        raise errors.UsageError(f"this would be refused:{problems}") from error
    return Wanted(str(raw["metadata"]["name"]), spec, _pool(spec, pool, node))


def _pool(spec: Spec, name: str, node: Object | None) -> Pool:
    listed = ", ".join(p.name for p in spec.pools)
    if name:
        for pool in spec.pools:
            if pool.name == name:
                return pool
        raise errors.UsageError(f"there is no pool {name}; there are: {listed}")
    if node is not None:
        for pool in spec.pools:
            if matches(pool, view(node)):
                return pool
        text = f"no pool matches node {node['metadata']['name']}; name the one to try with --pool: {listed}"
        raise errors.UsageError(text)
    if len(spec.pools) > 1:
        raise errors.UsageError(f"there are several pools; name one with --pool: {listed}")
    return spec.pools[0]


def without_drivers(document: Document) -> tuple[Document, tuple[str, ...]]:
    """The document without entries whose source asks a driver's library, and the names of the resources that lost some.

    A captured tree has files, and no driver that could be asked.
    """
    kept, lost = [], []
    for resource in document.resources:
        entries = tuple(entry for entry in resource.devices if entry.kind != attributes.NVML)
        if len(entries) < len(resource.devices):
            lost.append(resource.name)
        if entries:
            kept.append(replace(resource, devices=entries))
    return replace(document, resources=tuple(kept)), tuple(lost)
