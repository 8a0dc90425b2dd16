"""Loss of sight: a read that never returns concerns its own device, and it is told."""

import time
from pathlib import Path

from agent.apiserver import ApiServer
from agent.harness import Node, Start, document
from agent.standin import Kubelet, until
from agent.test_health import ENV, INVENTORY, WIDGET, Widgets, told, widgets

PRELUDE = """
import os, time
_read = os.read
def read(fd, n):
    path = os.readlink(f"/proc/self/fd/{fd}")
    while path.endswith("/w0/state") and os.path.exists(%r):
        time.sleep(0.01)
    return _read(fd, n)
os.read = read
"""


def test_one_hanging_read_costs_one_device_its_sight_and_the_others_are_followed(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer, tmp_path: Path
) -> None:
    hangs = tmp_path / "hangs"
    driver = Widgets(node, 3)
    node.configure(document(widgets(failureThreshold=1)))
    agent = start(
        "--report=api",
        f"--api-server={api.url}",
        env=ENV,
        settings={"inventory_poll": 0.2},
        prelude=PRELUDE % str(hangs),
    )
    kubelet.wait_for(WIDGET, 6)
    hangs.touch()
    begun = time.monotonic()
    driver.say(1, "disabled")
    Widgets(node, 4, first=3)
    until(lambda: told(api, "w0").get("health") == "Unknown", what="w0 Unknown")
    print(f"a read hangs: Unknown in the inventory after {time.monotonic() - begun:.1f} s")
    assert told(api, "w0")["reason"] == "NoAnswer"
    assert "/devices/virtual/widget/w0/state" in told(api, "w0")["message"]
    until(lambda: told(api, "w1").get("health") == "Unhealthy", what="w1 Unhealthy")
    until(lambda: told(api, "w3").get("health") == "Healthy", what="w3 found")
    until(lambda: kubelet.healthy(WIDGET) == {f"w{n}{r}" for n in (0, 2, 3) for r in ("", "::1")}, what="the list")
    summary = api.objects[INVENTORY]["status"]["summary"]
    assert (summary["devices"], summary["healthy"], summary["unhealthy"], summary["unknown"]) == (4, 2, 1, 1)
    assert agent.metric(f'device_agent_devices{{health="Unknown",resource="{WIDGET}"}}') == 1
    assert (agent.metric("device_agent_scan_errors_total") or 0) > 0
    assert agent.get("/healthz")[0] == 200
    hangs.unlink()
    until(lambda: told(api, "w0").get("health") == "Healthy", what="w0 is read again")
