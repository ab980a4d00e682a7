"""The papers' findings beside the lab's measurements and the model's predictions of the same situation."""

from __future__ import annotations

from pathlib import Path

from advisor.errors import InvalidInput
from advisor.prediction import active
from advisor.settings import Settings
from models.data.dataset import DatasetError, load_dataset
from models.training import Progress
from research.findings.lab_runs import LabRuns
from research.findings.measured_column import fill, read_remarks
from research.findings.paper_statements import Row, read_statements, read_titles, statement_rows
from research.findings.predicted_column import LeftOut, predict_with, profiles, rows_of_paper, without

PAPERS = "papers"

__all__ = ["findings"]


def findings(settings: Settings, model: Path | None, progress: Progress | None = None) -> list[Row]:
    """One row per figure or ordering: finding, situation, paper, measured, predicted, and a verdict on either.

    Without `model` the predictions come from a model trained on all datasets without any co-location of a paper, so
    that no row was learned from itself; `basis` says where the prior's constants came from the finding itself,
    `left_out` what the prior says when they did not. Datasets that are not learned from are measured, too. InvalidInput
    where the datasets are missing or broken.
    """
    say = progress or (lambda _what, _done: None)
    datasets = []
    try:
        found = sorted(settings.datasets_dir.glob("*/dataset.yaml"))
        for number, path in enumerate(found):
            say(f"reading {path.parent.name}", 0.05 * number / len(found))
            datasets.append(load_dataset(path.parent))
        papers = next((dataset for dataset in datasets if dataset.name == PAPERS), None)
        if papers is None:
            raise InvalidInput(f"{settings.datasets_dir} holds no dataset named papers", field="datasets")
        measured = [dataset for dataset in datasets if dataset.origin == "measured" and not dataset.status.hidden]
        lessons = [dataset for dataset in datasets if dataset.status.learned_by_default]
        statements, titles = read_statements(papers.path), read_titles(papers.path)
        chosen = active.load(model) if model is not None else None
        rows: list[Row] = []
        table, left_out = profiles(papers), LeftOut(papers, statements)
        named = sorted({colocation.paper for colocation in papers.colocations if colocation.finding})
        trained = chosen or without(
            lessons, papers, lambda what, done: say(f"without the papers, {what}", 0.05 + 0.75 * done)
        )
        predict = predict_with(table, trained)
        for number, paper in enumerate(named):
            say(f"predicting {paper}", 0.8 + 0.15 * number / len(named))
            of_paper = rows_of_paper(papers, paper, predict, statements)
            left_out.add_to(of_paper, paper)
            rows += of_paper
        say("beside what was measured", 0.95)
        rows += statement_rows(statements)
        fill(rows, LabRuns.of(dataset.path for dataset in measured), statements)
        remarks = read_remarks(dataset.path for dataset in measured)
    except DatasetError as error:
        raise InvalidInput(str(error), field="datasets") from error
    order = list(titles)
    rows.sort(key=lambda row: order.index(row["finding"]))
    return [{**row, "title": titles[row["finding"]]["title"], "remark": remarks.get(row["finding"])} for row in rows]
