"""What a kubelet and a Prometheus get over HTTP."""

import logging
import socket
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from device_agent.runtime import probes as probes_module
from device_agent.runtime.metrics import Metrics, ResourceCount
from device_agent.runtime.probes import ProbeServer


@pytest.fixture
def probes() -> Iterator[tuple[Metrics, str]]:
    metrics = Metrics(version="1")
    server = ProbeServer(("127.0.0.1", 0), metrics=metrics, healthy_within=10)
    server.start()
    yield metrics, f"http://127.0.0.1:{server.port}"
    server.stop()


def fetched(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_healthz_depends_only_on_the_event_loop(probes: tuple[Metrics, str]) -> None:
    metrics, url = probes
    metrics.publish((), missing=("everything",))
    metrics.turned()
    assert fetched(f"{url}/healthz") == (200, "ok\n")
    metrics.status.turned -= 11
    code, text = fetched(f"{url}/healthz")
    assert code == 503
    assert "11 s" in text


def test_readiness_says_what_is_missing(probes: tuple[Metrics, str]) -> None:
    metrics, url = probes
    assert fetched(f"{url}/readyz") == (503, "the agent is starting\n")
    metrics.publish((), missing=("a is not registered: x", "b is not registered: y"))
    assert fetched(f"{url}/readyz") == (503, "a is not registered: x\nb is not registered: y\n")
    metrics.publish((), missing=())
    assert fetched(f"{url}/readyz") == (200, "ok\n")


def test_a_resource_that_is_gone_leaves_no_series(probes: tuple[Metrics, str]) -> None:
    metrics, url = probes
    count = ResourceCount(
        resource="example.com/a", healthy=2, unhealthy=1, unknown=0, withheld={"HeldAs": 1}, capacity=3, allocated=1,
        not_healthy={("Unhealthy", "Missing"): 1},
    )  # fmt: skip
    metrics.publish((count,), missing=())
    text = fetched(f"{url}/metrics")[1]
    assert 'device_agent_devices{health="Unhealthy",resource="example.com/a"} 1.0' in text
    assert 'device_agent_devices_not_healthy{health="Unhealthy",reason="Missing",resource="example.com/a"} 1.0' in text
    metrics.publish((), missing=())
    assert "example.com/a" not in fetched(f"{url}/metrics")[1]


def test_without_a_host_both_address_families_answer() -> None:
    metrics = Metrics(version="1")
    server = ProbeServer(("", 0), metrics=metrics, healthy_within=10)
    server.start()
    try:
        hosts = ["127.0.0.1", *(["[::1]"] if socket.has_dualstack_ipv6() else [])]
        assert [fetched(f"http://{host}:{server.port}/healthz")[0] for host in hosts] == [200] * len(hosts)
    finally:
        server.stop()


def test_a_client_that_goes_away_causes_no_traceback(
    probes: tuple[Metrics, str], capfd: pytest.CaptureFixture[str]
) -> None:
    _, url = probes
    port = int(url.rpartition(":")[2])
    gone = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: close sends a reset
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, gone)
            client.sendall(b"GET /metrics HTTP/1.1\r\n")
    assert fetched(f"{url}/healthz")[0] == 200
    assert capfd.readouterr().err == ""


def answer(url: str, request: bytes) -> bytes:
    """All that the server sends before it closes the connection."""
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=5) as client:
        client.sendall(request)
        parts = []
        while part := client.recv(4096):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /healthz?verbose HTTP/1.1", b"200 OK"),
        (b"GET /healthz HTTP/1.0", b"200 OK"),
        (b"GET / HTTP/1.1", b"404 Not Found"),
        (b"POST /healthz HTTP/1.1", b"405 Method Not Allowed"),
        (b"GET /healthz", b"400 Bad Request"),
        (b"\xff\x00", b"400 Bad Request"),
    ],
)
def test_every_request_has_an_answer(probes: tuple[Metrics, str], request_line: bytes, status: bytes) -> None:
    said = answer(probes[1], request_line + b"\r\n\r\n")
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert f"\r\nContent-Length: {len(body)}\r\n".encode() in head


def test_head_is_get_without_the_text(probes: tuple[Metrics, str]) -> None:
    got, head = (answer(probes[1], method + b" /readyz HTTP/1.1\r\n\r\n") for method in (b"GET", b"HEAD"))
    assert got.startswith(head)
    assert head.endswith(b"\r\n\r\n")
    assert len(got) > len(head)


def test_a_request_in_pieces_is_answered_while_others_never_end(probes: tuple[Metrics, str]) -> None:
    port = int(probes[1].rpartition(":")[2])
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            for part in (b"GET /hea", b"lthz HTTP/1.1\r\nHost: x", b"\r\n\r", b"\n"):
                client.sendall(part)
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
        assert fetched(f"{probes[1]}/healthz")[0] == 200
    finally:
        for client in silent:
            client.close()


def test_a_request_without_end_is_cut_off(probes: tuple[Metrics, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes_module, "_CLIENT_SECONDS", 0.1)
    assert answer(probes[1], b"GET /healthz HTTP/1.1\r\n") == b""


def test_a_connection_with_an_endless_request_is_closed(probes: tuple[Metrics, str]) -> None:
    def send_without_end(client: socket.socket) -> None:
        for _ in range(10_000):
            client.sendall(b"x" * 8192)

    with socket.create_connection(("127.0.0.1", int(probes[1].rpartition(":")[2])), timeout=5) as client:
        with pytest.raises(OSError, match=r"reset|pipe"):
            send_without_end(client)
        assert fetched(f"{probes[1]}/healthz")[0] == 200


def test_a_failing_metric_does_not_break_the_other_pages(
    probes: tuple[Metrics, str], caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def collect(self) -> Iterator[object]:
            raise RuntimeError("boom")

    metrics, url = probes
    metrics.registry.register(Broken())
    assert fetched(f"{url}/metrics")[0] == 500
    assert [(r.message, r.path) for r in caplog.records if r.levelno == logging.ERROR] == [
        ("a page failed", "/metrics")
    ]
    assert fetched(f"{url}/healthz")[0] == 200


def test_a_hanging_loop_is_logged_by_the_probe_thread(
    probes: tuple[Metrics, str], caplog: pytest.LogCaptureFixture
) -> None:
    metrics, url = probes
    metrics.status.turned -= 11
    fetched(f"{url}/healthz")
    assert [(r.levelname, r.seconds) for r in caplog.records] == [("WARNING", 11)]


def test_stopping_frees_the_port() -> None:
    server = ProbeServer(("127.0.0.1", 0), metrics=Metrics(version="1"), healthy_within=10)
    server.start()
    server.stop()
    with socket.create_server(("127.0.0.1", server.port)):
        pass
