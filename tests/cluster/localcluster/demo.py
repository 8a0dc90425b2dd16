"""`make demo`: the product on a real cluster with this machine's real devices, and what there is to see."""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from localcluster import images, places
from localcluster.console import LocalClusterError, say, step
from localcluster.target import Target, chosen

_RELEASE = _NAMESPACE = "device-operator"
_EXAMPLES = places.CHECKOUT / "examples"
_CONFIG, _POD = _EXAMPLES / "demo.yaml", _EXAMPLES / "demo-pod.yaml"
_PUBLIC_IMAGE = "python:3.12-slim"  # as examples/demo-pod.yaml names it
_POOLS = ("edge", "lab")  # the values of the label `hardware` for which examples/demo.yaml has node pools
_MARK = "device-operator.io/demo"  # on nodes that got their label from here


def start(environment: Mapping[str, str]) -> None:
    target = chosen(environment)
    built = {**images.build(), "python": images.python()}
    target.start(list(built.values()))
    references = {name: target.publish(image) for name, image in built.items()}
    _label_nodes(target)
    _install(target, references)
    _configure(target)
    _show(target, "get", "devicepluginconfigs,nodedeviceinventories")
    _run_pod(target, references["python"])
    _next_steps(target)


def stop(environment: Mapping[str, str]) -> None:
    """Ends the demo's own cluster with all that is in it. From the user's cluster it removes what `start` made."""
    target = chosen(environment)
    if environment.get("CLUSTER") == "existing":
        with step("removing the demo from the cluster"):
            _remove(target)
    target.stop()


def _label_nodes(target: Target) -> None:
    """Gives each pool of the example a node, unless the nodes are labelled already."""
    nodes = json.loads(target.kubectl("get", "nodes", "-o", "json"))["items"]
    labels = {node["metadata"]["name"]: node["metadata"].get("labels", {}) for node in nodes}
    present = {each.get("hardware") for each in labels.values()}
    free = [name for name, each in sorted(labels.items()) if "hardware" not in each]
    for pool, node in zip((pool for pool in _POOLS if pool not in present), free, strict=False):
        target.kubectl("label", "node", node, f"hardware={pool}", f"{_MARK}=true")


def _install(target: Target, references: Mapping[str, str]) -> None:
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": _NAMESPACE,
            # agents mount folders of their nodes, which weaker levels refuse
            "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
        },
    }
    target.kubectl("apply", "-f", "-", stdin=json.dumps(namespace))
    values = ["--set=crds.keep=false"]  # what the demo installs, its end removes
    for program in ("operator", "agent"):
        repository, tag = references[program].rsplit(":", 1)
        values += [f"--set-string={program}.image.repository={repository},{program}.image.tag={tag}"]
    chart = str(places.CHECKOUT / "charts" / "device-operator")
    with step("installing the chart"):
        wait = ("--wait", "--timeout", "180s")
        try:
            target.helm("upgrade", "--install", _RELEASE, chart, "--namespace", _NAMESPACE, *wait, *values)
        except LocalClusterError:
            _show(target, "get", "pods,events", "-n", _NAMESPACE)
            _show(target, "logs", "-n", _NAMESPACE, "deployment/device-operator", "--tail=20")
            raise


def _configure(target: Target) -> None:
    with step(f"applying examples/{_CONFIG.name} and waiting until every node serves it"):
        target.kubectl("apply", "-f", str(_CONFIG))
        try:
            target.kubectl("wait", "--for=condition=Ready", "-f", str(_CONFIG), "--timeout=180s")
        except LocalClusterError:
            _show(target, "describe", "-f", str(_CONFIG))
            _show(target, "get", "pods", "-n", _NAMESPACE, "-o", "wide")
            raise


def _run_pod(target: Target, image: str) -> None:
    manifest = _POD.read_text().replace(f"image: {_PUBLIC_IMAGE}", f"image: {image}")
    with step(f"running the pod of examples/{_POD.name}, which opens devices"):
        target.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=manifest)
        target.kubectl("apply", "-f", "-", stdin=manifest)
        try:
            target.kubectl("wait", "--for=condition=Ready", "-f", "-", "--timeout=60s", stdin=manifest)
            _wait_for_words(target)
            _wait_for_holders(target)
        except LocalClusterError:
            _show(target, "describe", "-f", str(_POD))
            raise
    _show(target, "logs", "demo")
    _show(target, "get", "nodedeviceinventories")


def _wait_for_words(target: Target) -> None:
    """Waits for the pod's output: a pod is Ready before its program has printed everything."""
    said = ""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        before, said = said, target.kubectl("logs", "demo")
        if said and said == before:
            return
        time.sleep(0.3)


def _wait_for_holders(target: Target) -> None:
    """Waits 15 s at most for the holders: the agent knows them some seconds after a pod's start."""
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        inventories = json.loads(target.kubectl("get", "nodedeviceinventories", "-o", "json"))["items"]
        resources = [each for item in inventories for each in item.get("status", {}).get("resources", [])]
        if any(each.get("allocated") for each in resources):
            return
        time.sleep(0.5)


def _remove(target: Target) -> None:
    target.kubectl("delete", "--ignore-not-found", "-f", str(_POD))
    if target.kubectl("get", "crd", "devicepluginconfigs.device-operator.io", "--ignore-not-found"):
        target.kubectl("delete", "--ignore-not-found", "-f", str(_CONFIG))
    if target.helm("list", "-q", "-n", _NAMESPACE, "--filter", f"^{_RELEASE}$").strip():
        target.helm("uninstall", _RELEASE, "-n", _NAMESPACE, "--wait", "--timeout", "120s")
    target.kubectl("delete", "namespace", _NAMESPACE, "--ignore-not-found")
    target.kubectl("label", "nodes", "-l", f"{_MARK}=true", "hardware-", f"{_MARK}-")


def _show(target: Target, *arguments: str) -> None:
    print(f"\n$ kubectl {' '.join(arguments)}", flush=True)
    try:
        print(target.kubectl(*arguments), flush=True)
    except LocalClusterError as failed:
        print(failed, flush=True)


def _next_steps(target: Target) -> None:
    _, _, flags = target.kubectl_command.partition(" ")
    say("the demo is up. What to try next:")
    print(
        f"""
  alias k="{target.kubectl_command}"
  alias d="{Path(sys.executable).parent / "kubectl-devices"} {flags}"
  d list                                  all devices, their health and their holders
  d check                                 is all well? names the cause if not
  k describe dpc demo                     why each node serves what it serves
  k get ndi -o wide                       the devices of each node, their health and their holders
  k edit dpc demo                         e.g. raise simulated.count; `k get ndi -w` shows the devices arrive
  k explain dpc.spec.resources            what can be said
  k apply -f examples/first.yaml          a second object: devices without hardware (docs/tutorial.md goes on from there)
  make demo-down                          end it"""
    )
