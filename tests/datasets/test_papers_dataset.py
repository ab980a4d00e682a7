"""Holds datasets/papers against the dataset format, against the texts of the four papers and against its own sums."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DATASET = ROOT / "datasets" / "papers"
# The papers are copyrighted and therefore not part of the repository; who has them keeps them beside it.
PAPERS = ROOT.parent / "shared" / "papers"

Row = dict[str, str]

FINDINGS = [*(f"N{i}" for i in range(1, 16)), *(f"E{i}" for i in range(1, 7)), *(f"L{i}" for i in range(1, 11)),
            *(f"C{i}" for i in range(1, 6))]  # fmt: skip
TABLES = ("platforms", "profiles", "colocations", "statements", "findings")
NUMERIC_RELATIONS = {"=", "~", "<", ">", "<=", ">="}
# Quantities that the papers write as words.
WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "nine": 9, "entire": 1, "half": 50, "twice": 2,
         "double": 2, "doubled": 2, "magnitude": 10, "same": 100, "full": 100}  # fmt: skip
# The text of this paper has no headings: where each part of it begins.
LATENCY_PARTS = [
    ("Abstract", 1, "Cloud computing platforms enable users"),
    ("§1", 1, "Cloud computing has emerged as a new"),
    ("§2", 1, "To better understand the efficacy of"),
    ("§3", 1, "In this section, we empirically evaluate"),
    ("§3 methodology", 2, "Microbenchmarks and Methodology"),
    ("§3 CPU", 2, "Figure 2 depicts the times"),
    ("§3 disk", 2, "The results of our disk microbenchmarks"),
    ("§3 network", 2, "Network microbenchmarks."),
    ("§4", 1, "Given the performance results from our"),
    ("§4 CPU", 2, "Consider a multi-core physical server"),
    ("§4 disk", 2, "A typical cloud server will consist"),
    ("§4 network", 2, "As with disk bandwidth, Xen has"),
    ("§5", 1, "While our previous results used"),
    ("§5 game server", 2, "Many types of computer games"),
    ("§5 streaming server", 2, "Our second case study"),
    ("§6", 1, "The importance of predictable resource"),
    ("§7", 1, "Motivated by the increasing popularity"),
    ("Acknowledgments", 1, "We thank David Irwin"),
]


def read(folder: Path, table: str) -> list[Row]:
    """Rows of one table of a dataset directory."""
    with (folder / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return [dict(row) for row in csv.DictReader(file, strict=True)]


def description(folder: Path = DATASET) -> Mapping[str, object]:
    """The dataset's dataset.yaml."""
    loaded = yaml.safe_load((folder / "dataset.yaml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def normalise(text: str) -> str:
    """Text without markup, thousands separators and line breaks, so that a figure reads the same everywhere."""
    text = re.sub(r"\\text\{\s*([^}]*?)\s*\}", r" \1", text)
    text = text.replace(r"\approx", "≈").replace(r"\times", "×").replace(r"\%", "%")
    text = re.sub(r"\$|\*|`|</?i>", "", text).replace("–", "-")
    text = text.translate(str.maketrans("“”", '""'))
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    return re.sub(r"\s+", " ", text)


def contains(text: str, fragment: str) -> bool:
    """Whether the normalised text has the fragment, a figure only as a whole (`55` is not in `1.55` or `550`)."""
    wanted = normalise(fragment).strip()
    before = r"(?<!\d)(?<!\d\.)" if wanted[:1].isdigit() else ""
    after = r"(?!\d|\.\d)" if wanted[-1:].isdigit() else ""
    return re.search(before + re.escape(wanted) + after, text) is not None


def figures(text: str) -> set[float]:
    """Every number of a printed fragment, in digits or as one of the words above."""
    plain = normalise(text)
    found = {float(digits) for digits in re.findall(r"\d+(?:\.\d+)?", plain)}
    return found | {float(WORDS[word]) for word in re.findall(r"[a-z]+", plain.lower()) if word in WORDS}


@dataclass(frozen=True)
class Paper:
    """A paper's text with the span of each of its sections and tables."""

    raw: str
    spans: Mapping[str, tuple[int, int]]

    @classmethod
    def of(cls, raw: str, parts: list[tuple[str, int, str]] | None = None) -> Paper:
        """Find the parts of a text by the phrases they begin with or, without these, by its headings and tables."""
        marks = list(_headings(raw)) if parts is None else [(name, level, raw.index(at)) for name, level, at in parts]
        assert [mark[2] for mark in marks] == sorted(mark[2] for mark in marks)
        spans = {}
        for position, (name, level, start) in enumerate(marks):
            following = (other[2] for other in marks[position + 1 :] if other[1] <= level)
            spans[name] = (start, next(following, len(raw)))
        # A table is its caption, an empty line and its rows up to the next empty line.
        for table in re.finditer(r"^TABLE ([\dIVX]+).*?\n\n.*?\n\n", raw, re.MULTILINE | re.DOTALL):
            spans[f"Table {table[1]}"] = table.span()
        return cls(raw, spans)

    def part(self, name: str, workload: str = "") -> str:
        """Text of one section (with its subsections) or table; of a table only the workload's row, where it has one."""
        start, end = self.spans[name]
        text = self.raw[start:end]
        label = re.sub(r"web-(\d+)k", r"\1 KB", workload)
        line = re.search(rf"^{label}\t.*$", text, re.MULTILINE) if label and name.startswith("Table") else None
        return normalise(line[0] if line else text)


def _headings(raw: str) -> Iterator[tuple[str, int, int]]:
    """Name, level and position of every heading: `3.4 Initial`, `V. BANDWIDTH`, `A. Bandwidth`, the ends of a paper."""
    roman = ""
    for line in re.finditer(r"^[^\t\n]{1,90}$|^Abstract.*$", raw, re.MULTILINE):
        text = line[0]
        if text.startswith("Abstract"):
            yield "Abstract", 1, line.start()
        elif re.fullmatch(r"ACKNOWLEDGMENTS?|REFERENCES", text):
            yield text.title(), 1, line.start()
        elif found := re.match(r"(\d+(?:\.\d+)*) [A-Z]", text):
            yield f"§{found[1]}", found[1].count(".") + 1, line.start()
        elif found := re.match(r"([IVX]+)\. [A-Z ]+$", text):
            roman = found[1]
            yield f"§{roman}", 1, line.start()
        elif roman and (found := re.match(r"([A-Z])\. [A-Z][a-z]", text)):
            yield f"§{roman}-{found[1]}", 2, line.start()


def load_papers(folder: Path) -> dict[str, Paper]:
    """All papers by short name."""
    texts = {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.txt"))}
    return {
        name: Paper.of(raw, LATENCY_PARTS if name == "latency-sensitive-cloud-2010" else None)
        for name, raw in texts.items()
    }


def fragments(cell: str) -> list[str]:
    """The printed fragments of a cell, which stand apart by a semicolon."""
    return [part.strip() for part in cell.split(";") if part.strip()]


def places(where: str) -> list[str]:
    """Sections and tables that a `where` names; what follows a comma is explanation."""
    return [part.split(",")[0].strip() for part in where.split(";")]


def expected(solo: float, derived: str) -> tuple[float, float]:
    """What a printed percentage, factor or ratio of shares makes of the solo value, and the figure it rests on."""
    if found := re.fullmatch(r"([+-]?)(\d+(?:\.\d+)?)%", derived):
        share = float(found[2])
        factor = {"": share, "+": 100 + share, "-": 100 - share}[found[1]] / 100
        return solo * factor, share
    if found := re.fullmatch(r"x(\d+)", derived):
        return solo * float(found[1]), float(found[1])
    if found := re.fullmatch(r"(\d+):(\d+)", derived):
        first, second = float(found[1]), float(found[2])
        return solo * first / (first + second), max(first, second) - 100
    raise ValueError(f"derived {derived!r} is no percentage, factor or ratio")


def own_problems(table: str, row: Row) -> list[str]:
    """What contradicts itself within a row: its numbers against its own printed fragments."""
    found = []
    printed = figures(row["printed"] or row.get("value", ""))
    if table == "profiles" and float(row["value"]) not in printed:
        found.append(f"value {row['value']} is not in printed")
    if table == "statements":
        cells = ["low", "high"] if row["relation"] == "range" else ["value"]
        if row["relation"] in NUMERIC_RELATIONS | {"range"}:
            found += [f"{cell} {row[cell]} is not in printed" for cell in cells if float(row[cell]) not in printed]
        if row["relation"] == "range" and float(row["low"]) >= float(row["high"]):
            found.append("low is not below high")
    if table == "colocations":
        by_definition = row["unit"] == "% of solo"
        if by_definition and row["solo"] != "100":
            found.append("solo in % of solo is not 100")
        if row["solo"] and not by_definition and float(row["solo"]) not in printed:
            found.append(f"solo {row['solo']} is not in printed")
        if row["derived"]:
            value, figure = expected(float(row["solo"]), row["derived"])
            if figure not in printed:
                found.append(f"derived {row['derived']} is not in printed")
            if round(value, len(row["colocated"].partition(".")[2])) != float(row["colocated"]):
                found.append(f"colocated {row['colocated']} is not {value:g}")
        elif row["colocated"] and float(row["colocated"]) not in printed:
            found.append(f"colocated {row['colocated']} is not in printed")
    return found


def text_problems(row: Row, paper: Paper) -> list[str]:
    """Which printed fragments are not in the named places of the paper, and which places have none of them."""
    found = []
    wanted = fragments(row["printed"]) or [row["value"]]
    named = places(row["where"])
    if unknown := [place for place in named if place not in paper.spans]:
        return [f"the paper has no {place}" for place in unknown]
    texts = [paper.part(place, row.get("workload", "")) for place in named]
    found += [f"{part!r} is not in {named}" for part in wanted if not any(contains(text, part) for text in texts)]
    found += [
        f"nothing of it is in {place}"
        for place, text in zip(named, texts, strict=True)
        if not any(contains(text, part) for part in wanted)
    ]
    return found


def problems(folder: Path, papers: Mapping[str, Paper] | None) -> list[str]:
    """Every contradiction in a dataset directory, by file and line; without papers only what rows say of themselves."""
    found = []
    for table in ("platforms", "profiles", "colocations", "statements"):
        for line, row in enumerate(read(folder, table), start=2):
            wrong = own_problems(table, row)
            if papers is not None:
                wrong += text_problems(row, papers[row["paper"]])
            found += [f"{table}.csv line {line}: {text}" for text in wrong]
    return found


@pytest.fixture(scope="module")
def papers() -> dict[str, Paper]:
    if not PAPERS.is_dir():
        pytest.skip("the papers' texts are not beside this repository (../shared/papers)")
    return load_papers(PAPERS)


# 1. Format, as far as loading the dataset does not check it (tests/models/test_models_dataset.py)


def test_the_description_names_the_dataset_and_its_sources() -> None:
    about = description()
    assert about["name"] == "papers"
    assert about["origin"] == "paper"
    assert all(about[key] for key in ("licence", "machine", "kernel", "date", "notes"))
    sources = about["sources"]
    assert isinstance(sources, dict)
    assert sorted(sources) == ["cloudstack-network-2016", "ec2-network-2010", "latency-sensitive-cloud-2010",
                               "who-is-your-neighbor-2012"]  # fmt: skip
    assert all(set(source) == {"title", "authors", "venue", "year"} for source in sources.values())


def test_every_platform_paper_and_finding_is_known() -> None:
    platforms = {row["platform"] for row in read(DATASET, "platforms")}
    sources = description()["sources"]
    assert isinstance(sources, dict)
    for table in TABLES:
        for line, row in enumerate(read(DATASET, table), start=2):
            assert row["paper"] in sources, f"{table}.csv line {line}"
            assert row.get("platform", "") in platforms | {""}, f"{table}.csv line {line}"
            assert row.get("finding", "N1") in FINDINGS, f"{table}.csv line {line}"


def test_every_finding_has_a_title_and_at_least_one_row() -> None:
    assert [row["finding"] for row in read(DATASET, "findings")] == FINDINGS
    assert all(len(row["summary"]) < 140 for row in read(DATASET, "findings"))
    rows = [row for table in ("profiles", "colocations", "statements") for row in read(DATASET, table)]
    assert {row["finding"] for row in rows} == set(FINDINGS)


def test_no_row_stands_twice() -> None:
    keys = {
        "profiles": ["platform", "workload", "load", "scope", "metric", "repeat"],
        "statements": ["finding", "statement"],
    }
    for table, key in keys.items():
        seen = [tuple(row[column] for column in key) for row in read(DATASET, table)]
        assert len(seen) == len(set(seen)), table


def test_every_run_stays_on_one_host_and_has_an_outcome() -> None:
    rows = read(DATASET, "colocations")
    for run in {row["run"] for row in rows}:
        together = [row for row in rows if row["run"] == run]
        circumstances = {(row["platform"], row["driver_cpus"], row["outcome"], row["finding"]) for row in together}
        assert len(circumstances) == 1, run
        assert any(row["solo"] and row["colocated"] for row in together), run


def test_printed_holds_figures_and_a_few_words_never_sentences() -> None:
    for table in ("platforms", "profiles", "colocations", "statements"):
        for line, row in enumerate(read(DATASET, table), start=2):
            assert all(len(part) <= 40 for part in fragments(row["printed"])), f"{table}.csv line {line}"


def test_statements_fill_the_cells_that_their_relation_needs() -> None:
    for row in read(DATASET, "statements"):
        name = f"{row['finding']} {row['statement']}"
        assert row["role"] in {"finding", "method"}, name
        assert re.fullmatch(r"[a-z0-9_]+", row["quantity"]), name
        if row["relation"] in NUMERIC_RELATIONS:
            assert re.fullmatch(r"\d+(\.\d+)?", row["value"]), name
            assert row["unit"], name
        elif row["relation"] == "range":
            assert row["low"], name
            assert row["high"], name
            assert row["unit"], name
        elif row["relation"] == "order":
            assert re.fullmatch(r"[a-z0-9+-]+([>,][a-z0-9+-]+)+", row["value"]), name
        elif row["relation"] == "direction":
            assert row["value"] in {"up", "down", "flat"}, name
        else:
            assert row["relation"] == "fact", name
            assert row["value"], name


# 2. The figures in the papers


def test_every_row_agrees_with_its_own_printed_figures() -> None:
    assert problems(DATASET, None) == []


def test_every_printed_figure_is_in_its_section_of_its_paper(papers: dict[str, Paper]) -> None:
    assert problems(DATASET, papers) == []


def test_every_finding_names_sections_that_exist(papers: dict[str, Paper]) -> None:
    for row in read(DATASET, "findings"):
        assert set(places(row["where"])) <= set(papers[row["paper"]].spans), row["finding"]


def table_rows(paper: Paper, name: str) -> list[list[str]]:
    """Cells of a printed table, row by row, without its caption."""
    start, end = paper.spans[name]
    return [line.split("\t") for line in paper.raw[start:end].splitlines() if "\t" in line]


def test_tables_2_and_3_are_copied_whole_and_nothing_stands_in_the_wrong_cell(papers: dict[str, Paper]) -> None:
    neighbor = papers["who-is-your-neighbor-2012"]
    columns = {
        "Table 2": ["instance throughput_rps", "instance throughput_kb_s", "instance response_ms", "host cpu"],
        "Table 3": ["host cpu", "host event", "host switch", "host pages_per_execution",
                    *(f"{scope} {metric}" for scope in ("driver_domain", "instance")
                      for metric in ("cpu", "waiting", "block"))],
    }  # fmt: skip
    printed = {
        (f"web-{row[0].removesuffix(' KB')}k", name): cell
        for table, names in columns.items()
        for row in table_rows(neighbor, table)
        if row[0].endswith(" KB")
        for name, cell in zip(names, row[-len(names) :], strict=True)
    }
    kept = {
        (row["workload"], f"{row['scope']} {row['metric']}"): row["value"]
        for row in read(DATASET, "profiles")
        if row["platform"] == "neighbor-1"
    }
    assert len(printed) == 7 * 13
    assert kept == printed


def test_table_1_gives_the_platforms_in_the_units_of_the_format(papers: dict[str, Paper]) -> None:
    table = {row[0]: row[1:] for row in table_rows(papers["who-is-your-neighbor-2012"], "Table 1")}
    scales = {"pcpus": ("Cores", 1), "cpu_mhz": ("CPU Freq. (GHz)", 1000), "l1_kb": ("L1 Cache (KB)", 1),
              "l2_mb": ("L2 Cache (MB)", 1), "memory_mb": ("Memory (GB)", 1024), "disk_gb": ("DISK (GB)", 1),
              "nic_mbit": ("NIC (Mbit/s)", 1), "mtu_bytes": ("MTU (Byte)", 1)}  # fmt: skip
    kept = {row["platform"]: row for row in read(DATASET, "platforms")}
    for number in (1, 2, 3):
        for column, (label, scale) in scales.items():
            assert float(kept[f"neighbor-{number}"][column]) == float(table[label][number - 1]) * scale


def test_table_4_gives_the_cpus_that_each_pinned_run_uses(papers: dict[str, Paper]) -> None:
    rows = table_rows(papers["who-is-your-neighbor-2012"], "Table 4")[1:]
    printed = {"".join(re.findall(r"\d", row[3])): int(row[2]) for row in rows}
    kept: dict[str, set[int]] = {name: set() for name in printed}
    for row in read(DATASET, "colocations"):
        if found := re.match(r"neighbor-3-pin-(\d)-(\d)-(\d)-", row["run"]):
            driver = cpu_set(row["driver_cpus"])
            guest = cpu_set(row["pinning"].removeprefix("0:"))
            assert (len(driver), len(guest)) == (int(found[1]), int(found[2]))
            assert not driver & guest
            kept["".join(found.groups())] |= driver | guest
    assert {name: len(cpus) for name, cpus in kept.items()} == printed


def cpu_set(text: str) -> set[int]:
    """CPU numbers of a single number or range."""
    first, _, last = text.partition("-")
    return set(range(int(first), int(last or first) + 1))


# 3. Sums


def cells_of_table_3() -> dict[str, dict[str, float]]:
    """Printed profile values on Platform I by workload, then by `scope.metric`."""
    table: dict[str, dict[str, float]] = {}
    for row in read(DATASET, "profiles"):
        if row["platform"] == "neighbor-1":
            table.setdefault(row["workload"], {})[f"{row['scope']}.{row['metric']}"] = float(row["value"])
    return table


def test_cpu_of_both_domains_sums_to_the_printed_total() -> None:
    for workload, cell in cells_of_table_3().items():
        # 0.015: three figures rounded to two decimals each.
        assert cell["driver_domain.cpu"] + cell["instance.cpu"] == pytest.approx(cell["host.cpu"], abs=0.015), workload


def test_states_of_a_domain_leave_a_rest_that_the_readme_states() -> None:
    # Section 3.4 says that every VM is always in one of the three states, so 100 is expected. The printed table does
    # not give it: 62 and 94 for the CPU-bound files, 52 to 57 for the others. Asserted as printed, never corrected.
    for workload, cell in cells_of_table_3().items():
        for scope in ("driver_domain", "instance"):
            total = sum(cell[f"{scope}.{metric}"] for metric in ("cpu", "waiting", "block"))
            cpu_bound = workload in {"web-1k", "web-4k"}
            wanted = (94.2 if scope == "instance" else 62.2) if cpu_bound else 54.5
            assert total == pytest.approx(wanted, abs=2.3), (workload, scope)


def test_net_io_is_about_file_size_times_request_rate() -> None:
    for workload, cell in cells_of_table_3().items():
        size_kb = float(re.sub(r"\D", "", workload))
        # 7 %: headers weigh most with the smallest file.
        wanted = size_kb * cell["instance.throughput_rps"]
        assert cell["instance.throughput_kb_s"] == pytest.approx(wanted, rel=0.07), workload


def test_solo_values_of_pairs_are_the_profiles_of_their_platforms() -> None:
    metrics = {"req/s": "throughput_rps", "KB/s": "throughput_kb_s", "s": "runtime_s", "ms": "response_ms"}
    profiles = {(row["platform"], row["workload"], row["metric"]): row["value"] for row in read(DATASET, "profiles")}
    for row in read(DATASET, "colocations"):
        if row["solo"] and row["unit"] != "% of solo":
            key = (row["platform"], row["workload"], metrics[row["unit"]])
            assert profiles[key] == row["solo"], row["run"]


def ratio(run: str, instance: str) -> float:
    """T/B of one instance of a run."""
    row = next(r for r in read(DATASET, "colocations") if (r["run"], r["instance"]) == (run, instance))
    return float(row["colocated"]) / float(row["solo"])


def stated(finding: str, statement: str) -> float:
    """Value of one statement."""
    rows = read(DATASET, "statements")
    return float(next(r["value"] for r in rows if (r["finding"], r["statement"]) == (finding, statement)))


def test_the_combined_score_is_the_sum_of_the_pairs_ratios() -> None:
    total = ratio("neighbor-1-1k-100k", "vm1") + ratio("neighbor-1-1k-100k", "vm2")
    assert total == pytest.approx(stated("N3", "pair-1k-100k-combined"), abs=0.005)


@pytest.mark.parametrize(
    ("finding", "statement", "run", "instance"),
    [
        ("N4", "1k-loss", "neighbor-1-1k-100k", "vm1"),
        ("N8", "1k-loss-with-1m", "neighbor-2-1k-1m", "vm1"),
        ("N8", "1k-loss-with-1k", "neighbor-2-1k-1k", "vm1"),
        ("N14", "1k-loss-with-net-platform-1", "neighbor-1-1k-100k", "vm1"),
        ("N14", "1k-loss-with-net-platform-2", "neighbor-2-1k-1m", "vm1"),
        ("N14", "1k-loss-with-1k-platform-2", "neighbor-2-1k-1k", "vm1"),
    ],
)
def test_printed_losses_follow_from_printed_rates(finding: str, statement: str, run: str, instance: str) -> None:
    # The papers round to whole per cent.
    assert 100 * (1 - ratio(run, instance)) == pytest.approx(stated(finding, statement), abs=0.5)


@pytest.mark.parametrize(
    ("statement", "run", "other"),
    [
        ("1k-with-1m-over-1k-1k", ("neighbor-2-1k-1m", "vm1"), ("neighbor-2-1k-1k", "vm1")),
        ("1m-over-1m-1m", ("neighbor-2-1k-1m", "vm2"), ("neighbor-2-1m-1m", "vm2")),
    ],
)
def test_printed_gains_follow_from_printed_rates(statement: str, run: tuple[str, str], other: tuple[str, str]) -> None:
    assert 100 * (ratio(*run) / ratio(*other) - 1) == pytest.approx(stated("N8", statement), abs=0.5)


# 4. The checker itself


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATASET, tmp_path / "papers"))


def replace_once(folder: Path, table: str, old: str, new: str) -> None:
    """Change the first occurrence of `old` in a table."""
    file = folder / f"{table}.csv"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("table", "old", "new"),
    [
        ("profiles", ",2718,", ",2719,"),
        ("colocations", ",1560,", ",1570,"),
        ("colocations", ",798,", ",789,"),
        ("colocations", ",-58%", ",-57%"),
        ("statements", ",1.58,", ",1.85,"),
    ],
)
def test_a_figure_unlike_its_print_is_found_without_the_papers(copy: Path, table: str, old: str, new: str) -> None:
    replace_once(copy, table, old, new)
    found = problems(copy, None)
    assert found
    assert all(text.startswith(f"{table}.csv line ") for text in found)


@pytest.mark.parametrize(
    ("table", "old", "new"),
    [
        ("statements", "§3.4", "§4.1.2"),
        ("statements", "§3.4", "§9.9"),
    ],
)
def test_a_figure_that_the_paper_does_not_print_there_is_found(
    copy: Path, papers: dict[str, Paper], table: str, old: str, new: str
) -> None:
    replace_once(copy, table, old, new)
    found = problems(copy, papers)
    assert found
    assert all(text.startswith(f"{table}.csv line ") for text in found)


def next_figure(figure: str) -> str:
    """The number with its last digit one up, in the same form: 1.58 gives 1.59."""
    decimals = len(figure.partition(".")[2])
    return f"{float(figure) + 10**-decimals:.{decimals}f}"


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("profiles", ["value"]),
        ("colocations", ["solo", "colocated"]),
        ("statements", ["value", "low", "high"]),
    ],
)
def test_no_figure_can_change_in_its_last_digit_unnoticed(
    papers: dict[str, Paper], table: str, columns: list[str]
) -> None:
    unnoticed = []
    for row in read(DATASET, table):
        for column in columns:
            if re.fullmatch(r"\d+(\.\d+)?", row[column]):
                wrong = row | {column: next_figure(row[column])}
                if not own_problems(table, wrong) and not text_problems(wrong, papers[row["paper"]]):
                    unnoticed.append((table, row, column))
    assert unnoticed == []


@pytest.mark.parametrize("table", ["platforms", "profiles", "colocations", "statements"])
def test_no_printed_figure_can_change_in_its_last_digit_unnoticed(papers: dict[str, Paper], table: str) -> None:
    unnoticed = []
    for row in read(DATASET, table):
        for part in fragments(row["printed"]):
            if part.startswith("(") and part.endswith("])"):
                continue  # a row of Table 4 turns into another one; the test of Table 4 is responsible
            for figure in re.finditer(r"\d[\d,]*(\.\d+)?", part):
                digits = figure[0].rstrip(",")
                changed = next_figure(digits.replace(",", ""))
                wrong = part[: figure.start()] + changed + part[figure.start() + len(digits) :]
                if not text_problems(row | {"printed": wrong}, papers[row["paper"]]):
                    unnoticed.append((table, wrong))
    assert unnoticed == []


def test_a_figure_is_found_only_as_a_whole_and_under_any_spelling() -> None:
    text = normalise("reaches $1,560 \\text{ req/sec}$,\nthen *1.55* and 550")
    assert contains(text, "1560 req/sec")
    assert contains(text, "1,560 req/sec")
    assert contains(text, "then 1.55")
    assert not contains(text, "55")
    assert not contains(text, "560 req/sec")
    assert not contains(text, "1.5")


def test_parts_of_a_text_end_where_the_next_heading_of_their_level_begins() -> None:
    paper = Paper.of("1 FIRST\n\na 11\n\n1.1 Inner\n\nb 22\n\nTABLE 1\nCaption\n\nx\t33\n\n2 SECOND\n\nc 44\n")
    assert contains(paper.part("§1"), "22")
    assert contains(paper.part("Table 1"), "33")
    assert not contains(paper.part("§1.1"), "11")
    assert not contains(paper.part("§1"), "44")
