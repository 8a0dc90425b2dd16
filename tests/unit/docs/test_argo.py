"""The health check for Argo CD in docs/operations.md, in Lua 5.1, on what the operator writes."""

import re
from typing import Any

import pytest
from lupa.lua51 import LuaRuntime
from unit.docs.pages import CHECKOUT
from unit.operator_core.build import counts, device, inventory, node, pod, spec
from unit.operator_core.statuses import WRONG, fleet, status

(LUA,) = re.findall(r"```lua\n(.*?)```", (CHECKOUT / "docs/operations.md").read_text(), re.DOTALL)


def health(obj: dict[str, Any]) -> tuple[str, str]:
    """Status and message, as Argo CD would have them."""
    lua = LuaRuntime(unpack_returned_tuples=True)
    told = lua.execute(f"return function(obj)\n{LUA}\nend")(lua.table_from(obj, recursive=True))
    return told["status"], told["message"]


def seen(**fields: Any) -> dict[str, Any]:
    return {"nodes": (node(),), "pods": (pod(),), "inventories": (inventory(**fields),)}


BROKEN = seen(resources=[counts(healthy=0)], devices=[device(health="Unhealthy", reason="Missing")])


@pytest.mark.parametrize(
    ("found", "wanted", "said"),
    [
        (status(**fleet(2)), "Healthy", "OK"),
        (status(**BROKEN), "Degraded", "DevicesUnhealthy: "),
        (status(rejected=WRONG, generation=2, **fleet(2)), "Degraded", "InvalidSpec: "),
        (status(WRONG), "Degraded", "InvalidSpec: "),
        (status(spec(paused=True), **fleet(1)), "Suspended", "Paused"),
        (status(**seen(observedConfigHash="old")), "Progressing", "Updating"),
        (status(nodes=()), "Degraded", "NoNodes"),
    ],
)
def test_the_health_check_says_what_the_status_says(found: dict[str, Any], wanted: str, said: str):
    told, message = health({"metadata": {"generation": found["observedGeneration"]}, "status": found})
    assert told == wanted
    assert message.startswith(said)


@pytest.mark.parametrize("found", [None, status(**fleet(1))])
def test_an_edit_that_is_not_judged_yet_is_progressing(found: dict[str, Any] | None):
    obj: dict[str, Any] = {"metadata": {"generation": 7}} | ({"status": found} if found else {})
    assert health(obj)[0] == "Progressing"
