"""What Docker and Podman call a container and its image, from the files that they keep; no daemon is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from profiler.backends.source import HostSource

_DOCKER = "/var/lib/docker/containers/{id}/config.v2.json"
_PODMAN = "/var/lib/containers/storage/{driver}-containers/containers.json"
_DRIVERS = ("overlay", "vfs")
_ID = re.compile(r"(?:docker[/-]|libpod-)(?P<id>[0-9a-f]{64})(?:\.scope)?\Z")
_LONGEST = 255


def names_of(source: HostSource, path: str) -> Mapping[str, str]:
    """`name` and `image` of the container of this group, as far as they are known."""
    match = _ID.search(path)
    if match is None:
        return {}
    docker = _json(source, _DOCKER.format(id=match["id"]))
    if isinstance(docker, dict):
        config = docker.get("Config")
        image = config.get("Image") if isinstance(config, dict) else None
        return _texts(name=str(docker.get("Name", "")).lstrip("/"), image=image)
    for driver in _DRIVERS:
        listed = _json(source, _PODMAN.format(driver=driver))
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, dict) and one.get("id") == match["id"]:
                return _texts(name=_podman(one).get("name"), image=_podman(one).get("image-name"))
    return {}


def _podman(one: Mapping[str, Any]) -> Mapping[str, Any]:
    """Podman keeps what it knows as JSON in a text."""
    try:
        found = json.loads(one.get("metadata") or "{}")
    except (ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _json(source: HostSource, path: str) -> Any:
    try:
        return json.loads(source.read(path))
    except (OSError, ValueError, RecursionError):
        return None


def _texts(**found: object) -> Mapping[str, str]:
    return {
        name: "".join(char if char.isprintable() else " " for char in text)[:_LONGEST]
        for name, text in found.items()
        if isinstance(text, str) and text
    }
