"""What all systems have in common whose settings are changed: texts by name, and how a change fails."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol


class SettingNotSet(Exception):  # noqa: N818 - reads as what it says at the raise
    """The system does not do what it was asked, or cannot be read; the message is one sentence."""


class SettingGone(SettingNotSet):
    """The instance or its control group is not here any more."""


class SettingRefused(ValueError):  # noqa: N818
    """A setting, target or text that is not changed here, whatever is asked."""


class SettingsOf(Protocol):
    """Settings of one kind of system: `target` is a control group or a domain."""

    def kind(self, name: str) -> str:
        """The kind of change that a setting is part of: weight, cap, pin or disk; SettingRefused."""
        ...

    def default_weight(self, name: str) -> int | None:
        """What the weight under this name is without any wish; None = it is no weight."""
        ...

    def cap_percent(self, settings: Mapping[str, str]) -> float | None:
        """The cap that these settings come to, in percent of a CPU (of a domain for each vCPU): infinite = none; None =
        none of them sets it. SettingRefused where half of a cap is set."""
        ...

    def read(self, target: str, names: Collection[str]) -> Mapping[str, str]:
        """The present texts of settings; SettingNotSet, SettingRefused."""
        ...

    def write(self, target: str, values: Mapping[str, str]) -> None:
        """Give settings these texts, in this order; SettingNotSet, SettingRefused."""
        ...

    def same(self, name: str, one: str, other: str) -> bool:
        """Whether two texts of a setting mean the same."""
        ...
