#!/bin/sh
# Writes the lock files anew from pyproject.toml: requirements/lock.sh [--upgrade]. The index is the machine's own, never written down.
set -eu
cd "$(dirname "$0")/.."
lock() {
    out=$1
    shift
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
        --custom-compile-command requirements/lock.sh -o "requirements/$out" "$@"
}
lock agent.txt "$@" --extra agent pyproject.toml
lock operator.txt "$@" --extra operator pyproject.toml
lock cli.txt "$@" --extra cli pyproject.toml
lock dev.txt "$@" --extra agent --extra operator --extra cli --extra dev --extra docs pyproject.toml requirements/build.in
lock build.txt "$@" requirements/build.in
lock protoc.txt "$@" requirements/protoc.in
