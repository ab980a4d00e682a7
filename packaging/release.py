"""Tags the version that pyproject.toml and CHANGELOG.md agree on: `make tag`.

The tag's message is that version's section of the changelog. Nothing is pushed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
UNRELEASED = "Unreleased"
# Distributions beside the service, which are released with it.
# Of the integrations those that add to the service by entry points.
PARTS = (
    "packaging/client",
    "packaging/profiler",
    "packaging/lab",
    "packaging/research",
    *sorted(
        path.parent.relative_to(ROOT).as_posix()
        for path in (ROOT / "integrations").glob("*/pyproject.toml")
        if 'entry-points."cotenant' in path.read_text(encoding="utf-8")
    ),
)
# And those that are installed into other systems, by whatever these load.
INTO_OTHERS = tuple(f"integrations/{name}" for name in ("nova", "openstackclient", "watcher"))
# Files of other forms that name the version.
VERSIONED = {
    "integrations/ansible/galaxy.yml": re.compile(r"^version: (\S+)$", re.MULTILINE),
    "integrations/kubernetes/chart/Chart.yaml": re.compile(r"^(?:version|appVersion): (\S+)$", re.MULTILINE),
}


class ReleaseError(Exception):
    """Why there is nothing to tag yet, in one sentence."""


def agreed_version(root: Path) -> str:
    """The version of all distributions, of what each requires of the others, and of the changelog."""
    versions = {
        "CHANGELOG.md": next((title for title, _ in changelog(root) if title != UNRELEASED), "no version"),
    }
    for path in ("pyproject.toml", *(f"{part}/pyproject.toml" for part in (*PARTS, *INTO_OTHERS))):
        project = _project(root / path)
        versions[path] = project["version"]
        for required in project.get("dependencies", ()):
            if required.startswith("cotenant"):
                name, _, version = required.partition("==")
                versions[f"the requirement of {name} in {path}"] = version
    for path, pattern in VERSIONED.items():
        for number, version in enumerate(pattern.findall((root / path).read_text(encoding="utf-8")), 1):
            versions[f"{path}, place {number},"] = version
    if len(set(versions.values())) > 1:
        raise ReleaseError("versions differ: " + ", ".join(f"{where} has {one}" for where, one in versions.items()))
    return str(versions["pyproject.toml"])


def changelog(root: Path) -> list[tuple[str, str]]:
    """The sections of the changelog, newest first: version or `Unreleased`, and text."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^## \[?([^\]\s]+).*$", text, flags=re.MULTILINE)
    return [(title, body.strip()) for title, body in zip(parts[::2], parts[1::2], strict=True)]


def make_tag(root: Path) -> str:
    """Tag the commit that is checked out, and return the tag. Raises ReleaseError where it is not to be released."""
    tag = f"v{agreed_version(root)}"
    sections = dict(changelog(root))
    if sections.get(UNRELEASED):
        raise ReleaseError(f"CHANGELOG.md has lines under {UNRELEASED}: they need a version")
    if _git(root, "status", "--porcelain"):
        raise ReleaseError("there are changes that are not committed")
    if _git(root, "tag", "--list", tag):
        raise ReleaseError(f"{tag} is there already")
    _git(root, "tag", "--annotate", "--cleanup=verbatim", "--message", sections[tag.removeprefix("v")], tag)
    return tag


def _project(path: Path) -> dict[str, Any]:
    return dict(tomllib.loads(path.read_text(encoding="utf-8"))["project"])


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    try:
        sys.stdout.write(f"tagged {make_tag(ROOT)}; `git push --tags` publishes it\n")
    except ReleaseError as error:
        sys.exit(f"not released: {error}")
