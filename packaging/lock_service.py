"""Writes packaging/locked: what the service needs, and what each extra adds, with the versions and hashes of the lock.

`python packaging/lock_service.py` writes it anew from requirements.lock, which has the tools of developers, too, and
from what the installed distributions require on Linux.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "packaging" / "locked"
EXTRAS = ("openstack", "otel", "plots", "postgresql", "traces", "train", "xapi")  # those that need libraries of others
OURS = {
    "cotenant": ".",
    "cotenant-client": "packaging/client",
    "cotenant-profiler": "packaging/profiler",
    "cotenant-openstack": "integrations/openstack",
    "cotenant-xapi": "integrations/xapi",
}
HEADER = "# Made from requirements.lock: python packaging/lock_service.py\n"


def files() -> Mapping[str, str]:
    """Name and text of each file."""
    locked: dict[str, str] = defaultdict(str)  # one library may be locked in several versions, by that of Python
    for name, block in _blocks((ROOT / "requirements.lock").read_text(encoding="utf-8")):
        locked[name] += block
    service = _needed(["cotenant"])
    of_extras = {extra: _needed([f"cotenant[{extra}]"]) - service for extra in EXTRAS}
    return {
        f"{name}.txt": HEADER + "".join(locked[one] for one in sorted(needed & set(locked)))
        for name, needed in {"service": service, **of_extras}.items()
    }


def _blocks(lock: str) -> Iterator[tuple[str, str]]:
    """The name of each locked distribution, and its lines."""
    for block in re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE):
        if "==" in block:
            yield canonicalize_name(block.partition("==")[0]), block


def _needed(roots: Iterable[str]) -> set[str]:
    """The names of what these require, and what that requires."""
    found: set[tuple[str, frozenset[str]]] = set()
    left = [Requirement(root) for root in roots]
    while left:
        one = left.pop()
        key = (canonicalize_name(one.name), frozenset(one.extras))
        if key in found:
            continue
        found.add(key)
        try:
            required = [Requirement(text) for text in _requires(one)]
        except PackageNotFoundError:  # of another system
            continue
        left += [
            each
            for each in required
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *one.extras))
        ]
    return {name for name, _ in found}


def _requires(one: Requirement) -> Iterable[str]:
    """What a distribution requires: ours by their files, for what is installed of them may be older."""
    if one.name not in OURS:
        return requires(one.name) or ()
    project = tomllib.loads((ROOT / OURS[one.name] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (project["optional-dependencies"][extra] for extra in one.extras)
    return [*project["dependencies"], *(text for texts in extras for text in texts)]


if __name__ == "__main__":
    TARGET.mkdir(exist_ok=True)
    for name, text in files().items():
        (TARGET / name).write_text(text, encoding="utf-8")
