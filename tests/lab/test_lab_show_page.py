"""The page and the text of `lab show`: one whole file that loads nothing from elsewhere, and tables that fit."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from lab.cli import main
from lab.errors import LabError
from lab.show import DatasetAnalysis, analyse
from lab.show.page import page, write_page
from lab.show.page_model import STEPS, scale, strength
from lab.show.terminal import draw
from lab.statistics import describe
from tests.lab.lab_show_cases import Made, large

NEIGHBOURS = Path(__file__).parents[2] / "datasets" / "lab-neighbours"
VOID = {"meta", "col", "br", "use", "path", "rect"}
SECTIONS = ["pairs", "scores", "groups", "curves", "modes", "time", "noise", "marks", "how"]
HOSTILE = '<script>alert("x")</script>&$\\frac{1}{0}$[red]_'


class Reader(HTMLParser):
    """Collects what a page is made of, and fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> DatasetAnalysis:
    return analyse(large(rounds=3, names=4, triples=30, windows=6).write(tmp_path_factory.mktemp("campaign")))


@pytest.fixture(scope="module")
def text(campaign: DatasetAnalysis) -> str:
    return page(campaign)


@pytest.fixture(scope="module")
def reader(text: str) -> Reader:
    return Reader(text)


def _small() -> Made:
    made = Made()
    made.add("same", ("a", "b"), (0.47, 0.9))
    return made


def _drawn(shown: DatasetAnalysis, width: int, *, everything: bool) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    draw(shown, console, everything=everything)
    return console.export_text()


def test_a_campaign_with_everything_has_every_section(reader: Reader) -> None:
    assert [section["id"] for section in reader.all("section")] == SECTIONS


def test_sections_without_data_are_absent(tmp_path: Path) -> None:
    text = page(analyse(_small().write(tmp_path, only=["colocations"])))
    assert [section["id"] for section in Reader(text).all("section")] == ["pairs", "scores", "noise", "how"]
    assert "one round" in text


def test_every_link_leads_to_a_place_on_the_page(reader: Reader) -> None:
    ids = [attributes["id"] for _, attributes in reader.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    links = [link["href"] for link in reader.all("a")]
    assert links
    assert set(links) <= {f"#{place}" for place in ids}


def test_the_page_asks_no_other_server_for_anything(text: str, reader: Reader) -> None:
    assert not {tag for tag, _ in reader.tags} & {"script", "link", "iframe", "img", "object", "base", "form", "image"}
    sources = [
        value
        for _, attributes in reader.tags
        for name, value in attributes.items()
        if name in ("src", "href", "xlink:href")
    ]
    assert all(source and source.startswith("#") for source in sources)
    assert not re.search(r"https?:|@import|url\((?!#)|\son\w+=", text)


def test_every_picture_has_words_and_a_table_beside_it(reader: Reader) -> None:
    pictures = reader.all("svg")
    assert len(pictures) >= 5
    assert all(picture["role"] == "img" and picture["aria-label"] for picture in pictures)
    assert reader.all("th")
    assert all("scope" in head for head in reader.all("th"))
    regions = [region for region in reader.all("div") if region.get("class") == "scroll"]
    assert all(region["tabindex"] == "0" and region["aria-label"] for region in regions)


def test_pictures_wear_the_colours_of_the_page(text: str) -> None:
    drawn = re.findall(r"<svg .*?</svg>", text, flags=re.DOTALL)
    assert not re.findall(r"(?:fill|stroke): #\w+", "".join(drawn))
    assert "var(--s0)" in "".join(drawn)


def test_cells_of_the_matrix_hold_number_and_interval(reader: Reader, campaign: DatasetAnalysis) -> None:
    cell = campaign.forms["same"].matrix["web-1k"]["web-10k"]
    assert f"{cell.median:.2f}{cell.lower:.2f}–{cell.upper:.2f}" in reader.words


def test_the_scale_is_neutral_around_one_and_worse_the_lower() -> None:
    order = [name for name, _ in scale()]
    strengths = [strength(describe([ratio / 100])) for ratio in range(130)]
    assert [order.index(name) for name in strengths] == sorted(order.index(name) for name in strengths)
    assert ([strengths[100], strengths[20], strengths[120]], len(STEPS)) == (["n", "w5", "b2"], len(order) - 1)


def test_whatever_a_file_says_is_text_on_the_page(tmp_path: Path) -> None:
    made = large(rounds=3, names=4, triples=2, windows=4)
    for index, row in enumerate(made.rows["colocations"]):
        spoiled = list(row)
        for place in (2, 3, 16, *((10,) if row[10] else ())):  # instance, workload, unit, net_mode
            spoiled[place] = f"{HOSTILE}{row[place]}"
        made.rows["colocations"][index] = tuple(spoiled)
    made.rows["runs"] = [(*row[:3], f"{HOSTILE}{row[3]}", *row[4:]) for row in made.rows["runs"]]
    made.write(tmp_path)
    yaml = (tmp_path / "dataset.yaml").read_text(encoding="utf-8")
    (tmp_path / "dataset.yaml").write_text(yaml.replace("none", json.dumps(HOSTILE)), encoding="utf-8")
    shown = analyse(tmp_path)
    text = page(shown)
    reader = Reader(text)
    assert "<script" not in text
    assert reader.words.count(HOSTILE) > 100
    assert "[red]" in _drawn(shown, 200, everything=True)


def test_the_same_dataset_gives_the_same_page(tmp_path: Path) -> None:
    made = _small()
    for cap in (25, 50, 75):
        made.add("same", ("web-1k", f"cpu.cap{cap}"), (1 - cap / 250, 0.95), settings=({}, {"cap": cap}))
    shown = analyse(made.write(tmp_path))
    text = page(shown)
    assert text.count("<svg") > 1
    assert page(shown) == text


def test_a_page_of_a_whole_campaign_stays_small(tmp_path: Path) -> None:
    shown = analyse(large(rounds=3, names=12, triples=60, windows=2).write(tmp_path))
    assert len({score.run for form in shown.forms.values() for score in form.scores}) > 370
    assert len(page(shown).encode()) < 3_000_000


def test_a_full_disk_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, path = analyse(_small().write(tmp_path / "data")), tmp_path / "report.html"
    write_page(shown, path)
    before = path.read_bytes()

    def full(_made: Path, _path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("profiler.files.replace_whole", full)
    with pytest.raises(LabError, match=r"no space left for the report .*: free some and try again"):
        write_page(replace(shown, repeats=99), path)
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["data", "report.html"]


def test_what_is_no_file_is_not_overwritten(tmp_path: Path) -> None:
    shown = analyse(_small().write(tmp_path / "data"))
    with pytest.raises(LabError, match="not a regular file"):
        write_page(shown, tmp_path)


def test_a_folder_that_is_not_there_is_named_before_anything_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = analyse(_small().write(tmp_path / "data"))
    monkeypatch.delattr("lab.show.page.page")
    with pytest.raises(LabError, match=r"cannot be written to .*report\.html: there is no folder .*nowhere$"):
        write_page(shown, tmp_path / "nowhere" / "report.html")


def test_the_shipped_dataset_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.html"
    assert main(["show", str(NEIGHBOURS), "--report", str(path)]) == 0
    assert "report.html: the report of 315 runs in 5 rounds" in capsys.readouterr().out
    words = Reader(path.read_text(encoding="utf-8")).words
    for fact in ("AMD EPYC, 2 CPUs", "37 runs (11.7 %) were disturbed", "keeps 47 % of its throughput", "seed 2012"):
        assert fact in words


def test_json_goes_with_a_report_and_holds_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.html"
    arguments = ["show", str(NEIGHBOURS), "--json", "--report", str(path)]
    assert main([*arguments, "--workloads", "cpu,memory", "--pinning", "same"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["forms"]) == {"same"}
    assert set(document["forms"]["same"]["matrix"]) == {"cpu", "memory"}
    assert path.is_file()


def test_an_unknown_workload_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(NEIGHBOURS), "--workloads", "cqu"]) == 2
    assert "no workload is called 'cqu': there are cpu, disk" in capsys.readouterr().err


def test_a_matrix_of_twelve_fits_a_terminal(tmp_path: Path) -> None:
    shown = analyse(large(rounds=2, names=12, triples=30, windows=0).write(tmp_path))
    lines = _drawn(shown, 140, everything=False).splitlines()
    row = next(line for line in lines if line.startswith("│web-1k "))
    assert len(re.findall(r"\d\.\d\d±\d+", row)) == 12
    assert sum("between them (--all shows them)" in line for line in lines) >= 4
    assert len(lines) < 360


def test_everything_is_printed_when_asked_for(campaign: DatasetAnalysis) -> None:
    text = _drawn(campaign, 160, everything=True)
    assert "--all" not in text
    for score in campaign.forms["same"].scores:
        assert score.members[0] in text
    assert text.count("│ same") >= len([sweep for sweep in campaign.sweeps if sweep.form == "same"])


def test_ratios_that_are_not_learned_are_counted_on_the_terminal() -> None:
    """A cell above 1 + 3 standard errors is the only one of this table; those in blocks have no error to hold it to."""
    shown = analyse(NEIGHBOURS.parent / "lab-pair-settings-xeon-2cpu")
    assert shown.artefacts == {"above_alone": 1, "fine": 125}
    assert "not learned: 1 of 126 ratios, 1 of them above 1 + 3 standard errors and 0 with an error" in text_of(shown)
    assert analyse(NEIGHBOURS).artefacts == {}
    assert "not learned" not in text_of(analyse(NEIGHBOURS))


def text_of(shown: DatasetAnalysis) -> str:
    console = Console(file=io.StringIO(), width=200)
    draw(shown, console)
    return str(console.file.getvalue())  # type: ignore[attr-defined]
