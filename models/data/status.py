"""What a dataset may be used for: to learn from, to judge by, or neither (docs/decisions/0176)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from models.data.tables import DatasetError

Status = Literal["train", "judge", "findings", "historical"]
_FLAGS = {"learn": True, "hidden": False}


@dataclass(frozen=True, slots=True)
class DatasetStatus:
    """`status` of dataset.yaml: `train` is learned from unless other datasets are named, `judge` is judged by, and
    learned from where it is named, `findings` shows single findings, and `historical` has been superseded by others.

    `hidden` datasets are kept to judge: nothing learns from them, even where they are named.
    """

    status: Status = "train"
    hidden: bool = False
    superseded_by: tuple[str, ...] = ()

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> DatasetStatus:
        """By the fields of dataset.yaml; without `status` it is `train`, or `judge` where `learn` is false.

        DatasetError names the field that is wrong.
        """
        flags = {name: meta.get(name, usual) for name, usual in _FLAGS.items()}
        for name, value in flags.items():
            if not isinstance(value, bool):
                raise DatasetError(f"dataset.yaml: field {name} must be true or false, not {str(value)[:40]!r}")
        status = meta.get("status", "train" if flags["learn"] and not flags["hidden"] else "judge")
        if status not in get_args(Status):
            known = ", ".join(get_args(Status))
            raise DatasetError(f"dataset.yaml: field status must be one of {known}, not {str(status)[:40]!r}")
        if status == "train" and not (flags["learn"] and not flags["hidden"]):
            raise DatasetError("dataset.yaml: status is train, and learn or hidden says that nothing learns from it")
        by = meta.get("superseded_by", [])
        if not (isinstance(by, list) and all(isinstance(name, str) and name.strip() for name in by)):
            raise DatasetError("dataset.yaml: field superseded_by must be a list of names of datasets")
        if bool(by) != (status == "historical"):
            raise DatasetError("dataset.yaml: superseded_by and the status historical need each other")
        return cls(status, flags["hidden"], tuple(by))

    @property
    def learned_by_default(self) -> bool:
        """Whether models learn from it when no dataset is named."""
        return self.status == "train"

    @property
    def judged_by_default(self) -> bool:
        """Whether tables of errors show it when no dataset is named; hidden ones are asked for by themselves."""
        return self.status in {"train", "judge"} and not self.hidden


def check_learnable(datasets: Sequence[Any]) -> None:
    """DatasetError where one of these datasets (models.data.dataset.Dataset) is kept to judge."""
    for dataset in datasets:
        if dataset.status.hidden:
            raise DatasetError(
                f"{dataset.name} is kept to judge (hidden: true in its dataset.yaml): nothing may be learned from it"
            )
