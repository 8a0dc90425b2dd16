"""A section of small items, and a memory that keeps them, for tests of the node store."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from device_agent.store.node_store import DIRECTORY, NodeStore
from device_agent.store.section import Section

UID, ANOTHER, THIRD = "0f6f4a52", "11111111", "22222222"
BOOT = "this"


@dataclass(frozen=True, slots=True)
class Note:
    text: str
    shared: str = "yes"


NOTES: Final = Section(name="notes", item=Note, version=1, what="the notes", forgotten="notes are forgotten")
FIRST_NOTES: Final = replace(NOTES, others_at_start=True)


def notes(*texts: str) -> tuple[Note, ...]:
    return tuple(Note(text) for text in texts)


def store(directory: Path, uid: str = UID, *, boot: str = BOOT) -> NodeStore:
    return NodeStore(directory, object_uid=uid, boot=boot)


def path(directory: Path, uid: str = UID, section: str = NOTES.name) -> Path:
    return directory / DIRECTORY / section / f"{uid}.json"


def keep(directory: Path, *texts: str, uid: str = UID) -> None:
    assert store(directory, uid).write(NOTES, notes(*texts)).problem == ""


def on_disk(directory: Path, uid: str = UID) -> list[str]:
    return [note.text for note in store(directory, uid).read(NOTES).items]


class Notebook:
    """A memory of notes. `heard`: what the disk returned, in that order."""

    def __init__(self, *texts: str) -> None:
        self.revision = len(texts)
        self.own: tuple[Note, ...] = notes(*texts)
        self.heard: list[tuple[str, ...]] = []
        self.others: list[str] = []

    def items(self) -> tuple[Note, ...]:
        return tuple(sorted(self.own, key=lambda note: note.text))

    def add(self, *texts: str) -> Callable[[], None]:
        def add() -> None:
            new = [note for note in notes(*texts) if note not in self.own]
            self.own += tuple(new)
            self.revision += len(new)

        return add

    def restore(self, own: tuple[Note, ...], *, late: bool, now: float, wall: datetime) -> None:
        assert now > 0
        assert wall.tzinfo is not None
        self.heard.append(("late" if late else "own", *(note.text for note in own)))
        self.own += tuple(note for note in own if note not in self.own)

    def learn(self, others: tuple[Note, ...], *, now: float, wall: datetime) -> None:
        assert now > 0
        assert wall.tzinfo is not None
        self.heard.append(("others", *(note.text for note in others)))
        self.others = [note.text for note in others]
