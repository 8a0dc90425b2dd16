#!/bin/sh
# Makes the virtual environment with the locked packages: scripts/venv.sh DIR. The first Python on PATH that is new enough serves.
set -eu
dir=$1
for python in "${PYTHON:-python3}" python3.11 python3.12 python3.13; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        echo "making the virtual environment $dir with $("$python" --version)"
        "$python" -m venv "$dir"
        "$dir/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
        exec "$dir/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
    fi
done
echo "Python 3.11 or newer is needed: install it, or say where it is with PYTHON=/path/to/python3 make …" >&2
exit 1
