"""What admins write into an inventory, as the agent reads it."""

from typing import Any

import pytest
from device_agent.contract.inventory import InventoryCordon
from device_agent.report import inventory
from device_agent.report.api_client import ApiCallError, ApiServer
from device_agent.report.reporter import ACKNOWLEDGE, Orders, absent, read, write

WHO = inventory.AgentIdentity(node="n", config="lab", config_uid="u", pool="p", version="1")


class Answers(ApiServer):
    """Gives these answers in turn; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        object.__setattr__(self, "answers", list(answers))
        object.__setattr__(self, "asked", [])

    def request(self, method: str, path: str, *, body: Any = None, kind: str = "") -> Any:
        self.asked.append((method, path.rpartition("nodedeviceinventories")[2], body, kind))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("found", "orders"),
    [
        ({}, Orders()),
        ({"metadata": {}, "spec": {"nodeName": "n"}}, Orders()),
        ({"metadata": {"annotations": {ACKNOWLEDGE: "a=b"}}, "spec": {}}, Orders("a=b")),
        (
            {"spec": {"cordoned": [{"id": "a", "reason": "recall"}, {"id": "*"}]}},
            Orders("", (InventoryCordon("a", "recall"), InventoryCordon("*"))),
        ),
        ({"spec": {"cordoned": None}}, Orders()),
    ],
)
def test_orders_are_read_from_the_object(found: dict[str, Any], orders: Orders):
    assert read(Answers(found), WHO) == orders


def test_an_answer_of_a_cache_that_lags_behind_is_known_by_its_generation():
    first, second = (read(Answers({"metadata": {"uid": "u", "generation": n}}), WHO) for n in (1, 2))
    assert first.older_than(second)
    assert not second.older_than(first)
    assert not first.older_than(first)
    again = read(Answers({"metadata": {"uid": "another", "generation": 1}}), WHO)
    assert not again.older_than(second)


def test_reads_do_not_reach_etcd():
    server = Answers({})
    read(server, WHO)
    assert server.asked[0][:2] == ("GET", "/lab.n?resourceVersion=0")


def test_an_object_that_is_created_has_the_cordons():
    server = Answers(ApiCallError("gone", status=404), {}, {"spec": {"cordoned": [{"id": "a"}]}})
    orders = write(server, WHO, {"status": {}}, (InventoryCordon("a"), InventoryCordon("b", "recall")))
    assert orders.cordoned == (InventoryCordon("a"),)
    (_, _, made, _) = server.asked[1]
    assert made["spec"]["cordoned"] == [{"id": "a"}, {"id": "b", "reason": "recall"}]


def test_only_a_not_found_says_that_an_inventory_is_absent():
    assert absent(Answers(ApiCallError("gone", status=404)), "edge.n")
    assert not absent(Answers({}), "edge.n")
    with pytest.raises(ApiCallError):
        absent(Answers(ApiCallError("down", status=503)), "edge.n")
