"""Reads as far as the user's rights go, and remembers which rights were missing."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from kubectl_devices import errors
from kubectl_devices.cluster.api import Api, Object
from kubectl_devices.cluster.kinds import Kind

T = TypeVar("T")


@dataclass(slots=True)
class Reader:
    """`gaps`: one line for each right that was missing, with what is not shown for want of it."""

    api: Api
    gaps: list[str] = field(default_factory=list)
    _refused: set[tuple[str, str]] = field(default_factory=set)

    def items(
        self, kind: Kind, *, lost: str, namespace: str = "", labels: str = "", fields: str = ""
    ) -> list[Object] | None:
        """All objects; None if the user may not list them. `lost`: what is then not shown."""
        return self._tried(
            lambda: self.api.items(kind, namespace=namespace, labels=labels, fields=fields), lost=lost, missing=None
        )

    def get(self, kind: Kind, name: str, *, lost: str, namespace: str = "", sub: str = "") -> Object | None:
        """The object; None if there is none, or if the user may not get it (`gaps` tells the two apart)."""
        return self._tried(lambda: self.api.get(kind, name, namespace=namespace, sub=sub), lost=lost, missing=None)

    def text(self, kind: Kind, name: str, *, lost: str, namespace: str, sub: str, **query: str) -> str | None:
        return self._tried(
            lambda: self.api.text(kind, name, namespace=namespace, sub=sub, query=query), lost=lost, missing=None
        )

    def refused(self, verb: str, kind: Kind) -> bool:
        """Whether the user was found to lack this right."""
        return (verb, kind.resource) in self._refused

    def _tried(self, ask: Callable[[], T], *, lost: str, missing: T | None) -> T | None:
        try:
            return ask()
        except errors.ForbiddenError as error:
            self._refused.add((error.verb, error.resource))
            gap = f"{error}: {lost}"
            if gap not in self.gaps:
                self.gaps.append(gap)
        except errors.NotFoundError:
            return missing
        return None
