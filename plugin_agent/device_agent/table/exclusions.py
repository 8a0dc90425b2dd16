"""Which of the finds that a selection left out belong to a known device. Pure."""

from collections.abc import Iterable

from device_agent.select.unit import Excluded, Unit


class Exclusions:
    """Finds excluded devices by id or hardware within an entry. The first match counts."""

    def __init__(self, excluded: Iterable[Excluded]) -> None:
        self._by_id: dict[tuple[str, str], tuple[int, Excluded]] = {}
        self._by_hardware: dict[tuple[str, str], tuple[int, Excluded]] = {}
        for number, one in enumerate(excluded):
            self._by_id.setdefault((one.entry, one.id), (number, one))
            if one.hardware:
                self._by_hardware.setdefault((one.entry, one.hardware), (number, one))

    def of(self, unit: Unit) -> Excluded | None:
        found = [self._by_id.get((unit.entry, name)) for name in (unit.id, unit.value)]
        found += [self._by_hardware.get((unit.entry, path)) for path in unit.hardware]
        first = min((one for one in found if one is not None), key=lambda one: one[0], default=None)
        return first[1] if first is not None else None
