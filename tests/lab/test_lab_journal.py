"""The journal on disk: nothing finished is lost, nothing torn or foreign is taken for a finished run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.campaign import Campaign
from lab.cli import main
from lab.errors import LabError
from lab.journal import Journal
from lab.records import Record, RunConditions
from lab.schedule import expand
from tests.examples import examples
from tests.lab.lab_commands import TINY
from tests.lab.lab_records import one_round, record


def _journal(directory: Path, campaign: Campaign, *records: Record) -> Journal:
    journal = Journal(directory, campaign)
    for finished in records:
        journal.append(finished)
    return journal


def test_finished_runs_come_back_with_everything_about_them(tmp_path: Path, campaign: Campaign) -> None:
    around = RunConditions("2026-01-01T00:00:00.000+00:00", 0.5, "abc", 3)
    runs = expand(campaign)
    records = [record(campaign, run, 1, windows=[1.0, 2.5, 3.0], unsteady=("web-1k.1",), around=around) for run in runs]
    _journal(tmp_path, campaign, *records)
    again = Journal(tmp_path, campaign)
    assert again.records == records
    assert again.done() == {(run.run, 1) for run in runs}
    assert again.records[0].members[0].further == {"retransmits": (7.0, "1/s")}


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_last_line_is_a_run_that_did_not_finish(tmp_path: Path, campaign: Campaign, cut: int) -> None:
    first, second, *_ = one_round(campaign, 1)
    journal = _journal(tmp_path, campaign, first, second)
    journal.path.write_bytes(journal.path.read_bytes()[:-cut])
    again = Journal(tmp_path, campaign)
    assert again.records == [first]
    again.append(second)
    assert Journal(tmp_path, campaign).records == [first, second]


def test_runs_of_a_changed_campaign_are_not_mixed_in(tmp_path: Path, campaign: Campaign) -> None:
    _journal(tmp_path, campaign, one_round(campaign, 1)[0])
    with pytest.raises(LabError, match=r"1 runs of another or a changed campaign: .*--dataset.*--fresh"):
        Journal(tmp_path, replace(campaign, fingerprint="other"))


def test_starting_anew_keeps_the_old_journal_under_another_name(tmp_path: Path, campaign: Campaign) -> None:
    _journal(tmp_path, campaign, one_round(campaign, 1)[0])
    assert Journal(tmp_path, campaign, fresh=True).records == []
    assert len(list(tmp_path.glob("*.old"))) == 1


def test_only_disturbed_runs_are_forgotten_to_be_measured_again(tmp_path: Path, campaign: Campaign) -> None:
    quiet, *noisy = one_round(campaign, 1)
    _journal(tmp_path, campaign, quiet, *(replace(finished, disturbed=True) for finished in noisy))
    again = Journal(tmp_path, campaign, again=True)
    assert again.records == [quiet]
    assert again.measured_again == len(noisy)
    later = Journal(tmp_path, campaign)
    assert (later.records, later.measured_again) == ([quiet], len(noisy))


def test_calibrations_stay_because_other_runs_were_made_from_them(tmp_path: Path, campaign: Campaign) -> None:
    calibration = replace(one_round(campaign, 0)[0], kind="calibration", disturbed=True)
    _journal(tmp_path, campaign, calibration, replace(one_round(campaign, 1)[0], disturbed=True))
    again = Journal(tmp_path, campaign, again=True)
    assert (again.records, again.measured_again) == ([calibration], 1)


def test_a_dry_run_counts_what_would_be_measured_again(
    tmp_path: Path, campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    _journal(tmp_path, campaign, *(replace(finished, disturbed=True) for finished in one_round(campaign, 1)))
    counts = []
    for more in ([], ["--again-disturbed"]):
        assert main(["run", str(TINY), "--dataset", str(tmp_path), "--dry-run", "--json", *more]) == 0
        counts.append(json.loads(capsys.readouterr().out)["finished"])
    assert counts == [5, 0]


def test_notes_are_kept_beside_runs_each_once(tmp_path: Path, campaign: Campaign) -> None:
    journal = Journal(tmp_path, campaign)
    journal.note("qdisc", {"digest": "a", "text": "htb"})
    journal.append(one_round(campaign, 1)[0])
    journal.note("qdisc", {"digest": "a", "text": "htb"})
    journal.note("qdisc", {"digest": "b", "text": "fifo"})
    again = Journal(tmp_path, campaign)
    assert [fact["digest"] for fact in again.facts("qdisc")] == ["a", "b"]
    assert len(again.records) == 1
    assert again.path.read_text(encoding="utf-8").count("\n") == 1 + 1 + 2
    assert Journal(tmp_path, campaign, again=True).facts("qdisc") == again.facts("qdisc")


def test_a_journal_of_an_older_format_is_refused_with_what_to_do(tmp_path: Path, campaign: Campaign) -> None:
    journal = _journal(tmp_path, campaign, one_round(campaign, 1)[0])
    journal.path.write_text(journal.path.read_text().replace('"journal":2', '"journal":1'))
    with pytest.raises(LabError, match=r"1 runs in another format than 2, .*--dataset.*--fresh"):
        Journal(tmp_path, campaign)


entries = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)


@settings(max_examples=examples(200))
@given(st.data(), entries)
def test_a_damaged_journal_is_refused_by_name(
    tmp_path: Path, campaign: Campaign, data: st.DataObject, value: object
) -> None:
    (tmp_path / "journal.jsonl").unlink(missing_ok=True)  # of the example before
    journal = Journal(tmp_path, campaign)
    entry = one_round(campaign, 1)[0].entry()
    entry[data.draw(st.sampled_from(sorted(entry)))] = value
    line = data.draw(st.sampled_from([json.dumps(entry), json.dumps(value), "{", "[[" * 50_000]))
    journal.path.write_text(f"{journal.path.read_text()}{line}\n", encoding="utf-8")
    try:
        assert len(Journal(tmp_path, campaign).done()) <= 1
    except LabError as error:
        assert str(journal.path) in str(error)
