"""The mounted configuration, and the last usable one, which a start falls back on."""

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from device_agent.contract.document import ContractError, DeviceEntry, Document, FilesSource, Resource, dump
from device_agent.contract.names import MAX_DOCUMENT_BYTES
from device_agent.runtime.settings import Settings
from device_agent.store.configuration import CONFIG, KeptDocument, MountedConfiguration, checked_document
from device_agent.store.keeper import Keeper
from unit.store.kept import path, store
from unit.table.samples import document, resource

GOOD, BETTER = dump(document()), dump(document(resource("example.com/second")))
UNSERVABLE = dump(document(Resource(name="example.com/x", devices=(DeviceEntry(files=FilesSource(paths=("/etc",))),))))


class Mounted:
    """A mounted file, the section of the node store beside it, and how often the agent was told of a change."""

    def __init__(self, directory: Path, content: bytes | None = None, *, seconds: float = 30.0) -> None:
        self.path = directory / "config.json"
        if content is not None:
            self.path.write_bytes(content)
        self.changes = 0
        self.configuration = MountedConfiguration(self.path, seconds=seconds, changed=self._changed)
        self.keeper = Keeper(
            store(directory), CONFIG, self.configuration, settings=Settings(), told=self.configuration.kept_badly
        )

    def _changed(self) -> None:
        self.changes += 1

    @property
    def wanted(self) -> Document | None:
        return self.configuration.wanted.document if self.configuration.wanted else None

    async def serve(self) -> None:
        """The wanted document comes into force, and the process ends."""
        assert self.configuration.wanted is not None
        self.configuration.keep(self.configuration.wanted)
        await self.keeper.close()


async def left_by_an_earlier_process(directory: Path, content: bytes) -> None:
    earlier = Mounted(directory, content)
    await earlier.keeper.recall()
    await earlier.configuration.read()
    await earlier.serve()


@pytest.mark.parametrize("content", [b"{", None, UNSERVABLE], ids=["torn", "missing", "unservable"])
@pytest.mark.parametrize("recalled_first", [True, False])
async def test_a_start_with_an_unusable_configuration_serves_the_kept_one_with_its_hash(
    tmp_path: Path, content: bytes | None, *, recalled_first: bool
) -> None:
    await left_by_an_earlier_process(tmp_path, GOOD)
    (tmp_path / "config.json").unlink()
    mounted = Mounted(tmp_path, content)
    if recalled_first:
        await mounted.keeper.recall()
    assert await mounted.configuration.read()
    if not recalled_first:
        assert mounted.wanted is None
        await mounted.keeper.recall()
        assert mounted.changes == 1
    wanted = mounted.configuration.wanted
    assert wanted is not None
    assert (wanted.document, wanted.text.encode()) == (document(), GOOD)
    assert wanted.sha256 == hashlib.sha256(GOOD).hexdigest()
    assert mounted.configuration.error
    mounted.path.write_bytes(BETTER)
    assert await mounted.configuration.read()
    assert (mounted.wanted, mounted.configuration.error) == (document(resource("example.com/second")), "")


async def test_a_usable_mounted_configuration_is_served_even_if_another_was_kept(tmp_path: Path) -> None:
    await left_by_an_earlier_process(tmp_path, BETTER)
    mounted = Mounted(tmp_path, GOOD)
    await mounted.keeper.recall()
    assert mounted.wanted is None, "not before the mounted one has been read"
    assert mounted.changes == 0, "nothing to tell anybody"
    await mounted.configuration.read()
    assert mounted.wanted == document()
    await mounted.serve()
    (kept,) = store(tmp_path).read(CONFIG).items
    assert kept.text.encode() == GOOD


async def test_an_edit_that_is_unusable_changes_only_the_error(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, GOOD)
    await mounted.keeper.recall()
    await mounted.configuration.read()
    for content, told in ((b"{", "not valid JSON"), (b"\xff", "not valid JSON"), (b" " * 2**20, "longer than")):
        mounted.path.write_bytes(content)
        assert await mounted.configuration.read()
        assert told in mounted.configuration.error
        assert not await mounted.configuration.read(), "told once"
        assert mounted.wanted == document()


async def test_an_unchanged_configuration_is_not_written_again(tmp_path: Path) -> None:
    await left_by_an_earlier_process(tmp_path, GOOD)
    before = path(tmp_path, section="config").stat().st_ino
    await left_by_an_earlier_process(tmp_path, GOOD)
    assert path(tmp_path, section="config").stat().st_ino == before


UNUSABLE: list[tuple[Callable[[], str], str]] = [
    (lambda: "", "not valid JSON"),
    (lambda: GOOD.decode()[:-20], "not valid JSON"),
    (lambda: "[]", "contract version"),
    (lambda: '{"contractVersion": 99, "resources": []}', "contract version 99"),
    (lambda: GOOD.decode().replace('"name"', '"nane"'), "did you mean name"),
    (UNSERVABLE.decode, "below /dev"),
    (lambda: "[" * 100_000, "cannot be used"),
    (lambda: " " * (MAX_DOCUMENT_BYTES + 1), "longer than"),
]


@pytest.mark.parametrize(("text", "why"), UNUSABLE)
async def test_an_unusable_kept_configuration_is_reported_and_not_served(
    tmp_path: Path, text: Callable[[], str], why: str
) -> None:
    assert store(tmp_path).write(CONFIG, (KeptDocument(text()),)).problem == ""
    mounted = Mounted(tmp_path)
    await mounted.keeper.recall()
    await mounted.configuration.read()
    assert mounted.wanted is None
    mine, _, kept = mounted.configuration.error.partition("; the configuration kept on the node")
    assert "cannot be read" in mine
    assert why in kept
    assert "\n" not in kept


async def test_a_damaged_kept_file_is_reported_and_not_used(tmp_path: Path) -> None:
    await left_by_an_earlier_process(tmp_path, GOOD)
    path(tmp_path, section="config").write_bytes(b"{")
    mounted = Mounted(tmp_path, b"{")
    await mounted.configuration.read()
    await mounted.keeper.recall()
    assert (mounted.wanted, mounted.changes) == (None, 1)
    assert f"{path(tmp_path, section='config')} cannot be used" in mounted.configuration.error


async def test_the_longest_document_can_be_kept(tmp_path: Path) -> None:
    text = '"' * MAX_DOCUMENT_BYTES
    assert store(tmp_path).write(CONFIG, (KeptDocument(text),)).problem == ""
    assert store(tmp_path).read(CONFIG).items == (KeptDocument(text),)


async def test_a_mounted_file_whose_disk_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted, free = Mounted(tmp_path, GOOD, seconds=0.05), threading.Event()
    real = Path.open

    def hangs(self: Path, *arguments: Any) -> Any:
        free.wait(30)
        return real(self, *arguments)

    monkeypatch.setattr(Path, "open", hangs)
    for _ in range(2):
        await mounted.configuration.read()
        assert "the disk hangs" in mounted.configuration.error
    free.set()
    while mounted.wanted is None:
        await mounted.configuration.read()
    assert (mounted.wanted, mounted.configuration.error) == (document(), "")


def test_bytes_that_are_not_utf8_are_refused() -> None:
    for raw in (b"\xff\xfe\x00", GOOD.decode().encode("utf-16")):
        with pytest.raises(ContractError, match="not valid JSON"):
            checked_document(raw)
