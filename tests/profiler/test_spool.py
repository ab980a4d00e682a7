"""The spool: nothing that was written is lost, nothing broken stops it, its size is bounded, its losses are counted."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.agent.loop import Log
from profiler.agent.spool import SampleBatch, Spool, SpoolError, decode, encode, short
from profiler.collectors.samples import SampleRow

BIG = 10**9
names = st.text("abcXYZ019._:-", min_size=1, max_size=20).filter(lambda name: name not in {".", ".."})
rows = st.builds(
    SampleRow,
    st.none() | names,
    st.sampled_from(["instance", "driver_domain", "host"]),
    st.dictionaries(names, st.floats(0, 1e15), min_size=1, max_size=5),
)
batches = st.builds(SampleBatch, names, st.just("2026-01-31T12:00:00.000Z"), st.lists(rows, max_size=5).map(tuple))


def batch(number: int, samples: int = 1) -> SampleBatch:
    values = {f"m{position}": float(number) for position in range(samples)}
    return SampleBatch("h", "2026-01-31T12:00:00.000Z", (SampleRow("a", "instance", values),))


def number_of(spooled: SampleBatch | None) -> float:
    assert spooled is not None
    return spooled.rows[0].values["m0"]


@contextlib.contextmanager
def opened(directory: Path, most_bytes: int = BIG, log: Log | None = None) -> Iterator[Spool]:
    spool = Spool(directory, most_bytes, log or Log(io.StringIO()))
    try:
        yield spool
    finally:
        spool.close()


def put(spool: Spool, *numbers: int) -> bool:
    for number in numbers:
        spool.put(batch(number))
    return spool.store()


def waiting(spool: Spool) -> list[float]:
    return [number_of(spool.read(entry)) for entry in spool.oldest(BIG)]


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with opened(tmp_path) as empty:
        yield empty


@given(batches, st.data())
def test_a_batch_comes_back_as_it_was_or_is_refused_where_it_is_damaged(
    original: SampleBatch, data: st.DataObject
) -> None:
    whole = encode(original)
    assert decode(whole) == original
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(ValueError):
        decode(cut)
    position = data.draw(st.integers(0, len(whole) - 1))
    flipped = whole[:position] + bytes([whole[position] ^ data.draw(st.integers(1, 255))]) + whole[position + 1 :]
    with contextlib.suppress(ValueError):  # gzip's header has bytes that do not matter
        decode(flipped)


DOCUMENT = '{"version": 1, "host": "h", "time": "2026-01-31T12:00:00.000Z", "rows": [%s]}'


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        "null",
        "[" * 100_000,
        '{"version": 2}',
        '{"version": 1, "host": "h", "time": 5, "rows": []}',
        '{"version": 1, "host": "h", "time": "2026-01-31 12:00:00", "rows": []}',
        '{"version": 1, "host": "h h", "time": "2026-01-31T12:00:00.000Z", "rows": []}',
        DOCUMENT % '["a", "nowhere", {}]',
        DOCUMENT % '["a b", "instance", {}]',
        DOCUMENT % '["a", "instance", {"cpu": NaN}]',
        DOCUMENT % '["a", "instance", {"cpu": 1e9999}]',
        DOCUMENT % '["a", "instance", {"cpu": true}]',
        DOCUMENT % '["a", "instance", [1]]',
        DOCUMENT % f'["a", "instance", {{"cpu": 1{"0" * 400}}}]',
    ],
    ids=lambda text: text[:20] + text[-30:],
)
def test_json_that_is_no_batch_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode(gzip.compress(text.encode()))


def test_batches_wait_in_order_until_they_are_acknowledged(spool: Spool) -> None:
    assert put(spool, 1, 2, 3)
    assert waiting(spool) == [1, 2, 3]
    spool.acknowledge(spool.oldest(BIG)[:2])
    assert waiting(spool) == [3]
    assert spool.status().batches == 1


def test_an_answer_holds_as_many_batches_as_fit_and_at_least_one(spool: Spool) -> None:
    for _ in range(3):
        spool.put(batch(1, samples=10))
    spool.store()
    assert [len(spool.oldest(most)) for most in (0, 10, 19, 20, 100)] == [1, 1, 1, 2, 3]


def test_what_was_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        with opened(tmp_path) as spool:
            put(spool, number)
            assert waiting(spool) == list(range(1, number + 1))


def test_a_full_spool_drops_the_oldest_and_the_count_survives_a_restart(tmp_path: Path) -> None:
    size = len(encode(batch(1)))
    most = 4 * size + size // 2
    with opened(tmp_path, most) as spool:
        put(spool, *range(10))
        assert waiting(spool) == [6, 7, 8, 9]
        assert spool.status().dropped_batches == 6
    with opened(tmp_path, most) as spool:
        put(spool, 10)
        status = spool.status()
        assert (status.dropped_batches, status.dropped_samples) == (7, 7)
        assert status.bytes <= most


def test_a_batch_larger_than_the_spool_is_dropped_alone(tmp_path: Path) -> None:
    with opened(tmp_path, len(encode(batch(1))) + 10) as spool:
        put(spool, 1)
        spool.put(batch(2, samples=1000))
        spool.store()
        assert waiting(spool) == [1]
        assert spool.status().dropped_samples == 1000


def test_broken_and_foreign_files_are_put_aside_and_counted(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        put(spool, 1, 2, 3)
        broken = spool.oldest(BIG)[1]
    (tmp_path / broken.name).write_bytes(b"\x1f\x8b not gzip")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / f"{broken.name}.tmp").write_bytes(b"half")
    (tmp_path / "folder").mkdir()
    with opened(tmp_path) as spool:
        assert [spool.read(entry) is None for entry in spool.oldest(BIG)] == [False, True, False]
        assert waiting(spool) == [1, 3]
        assert spool.status().broken == 2
    left = {path.name for path in tmp_path.iterdir()}
    assert {f"{broken.name}.bad", "notes.txt.bad", "folder"} <= left
    assert f"{broken.name}.tmp" not in left
    with opened(tmp_path) as spool:
        assert spool.status().broken == 2


def test_a_refused_batch_is_kept_aside_and_not_sent_again(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        put(spool, 1, 2)
        spool.refuse(spool.oldest(BIG)[0])
        assert waiting(spool) == [2]
        assert spool.status().refused == 1
    with opened(tmp_path) as spool:
        assert waiting(spool) == [2]
    assert len(list(tmp_path.glob("*.refused"))) == 1


def test_nothing_that_was_put_aside_is_written_over(tmp_path: Path) -> None:
    for number in (1, 2, 3):  # the spool is empty at each start
        with opened(tmp_path) as spool:
            put(spool, number)
            spool.refuse(spool.oldest(0)[0])
        (tmp_path / "notes.txt").write_text(f"note {number}")
    with opened(tmp_path):
        refused = [decode(path.read_bytes()) for path in sorted(tmp_path.glob("*.refused"))]
    assert [number_of(spooled) for spooled in refused] == [1, 2, 3]
    assert sorted(path.read_text() for path in tmp_path.glob("notes*")) == ["note 1", "note 2", "note 3"]


@pytest.mark.parametrize("digits", [12, 13, 200])  # 12 nines are the highest number that the agent itself gives
def test_after_numbers_of_any_length_batches_still_wait_in_order_through_restarts(tmp_path: Path, digits: int) -> None:
    for number in (7, 8, 9):
        (tmp_path / f"{'9' * (digits - 1)}{number}-1.json.gz").write_bytes(encode(batch(number)))
    for number in (10, 11, 12):
        with opened(tmp_path) as spool:
            put(spool, number)
            assert waiting(spool) == list(range(7, number + 1))
            assert spool.status().broken == 0


@pytest.mark.parametrize("name", ["000000000001-01", "0000000000001-1", "00000000000１-1"])
def test_a_name_that_no_agent_gives_is_no_batch(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.json.gz").write_bytes(encode(batch(1)))
    with opened(tmp_path) as spool:
        assert (waiting(spool), spool.status().broken) == ([], 1)
    assert (tmp_path / f"{name}.json.gz.bad").exists()


def test_what_was_put_aside_does_not_grow_without_end(spool: Spool, tmp_path: Path) -> None:
    for number in range(130):
        put(spool, number)
        spool.refuse(spool.oldest(0)[0])
    assert len(list(tmp_path.glob("*.refused"))) == 100


def test_a_batch_that_was_removed_is_not_sent_and_not_waited_for(spool: Spool, tmp_path: Path) -> None:
    put(spool, 1, 2)
    gone = spool.oldest(BIG)[0]
    (tmp_path / gone.name).unlink()
    assert spool.read(gone) is None
    assert waiting(spool) == [2]


def test_two_agents_on_one_spool_are_refused(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(SpoolError, match="in use by another agent"), opened(tmp_path):
        pass
    with opened(tmp_path) as spool:
        assert put(spool, 1)


@pytest.mark.parametrize("where", ["/proc/nowhere/spool", "/dev/null/spool"])
def test_a_spool_that_cannot_be_written_is_one_sentence(where: str) -> None:
    with pytest.raises(SpoolError, match=r"cannot be written .*--spool"), opened(Path(where)):
        pass


def test_damaged_counts_start_at_zero(tmp_path: Path) -> None:
    (tmp_path / "counts.json").write_text('{"dropped_batches": "many"')
    with opened(tmp_path) as spool:
        assert spool.status().dropped_batches == 0


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("needs root: it mounts a tmpfs of 1 MB")
    where = tmp_path / "disk"
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(where)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs to mount a tmpfs, which is not allowed here")
    yield where
    subprocess.run(["umount", "--lazy", str(where)], check=True)


def test_a_full_disk_keeps_the_newest_in_memory_and_writes_them_when_there_is_room(tiny_disk: Path) -> None:
    said = io.StringIO()
    with opened(tiny_disk / "spool", log=Log(said)) as spool:
        put(spool, 1)
        filler = tiny_disk / "filler"
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(b"x" * 4096)
        assert not put(spool, 2, 3)
        assert (spool.status().batches, spool.status().held) == (1, 2)
        assert waiting(spool) == [1, 2, 3], "what is in memory can be sent, too"
        assert not put(spool, *range(4, 70))
        status = spool.status()
        assert (status.held, status.dropped_batches, status.dropped_samples) == (60, 8, 8)
        assert status.write_failures > 0
        assert "No space left" in said.getvalue()
        filler.unlink()
        assert put(spool, 70)
        assert spool.status().held == 0
        assert waiting(spool) == [1, *range(10, 71)]
    assert not list((tiny_disk / "spool").glob("*.tmp"))


def test_a_hung_disk_bounds_what_waits_in_memory(spool: Spool) -> None:
    for number in range(100):  # no thread calls store
        spool.put(batch(number))
    assert spool.status().held == 60
    spool.store()
    assert waiting(spool) == list(range(40, 100))
    assert spool.status().dropped_batches == 40


def test_a_day_of_windows_waits_and_leaves_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)  # 1440 of them would only test this disk's patience
    day = 24 * 3600 // 60
    with opened(tmp_path) as spool:
        for number in range(day):
            put(spool, number)
    with opened(tmp_path) as spool:
        assert spool.status().batches == day
        sent: list[float] = []
        while entries := spool.oldest(1000):
            sent += [number_of(spool.read(entry)) for entry in entries]
            spool.acknowledge(entries)
        assert sent == list(range(day))
        assert spool.status().bytes == 0


def test_a_copied_file_with_a_number_that_is_taken_is_put_aside(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        put(spool, 1)
        name = spool.oldest(0)[0].name
    (tmp_path / name.replace("-1.", "-2.")).write_bytes((tmp_path / name).read_bytes())
    with opened(tmp_path) as spool:
        assert waiting(spool) == [1]
        assert spool.status().broken == 1


def test_a_lack_of_open_files_breaks_no_batch(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    put(spool, 1)

    def refuse(_path: Path) -> bytes:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="Too many"):
        patched.setattr(Path, "read_bytes", refuse)
        spool.read(spool.oldest(0)[0])
    assert waiting(spool) == [1]
    assert spool.status().broken == 0


@pytest.mark.parametrize(
    ("metric", "value", "sent"),
    [
        ("cpu", 61.5432, 61.5),
        ("cpu", 0.012345, 0.01),
        ("cpu", 1234.5, 1230.0),
        ("cpu_p95", 61.5432, 62.0),
        ("run_queue_p99_us", 1234.5, 1200.0),
        ("execution", 0.44, 0.4),
        ("available_mb", 90_123.4, 90_100.0),
        ("net_mbit", 0.0049, 0.0),
        ("net_mbit", 2.3456, 2.35),
        ("sessions.open", 0.00012345, 0.000123),
        ("cpi", 1.23456, 1.23),
    ],
)
def test_values_are_sent_with_the_digits_that_matter(metric: str, value: float, sent: float) -> None:
    assert short(value, metric) == sent
