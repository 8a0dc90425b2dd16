"""Which edit of an entry's sources took a device away, in the words of the configuration. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import zip_longest

from device_agent.contract.codec import camel
from device_agent.contract.document import DeviceEntry
from device_agent.select.unit import Unit


def no_longer_selected(unit: Unit, before: Sequence[DeviceEntry], after: Sequence[DeviceEntry]) -> str:
    """Names the edited fields of the unit's source: `devices[0].pci.addresses no longer selects it`.

    `before`, `after`: the entry's sources. The unit was found by one of `before`, which one is not known.
    """
    changed = list(dict.fromkeys(_changed(unit.source, before, after)))
    if not changed:
        changed = ["devices"]
    return f"{' or '.join(changed)} no longer selects it"


def _changed(source: str, before: Sequence[DeviceEntry], after: Sequence[DeviceEntry]) -> Iterator[str]:
    for i, (old, new) in enumerate(zip_longest(before, after)):
        if old is None or old.kind != source or old == new:
            continue
        was, now = getattr(old, source), getattr(new, source, None)
        if now is None:
            yield f"devices[{i}]"
            continue
        for field in fields(was):
            if getattr(was, field.name) != getattr(now, field.name):
                yield f"devices[{i}].{source}.{camel(field.name)}"
