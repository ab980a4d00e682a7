"""Builds what a version publishes, twice and at different places, and writes it with checksums where both are alike.

`make release` calls it, and nothing is tagged or pushed: wheels of all distributions, the service's source
distribution, the source of the whole tree, the agent as one file, the Helm chart, and a list of the libraries that the
service needs (CycloneDX). What is not committed is not built.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from release import INTO_OTHERS, PARTS, ReleaseError, agreed_version

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "build" / "release"
SUMS = "SHA256SUMS"
CHART = "integrations/kubernetes/chart"
LOCKED = "packaging/locked"
_SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
_PINNED = re.compile(r"^([\w.-]+)==([^\s;\\]+)", re.MULTILINE)


def build(source: Path, made: Path, version: str, time_s: int) -> None:
    """Build from a copy of the tree. Raises subprocess.CalledProcessError where a tool fails."""
    made.mkdir()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time_s)}

    def run(*words: str | Path) -> None:
        subprocess.run([sys.executable, *words], cwd=source, env=environment, check=True, capture_output=True)

    run("-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation",
        "--wheel-dir", made, *(f"./{part}" for part in (*PARTS, *INTO_OTHERS)), ".")  # fmt: skip
    run("packaging/build_agent.py", "--out", made / "cotenant-profiler.pyz")
    run("-c", _SDIST, made)
    sdist = made / f"cotenant-{version}.tar.gz"
    sdist.write_bytes(packed(_members(sdist.read_bytes()), time_s))
    chart = {f"cotenant/{path.relative_to(source / CHART)}": path.read_bytes() for path in _files(source / CHART)}
    (made / f"cotenant-chart-{version}.tgz").write_bytes(packed(chart, time_s))
    (made / f"cotenant-{version}.cdx.json").write_text(
        json.dumps(libraries(source / LOCKED, version), indent=1) + "\n", encoding="utf-8"
    )


def packed(members: Mapping[str, bytes], time_s: int) -> bytes:
    """A compressed tar file of these files, which is the same whoever makes it, where and when."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in sorted(members.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(data), time_s, 0o644
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(content.getvalue(), mtime=time_s)


def _members(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        files = {entry.name: opened.extractfile(entry) for entry in opened if entry.isfile()}
        return {name: file.read() for name, file in files.items() if file is not None}


def _files(folder: Path) -> Iterable[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def libraries(locked: Path, version: str) -> dict[str, Any]:
    """What the service needs, and by which extra, as CycloneDX 1.6 lists it; hashes stand in packaging/locked."""
    service = f"pkg:pypi/cotenant@{version}"
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{pinned}",
            "name": name,
            "version": pinned,
            "purl": f"pkg:pypi/{name}@{pinned}",
            "scope": "required" if file.stem == "service" else "optional",
            "properties": [{"name": "cotenant:needed_by", "value": file.stem}],
        }
        for file in sorted(locked.glob("*.txt"))
        for name, pinned in dict.fromkeys(_PINNED.findall(file.read_text(encoding="utf-8")))
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application", "bom-ref": service, "name": "cotenant", "version": version, "purl": service,
            }
        },
        "components": components,
        "dependencies": [{"ref": service, "dependsOn": [one["bom-ref"] for one in components]}],
    }  # fmt: skip


def digests(made: Path) -> dict[str, str]:
    """SHA-256 of each file, by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in _files(made)}


def check_alike(first: Mapping[str, str], second: Mapping[str, str]) -> None:
    """ReleaseError names what differs between two builds."""
    wrong = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    if wrong:
        raise ReleaseError(f"two builds of the same commit differ in {', '.join(wrong)}")


def main() -> None:
    """Build, compare, and put what was built into build/release; ReleaseError where it is not to be published."""
    version = agreed_version(ROOT)
    if _git("status", "--porcelain"):
        raise ReleaseError("there are changes that are not committed, and only commits are built")
    time_s = int(_git("log", "-1", "--format=%ct"))
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    with tempfile.TemporaryDirectory(prefix="cotenant-release-") as folder:
        os.umask(0o022)  # wheels keep the modes of files
        for place, zone in (("first", "UTC0"), ("a-second-time/elsewhere", "JST-9")):
            source, os.environ["TZ"] = Path(folder, place), zone
            source.mkdir(parents=True)
            subprocess.run(["tar", "--extract", "--no-same-permissions"], cwd=source, input=archive, check=True)
            build(source, Path(folder, f"made-{source.name}"), version, time_s)
        made, again = Path(folder, "made-first"), Path(folder, "made-elsewhere")
        check_alike(digests(made), digests(again))
        whole = {f"cotenant-source-{version}/{name}": data for name, data in _members(archive).items()}
        (made / f"cotenant-source-{version}.tar.gz").write_bytes(packed(whole, time_s))
        _publish(made)


def _publish(made: Path) -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    for path in _files(TARGET):
        path.unlink()
    sums = digests(made)
    for name in sums:
        (TARGET / name).write_bytes((made / name).read_bytes())
    text = "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items()))
    (TARGET / SUMS).write_text(text, encoding="ascii")
    sys.stdout.write(f"{text}{len(sums)} files are in {TARGET.relative_to(ROOT)}; two builds were alike\n")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    try:
        main()
    except ReleaseError as error:
        sys.exit(f"not built: {error}")
    except subprocess.CalledProcessError as error:
        said = (error.stderr or b"").decode(errors="replace")[-2000:]
        sys.exit(f"not built: {error}\n{said}")
