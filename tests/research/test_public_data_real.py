"""The real public measurements, where they lie beside the repository, against the raw files read a second way."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from models.data.dataset import Dataset, throughput_ratio
from research.benchmarks.public_data import gavel, pitot, spec2017
from tests.research import made_up

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the public measurements are not beside the repository")


def read(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return list(csv.DictReader(file))


def ratios(dataset: Dataset) -> Counter[tuple[str, str | None, str | None, float]]:
    """How often each (platform, workload, neighbour, T/B to six digits) was measured."""
    return Counter(
        (c.platform, mine.instance.workload, other.instance.workload, float(f"{ratio:.6g}"))
        for c in dataset.colocations
        for mine, other in (c.outcomes, c.outcomes[::-1])
        if (ratio := throughput_ratio(mine)) is not None
    )


def test_every_spec_pair_arrives_with_its_ratio_and_every_program_with_its_curve(tmp_path: Path) -> None:
    source = DATA / "spec2017-pairs"
    dataset = made_up.loaded(spec2017.convert(source), tmp_path)
    raw = read(source / "pairs.csv")
    expected = Counter(
        ("six-cores", row[f"name{mine}"], row[f"name{other}"], float(f"{float(row[f'actual{mine}']):.6g}"))
        for row in raw
        for mine, other in ((1, 2), (2, 1))
    )
    assert ratios(dataset) == expected
    assert expected.total() == 2 * len(raw) == 156
    assert len(dataset.profiles) == 14
    for profile in dataset.profiles:
        assert {"bubble_4mb", "bubble_112mb"} <= profile.metrics.keys()
    gcc = next(profile for profile in dataset.profiles if profile.name == "602.gcc_s")
    times = {row["footprint_mb"]: float(row["perf"]) for row in read(source / "sensitivity" / "602_gcc_s.csv")}
    assert gcc.metrics["bubble_64mb"] == pytest.approx(times["0"] / times["64"])
    assert gcc.metrics["solo_runtime_s"] == times["0"]


@pytest.fixture(scope="module")
def wasm(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return made_up.loaded(pitot.convert(DATA / "pitot-wasm-pairs"), tmp_path_factory.mktemp("pitot"))


def test_every_distinct_wasm_time_arrives_with_its_ratio(wasm: Dataset) -> None:
    distinct = {tuple(row.values()) for row in read(DATA / "pitot-wasm-pairs" / "pairs.csv.gz")}
    expected = Counter(
        (platform, mine.replace("/", "."), other.replace("/", "."), float(f"{float(solo) / float(time):.6g}"))
        for platform, mine, other, time, solo in distinct
    )
    assert ratios(wasm) == expected
    assert expected.total() == 37_857  # of 38,184 lines 327 are printed twice, all in one block at the end of the file


def test_wasm_platforms_are_devices_that_exist(wasm: Dataset) -> None:
    assert len(wasm.platforms) == 139
    mhz = {name.split(":")[1]: host.cpu_mhz for name, host in wasm.platforms.items()}
    assert mhz["hc-80"] == pytest.approx(216, abs=0.5)  # a Cortex-M7 microcontroller
    assert all(host.l2_mb is None or 0.25 <= host.l2_mb <= 8 for host in wasm.platforms.values())
    assert wasm.platforms["iwasm-a:hc-80"].l3_mb is None


def test_every_gpu_pair_that_fitted_arrives_with_its_ratio(tmp_path: Path) -> None:
    source = DATA / "gavel-gpu-pairs"
    dataset = made_up.loaded(gavel.convert(source), tmp_path)
    speeds = json.loads((source / gavel.FILE).read_text())["p100"]
    found = {(mine, other): ratio for _, mine, other, ratio in ratios(dataset)}
    resnet, gan = "('ResNet-18 (batch size 32)', 1)", "('CycleGAN', 1)"
    assert found["ResNet-18.32", "CycleGAN"] == pytest.approx(speeds[resnet][gan][0] / speeds[resnet]["null"], rel=1e-5)
    assert found["CycleGAN", "ResNet-18.32"] == pytest.approx(speeds[resnet][gan][1] / speeds[gan]["null"], rel=1e-5)
    one = [job for job in speeds if job.endswith(", 1)")]
    fitted = [(a, b) for a in one for b in one if a <= b and min(speeds[a][b]) > 0]
    assert len(dataset.colocations) == len(fitted) == 340
    assert all(0 < ratio <= 1 for ratio in found.values())
