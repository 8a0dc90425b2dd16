"""What containers were given, by the kubelet's own record. Only values.

For each container and resource, the kubelet keeps the ids and the whole Allocate answer. It does so for the plugins of
other vendors too (`kubelet/checkpoint.py`). Our own answers carry a note (`allocate/grant.py`), which says which
hardware each id was. Other answers show only device nodes, and PCI addresses and UUIDs in their text.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final, NamedTuple

from device_agent.allocate.grant import GrantedDevice, GrantNote
from device_agent.contract.values import dataclass
from device_agent.select.unit import Unit
from device_agent.store.section import Section
from device_agent.table.device import Key

_PCI: Final = re.compile(r"(?<![\w:])[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7](?!\w)")
_UUID: Final = re.compile(r"(?<!\w)(?:[A-Z]+-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?!\w)")


@dataclass(frozen=True, slots=True)
class Grant:
    """What one container was given of one resource.

    `pod`: its uid, as the kubelet has it. `note`: None in answers of other plugins. `nodes`: paths of device nodes on
    the host. `words`: `hardware_words` in an answer without a note, sorted.
    """

    pod: str
    container: str
    resource: str
    ids: tuple[str, ...]
    note: GrantNote | None = None
    nodes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[Key, ...]:
        """(resource, id) of each."""
        return tuple((self.resource, i) for i in self.ids)

    @property
    def where(self) -> tuple[str, str, str]:
        """Which container and resource it is of."""
        return self.pod, self.container, self.resource


class Granted(NamedTuple):
    """The device behind an id, which of its replicas the id is, and the boot in which its node numbers are valid."""

    device: GrantedDevice
    replica: int
    boot: str


@dataclasses.dataclass(frozen=True)  # the one of contract.values has slots, and cached_property needs a __dict__
class Grants:
    """All grants of the node, with indexes that are made when they are first asked for."""

    all: tuple[Grant, ...] = ()

    @cached_property
    def by_key(self) -> Mapping[Key, tuple[Grant, ...]]:
        """(resource, id) -> the grants that have it. Often several containers of one pod have the same id."""
        found: dict[Key, list[Grant]] = {}
        for grant in self.all:
            for i in grant.ids:
                found.setdefault((grant.resource, i), []).append(grant)
        return {key: tuple(grants) for key, grants in found.items()}

    def of(self, key: Key) -> Granted | None:
        """Which device an id was. The last answer whose note has the id decides."""
        for grant in reversed(self.by_key.get(key, ())):
            note = grant.note
            where = note.ids.get(key[1]) if note is not None else None
            if note is not None and where is not None:
                return Granted(note.devices[where.device], where.replica, note.boot)
        return None

    def given_by(self, owner: str) -> frozenset[Key]:
        """Ids that agents of this object have given."""
        return frozenset(
            (grant.resource, i) for grant in self.all if grant.note and grant.note.owner == owner for i in grant.ids
        )


@dataclass(frozen=True, slots=True)
class SeenGrant:
    """A grant, with namespace and name of its pod if a List has shown them, else ''.

    `devices`: for a grant without a note, our devices that were found in it, with node numbers as of `boot`. They are
    stored, because device nodes may be numbered anew while the pod runs. `lost`: the kubelet has forgotten the grant
    (`forgotten`).
    """

    grant: Grant
    namespace: str = ""
    name: str = ""
    devices: tuple[GrantedDevice, ...] = ()
    boot: str = ""
    lost: bool = False


GRANTS: Final = Section(
    name="grants",
    item=SeenGrant,
    version=1,
    what="which hardware containers were last seen with",
    forgotten="hardware that a pod holds may be offered again if the kubelet's own record cannot be read",
    others_at_start=True,
)


def hardware_words(texts: Iterable[str]) -> tuple[str, ...]:
    """PCI addresses (lower case) and UUIDs in the texts, sorted, as plugins write them into ids and variables."""
    found: set[str] = set()
    for text in texts:
        found.update(address.lower() for address in _PCI.findall(text))
        found.update(_UUID.findall(text))
    return tuple(sorted(found))


def words_of(unit: Unit) -> tuple[str, ...]:
    """The words that mean this device in an answer of another plugin."""
    names = (path.rpartition("/")[2] for path in unit.hardware)
    about = (unit.attributes.get(name, "") for name in ("uuid", "pci.address"))
    return hardware_words((unit.value, *names, *about))
