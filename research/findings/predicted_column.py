"""Fills the predicted column: predictions of a paper's situations by a model without the paper's co-locations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from advisor.domain import Host, Instance
from models.data.dataset import Dataset, DatasetError
from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, build_batch
from models.features.examples import measured, scene_of
from models.physics.prior import PriorPredictor
from models.prediction import Predictor
from models.training import Progress, fit_predictor
from profiler.observed import Colocation, IsolationSettings, Pinning, parse_cpus
from research.findings.fitted_constants import ConstantFits, PriorConstants, basis_of
from research.findings.paper_statements import Printed, Row, Statements, groups, row, said
from research.findings.verdicts import DIRECTIONS, figure_region, order_verdict

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
BULK_ALONE = {"throughput_kb_s": 110_000.0}
BULK_METRICS = {**BULK_ALONE, "driver_domain.cpu": 60.0, "cpu": 10.0, "waiting": 10.0, "block": 80.0}
BULK_FINDING = "N8"  # the co-located run that the profile is from

Predict = Callable[[Host, Sequence[Instance]], list[float]]


def without(datasets: Sequence[Dataset], papers: Dataset, progress: Progress | None = None) -> Predictor:
    """A predictor trained on all datasets without any co-location of a paper: no row is learned from itself, nor from
    another paper's about the same kind of host."""
    try:
        return fit_predictor(
            [replace(papers, colocations=()), *(dataset for dataset in datasets if dataset is not papers)],
            targets=("throughput",),
            progress=progress,
        )
    except DatasetError:
        return PriorPredictor()  # too little is left to learn from


def profiles(papers: Dataset, *, bulk: Mapping[str, float] = BULK_METRICS) -> ProfileTable:
    """The papers' profiles alone, and one of the 1 MB server."""
    added = [WorkloadProfile(BULK, dict(bulk), platform, "paper") for platform in (PLATFORM_2, PLATFORM_3)]
    return ProfileTable.build((*papers.profiles, *added))


def predict_with(table: ProfileTable, predictor: Predictor) -> Predict:
    """Expected T/B of every instance of a scene."""

    def predict(host: Host, instances: Sequence[Instance]) -> list[float]:
        prediction = predictor.predict(build_batch([(host, instances)], table), ("throughput",))
        return [float(value) for value in prediction.throughput.expected[0]]

    return predict


class LeftOut:
    """What the prior says of each finding when that finding fixed none of its constants."""

    def __init__(self, papers: Dataset, statements: Statements) -> None:
        self._papers, self._statements = papers, statements
        whole, bare = profiles(papers), profiles(papers, bulk=BULK_ALONE)
        self._fits = {False: (whole, ConstantFits.of(papers, whole)), True: (bare, ConstantFits.of(papers, bare))}
        self._rows: dict[tuple[str, bool, PriorConstants], dict[tuple[str, str], Row]] = {}

    def add_to(self, rows: Sequence[Row], paper: str) -> None:
        """Write what is left of every prediction of a paper's rows into them, and what they rest on."""
        for one in rows:
            without_bulk = one["finding"] == BULK_FINDING
            table, fits = self._fits[without_bulk]
            key = paper, without_bulk, fits.without(one["finding"])
            if key not in self._rows:
                with key[2].applied():
                    found = rows_of_paper(self._papers, paper, predict_with(table, PriorPredictor()), self._statements)
                self._rows[key] = {(row["finding"], row["situation"]): row for row in found}
            again = self._rows[key][one["finding"], one["situation"]]
            one["basis"] = basis_of(one["finding"], one["situation"])
            one["left_out"], one["left_out_verdict"] = again["predicted"], again["predicted_verdict"]


def rows_of_paper(papers: Dataset, paper: str, predict: Predict, statements: Statements) -> list[Row]:
    """One row per figure or ordering of a paper that a ratio of throughputs can show."""
    rows: list[Row] = []
    for colocation in papers.colocations:
        if colocation.paper == paper and colocation.finding:
            rows += _colocation_rows(papers, colocation, predict)
    if paper.startswith("who-is-your-neighbor"):
        rows += _pairs(papers, predict, statements)
        rows.append(_range_ii(papers, predict, statements))
        rows += _pinning(papers, predict, statements)
        rows += _key_findings(papers, predict, statements)
    return rows


def _colocation_rows(papers: Dataset, colocation: Colocation, predict: Predict) -> list[Row]:
    host, instances = scene_of(colocation, dict(papers.platforms))
    predicted = predict(host, instances)
    ratios = measured(colocation, "throughput")
    rows: list[Row] = []
    for at, instance in enumerate(instances):
        situation = f"{colocation.run}: {instance.workload}"
        # a pair of one workload with itself has one printed figure, and one row
        if instance.id not in ratios or any(known["situation"] == situation for known in rows):
            continue
        rows.append(_figure(colocation.finding, situation, "T/B", ratios[instance.id], predicted[at]))
    return rows


def _figure(finding: str, situation: str, quantity: str, paper: float | None, predicted: float) -> Row:
    """A row of a figure; a prediction has no interval of its own, so that it agrees or not."""
    verdict = None if paper is None else figure_region(paper, "ratio").verdict(predicted, predicted)
    return {**row(finding, situation, quantity, paper, predicted), "predicted_verdict": verdict}


def _pair_on(
    host: Host, workloads: tuple[str, str], pins: tuple[str, str] = ("", ""), load: float = 1.0
) -> tuple[Host, list[Instance]]:
    pinnings = [Pinning.parse(pin) for pin in pins]
    return host, [
        Instance(
            f"vm{number + 1}",
            vcpus=len(pinning.cpus) if pinning else 1,
            workload=workload,
            load=load,
            settings=IsolationSettings(pinning=pinning),
        )
        for number, (workload, pinning) in enumerate(zip(workloads, pinnings, strict=True))
    ]


def _pairs(papers: Dataset, predict: Predict, statements: Statements) -> list[Row]:
    """N3: combined scores of the pairs the paper orders, and whether the order is kept."""
    host = papers.platforms[PLATFORM_1]
    order = groups(statements["N3", "pair-order"])
    pairs = {name: _workloads(name) for group in order for name in group}
    score = {name: sum(predict(*_pair_on(host, pair))) for name, pair in pairs.items()}
    rows = []
    for name in pairs:
        printed = statements.get(("N3", f"pair-{name.replace('+', '-')}-combined"))
        rows.append(_figure("N3", name, "combined score", float(printed["value"]) if printed else None, score[name]))
    return [*rows, _order("N3", "order of pairs", order, score)]


def _workloads(pair: str) -> tuple[str, str]:
    """`1k+100k` as (`web-1k`, `web-100k`)."""
    one, _, other = pair.partition("+")
    return f"web-{one}", f"web-{other}"


def _range_ii(papers: Dataset, predict: Predict, statements: Statements) -> Row:
    """N7: what 100 KB sends beside 1 KB at 30, 50 and 70 % load, as shares of what it sends alone."""
    host = papers.platforms[PLATFORM_1]
    sent = [load * predict(*_pair_on(host, (CPU_BOUND, NET_BOUND), load=load))[1] for load in (0.3, 0.5, 0.7)]
    return _direction("N7", "100k beside 1k at 30, 50, 70 % load", statements["N7", "100k-range-ii-flat"], sent)


def _order(finding: str, situation: str, order: Sequence[Sequence[str]], value: Mapping[str, float]) -> Row:
    """A row that says whether the predicted values stand in the printed order."""
    text = " > ".join(", ".join(group) for group in order)
    verdict = order_verdict(order, {name: (each, each) for name, each in value.items()})
    return {**row(finding, situation, "order", text, said(order, value)), "predicted_verdict": verdict}


def _pinning(papers: Dataset, predict: Predict, statements: Statements) -> list[Row]:
    """N11: the 1 KB server by CPUs of driver domain and guests, and the orders the paper draws from it."""
    host = papers.platforms[PLATFORM_3]
    value = {name: _pinned(host, name, (CPU_BOUND, CPU_BOUND), predict) for name in PINNINGS}
    rows = [row("N11", f"{name}: 1k beside 1k", "T/B of 1k", None, value[name]) for name in PINNINGS]
    orders = ("1k-best-and-worst", "guest-cpus-order-dom0-1", "guest-cpus-order-dom0-2")
    rows += [_order("N11", name, groups(statements["N11", name]), value) for name in orders]
    dom0 = [value[name] for name in ("pin-1-1-1", "pin-2-1-1", "pin-3-1-1")]
    return [*rows, _direction("N11", "CPUs of Dom0: 1, 2, 3", statements["N11", "dom0-cpus-direction"], dom0)]


def _direction(finding: str, situation: str, printed: Printed, values: Sequence[float]) -> Row:
    """A row that says where predicted values go, from the first to the last."""
    moved = values[-1] / values[0] - 1
    line = row(finding, situation, "direction", printed["value"], " -> ".join(f"{one:.2f}" for one in values))
    return {**line, "predicted_verdict": DIRECTIONS[printed["value"]].verdict(moved, moved)}


def _pinned(host: Host, pinning: str, pair: tuple[str, str], predict: Predict) -> float:
    driver, *pins = PINNINGS[pinning]
    return predict(*_pair_on(replace(host, driver_cpus=parse_cpus(driver)), pair, (pins[0], pins[1])))[0]


def _key_findings(papers: Dataset, predict: Predict, statements: Statements) -> list[Row]:
    """N15: CPU with network is best; Dom0 CPUs hurt the CPU-bound; the network-bound does not care."""
    one = papers.platforms[PLATFORM_1]
    pairs = {"cpu+net": (CPU_BOUND, NET_BOUND), "cpu+cpu": (CPU_BOUND, CPU_BOUND), "net+net": (NET_BOUND, NET_BOUND)}
    score = {name: sum(predict(*_pair_on(one, pair))) for name, pair in pairs.items()}
    order = _order("N15", "which pair contends least", groups(statements["N15", "cpu-net"]), score)
    host = papers.platforms[PLATFORM_3]
    bound, net = (
        [_pinned(host, name, (kind, kind), predict) for name in ("pin-1-1-1", "pin-3-1-1")]
        for kind in (CPU_BOUND, BULK)
    )
    changes = (("dom0-cpus", bound), ("net-cpu-assignment", net))
    return [
        order,
        *(
            _direction("N15", f"{name}: Dom0 with 1 and 3 CPUs", statements["N15", name], pair)
            for name, pair in changes
        ),
    ]
