"""The papers' findings beside what the lab measured and what the model says of the same situation."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from advisor import predictors
from advisor.domain import Host, Instance
from advisor.errors import InvalidInput
from advisor.settings import Settings
from models.dataset import Dataset, DatasetError, load_dataset
from models.examples import measured, scene_of
from models.prediction import Predictor
from models.prior import PriorPredictor
from models.profile import WorkloadProfile
from models.scene import ProfileTable, build_batch
from models.training import fit_predictor
from profiler.observed import Colocation, IsolationSettings, Pinning

NOT_MEASURED = "not measured here"
PAPERS = "papers"
PLATFORM_1, PLATFORM_2, PLATFORM_3 = "neighbor-1", "neighbor-2", "neighbor-3"
# Table 4 of NEIGHBOR: driver domain and guests by number of CPUs; ids as in the dataset's notes.
PINNINGS = {
    "pin-1-1-1": ("0", "0:1", "0:2"),
    "pin-1-2-2": ("0", "0:1-2|1:1-2", "0:1-2|1:1-2"),
    "pin-1-3-3": ("0", "0:1-3|1:1-3|2:1-3", "0:1-3|1:1-3|2:1-3"),
    "pin-2-1-1": ("0-1", "0:2", "0:2"),
    "pin-2-2-2": ("0-1", "0:2-3|1:2-3", "0:2-3|1:2-3"),
    "pin-3-1-1": ("0-2", "0:3", "0:3"),
}
CPU_BOUND, NET_BOUND = "web-1k", "web-100k"  # on Platform I, finding N1; on II and III the 1 MB file fills the link
# The papers print no solo profile of the 1 MB server. What section 4.1.3 prints of two of them on Platform II, whose
# link they fill together as one does alone: Dom0 around 60 % CPU, guests blocked over 80 % and waiting about 10 %; and
# 110 requests/s of 1 MB alone (section 4.1.1).
BULK = "web-1m"
BULK_METRICS = {"throughput_kb_s": 110_000.0, "driver_domain.cpu": 60.0, "cpu": 10.0, "waiting": 10.0, "block": 80.0}
FLAT = 0.05  # a change of T/B up to this share counts as none

Row = dict[str, Any]
Statements = Mapping[tuple[str, str], Mapping[str, str]]
Predict = Callable[[Host, Sequence[Instance]], list[float]]


@dataclass(frozen=True, slots=True)
class _Lab:
    """What measured datasets say about pairs at full load that share one CPU, as on the papers' Platform I."""

    datasets: Sequence[Dataset]

    def pair(self, one: str, other: str) -> tuple[list[dict[str, float]], str] | None:
        """T/B by workload of every repeat (a pair of one workload with itself: their mean), and dataset and
        platform."""
        for dataset in self.datasets:
            by_platform: dict[str, list[dict[str, float]]] = {}
            for colocation in dataset.colocations:
                if _shares_cpu(colocation, one, other) and (ratios := _by_workload(colocation)):
                    by_platform.setdefault(colocation.platform, []).append(ratios)
            # the papers' guests share one link: where the lab measured that, too, it is the closer likeness
            for platform in sorted(by_platform, key=lambda name: dataset.platforms[name].nic_mbit is None):
                return by_platform[platform], f"{dataset.name}, {platform}"
        return None

    def combined(self, one: str, other: str) -> str:
        """The combined score of a pair with its spread, as text."""
        return self._text(one, other, lambda ratios: ratios[one] + ratios[other])

    def ratio(self, workload: str, beside: str) -> str:
        """T/B of a workload beside another one, as text."""
        return self._text(workload, beside, lambda ratios: ratios[workload])

    def _text(self, one: str, other: str, value: Callable[[dict[str, float]], float]) -> str:
        found = self.pair(one, other)
        if found is None:
            return NOT_MEASURED
        values = [value(ratios) for ratios in found[0]]
        spread = f" +/- {2 * stdev(values) / len(values) ** 0.5:.2f}" if len(values) > 1 else ""
        return f"{mean(values):.2f}{spread} ({found[1]}, containers on one CPU)"


def _shares_cpu(colocation: Colocation, one: str, other: str) -> bool:
    instances = {outcome.instance.id: outcome.instance for outcome in colocation.outcomes}
    names = sorted(instance.workload or "" for instance in instances.values())
    unions = {instance.settings.pinning.union for instance in instances.values() if instance.settings.pinning}
    plain = all(
        instance.load >= 1 and replace(instance.settings, pinning=None, network=None) == IsolationSettings()
        for instance in instances.values()
    )
    return plain and names == sorted((one, other)) and len(unions) == 1 and all(len(union) == 1 for union in unions)


def _by_workload(colocation: Colocation) -> dict[str, float]:
    """T/B by workload; empty where not everybody's outcome is known."""
    ratios = measured(colocation, "throughput")
    workload = {outcome.instance.id: outcome.instance.workload or "" for outcome in colocation.outcomes}
    if len(ratios) < len(workload):
        return {}
    return {
        name: mean(ratio for instance, ratio in ratios.items() if workload[instance] == name)
        for name in workload.values()
    }


def findings(settings: Settings, model: Path | None) -> list[Row]:
    """One row per figure or ordering: finding, situation, paper, measured, predicted, and whether they agree.

    Without `model` every paper's predictions come from a model trained on all datasets without any co-location of that
    paper, so that no row was learned from itself. InvalidInput where the datasets are missing or broken.
    """
    try:
        datasets = [load_dataset(path.parent) for path in sorted(settings.datasets_dir.glob("*/dataset.yaml"))]
    except DatasetError as error:
        raise InvalidInput(str(error), field="datasets") from error
    papers = next((dataset for dataset in datasets if dataset.name == PAPERS), None)
    if papers is None:
        raise InvalidInput(f"{settings.datasets_dir} holds no dataset named papers", field="datasets")
    lab = _Lab([dataset for dataset in datasets if dataset.origin == "measured"])
    statements = _statements(papers.path)
    titles = _titles(papers.path)
    chosen = predictors.load(model) if model is not None else None
    rows: list[Row] = []
    for paper in sorted({title["paper"] for title in titles.values()}):
        predictor = chosen or _without(datasets, papers, paper)
        predict = _predict(papers, predictor)
        rows += _rows_of_paper(papers, paper, predict, lab, statements)
    rows += _printed(statements)
    order = list(titles)
    rows.sort(key=lambda row: order.index(row["finding"]))
    return [{"finding": row["finding"], "title": titles[row["finding"]]["title"], **row} for row in rows]


def _titles(path: Path) -> dict[str, Mapping[str, str]]:
    with (path / "findings.csv").open(encoding="utf-8", newline="") as file:
        return {row["finding"]: row for row in csv.DictReader(file)}


def _without(datasets: Sequence[Dataset], papers: Dataset, paper: str) -> Predictor:
    kept = tuple(one for one in papers.colocations if one.paper != paper)
    try:
        return fit_predictor([replace(papers, colocations=kept), *(one for one in datasets if one is not papers)])
    except DatasetError:
        return PriorPredictor()  # too little is left to learn from


def _predict(papers: Dataset, predictor: Predictor) -> Predict:
    bulk = [WorkloadProfile(BULK, BULK_METRICS, platform, "paper") for platform in (PLATFORM_2, PLATFORM_3)]
    table = ProfileTable.build((*papers.profiles, *bulk))

    def predict(host: Host, instances: Sequence[Instance]) -> list[float]:
        prediction = predictor.predict(build_batch([(host, instances)], table))
        return [float(value) for value in prediction.throughput.expected[0]]

    return predict


def _statements(path: Path) -> dict[tuple[str, str], Mapping[str, str]]:
    """Every printed statement by finding and name."""
    with (path / "statements.csv").open(encoding="utf-8", newline="") as file:
        return {(row["finding"], row["statement"]): row for row in csv.DictReader(file)}


def _printed(statements: Statements) -> list[Row]:
    """What the papers print and no throughput ratio of a co-location can show: it takes probes or system metrics."""
    rows = []
    for (finding, name), printed in statements.items():
        if printed["relation"] != "order":
            span = f"{printed['low']} to {printed['high']}" if printed["relation"] == "range" else printed["value"]
            sign = printed["relation"] if printed["relation"] in {"<", ">", "<=", ">=", "~"} else ""
            text = f"{sign} {span} {printed['unit']}".strip()
            rows.append({**_row(finding, name, printed["quantity"], text, None), "kind": "statement"})
    return rows


def _groups(statement: Mapping[str, str]) -> list[list[str]]:
    """`a>b,c>d` as [[a], [b, c], [d]]."""
    return [group.split(",") for group in statement["value"].split(">")]


def _rows_of_paper(papers: Dataset, paper: str, predict: Predict, lab: _Lab, statements: Statements) -> list[Row]:
    rows: list[Row] = []
    for colocation in papers.colocations:
        if colocation.paper == paper and colocation.finding:
            rows += _colocation_rows(papers, colocation, predict, lab)
    if paper.startswith("who-is-your-neighbor"):
        rows += _pairs(papers, predict, lab, statements)
        rows += _pinning(papers, predict, statements)
        rows += _key_findings(papers, predict, lab, statements)
    return rows


def _colocation_rows(papers: Dataset, colocation: Colocation, predict: Predict, lab: _Lab) -> list[Row]:
    host, instances = scene_of(colocation, dict(papers.platforms))
    predicted = predict(host, instances)
    ratios = measured(colocation, "throughput")
    rows: list[Row] = []
    for at, instance in enumerate(instances):
        situation = f"{colocation.run}: {instance.workload}"
        # a pair of one workload with itself has one printed figure, and one row
        if instance.id not in ratios or any(row["situation"] == situation for row in rows):
            continue
        row = _row(colocation.finding, situation, "T/B", ratios[instance.id], predicted[at])
        if colocation.platform == PLATFORM_1 and len(instances) == 2:
            row["measured"] = lab.ratio(instance.workload or "", instances[1 - at].workload or "")
        rows.append(row)
    return rows


def _row(finding: str, situation: str, quantity: str, paper: float | str | None, predicted: float | str | None) -> Row:
    return {
        "finding": finding,
        "kind": "prediction",
        "situation": situation,
        "quantity": quantity,
        "paper": paper,
        "measured": NOT_MEASURED,
        "predicted": predicted,
        "agrees": None,
    }


def _pair_on(host: Host, workloads: tuple[str, str], pins: tuple[str, str] = ("", "")) -> tuple[Host, list[Instance]]:
    pinnings = [Pinning.parse(pin) for pin in pins]
    return host, [
        Instance(
            f"vm{number + 1}",
            vcpus=len(pinning.cpus) if pinning else 1,
            workload=workload,
            settings=IsolationSettings(pinning=pinning),
        )
        for number, (workload, pinning) in enumerate(zip(workloads, pinnings, strict=True))
    ]


def _pairs(papers: Dataset, predict: Predict, lab: _Lab, statements: Statements) -> list[Row]:
    """N3: combined scores of the pairs the paper orders, and whether the order is kept."""
    host = papers.platforms[PLATFORM_1]
    groups = _groups(statements["N3", "pair-order"])
    pairs = {name: _workloads(name) for group in groups for name in group}
    score = {name: sum(predict(*_pair_on(host, pair))) for name, pair in pairs.items()}
    rows = []
    for name, pair in pairs.items():
        printed = statements.get(("N3", f"pair-{name.replace('+', '-')}-combined"))
        row = _row("N3", name, "combined score", float(printed["value"]) if printed else None, score[name])
        row["measured"] = lab.combined(*pair)
        rows.append(row)
    return [*rows, _order("N3", "order of pairs", groups, score)]


def _workloads(pair: str) -> tuple[str, str]:
    """`1k+100k` as (`web-1k`, `web-100k`)."""
    one, _, other = pair.partition("+")
    return f"web-{one}", f"web-{other}"


def _order(finding: str, situation: str, groups: Sequence[Sequence[str]], value: Mapping[str, float]) -> Row:
    """A row that says whether every member of an earlier group is above every member of the later ones."""
    kept = all(
        value[above] > value[below]
        for position, group in enumerate(groups)
        for later in groups[position + 1 :]
        for above in group
        for below in later
    )
    printed = " > ".join(", ".join(group) for group in groups)
    said = " > ".join(sorted((name for group in groups for name in group), key=lambda name: -value[name]))
    return {**_row(finding, situation, "order", printed, said), "agrees": kept}


def _pinning(papers: Dataset, predict: Predict, statements: Statements) -> list[Row]:
    """N11: the 1 KB server by CPUs of driver domain and guests, and the orders the paper draws from it."""
    host = papers.platforms[PLATFORM_3]
    value = {name: _pinned(host, name, (CPU_BOUND, CPU_BOUND), predict) for name in PINNINGS}
    rows = [_row("N11", f"{name}: 1k beside 1k", "T/B of 1k", None, value[name]) for name in PINNINGS]
    orders = ("1k-best-and-worst", "guest-cpus-order-dom0-1", "guest-cpus-order-dom0-2")
    rows += [_order("N11", name, _groups(statements["N11", name]), value) for name in orders]
    printed = statements["N11", "dom0-cpus-direction"]
    dom0 = [value[name] for name in ("pin-1-1-1", "pin-2-1-1", "pin-3-1-1")]
    row = _row("N11", "CPUs of Dom0: 1, 2, 3", "direction", printed["value"], " -> ".join(f"{one:.2f}" for one in dom0))
    return [*rows, {**row, "agrees": dom0 == sorted(dom0, reverse=True) and dom0[0] > dom0[-1]}]


def _pinned(host: Host, pinning: str, pair: tuple[str, str], predict: Predict) -> float:
    driver, *pins = PINNINGS[pinning]
    first, _, last = driver.partition("-")
    cpus = tuple(range(int(first), int(last or first) + 1))
    return predict(*_pair_on(replace(host, driver_cpus=cpus), pair, (pins[0], pins[1])))[0]


def _key_findings(papers: Dataset, predict: Predict, lab: _Lab, statements: Statements) -> list[Row]:
    """N15: CPU with network is best; Dom0 CPUs hurt the CPU-bound; the network-bound does not care."""
    one = papers.platforms[PLATFORM_1]
    pairs = {"cpu+net": (CPU_BOUND, NET_BOUND), "cpu+cpu": (CPU_BOUND, CPU_BOUND), "net+net": (NET_BOUND, NET_BOUND)}
    score = {name: sum(predict(*_pair_on(one, pair))) for name, pair in pairs.items()}
    order = _order("N15", "which pair contends least", _groups(statements["N15", "cpu-net"]), score)
    order["measured"] = "; ".join(f"{name} {lab.combined(*pair)}" for name, pair in pairs.items())
    host = papers.platforms[PLATFORM_3]
    bound, net = (
        [_pinned(host, name, (kind, kind), predict) for name in ("pin-1-1-1", "pin-3-1-1")]
        for kind in (CPU_BOUND, BULK)
    )
    loss = [1 - pair[1] / pair[0] for pair in (bound, net)]
    rows = [order]
    for name, pair, agrees in (
        ("dom0-cpus", bound, loss[0] > FLAT),
        ("net-cpu-assignment", net, abs(loss[1]) <= FLAT),
    ):
        said = f"{pair[0]:.2f} -> {pair[1]:.2f}"
        row = _row("N15", f"{name}: Dom0 with 1 and 3 CPUs", "direction", statements["N15", name]["value"], said)
        rows.append({**row, "agrees": agrees})
    return rows
