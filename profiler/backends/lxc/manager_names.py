"""Docker's and Podman's names of a container and its image, from their files; no daemon is asked."""

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
        for entry in listed if isinstance(listed, list) else ():
            if isinstance(entry, dict) and entry.get("id") == match["id"]:
                metadata = _podman_metadata(entry)
                return _texts(name=metadata.get("name"), image=metadata.get("image-name"))
    return {}


def _podman_metadata(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Podman keeps it as JSON inside a text."""
    try:
        metadata = json.loads(entry.get("metadata") or "{}")
    except (ValueError, TypeError, RecursionError):
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _json(source: HostSource, path: str) -> Any:
    try:
        return json.loads(source.read(path))
    except (OSError, ValueError, RecursionError):
        return None


def _texts(**values: object) -> Mapping[str, str]:
    return {
        name: "".join(char if char.isprintable() else " " for char in text)[:_LONGEST]
        for name, text in values.items()
        if isinstance(text, str) and text
    }
