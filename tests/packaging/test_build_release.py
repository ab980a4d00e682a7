"""What a version publishes is the same whoever builds it: `make release` compares two builds."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.packaging.programs import ROOT, load

sys.modules.setdefault("release", load("release"))
build_release = load("build_release")


def test_an_archive_tells_neither_who_packed_it_nor_when_nor_where() -> None:
    files = {"a/b.txt": b"one", "a/a.txt": b"two"}
    made = build_release.packed(files, 1_700_000_000)
    assert made == build_release.packed(dict(reversed(files.items())), 1_700_000_000)
    with tarfile.open(fileobj=io.BytesIO(made)) as opened:
        entries = opened.getmembers()
    assert [(one.name, one.mtime, one.uid, one.gid, one.uname, one.mode) for one in entries] == [
        (name, 1_700_000_000, 0, 0, "", 0o644) for name in ("a/a.txt", "a/b.txt")
    ]


def test_files_that_differ_or_are_not_there_twice_are_named() -> None:
    build_release.check_alike({"a": "1"}, {"a": "1"})
    with pytest.raises(build_release.ReleaseError, match=r"differ in a, c$"):
        build_release.check_alike({"a": "1", "b": "2"}, {"a": "9", "b": "2", "c": "3"})


def test_every_library_that_is_locked_stands_in_the_list_with_its_version() -> None:
    found = build_release.libraries(ROOT / "packaging" / "locked", "1.2.3")
    listed = {(one["name"], one["version"], one["scope"]) for one in found["components"]}
    for file in (ROOT / "packaging" / "locked").glob("*.txt"):
        scope = "required" if file.stem == "service" else "optional"
        for line in file.read_text(encoding="utf-8").splitlines():
            if "==" in line:
                name, version = re.split(r"==|[ ;\\]", line)[:2]
                assert (name, version, scope) in listed, line
    assert found["metadata"]["component"]["purl"] == "pkg:pypi/cotenant@1.2.3"
    refs = [one["bom-ref"] for one in found["components"]]
    assert len(refs) == len(set(refs)) and found["dependencies"][0]["dependsOn"] == refs


@pytest.mark.skipif(os.environ.get("COTENANT_TEST_WHEELS") != "1", reason="make test-wheels")
def test_a_service_that_is_built_from_its_source_distribution_is_the_one_that_was_built_beside_it(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The distribution names everything that it is made of, and no file says in which folder it was built."""
    source, time_s = tmp_path_factory.mktemp("somewhere-else"), 1_700_000_000
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    copy = ["tar", "--create", "--null", "--files-from=-"]
    tar = subprocess.run(copy, cwd=ROOT, input=files, capture_output=True, check=True).stdout
    subprocess.run(["tar", "--extract"], cwd=source, input=tar, check=True)
    made, again, unpacked = tmp_path / "made", tmp_path / "again", tmp_path / "unpacked"
    version = build_release.agreed_version(ROOT)
    build_release.build(source, made, version, time_s)
    unpacked.mkdir()
    sdist = made / f"cotenant-{version}.tar.gz"
    subprocess.run(["tar", "--extract", "--file", sdist, "--strip-components=1"], cwd=unpacked, check=True)
    argv = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time_s)}
    subprocess.run([*argv, again, "."], cwd=unpacked, env=environment, check=True)
    (wheel,) = again.iterdir()
    assert wheel.read_bytes() == (made / wheel.name).read_bytes()
