"""Image archives in the format of `docker save`, written and read without any image tool."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Sequence
from pathlib import Path

from localcluster.console import LocalClusterError

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def architecture() -> str:
    """This machine's architecture by its name in image configurations."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def from_layer(layer: Path, *, reference: str, entrypoint: Sequence[str], target: Path) -> None:
    """Writes an image of one layer, a tar of its file system."""
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    config = json.dumps(
        {
            "architecture": architecture(),
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint) or None, "Env": [_PATH]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created_by": "localcluster"}],
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [reference], "Layers": [f"{digest}.tar"]}]
    unfinished = target.with_suffix(".unfinished")
    with tarfile.open(unfinished, "w") as archive:
        for name, content in ((config_name, config), ("manifest.json", json.dumps(manifest).encode())):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        archive.add(layer, f"{digest}.tar")
    unfinished.rename(target)


def from_program(program: Path, *, reference: str, target: Path) -> None:
    """Writes an image that holds one static program, which is its entry point."""
    layer = target.with_suffix(".layer")
    with tarfile.open(layer, "w") as archive, program.open("rb") as file:
        entry = tarfile.TarInfo(program.name)
        entry.size, entry.mode = program.stat().st_size, 0o755
        archive.addfile(entry, file)
    from_layer(layer, reference=reference, entrypoint=[f"/{program.name}"], target=target)
    layer.unlink()


def identify(archive: Path) -> tuple[list[str], str]:
    """The references of an archive's image, and its configuration's digest, which changes with any content."""
    try:
        with tarfile.open(archive) as opened:
            member = opened.extractfile("manifest.json")
            images = json.load(member) if member else []
    except (OSError, KeyError, ValueError, tarfile.TarError) as failed:
        raise LocalClusterError(f"{archive} is no archive as `docker save` writes it: {failed}") from failed
    references = [reference for image in images for reference in image.get("RepoTags") or []]
    digest = hashlib.sha256(json.dumps([image["Config"] for image in images]).encode()).hexdigest()[:16]
    return references, digest
