"""What cordon and drain write, while agents and other admins write the same inventory."""

import io
import json
from typing import Any

import pytest
from kubectl_devices.__main__ import parser
from kubectl_devices.cluster.api import Api
from kubectl_devices.cluster.connection import Connection, Target
from kubectl_devices.commands import cordon, drain
from kubectl_devices.errors import CliError, ConflictError
from kubectl_devices.output import Output
from kubectl_devices.session import Session
from unit.cli.made import raw_inventory


class FakeServer:
    """One inventory, and pods. `others`: what others write just before each patch of ours arrives."""

    def __init__(self, *others: list[Any], **inventory: Any) -> None:
        self.inventory = raw_inventory(**inventory)
        self.others = list(others)
        self.version = 7
        self.evicted: list[str] = []
        self.patches = 0

    def __call__(self, method: str, path: str, **request: Any) -> tuple[int, bytes, str]:
        if path.endswith("/eviction"):
            self.evicted.append(path)
            return 201, b"{}", ""
        if "/pods/" in path:
            return 200, b'{"metadata": {"ownerReferences": [{"controller": true}]}}', ""
        if method == "PATCH":
            self.patches += 1
            if self.others:
                self._write(self.others.pop(0))
            if request["body"]["metadata"]["resourceVersion"] != str(self.version):
                return 409, b'{"message": "the object has been modified"}', ""
            self._write(request["body"]["spec"]["cordoned"])
            return 200, b"{}", ""
        self.inventory["metadata"]["resourceVersion"] = str(self.version)
        found = {"items": [self.inventory]} if path.endswith("/nodedeviceinventories") else self.inventory
        return 200, json.dumps(found).encode(), ""

    def _write(self, cordoned: list[Any]) -> None:
        self.inventory["spec"]["cordoned"] = cordoned
        self.version += 1


def session(server: FakeServer, *arguments: str) -> Session:
    made = Session(parser().parse_args(arguments), Output(stdout=io.StringIO(), stderr=io.StringIO()), Target())
    made._connection = Connection(Api(server), "default")
    return made


def test_a_cordon_that_another_admin_makes_at_the_same_moment_is_kept():
    server = FakeServer([{"id": "b", "reason": "theirs"}], devices=[{"id": "a"}, {"id": "b"}])
    assert cordon.run_cordon(session(server, "cordon", "n1", "a")) == 0
    assert server.inventory["spec"]["cordoned"] == [{"id": "b", "reason": "theirs"}, {"id": "a"}]
    assert server.patches == 2


def test_it_gives_up_when_others_write_again_and_again():
    server = FakeServer(*([{"id": "b", "reason": str(n)}] for n in range(9)), devices=[{"id": "a"}])
    with pytest.raises(ConflictError):
        cordon.run_cordon(session(server, "cordon", "n1", "a"))
    assert all(item["id"] == "b" for item in server.inventory["spec"]["cordoned"])


HELD = {"id": "a", "offered": True, "allocatedTo": [{"namespace": "ns", "pod": "p", "container": "c"}]}


def test_nothing_is_evicted_while_the_agent_still_offers_the_device(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(drain, "_POLL_SECONDS", 0.01)
    server = FakeServer(devices=[HELD])
    with pytest.raises(CliError, match="still offers a"):
        drain.run(session(server, "drain", "n1", "a", "--timeout", "0.1s"))
    assert server.evicted == []
    assert server.inventory["spec"]["cordoned"] == [{"id": "a"}]


def test_a_holder_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(drain, "_POLL_SECONDS", 0.01)
    server = FakeServer(devices=[{**HELD, "offered": False, "withheld": "Cordoned"}])
    with pytest.raises(CliError, match="ns/p"):
        drain.run(session(server, "drain", "n1", "a", "--timeout", "0.1s"))
    assert len(server.evicted) == 1
