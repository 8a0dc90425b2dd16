"""Random faults on a real cluster, while pods come and go: no device is ever in two hands, and none is lost.

FAULTS: how many (a short form runs with the other tests, `make soak` runs hundreds). FAULTS_SEED: which. The log of each
step is kept in the file that the test prints first.
"""

import os
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest
from hardware import loops
from kube import Kube, wait_for
from storm import CONFIG, FIXED, NAMES, PLUGGED, Storm

pytestmark = pytest.mark.disruptive

FAULTS = int(os.environ.get("FAULTS", "14"))
SEED = int(os.environ.get("FAULTS_SEED", "0")) or random.randrange(1, 10**6)
DISKS = {*FIXED, *(f"loop{number}" for number in PLUGGED)}


@pytest.mark.timeout(600 + 90 * FAULTS)
def test_random_faults_put_no_device_into_two_hands_and_lose_none(kube: Kube) -> None:
    log = Path(tempfile.gettempdir()) / f"device-operator-faults-{SEED}.log"
    print(f"seed {SEED}, log {log}")
    storm = Storm(kube, log, seed=SEED)
    faults = [
        storm.rename, storm.narrow_or_widen, storm.plug_or_unplug, storm.kill_agent, storm.kill_operator,
        storm.kill_kubelet, storm.kill_containerd, storm.stop_api_server, storm.hang_api_server, storm.tear_record,
        storm.remove_record, storm.lose_own_files, storm.fill_disk_or_empty_it, storm.restart_a_container,
    ]  # fmt: skip
    deck = list(faults[:0])
    done = Counter[str]()
    placeholder = {"resources": [{"name": NAMES[0], "devices": [{"simulated": {"count": 1}}]}]}
    with loops(*PLUGGED), storm.small_disk(), kube.config(CONFIG, placeholder):
        storm.configure()
        kube.wait_node("node-1", storm.name, len(DISKS), len(DISKS), seconds=120)
        try:
            for number in range(FAULTS):
                for _ in range(storm.random.randrange(3)):
                    step = storm.come if len(storm.pods) < len(DISKS) and storm.random.random() < 0.7 else storm.go
                    storm.say(step.__name__)
                    step()
                time.sleep(storm.random.uniform(0, 4))
                storm.look()
                if not deck:  # each fault comes up once in every round
                    deck = storm.random.sample(faults, len(faults))
                fault = deck.pop()
                storm.say(f"{number} {fault.__name__}")
                done[fault.__name__] += 1
                fault()
                wait_for("the API and the node", lambda: kube.get("node", "node-1"), seconds=120)
                storm.look()
        except BaseException:
            storm.tell()
            raise
        finally:
            print(f"faults: {dict(sorted(done.items()))}, pods: {storm.made}")
            storm.calm()
        kube.wait_node("node-1", storm.name, len(DISKS), len(DISKS), seconds=180)
        wait_for(
            "every device free, offered once",
            lambda: (
                {
                    (d["id"], d["resource"], d["health"])
                    for d in kube.inventory(CONFIG, "node-1")["status"]["devices"]
                    if not d.get("allocatedTo")
                }
                == {(disk, storm.name, "Healthy") for disk in DISKS}
            ),
            seconds=120,
        )
