"""The operator's command line.

    device-operator run      watches DevicePluginConfigs and keeps their DaemonSets, ConfigMaps and status
    device-operator render   prints the manifests of DevicePluginConfigs in a file, without a cluster
    device-operator presets  lists the presets of spec.resources, or prints the fields of one

Flags of `run`; each has an environment variable, DEVICE_OPERATOR_ and the flag in capitals
(--agent-image: DEVICE_OPERATOR_AGENT_IMAGE); the flag wins. Durations are seconds, as numbers.

    --namespace NAME                      DaemonSets, ConfigMaps, Lease [the pod's own, else device-operator]
    --agent-image IMAGE                   required
    --agent-image-pull-policy POLICY      Always | IfNotPresent | Never [IfNotPresent]
    --agent-image-pull-secret NAME        repeatable; environment: comma-separated
    --agent-service-account NAME          [device-agent]
    --agent-selinux-type TYPE             [container_device_plugin_t]
    --kubeconfig PATH  --context NAME     [in-cluster, else as kubectl finds it]
    --identity NAME                       name in the Lease [host name and a random suffix]
    --lease-name NAME                     [device-operator]
    --lease-duration-seconds 15  --lease-renew-deadline-seconds 10  --lease-retry-seconds 2
    --listen HOST:PORT                    /healthz /readyz /metrics [:8080]
    --log-format text|json  --log-level debug|info|warning|error
    --workers 4  --resync-seconds 300  --backoff-seconds 0.5  --backoff-max-seconds 60  --coalesce-seconds 0.2
    --status-seconds 5  --status-holders-seconds 30  --status-refresh-seconds 270
    --status-bytes-per-second 16384
    --node-settle-seconds 300  --pod-stale-seconds 60  --heartbeat-stale-seconds 1500
    --inventory-grace-seconds 1800  --failed-create-seconds 10
    --request-timeout-seconds 30  --watch-idle-seconds 90  --watch-stale-seconds 300

Flags of `render`: -f FILE (- is standard input; several documents allowed), --nodes FILE and the --namespace and
--agent-… ones. In the operator's container the variables are set, so `render` makes there what the operator makes.
With --nodes (the output of kubectl get nodes -o yaml) it also judges PoolOverlap and ResourceConflict.
`render` prints warnings about accepted configurations, such as rights of agents, on standard error.

Exit status: 0 ended by a signal or done; 1 a lost Lease, a missing permission, a fault; 2 wrong usage or input.

Permissions that `run` needs:
    cluster            devicepluginconfigs list,watch; devicepluginconfigs/status patch;
                       devicepluginconfigs/finalizers update;
                       nodedeviceinventories list,watch,delete; nodes list,watch
    its namespace      daemonsets list,watch,get,create,update,delete; configmaps list,watch,get,create,update,delete;
                       controllerrevisions list,watch,get,create,delete;
                       pods list,watch; events list; leases get,create,update
    namespace default  events create
"""

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence

from device_operator import __version__
from device_operator.runtime import errors, settings


def main(argv: Sequence[str] | None = None) -> int:
    arguments = vars(parser().parse_args(argv))
    command = arguments.pop("command")
    try:
        return int(command(arguments))
    except errors.UsageError as error:
        print(f"device-operator: {error}", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    program = argparse.ArgumentParser(prog="device-operator", description="Kubernetes operator for device plugins.")
    program.add_argument("--version", action="version", version=f"device-operator {__version__}")
    commands = program.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run the operator")
    settings.add_arguments(run)
    run.set_defaults(command=_run)
    render = commands.add_parser("render", help="print the manifests of DevicePluginConfigs in a file")
    render.add_argument("-f", "--filename", required=True, help="YAML or JSON, - for standard input")
    render.add_argument(
        "--nodes",
        default="",
        metavar="FILE",
        help="Nodes as kubectl get nodes -o yaml prints them: judge which pools and objects want the same node",
    )
    settings.add_arguments(render, group="render")
    render.set_defaults(command=_render)
    presets = commands.add_parser("presets", help="list the presets, or print one")
    presets.add_argument("name", nargs="?", help="a preset to print as YAML")
    presets.set_defaults(command=_presets)
    return program


def _run(arguments: dict[str, object]) -> int:
    from device_operator import app  # noqa: PLC0415 -- `render` and --help start without kopf, which takes half a second

    chosen = settings.resolve(arguments)
    if not chosen.agent_image:
        raise errors.UsageError("--agent-image is required")
    return app.run(chosen)


def _render(arguments: dict[str, object]) -> int:
    from device_operator import offline  # noqa: PLC0415

    filename, nodes = str(arguments.pop("filename")), str(arguments.pop("nodes"))
    chosen = settings.resolve(arguments)
    remarks: tuple[str, ...] = ()
    if not chosen.agent_image:
        chosen = dataclasses.replace(chosen, agent_image=f"device-agent:{__version__}")
        cure = "give --agent-image, or run render in the operator's pod"
        remarks = (f"the agent's image is not known here, so {chosen.agent_image} stands for it; {cure}",)
    rendered = offline.render_file(filename, offline.render_settings(chosen), nodes=nodes)
    for remark in (*remarks, *rendered.remarks):
        print(f"device-operator: {remark}", file=sys.stderr)
    return _print(rendered.manifests)


def _presets(arguments: dict[str, object]) -> int:
    from device_operator import offline  # noqa: PLC0415

    name = arguments["name"]
    return _print(offline.list_presets() if name is None else offline.show_preset(str(name)))


def _print(text: str) -> int:
    """The exit status. A reader that has seen enough is no fault of ours, and gets no message."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # a later flush, when the process ends, must not complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"device-operator: standard output: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
