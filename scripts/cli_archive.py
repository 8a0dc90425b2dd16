"""Makes `kubectl devices` one file that needs only Python, with the archive and the manifest that krew installs it by.

scripts/cli_archive.py [--out DIR] [--url URL]     DIR: dist; URL: where the .tar.gz will be downloaded from

The file has the locked packages (requirements/cli.txt). The `kubernetes` package needs a compiled one, so the file
works with the Python version, system and processor that made it, and says so elsewhere.
"""

import argparse
import hashlib
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipapp
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "cli"))

from kubectl_devices import __version__  # noqa: E402 it is not installed

PACKAGES = ("operator/device_operator", "plugin_agent/device_agent", "cli/kubectl_devices")
NOT_NEEDED = ("kubernetes/aio", "bin", "aiohttp", "aiohttp_retry")  # the asyncio half of `kubernetes`, and its needs
KREW = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64"}

START = '''"""Unpacks the packages once into the user's cache: compiled ones cannot be loaded from an archive."""

import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

MADE_FOR = {made_for!r}
DIGEST = {digest!r}

here = (sys.implementation.cache_tag, sys.platform, os.uname().machine if hasattr(os, "uname") else "")
if here != MADE_FOR:
    sys.exit("error: this kubectl-devices is made for " + " ".join(MADE_FOR) + ", not for " + " ".join(map(str, here))
             + "; start it with that Python, or install it with pipx")
cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubectl-devices"
home = cache / DIGEST
if not home.is_dir():
    try:
        cache.mkdir(parents=True, exist_ok=True)
        fresh = tempfile.mkdtemp(dir=cache)
        with zipfile.ZipFile(sys.path[0]) as archive:
            archive.extractall(fresh)
        try:
            os.rename(fresh, home)
        except OSError:  # another start was faster
            shutil.rmtree(fresh, ignore_errors=True)
            if not home.is_dir():
                raise
    except OSError as error:
        sys.exit(f"error: cannot unpack into {{cache}}: {{error}}; set XDG_CACHE_HOME to another directory")
sys.path[0] = str(home)

from kubectl_devices.__main__ import main

sys.exit(main())
'''

MANIFEST = """\
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: devices
spec:
  version: v{version}
  homepage: {homepage}
  shortDescription: Hardware devices of the cluster and who holds them
  description: |
    Lists the devices that device-operator serves, with health and holders. Finds what is wrong with the installation,
    takes devices out of service, and shows what a configuration would select on a node.
  caveats: |
    Needs {python} on the PATH as python3.
  platforms:
  - selector:
      matchLabels: {{os: {os}, arch: {arch}}}
    uri: {uri}
    sha256: {sha256}
    bin: kubectl-devices
    files:
    - {{from: kubectl-devices, to: .}}
    - {{from: LICENSE, to: .}}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--url", default="https://example.com/releases")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    system, machine = platform.system().lower(), platform.machine()
    with tempfile.TemporaryDirectory() as folder:
        staged = Path(folder) / "packages"
        stage(staged)
        program = options.out / "kubectl-devices"
        zipapp.create_archive(staged, program, interpreter="/usr/bin/env python3", compressed=True)
    name = f"kubectl-devices-{__version__}-{system}-{machine}-{sys.implementation.cache_tag}.tar.gz"
    with tarfile.open(options.out / name, "w:gz") as archive:
        archive.add(program, "kubectl-devices")
        archive.add(ROOT / "LICENSE", "LICENSE")
    manifest = MANIFEST.format(
        version=__version__,
        homepage=options.url,
        python=f"Python {sys.version_info.major}.{sys.version_info.minor}",
        os=system,
        arch=KREW.get(machine, machine),
        uri=f"{options.url.rstrip('/')}/{name}",
        sha256=hashlib.sha256((options.out / name).read_bytes()).hexdigest(),
    )
    (options.out / "devices.yaml").write_text(manifest, encoding="utf-8")
    for path in (program, options.out / name, options.out / "devices.yaml"):
        print(f"{path} ({path.stat().st_size / 2**20:.1f} MiB)")
    return 0


def stage(folder: Path) -> None:
    """Everything that the file has, with `__main__.py` to start it."""
    requirements = ROOT / "requirements/cli.txt"
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-compile", "--require-hashes"]
    subprocess.run([sys.executable, "-m", "pip", *install, "--target", folder, "-r", requirements], check=True)
    for name in NOT_NEEDED:
        shutil.rmtree(folder / name, ignore_errors=True)
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, folder / Path(package).name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
        )
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    made_for = (sys.implementation.cache_tag, sys.platform, platform.machine())
    start = START.format(made_for=made_for, digest=digest.hexdigest()[:16])
    (folder / "__main__.py").write_text(start, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
