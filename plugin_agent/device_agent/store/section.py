"""One section of the node store: its items and their form in a file. Pure.

A file is JSON: `{"version": 1, "bootId": "...", "items": [...]}`. An item is a frozen dataclass of the package that
keeps it, encoded by its fields (`contract.codec`). `bootId` is only there if a reboot makes the items invalid.
"""

import json
from typing import Any, Final, Generic, TypeVar

from device_agent.contract.codec import decode, encode
from device_agent.contract.values import dataclass

T = TypeVar("T")

MAX_BYTES: Final = 32 * 1024 * 1024
"""More than 20,000 devices of 32 resources need; a longer file is not ours."""


class SectionError(ValueError):
    """The bytes are not a file of this section. The message is one line."""


@dataclass(frozen=True, slots=True)
class Section(Generic[T]):
    """`name`: the directory's name. `item`: the dataclass. `version`: of its fields; files of other versions are not
    read.

    `what`: the items, for messages. `forgotten`: what may happen without them, for messages. `until_reboot`: a file of
    another boot holds nothing. `others_at_start`: files of other objects are read at the start. `shared`: (field,
    value) of the items that other objects' agents read; None: all. `max_others`: at most so many files of other objects
    are read, the newest ones.
    """

    name: str
    item: type[T]
    version: int
    what: str
    forgotten: str
    max_bytes: int = MAX_BYTES
    until_reboot: bool = False
    others_at_start: bool = False
    shared: tuple[str, str] | None = None
    max_others: int = 256

    def dump(self, items: tuple[T, ...], *, boot_id: str) -> bytes:
        """Equal items give equal bytes.

        Raises:
            SectionError: the result is longer than `max_bytes`, so nobody would read it.
        """
        boot = {"bootId": boot_id} if self.until_reboot else {}
        data = {"version": self.version, **boot, "items": encode(items)}
        raw = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        if len(raw) > self.max_bytes:
            raise SectionError(f"it is longer than {self.max_bytes:,} bytes")
        return raw

    def parse(self, raw: bytes, *, boot_id: str, theirs: bool = False) -> tuple[T, ...]:
        """The items of a file; none if it is of another boot and a reboot ends them.

        `theirs`: the file belongs to another object; items that are not shared are left out.

        Raises:
            SectionError: the bytes do not have the form that `dump` writes.
        """
        try:
            data: Any = json.loads(raw)
            if not isinstance(data, dict) or data.get("version") != self.version:
                raise SectionError("it is of another version")
            if self.until_reboot and not (boot_id and data.get("bootId") == boot_id):
                return ()
            items = data.get("items")
            if not isinstance(items, list):
                raise SectionError("items: must be a list")
            if theirs and self.shared is not None:
                field, value = self.shared
                items = [item for item in items if isinstance(item, dict) and item.get(field) == value]
            return tuple(decode(self.item, item, path=f"items[{i}]") for i, item in enumerate(items))
        except (ValueError, RecursionError) as error:
            raise SectionError(str(error)) from error


def boot_of(raw: bytes) -> str:
    """The boot in which a file of any version was written; '' if it does not say."""
    try:
        boot = json.loads(raw)["bootId"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return boot if isinstance(boot, str) else ""
