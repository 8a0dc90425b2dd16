"""The harness's own rules that need no cluster: what keeps clusters apart, and what makes a cached result stale."""

import os
import shutil
import signal
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from ipaddress import ip_network
from itertools import repeat
from pathlib import Path

import pytest
from localcluster import (
    PROFILES,
    LocalClusterError,
    Profile,
    archive,
    binaries,
    files,
    images,
    node_config,
    places,
    services,
    target,
)
from localcluster.processes import PidFiles, daemon_environment, is_running, spawn, tagged, wait_until
from localcluster.profile import named
from localcluster.services import Service


def test_known_profiles_can_run_at_the_same_time() -> None:
    profiles = [*PROFILES.values(), named("bench"), named("another")]
    ports = [port for profile in profiles for port in replace(profile, controller_manager=True).ports]
    nets = [ip_network(net) for each in profiles for net in (each.node_net, each.pod_net, each.service_net)]

    assert len(set(ports)) == len(ports)
    assert not any(one.overlaps(other) for one in nets for other in nets if one is not other)
    assert len({profile.bridge for profile in profiles}) == len(profiles)
    assert len({profile.cgroup for profile in profiles}) == len(profiles)


def test_a_nodes_addresses_lie_in_the_clusters_networks() -> None:
    profile = Profile(name="x")

    assert ip_network(profile.node_address(3)).subnet_of(ip_network(profile.node_net))
    assert ip_network(profile.node_pod_net(3)).subnet_of(ip_network(profile.pod_net))
    assert ip_network(profile.api_service).subnet_of(ip_network(profile.service_net))
    assert len(profile.veth(100)) <= 15  # the kernel's limit


@pytest.mark.parametrize("name", ["", "Upper", "a/b", "a" * 21, "-a"])
def test_a_name_that_cannot_name_a_cgroup_is_refused(name: str) -> None:
    with pytest.raises(LocalClusterError, match="no cluster name"):
        Profile(name=name)


def test_kubelet_settings_of_a_profile_replace_single_values() -> None:
    profile = Profile(name="x", kubelet_config={"authentication": {"anonymous": {"enabled": True}}, "maxPods": 7})
    merged = node_config.merged(
        {"authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}}, "maxPods": 110},
        profile.kubelet_config,
    )

    assert merged == {"authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": True}}, "maxPods": 7}


def test_a_stamp_changes_with_the_pin_and_with_go_and_with_nothing_else(tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    shutil.copytree(places.MODULES, modules)
    group = binaries.GROUPS["cni"]
    before = binaries.stamp(group, go_version="go1.26.8", modules=modules)

    assert binaries.stamp(group, go_version="go1.26.8", modules=places.MODULES) == before
    assert binaries.stamp(group, go_version="go1.26.9", modules=modules) != before
    with (modules / "cni" / "go.sum").open("a") as file:
        file.write("\n")
    assert binaries.stamp(group, go_version="go1.26.8", modules=modules) != before


def test_every_group_is_pinned_and_its_version_reaches_the_linker() -> None:
    for group in binaries.GROUPS.values():
        flags = binaries.link_flags(group, modules=places.MODULES)
        assert "{" not in flags
        if group.module:
            pinned = binaries.version(places.MODULES / group.name / "go.mod", group.module)
            assert not any("{version}" in stamp for stamp in group.stamps) or pinned in flags


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "code.py").write_text("x = 1\n")
    (tmp_path / "notes.md").write_text("notes\n")
    (tmp_path / "Dockerfile.x").write_text(
        "FROM base AS builder\nCOPY sources to\nFROM base\nCOPY --from=builder /a /b\n"
    )
    return tmp_path


def _edit(name: str, text: str) -> Callable[[Path], None]:
    def edit(checkout: Path) -> None:
        (checkout / name).parent.mkdir(exist_ok=True)
        (checkout / name).write_text(text)

    return edit


@pytest.mark.parametrize(
    ("edit", "changes"),
    [
        (_edit("sources/code.py", "x = 2\n"), True),
        (_edit("sources/more.py", ""), True),
        (_edit("Dockerfile.x", "FROM base\nCOPY sources to\n"), True),
        (_edit("notes.md", "other\n"), False),
        (_edit("sources/__pycache__/code.pyc", "compiled"), False),
    ],
)
def test_an_image_is_named_by_what_its_dockerfile_copies(
    checkout: Path, edit: Callable[[Path], None], *, changes: bool
) -> None:
    dockerfile = checkout / "Dockerfile.x"
    before = images.content_hash(dockerfile, checkout=checkout, base="a")
    edit(checkout)

    assert (images.content_hash(dockerfile, checkout=checkout, base="a") != before) is changes
    assert images.content_hash(dockerfile, checkout=checkout, base="b") != before


def test_a_copied_file_that_is_missing_is_named(checkout: Path) -> None:
    shutil.rmtree(checkout / "sources")

    with pytest.raises(LocalClusterError, match="copies sources"):
        images.content_hash(checkout / "Dockerfile.x", checkout=checkout, base="a")


def test_an_archive_tells_its_reference_and_content(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"one")
    archive.from_program(program, reference="localhost/x:1", target=tmp_path / "one.tar")
    program.write_bytes(b"two")
    archive.from_program(program, reference="localhost/x:1", target=tmp_path / "two.tar")
    (references, one), (_, two) = archive.identify(tmp_path / "one.tar"), archive.identify(tmp_path / "two.tar")

    assert references == ["localhost/x:1"]
    assert one != two
    with tarfile.open(tmp_path / "one.tar") as opened:
        assert sorted(name.rsplit(".", 1)[1] for name in opened.getnames()) == ["json", "json", "tar"]


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        ({"CLUSTER": "mine"}, "CLUSTER=existing"),
        ({"CLUSTER": "existing"}, "needs CONTEXT"),
        ({"CLUSTER": "existing", "CONTEXT": "lab"}, "needs REGISTRY"),
    ],
)
def test_the_users_cluster_has_to_be_named_in_full(environment: dict[str, str], complaint: str) -> None:
    with pytest.raises(LocalClusterError, match=complaint):
        target.chosen(environment)


def test_only_a_process_with_the_clusters_tag_is_signalled(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "DEVICE_OPERATOR_CLUSTER": str(tmp_path)}
    ours = spawn(["sleep", "60"], env=env, log=tmp_path / "ours.log", cwd=tmp_path)
    foreign = spawn(["sleep", "60"], env={"PATH": "/usr/bin:/bin"}, log=tmp_path / "foreign.log", cwd=tmp_path)
    pids = PidFiles(tmp_path / "run", tmp_path)
    pids.record("ours", ours)
    pids.record("foreign", foreign)
    try:
        assert pids.all_alive() == {"ours": ours}
        assert list(tagged(tmp_path)) == [ours]
        pids.end("foreign")
        pids.end("ours")
        assert pids.all_alive() == {}
        assert list(tagged(tmp_path)) == []
        assert is_running(foreign)
    finally:
        os.kill(foreign, signal.SIGKILL)


def test_a_file_is_written_only_when_it_differs(tmp_path: Path) -> None:
    file = tmp_path / "kube-proxy.json"

    def written(text: str, mode: int = 0o600) -> tuple[int, int]:
        """(inode, time of the last change): a watcher notices when one of them differs."""
        files.write(file, text, mode=mode)
        found = file.stat()
        assert (file.read_text(), found.st_mode & 0o777) == (text, mode)
        assert list(tmp_path.iterdir()) == [file]
        return found.st_ino, found.st_mtime_ns

    first = written("one")
    assert written("one") == first
    second = written("two")
    assert second != first
    assert written("two", 0o644) != second


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[[Iterable[bool]], Service]]:
    """A process that ignores SIGTERM and ends when `tmp_path` has the file `end`; its answers are given beforehand."""
    pids = PidFiles(tmp_path / "run", tmp_path)
    log = tmp_path / "daemon.log"
    script = 'trap "" TERM; echo "about to end"; until [ -e end ]; do sleep 0.02; done'

    def start(answers: Iterable[bool]) -> Service:
        pid = spawn(["bash", "-c", script], env=daemon_environment(tmp_path), log=log, cwd=tmp_path)
        pids.record("daemon", pid)
        wait_until(lambda: log.read_text() != "", seconds=30, what="the first line of the log")
        given = iter(answers)
        return Service(name="daemon", log=log, pids=pids, answers=lambda: next(given))

    yield start
    pids.end("daemon", signal.SIGKILL)


def _ending(at: Path) -> Iterator[bool]:
    """Silent, and gone some time after the second question."""
    yield False
    at.touch()
    while True:
        yield False


def test_a_service_that_is_on_its_way_out_is_waited_for(
    tmp_path: Path, daemon: Callable[[Iterable[bool]], Service], capsys: pytest.CaptureFixture[str]
) -> None:
    service = daemon(_ending(tmp_path / "end"))
    services.settle(service)
    assert not service.runs
    assert "daemon runs but does not answer" in capsys.readouterr().err


def test_a_service_that_is_still_starting_is_waited_for(daemon: Callable[[Iterable[bool]], Service]) -> None:
    service = daemon([False, False, True])
    services.settle(service)
    assert service.runs
    with pytest.raises(StopIteration):
        service.answers()  # all three were asked


def test_a_service_that_neither_answers_nor_ends_is_named_with_its_log(
    daemon: Callable[[Iterable[bool]], Service],
) -> None:
    service = daemon(repeat(False))
    for wait in (lambda: services.settle(service, seconds=0), lambda: services.wait_for_answers([service], seconds=0)):
        with pytest.raises(LocalClusterError, match=r"(?s)daemon.*about to end"):
            wait()


def test_a_service_that_ended_is_named_while_others_are_silent(
    tmp_path: Path, daemon: Callable[[Iterable[bool]], Service]
) -> None:
    service = daemon(_ending(tmp_path / "end"))
    with pytest.raises(LocalClusterError, match=r"(?s)daemon has ended.*about to end"):
        services.wait_for_answers([service])


def test_one_answer_of_each_service_is_enough(daemon: Callable[[Iterable[bool]], Service]) -> None:
    service = daemon([False, True])
    services.wait_for_answers([service])
    with pytest.raises(StopIteration):
        service.answers()
