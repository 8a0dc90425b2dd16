#!/bin/sh
# Writes the checked-in kubelet messages anew: plugin_agent/regenerate.sh [directory to write to instead].
# An old compiler on purpose (requirements/protoc.in says why), in a virtual environment of its own below the cache.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}
lock=$here/../requirements/protoc.txt
stamp=$(sha256sum "$lock" | cut -c1-12)
venv=${XDG_CACHE_HOME:-$HOME/.cache}/device-operator/protoc-$stamp
if [ ! -e "$venv/complete" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --require-hashes -r "$lock"
    touch "$venv/complete"
fi
cd "$here"
# No gRPC stubs: rpc.py says the few methods in typed lines, without the stubs' guard on grpcio's version.
"$venv/bin/python" -W ignore -m grpc_tools.protoc -I . --python_out="$out" --pyi_out="$out" \
    device_agent/kubelet/proto/deviceplugin.proto device_agent/kubelet/proto/podresources.proto
