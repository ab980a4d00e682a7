"""A training gives the same model in this process, in two, and on two workers of a real Dask cluster over TCP."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from models.training import train
from tests.models.synthetic import World
from tests.servers.dask import scheduler, workers


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return World(workloads=4, repeats=1).write(tmp_path_factory.mktemp("data") / "world")


@pytest.fixture(scope="module")
def here(world: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    return fitted(train([world], tmp_path_factory.mktemp("here"), processes=1))


def fitted(artifact: Path) -> tuple[str, dict[str, Any]]:
    """The version, and what the artifact says of throughput: trees, support, names and ranges."""
    found: dict[str, Any] = json.loads((artifact / "throughput.json").read_text(encoding="utf-8"))
    return artifact.name, found


def test_two_processes_fit_the_model_of_one(world: Path, here: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    assert fitted(train([world], tmp_path, processes=2)) == here


@pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="Dask is not installed: make test-cluster installs it"
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Dask's own sockets at its end
def test_two_workers_of_a_cluster_fit_the_model_of_one_process(
    world: Path, here: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    with scheduler() as address, workers(address):
        assert fitted(train([world], tmp_path, cluster=address)) == here
