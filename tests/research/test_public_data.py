"""Conversion of made-up sources: what becomes a run, a repeat and a metric, what is refused; nothing is left half."""

from __future__ import annotations

import csv
import itertools
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.data.dataset import Dataset, DatasetError, load_dataset, throughput_ratio
from research.benchmarks.public_data import gavel, pitot, spec2017
from research.benchmarks.public_data.__main__ import main
from research.benchmarks.public_data.dataset_writer import FILES, write_whole
from tests.examples import examples
from tests.research import made_up


def metrics(dataset: Dataset, workload: str, platform: str = "") -> Mapping[str, float]:
    return next(p.metrics for p in dataset.profiles if (p.platform, p.name) == (platform, workload))


def ratios(dataset: Dataset) -> dict[tuple[str, str, str], list[float | None]]:
    """T/B of the instances, by platform, run and repeat."""
    return {
        (c.platform, c.run, c.repeat): [None if (r := throughput_ratio(o)) is None else round(r, 9) for o in c.outcomes]
        for c in dataset.colocations
    }


def test_a_pair_of_spec_programs_is_a_run_of_two_on_separate_cores(tmp_path: Path) -> None:
    dataset = made_up.loaded(spec2017.convert(made_up.spec(tmp_path / "spec")), tmp_path)
    assert ratios(dataset) == {
        ("six-cores", "1.a+2.b", "1"): [0.9, 0.8],
        ("six-cores", "1.a+2.b", "2"): [0.82, 0.92],
        ("six-cores", "1.a+1.a", "1"): [0.7, 0.75],
    }
    first, second = (o.instance for o in dataset.colocations[1].outcomes)
    assert (first.workload, second.workload) == ("2.b", "1.a")
    assert [i.settings.pinning and set(i.settings.pinning.union) for i in (first, second)] == [{0, 1, 2}, {3, 4, 5}]
    assert dataset.platforms["six-cores"].pcpus == 6


def test_bubbles_of_spec_programs_are_ratios_to_the_time_alone(tmp_path: Path) -> None:
    dataset = made_up.loaded(spec2017.convert(made_up.spec(tmp_path / "spec")), tmp_path)
    assert metrics(dataset, "1.a", "six-cores") == pytest.approx({
        "solo_runtime_s": 10, "bubble_4mb": 0.8, "bubble_8mb": 0.5,
        "bubble_reporter": 0.75, "bubble_rand_reporter": 0.8, "bubble_stream_reporter": 20 / 27.5,
    })  # fmt: skip
    assert metrics(dataset, "reporter", "six-cores") == pytest.approx({
        "bubble_4mb": 0.75, "bubble_rand_4mb": 0.625, "bubble_stream_4mb": 20 / 24,
    })  # fmt: skip


def test_times_of_both_programs_of_a_run_find_each_other(tmp_path: Path) -> None:
    dataset = made_up.loaded(pitot.convert(made_up.pitot(tmp_path / "pitot")), tmp_path)
    assert ratios(dataset) == {
        ("rt:d1", "s.a+s.b", "1"): [0.5, 0.8],
        ("rt:d1", "s.a+s.b", "2"): [round(100 / 210, 9), round(40 / 55, 9)],
        ("rt:d1", "s.a+s.a", "1"): [round(100 / 150, 9), 0.625],
        ("rt:d2", "s.a+s.b", "1"): [round(60 / 90, 9), None],
    }
    unmeasured = next(c for c in dataset.colocations if c.platform == "rt:d2").outcomes[1]
    assert (unmeasured.instance.workload, unmeasured.solo, unmeasured.colocated) == ("s.b", None, None)


def test_scaling_of_platform_features_is_undone_and_the_absent_left_empty(tmp_path: Path) -> None:
    converted = pitot.convert(made_up.pitot(tmp_path / "pitot"))
    write_whole(converted, tmp_path / "out")
    with (tmp_path / "out" / "platforms.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert float(first["cpu_mhz"]) == pytest.approx(1808, abs=0.5)  # e^7.5
    assert float(first["l2_mb"]) == 1.0  # 2^(21 - 1) bytes
    assert [first[c] for c in ("uarch_x_1", "l2_assoc_6", "runtime_rt")] == ["1", "1", "1"]
    assert float(second["cpu_mhz"]) == pytest.approx(244.7, abs=0.05)
    assert [second[c] for c in ("uarch_x_1", "l2_mb", "l2_assoc_6")] == ["0", "", ""]
    assert not any(mark in name for name in first for mark in "=:-")


def test_op_codes_hold_on_every_platform_and_times_alone_on_theirs(tmp_path: Path) -> None:
    dataset = made_up.loaded(pitot.convert(made_up.pitot(tmp_path / "pitot")), tmp_path)
    assert metrics(dataset, "s.b") == {"op_x0B": 2.5, "op_xFC": 0}
    assert metrics(dataset, "s.a", "rt:d2") == pytest.approx({"solo_runtime_s": 60e-9})


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["s/a", "s/b"]), st.sampled_from(["s/a", "s/b"]), *[st.integers(1, 9)] * 2),
        min_size=1,
        max_size=12,
    )
)
def test_any_order_of_runs_gives_back_every_distinct_run_once(runs: list[tuple[str, str, int, int]]) -> None:
    solo = {"s/a": 100, "s/b": 40}
    rows = [
        ("rt:d1", one, other, time, solo[one])
        for first, second, mine, its in runs
        for one, other, time in ((first, second, mine), (second, first, its))
    ]
    with tempfile.TemporaryDirectory() as folder:
        converted = pitot.convert(made_up.pitot(Path(folder), rows))
    # What of a pair was measured, in the order of names; of a program beside itself, in the order of the file.
    expected = Counter({((a, x), (b, y)) if a <= b else ((b, y), (a, x)) for a, b, x, y in runs})
    by_run = itertools.groupby(converted.colocations, key=lambda row: (row["run"], row["repeat"]))
    found = Counter(
        tuple((str(row["workload"]).replace("s.", "s/"), round(float(row["colocated"]) * 1e9)) for row in group)
        for _, group in by_run
    )
    assert found == expected


def test_jobs_that_did_not_fit_are_no_slowdown(tmp_path: Path) -> None:
    dataset = made_up.loaded(gavel.convert(made_up.gavel(tmp_path / "gavel")), tmp_path)
    assert ratios(dataset) == {
        ("p100", "A3C+Net-9.16", "1"): [0.5, 0.8],
        ("p100", "A3C+Net-9.512", "1"): [0.75, 0.5],
        ("p100", "A3C+Net-9.512", "2"): [0.7, 0.4],
        ("p100", "Net-9.16+Net-9.16", "1"): [0.5, 0.5],
    }
    assert metrics(dataset, "Net-9.512") == {"batch_size": 512, "family_a3c": 0, "family_net_9": 1}
    assert metrics(dataset, "A3C") == {"family_a3c": 1, "family_net_9": 0}
    assert metrics(dataset, "A3C", "p100") == {"solo_steps_per_s": 2}
    assert dataset.platforms["p100"].pcpus == 1


def test_a_job_that_does_not_fit_alone_takes_part_in_nothing(tmp_path: Path) -> None:
    speeds = json.loads(json.dumps(made_up.GAVEL))
    speeds["p100"][made_up.B]["null"] = 0.0
    converted = gavel.convert(made_up.gavel(tmp_path, speeds))
    assert {row["run"] for row in converted.colocations} == {"Net-9.16+Net-9.16"}
    assert "A3C" not in {row["workload"] for row in converted.profiles}


def test_further_gpus_are_converted_when_they_are_named(tmp_path: Path) -> None:
    source = made_up.gavel(tmp_path / "gavel")
    assert main(["gavel", str(source), str(tmp_path / "out"), "--platforms", "k80", "p100"]) == 0
    dataset = load_dataset(tmp_path / "out")
    assert set(dataset.platforms) == {"k80", "p100"}
    assert ratios(dataset)["k80", "Net-9.16+Net-9.16", "1"] == [0.5, 0.5]


JSON = "physical_cluster_throughputs.json"


@pytest.mark.parametrize(
    ("name", "file", "old", "new", "words"),
    [
        ("spec2017", "pairs.csv", "0.9,", "fast,", ["pairs.csv", "line 2", "actual1", "'fast'"]),
        ("spec2017", "pairs.csv", "0.82", "nan", ["pairs.csv", "line 3", "actual1", "finite"]),
        ("spec2017", "pairs.csv", "0.75", "0", ["pairs.csv", "line 4", "actual2", "above 0"]),
        ("spec2017", "pairs.csv", "actual2", "other", ["pairs.csv", "line 1", "actual2", "missing"]),
        ("spec2017", "pairs.csv", "2.b", "2.c", ["contentiousness.csv", "2.c"]),
        ("spec2017", "contentiousness.csv", "2.b", "1.a", ["contentiousness.csv", "line 3", "twice"]),
        ("spec2017", "contentiousness.csv", "20,", "-20,", ["contentiousness.csv", "line 2", "avg", "below 0"]),
        ("spec2017", "sensitivity/1_a.csv", "0,10", "1,10", ["1_a.csv", "footprint_mb 0"]),
        ("spec2017", "sensitivity/1_a.csv", "8,20", "4,20", ["1_a.csv", "line 4", "twice"]),
        ("spec2017", "sensitivity/2_b.csv", "perf", "speed", ["2_b.csv", "line 2", "perf", "missing"]),
        ("spec2017", "reporter_sensitivity.csv", "rand", "other", ["reporter_sensitivity.csv", "rand"]),
        ("pitot", "pairs.csv.gz", "200", "", ["pairs.csv.gz", "line 2", "runtime_ns", "empty"]),
        ("pitot", "pairs.csv.gz", "50,40", "50,41", ["pairs.csv.gz", "line 3", "solo_ns", "solo.csv.gz"]),
        ("pitot", "pairs.csv.gz", "s/b", "s b", ["pairs.csv.gz", "line 2", "neighbour", "'s b'"]),
        ("pitot", "solo.csv.gz", "rt:d2", "rt:d1", ["solo.csv.gz", "line 4", "twice"]),
        ("pitot", "solo.csv.gz", "rt:d2,s/a", "rt:d3,s/b", ["pairs.csv.gz", "line 6", "solo_ns"]),
        ("pitot", "workload_features.csv.gz", "1.5", "-1.5", ["workload_features.csv.gz", "line 2", "op_xFC"]),
        ("pitot", "platform_features.csv.gz", "rt:d2", "rt:d9", ["platform_features.csv.gz", "rt:d2"]),
        ("pitot", "platform_features.csv.gz", "rt:d1,1", "rt:d1,2", ["platform_features.csv.gz", "line 2", "uarch"]),
        ("pitot", "platform_features.csv.gz", "0.5", "2000", ["platform_features.csv.gz", "line 2", "cpufreq"]),
        ("gavel", JSON, "8.0", '"8"', [JSON, "p100", "A3C", "steps per second"]),
        ("gavel", JSON, "8.0", "NaN", [JSON, "p100", "A3C", "steps per second"]),
        ("gavel", JSON, "8.0,", "", [JSON, "p100", "two speeds"]),
        ("gavel", JSON, "8.0,", "8.0", [JSON, "line", "column"]),
        ("gavel", JSON, '"null": 10.0,', "", [JSON, "Net-9", "alone"]),
        ("gavel", JSON, '"p100"', '"h100"', [JSON, "'p100'", "h100"]),
        ("gavel", JSON, "('A3C', 1)\": {", "A3C\": {", [JSON, "'A3C'"]),
    ],
)  # fmt: skip
def test_damaged_sources_are_refused_in_one_sentence_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, file: str, old: str, new: str, words: list[str]
) -> None:
    source = SOURCES[name](tmp_path / "source")
    made_up.damage(source / file, old, new)
    assert main([name, str(source), str(tmp_path / "out")]) == 1
    reported = capsys.readouterr().err.strip()
    assert "\n" not in reported
    assert [word for word in words if word not in reported] == [], reported
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


SOURCES: dict[str, Callable[[Path], Path]] = {"spec2017": made_up.spec, "pitot": made_up.pitot, "gavel": made_up.gavel}


@pytest.mark.parametrize(
    ("name", "file"), [("spec2017", "sensitivity/1_a.csv"), ("pitot", "solo.csv.gz"), ("gavel", JSON)]
)
def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, file: str) -> None:
    source = SOURCES[name](tmp_path / "source")
    (source / file).unlink()
    assert main([name, str(source), str(tmp_path / "out")]) == 1
    assert f"{Path(file).name} cannot be read" in capsys.readouterr().err


def test_a_truncated_archive_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = made_up.pitot(tmp_path / "source")
    packed = (source / "pairs.csv.gz").read_bytes()
    (source / "pairs.csv.gz").write_bytes(packed[:-12])
    assert main(["pitot", str(source), str(tmp_path / "out")]) == 1
    assert "pairs.csv.gz is not a whole gzip file" in capsys.readouterr().err


def everything(folder: Path) -> Path:
    for name, make in (("spec2017-pairs", made_up.spec), ("pitot-wasm-pairs", made_up.pitot)):
        make(folder / name)
    made_up.gavel(folder / "gavel-gpu-pairs")
    return folder


def test_all_converts_every_source_into_a_directory_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["all", str(everything(tmp_path / "in")), str(tmp_path / "out")]) == 0
    names = ["gavel-gpu-pairs", "pitot-wasm-pairs", "spec2017-pairs"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    for name in names:
        dataset = load_dataset(tmp_path / "out" / name)
        assert (dataset.name, dataset.origin, dataset.meta["licence"]) == (name, "measured", "MIT")
    assert "spec2017-pairs: 6 rows in 3 runs, 3 workloads on 1 platforms" in capsys.readouterr().out


def test_one_damaged_source_of_all_leaves_nothing_written(tmp_path: Path) -> None:
    source = everything(tmp_path / "in")
    (source / "gavel-gpu-pairs" / JSON).write_text("{")
    assert main(["all", str(source), str(tmp_path / "out")]) == 1
    assert not (tmp_path / "out").exists()


def test_the_same_source_gives_the_same_bytes_and_replaces_its_earlier_conversion(tmp_path: Path) -> None:
    source, out = made_up.pitot(tmp_path / "source"), tmp_path / "out"
    assert main(["pitot", str(source), str(out)]) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    (out / "profiles.csv").write_text("left from before")
    assert main(["pitot", str(source), str(out)]) == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert set(before) == FILES
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


@pytest.mark.parametrize("what", ["another file beside", "another conversion", "a file", "a link"])
def test_what_is_no_earlier_conversion_of_it_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    source, out = made_up.spec(tmp_path / "source"), tmp_path / "out"
    if what == "a file":
        out.write_text("mine")
    elif what == "a link":
        out.symlink_to(tmp_path / "nowhere")
    else:
        write_whole(spec2017.convert(source), out)
        if what == "another file beside":
            (out / "journal.jsonl").write_text("mine")
        else:
            made_up.damage(out / "dataset.yaml", "name: spec2017-pairs", "name: mine")
    before = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    assert main(["spec2017", str(source), str(out)]) == 1
    assert "name a new directory" in capsys.readouterr().err
    assert (sorted(path.name for path in out.iterdir()) if out.is_dir() else []) == before


def test_a_disk_that_refuses_leaves_the_earlier_conversion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    converted, out = spec2017.convert(made_up.spec(tmp_path / "source")), tmp_path / "out"
    write_whole(converted, out)
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="No space left"):
        write_whole(converted, out)
    assert load_dataset(out).name == "spec2017-pairs"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_an_output_below_a_file_is_reported_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = made_up.spec(tmp_path / "source")
    assert main(["spec2017", str(source), str(source / "pairs.csv" / "out")]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_wrong_usage_ends_with_2() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["unknown", "a", "b"])
    assert ended.value.code == 2


def test_a_job_name_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is not a job type"):
        gavel.convert(made_up.gavel(tmp_path, {"p100": {"('', 1)": {"null": 1.0}}}))
