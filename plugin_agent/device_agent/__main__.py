"""`device-agent serve` runs the node agent, `device-agent scan` shows what a configuration would find here.

Each command imports what it needs when it runs: a scan loads no gRPC.
"""

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from device_agent import __version__
from device_agent.contract import names
from device_agent.contract.log_format import LogFormatter

if TYPE_CHECKING:
    from device_agent.options import Options
    from device_agent.report.api_client import ApiServer

_KUBELET = Path("/var/lib/kubelet")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. Returns the exit status."""
    options = parser().parse_args(arguments)
    command = {"serve": _serve, "scan": _scan}[options.command]
    try:
        return command(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # the reader has closed the pipe; the last flush must not fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def parser() -> argparse.ArgumentParser:
    program = argparse.ArgumentParser(
        prog="device-agent", description="Finds a node's devices and serves them to its kubelet."
    )
    program.add_argument("--version", action="version", version=f"device-agent {__version__}")
    commands = program.add_subparsers(dest="command", required=True, metavar="COMMAND")
    shared = _shared_arguments()
    serve = commands.add_parser(
        "serve", parents=[shared], help="serve the devices to the kubelet", description="Runs until SIGTERM."
    )
    _serve_arguments(serve)
    commands.add_parser(
        "scan",
        parents=[shared],
        help="show what the configuration selects on this node",
        description="Reads the node's devices and prints which resource would get which, and why others are left out.",
    )
    return program


def _shared_arguments() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        default=Path(names.CONFIG_DIR, names.CONFIG_FILE),
        help="the configuration document (default: %(default)s)",
    )
    shared.add_argument(
        "--host-root",
        type=Path,
        metavar="DIR",
        default=_host_root(),
        help="where the node's /dev and /sys are (default: %(default)s)",
    )
    shared.add_argument(
        "--driver-root",
        type=Path,
        metavar="DIR",
        default=Path(os.environ.get(names.ENV_DRIVER_ROOT) or "/"),
        help="root of the NVIDIA driver's files, the directory with usr/lib64 (default: %(default)s)",
    )
    return shared


def _serve_arguments(serve: argparse.ArgumentParser) -> None:
    serve.add_argument(
        "--kubelet-dir",
        type=Path,
        metavar="DIR",
        default=Path(names.DEVICE_PLUGINS_DIR),
        help="the kubelet's device-plugins directory (default: %(default)s)",
    )
    serve.add_argument(
        "--pod-resources",
        type=Path,
        metavar="SOCKET",
        default=_KUBELET / "pod-resources" / "kubelet.sock",
        help="the kubelet's PodResources socket (default: %(default)s)",
    )
    serve.add_argument(
        "--report",
        choices=("none", "api"),
        default="api" if names.ENV_CONFIG in os.environ else "none",
        help="api: keep this node's NodeDeviceInventory up to date; none: do not (default here: %(default)s)",
    )
    serve.add_argument(
        "--listen",
        type=_address,
        metavar="HOST:PORT",
        default=("", names.AGENT_PORT),
        help=f"address of /healthz, /readyz and /metrics (default: :{names.AGENT_PORT})",
    )
    _output_arguments(serve)
    # for tests
    serve.add_argument("--features-dir", type=Path, default=Path(names.FEATURES_DIR), help=argparse.SUPPRESS)
    serve.add_argument("--api-server", metavar="URL", help=argparse.SUPPRESS)
    serve.add_argument("--token-file", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    serve.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER", help=argparse.SUPPRESS)


def _output_arguments(serve: argparse.ArgumentParser) -> None:
    serve.add_argument(
        "--log-level",
        choices=("Debug", "Info", "Warning", "Error"),
        default=os.environ.get(names.ENV_LOG_LEVEL, "Info"),
        help="default: %(default)s",
    )
    serve.add_argument("--log-format", choices=("json", "text"), default="text", help="default: %(default)s")
    serve.add_argument(
        "--device-metrics",
        choices=("None", "Prometheus"),
        default=os.environ.get(names.ENV_DEVICE_METRICS, "None"),
        help="telemetry of GPUs in /metrics, with who holds them (default here: %(default)s)",
    )
    serve.add_argument(
        "--node-features",
        choices=("None", "NFD"),
        default=os.environ.get(names.ENV_NODE_FEATURES, "None"),
        help="NFD: facts about GPUs as a file for node-feature-discovery (default here: %(default)s)",
    )


def _host_root() -> Path:
    inside = Path(names.HOST_ROOT)
    return inside if (inside / "sys").is_dir() else Path("/")


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} must read HOST:PORT or :PORT")
    return host.strip("[]"), int(port)


def _own_pod() -> tuple[str, str] | None:
    namespace, name = os.environ.get(names.ENV_NAMESPACE), os.environ.get(names.ENV_POD)
    return (namespace, name) if namespace and name else None


def _serve(options: argparse.Namespace) -> int:
    # set before gRPC is imported: the agent never forks, and gRPC's C core must not write into our log
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # objects that imports make stay, so collections would find nothing; they take a tenth of the start
    gc.disable()

    import asyncio  # noqa: PLC0415

    from device_agent import agent  # noqa: PLC0415
    from device_agent.report.api_client import ApiCallError  # noqa: PLC0415
    from device_agent.runtime import logs  # noqa: PLC0415
    from device_agent.runtime.settings import SettingError  # noqa: PLC0415
    from device_agent.store.node_store import ObjectUidError  # noqa: PLC0415

    gc.enable()
    if options.log_level not in logs.LOG_LEVELS:
        return _wrong(f"{names.ENV_LOG_LEVEL}={options.log_level}: must be one of {', '.join(logs.LOG_LEVELS)}")
    for name, value, values in (
        (names.ENV_DEVICE_METRICS, options.device_metrics, ("None", "Prometheus")),
        (names.ENV_NODE_FEATURES, options.node_features, ("None", "NFD")),
    ):
        if value not in values:
            return _wrong(f"{name}={value}: must be one of {', '.join(values)}")
    logs.configure(level=options.log_level, formatter=LogFormatter(style=options.log_format))
    if options.report == "api":
        wanted = (names.ENV_NODE, names.ENV_CONFIG, names.ENV_CONFIG_UID, names.ENV_POOL)
        if missing := [name for name in wanted if not os.environ.get(name)]:
            return _wrong(f"--report api needs {', '.join(missing)} in the environment; the operator's pods have it")
    try:
        process = agent.Agent(_options(options))
    except (SettingError, ApiCallError) as error:
        return _wrong(str(error))
    except ObjectUidError as error:
        return _wrong(f"{names.ENV_CONFIG_UID}: {error}")
    except OSError as error:
        return _wrong(f"--listen {options.listen[0]}:{options.listen[1]}: {error.strerror}")
    asyncio.run(process.run())
    return 0


def _options(options: argparse.Namespace) -> "Options":
    """What the process is started with.

    Raises:
        SettingError, ApiCallError: a value cannot be used.
    """
    from device_agent.options import Options  # noqa: PLC0415
    from device_agent.report.inventory import AgentIdentity  # noqa: PLC0415
    from device_agent.runtime.settings import Settings  # noqa: PLC0415

    environment, settings = os.environ, Settings().with_values(*options.set)
    return Options(
        config=options.config,
        kubelet_dir=options.kubelet_dir.absolute(),
        pod_resources=options.pod_resources.absolute(),
        host_root=options.host_root,
        listen=options.listen,
        identity=AgentIdentity(
            node=environment.get(names.ENV_NODE, ""),
            config=environment.get(names.ENV_CONFIG, ""),
            config_uid=environment.get(names.ENV_CONFIG_UID, ""),
            pool=environment.get(names.ENV_POOL, ""),
            version=__version__,
        ),
        pod=_own_pod(),
        api=_api_server(options, timeout=settings.report_deadline),
        settings=settings,
        driver_root=options.driver_root,
        driver_access=environment.get(names.ENV_DRIVER_ACCESS, ""),
        device_metrics=options.device_metrics == "Prometheus",
        features_dir=options.features_dir if options.node_features == "NFD" else None,
    )


def _api_server(options: argparse.Namespace, *, timeout: float) -> "ApiServer | None":
    from device_agent.report.api_client import ApiServer  # noqa: PLC0415

    if options.report == "none":
        return None
    if options.api_server:
        server = ApiServer(url=options.api_server, timeout=timeout)
    else:
        server = ApiServer.in_cluster(timeout=timeout)
    return replace(server, token_file=options.token_file) if options.token_file else server


def _scan(options: argparse.Namespace) -> int:
    from device_agent import scan  # noqa: PLC0415

    try:
        status = scan.run(options.config, options.host_root, driver_root=options.driver_root)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"device-agent: standard output: {error.strerror}", file=sys.stderr)
        return 1
    return status


def _wrong(message: str) -> int:
    print(f"device-agent: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
