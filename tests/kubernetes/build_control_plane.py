"""Builds kube-apiserver and kube-scheduler from the Go module proxy, once for each version; etcd is Debian's.

python -m tests.kubernetes.build_control_plane [VERSION]
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

VERSIONS = ("1.37.1", "1.36.3")  # the newest minor and the one before
_ROOT = Path(__file__).parents[2]
CACHE = _ROOT / "var" / "kubernetes"
PROGRAMS = ("kube-scheduler", "kube-apiserver")
LONGEST_S = float(os.environ.get("COTENANT_KUBERNETES_BUILD_S", "3600"))  # Go keeps what it has done until then
# An older Go (from 1.21 on) fetches the one that is needed as a module.
_ENVIRONMENT = {"GOTOOLCHAIN": "auto", "CGO_ENABLED": "0"}
_TOOLS = """//go:build tools

package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app"
	_ "k8s.io/kubernetes/cmd/kube-scheduler/app"
)
"""


class CannotBuildError(Exception):
    """Why there is no control plane; the message is a reason to skip."""


def plugin(version: str) -> Path | None:
    """kube-scheduler of this version's minor with the plug-in, where `make scheduler-plugin` has built it."""
    path = _ROOT / "build" / "scheduler" / f"cotenant-scheduler-{version.rpartition('.')[0]}"
    return path if path.is_file() else None


def versions() -> tuple[str, ...]:
    """Those that are built, the newest first; where none is, the newest, which is then built."""
    there = [one for one in VERSIONS if all((CACHE / one / "bin" / name).is_file() for name in PROGRAMS)]
    return tuple(there) or VERSIONS[:1]


def built(version: str) -> Path:
    """The folder with the programs; CannotBuildError says what is missing."""
    ends, cache = time.monotonic() + LONGEST_S, CACHE / version
    folder = cache / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in PROGRAMS if not (folder / name).is_file()]
    if missing:
        _build(version, cache, missing, ends)
    if not (folder / "etcd").is_file():
        shutil.copy(_etcd(cache, ends), folder / "etcd.new")
        (folder / "etcd.new").rename(folder / "etcd")
    return folder


def _build(version: str, cache: Path, programs: list[str], ends: float) -> None:
    folder = cache / "bin"
    if shutil.which("go") is None:
        raise CannotBuildError(f"there is no {programs[0]} in {folder}, and no go to build it with")
    module = cache / "module"
    module.mkdir(exist_ok=True)
    download = ["go", "mod", "download", "-json", f"k8s.io/kubernetes@v{version}"]
    source = Path(json.loads(run(download, cache, ends))["Dir"])
    # kubernetes' own go.mod, with what stands beside it in its repository replaced by the versions that were released.
    text = (source / "go.mod").read_text().replace("module k8s.io/kubernetes\n", "module kubebuild\n")
    staging = f"v0.{version.removeprefix('1.')}"
    text = re.sub(r"(k8s\.io/\S+) => \./staging/src/\S+", rf"\1 => \1 {staging}", text)
    (module / "go.mod").write_text(f"{text}\nrequire k8s.io/kubernetes v{version}\n")
    (module / "go.sum").write_bytes((source / "go.sum").read_bytes())
    (module / "tools.go").write_text(_TOOLS)
    reported = f"-s -w -X k8s.io/component-base/version.gitVersion=v{version}"
    for name in programs:
        new = folder / f"{name}.new"
        package = f"k8s.io/kubernetes/cmd/{name}"
        run(
            ["go", "build", "-p=2", "-mod=mod", "-trimpath", "-ldflags", reported, "-o", str(new), package],
            module,
            ends,
        )
        new.rename(folder / name)


def _etcd(cache: Path, ends: float) -> Path:
    """Debian's, unpacked: to install it would start a server of the system's own."""
    here = shutil.which("etcd")
    if here:
        return Path(here)
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise CannotBuildError("there is no etcd, and no apt-get that could fetch it")
    unpacked = cache / "etcd"
    unpacked.mkdir(exist_ok=True)
    download = ["apt-get", "download", "-qq", "etcd-server"]
    try:
        run(download, unpacked, ends)
    except CannotBuildError:  # no lists of packages were fetched yet
        run(["apt-get", "update", "-qq"], unpacked, ends)
        run(download, unpacked, ends)
    for package in unpacked.glob("etcd-server_*.deb"):
        run(["dpkg", "-x", str(package), str(unpacked)], unpacked, ends)
    return unpacked / "usr" / "bin" / "etcd"


def run(argv: list[str], folder: Path, ends: float) -> str:
    """What it prints; CannotBuildError where it fails, or is not done by then (`time.monotonic`)."""
    try:
        done = subprocess.run(
            argv,
            cwd=folder,
            env={**os.environ, **_ENVIRONMENT},
            capture_output=True,
            text=True,
            timeout=max(1.0, ends - time.monotonic()),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuildError(f"{' '.join(argv[:3])}: {error}") from error
    if done.returncode:
        raise CannotBuildError(f"{' '.join(argv[:3])} failed: {done.stderr.strip()[-300:]}")
    return done.stdout


if __name__ == "__main__":
    print(built(sys.argv[1] if sys.argv[1:] else VERSIONS[0]))
