"""What the agent is measured against: a bare grpc.aio server that echoes, and a device plugin in Go."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import grpc
from agent.standin import Kubelet
from device_agent.kubelet import rpc
from localcluster import binaries

PEER = "example.com/peer"

_ECHO = """
import asyncio, sys, grpc
async def main():
    async def echo(request, context):
        return request
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", {"Echo": handler}),))
    server.add_insecure_port("unix:" + sys.argv[1])
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()
asyncio.run(main())
"""


@contextlib.contextmanager
def echo_server() -> Iterator[grpc.UnaryUnaryMultiCallable]:
    """The call of an echo server in a process of its own, bytes to the same bytes."""
    with tempfile.TemporaryDirectory(prefix="da-", dir="/tmp") as folder:
        path = f"{folder}/echo.sock"
        process = subprocess.Popen(
            [sys.executable, "-c", _ECHO, path],
            stdout=subprocess.PIPE, env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0"},
        )  # fmt: skip
        assert process.stdout is not None
        try:
            process.stdout.readline()
            with grpc.insecure_channel(f"unix:{path}", options=(rpc.LOCAL_AUTHORITY,)) as channel:
                yield channel.unary_unary("/bench.Echo/Echo")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


@contextlib.contextmanager
def go_plugin(kubelet: Kubelet, *, devices: int) -> Iterator[int]:
    """The pid of the Go plugin, which serves this number of devices as PEER to this kubelet."""
    binaries.build(["goplugin"])
    command = [binaries.path("goplugin"), str(kubelet.directory), PEER, str(devices)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        kubelet.wait_for(PEER, devices)
        yield process.pid
    finally:
        process.terminate()
        process.wait()
