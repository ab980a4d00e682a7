"""A version is tagged only when all distributions and the changelog name it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.packaging.programs import ROOT, load

release = load("release")


def git(root: Path, *words: str) -> str:
    author = ["-c", "user.name=maintainer", "-c", "user.email=maintainer@localhost", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *author, *words], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of version 1.2.0, all of which is committed."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "maintainer")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "maintainer@localhost")
    project = '[project]\nversion = "1.2.0"\n'
    required = '"cotenant-client==1.2.0", "cotenant-profiler==1.2.0"'
    (tmp_path / "pyproject.toml").write_text(f'{project}dependencies = ["a>=1", {required}]\n')
    needed = {"packaging/lab": '"cotenant-profiler==1.2.0"', "packaging/research": '"cotenant[train]==1.2.0"'}
    for part in (*release.PARTS, *release.INTO_OTHERS):
        (tmp_path / part).mkdir(parents=True)
        requires = f'dependencies = ["b>=1", {needed[part]}]\n' if part in needed else ""
        (tmp_path / part / "pyproject.toml").write_text(project + requires)
    for path in release.VERSIONED:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("name: cotenant\nversion: 1.2.0\nappVersion: 1.2.0\n")
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-12-01\n\n- # of hosts is shown.\n\n## 1.1.0\n\n- x\n"
    )
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "--quiet", "--message", "all")
    return tmp_path


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_all_distributions_and_the_newest_version_of_the_changelog_agree() -> None:
    assert release.agreed_version(ROOT)


def test_the_tag_carries_the_section_of_its_version(tree: Path) -> None:
    assert release.make_tag(tree) == "v1.2.0"
    assert git(tree, "tag", "--list", "--format=%(refname:short) %(contents)") == "v1.2.0 - # of hosts is shown."


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("pyproject.toml", 'version = "1.2.0"', 'version = "1.3.0"'),
        ("pyproject.toml", "cotenant-profiler==1.2.0", "cotenant-profiler==1.1.0"),
        ("pyproject.toml", "cotenant-client==1.2.0", "cotenant-client==1.1.0"),
        ("packaging/profiler/pyproject.toml", "1.2.0", "1.3.0"),
        ("packaging/client/pyproject.toml", "1.2.0", "1.3.0"),
        ("packaging/lab/pyproject.toml", "cotenant-profiler==1.2.0", "cotenant-profiler==1.1.0"),
        ("packaging/research/pyproject.toml", "cotenant[train]==1.2.0", "cotenant[train]==1.1.0"),
        ("integrations/watcher/pyproject.toml", "1.2.0", "1.3.0"),
        ("integrations/kubernetes/chart/Chart.yaml", "appVersion: 1.2.0", "appVersion: 1.1.0"),
        ("integrations/ansible/galaxy.yml", "1.2.0", "1.1.0"),
        ("CHANGELOG.md", "## [1.2.0]", "## [1.3.0]"),
    ],
)
def test_where_one_place_names_another_version_nothing_is_tagged(tree: Path, path: str, old: str, new: str) -> None:
    change(tree / path, old, new)
    git(tree, "commit", "--quiet", "--all", "--message", "other")
    with pytest.raises(release.ReleaseError, match="versions differ: "):
        release.make_tag(tree)
    assert git(tree, "tag") == ""


def test_lines_without_a_version_changes_without_a_commit_and_a_tag_that_is_there_are_refused(tree: Path) -> None:
    change(tree / "CHANGELOG.md", "## [Unreleased]\n", "## [Unreleased]\n\n- New.\n")
    with pytest.raises(release.ReleaseError, match="they need a version"):
        release.make_tag(tree)
    change(tree / "CHANGELOG.md", "- New.\n", "")
    with pytest.raises(release.ReleaseError, match="not committed"):
        release.make_tag(tree)
    git(tree, "checkout", "--quiet", ".")
    release.make_tag(tree)
    with pytest.raises(release.ReleaseError, match=r"v1\.2\.0 is there already"):
        release.make_tag(tree)
