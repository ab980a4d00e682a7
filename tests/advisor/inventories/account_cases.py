"""Accounts at a system that is read: from the environment or a section of a private file, and never shown.

A test module of a system has a fixture `case`, and a class of tests that inherits these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class AccountCase:
    """How a system reads an account: of `fields`, the last one its secret, comes `expected`.

    `variable` begins the names in the environment; `wrong` are changes of the fields with a pattern of what is said.
    """

    account: Callable[..., Any]
    variable: str
    fields: dict[str, str]
    expected: object
    wrong: Sequence[tuple[dict[str, str], str]]

    @property
    def secret(self) -> str:
        return list(self.fields.values())[-1]

    def of(self, fields: dict[str, str]) -> object:
        return self.account(None, environment={f"{self.variable}{name.upper()}": one for name, one in fields.items()})


class AccountRules:
    """Tests of a fixture `case`."""

    def test_an_account_comes_from_the_environment(self, case: AccountCase) -> None:
        assert case.of(case.fields) == case.expected

    def test_an_account_that_cannot_be_right_is_refused_without_its_secret(self, case: AccountCase) -> None:
        for changes, reason in case.wrong:
            with pytest.raises(ValueError, match=reason) as refused:
                case.of(case.fields | changes)
            assert case.secret not in str(refused.value)

    def test_an_account_is_a_section_of_a_private_file_and_its_secret_is_never_shown(
        self, tmp_path: Path, case: AccountCase
    ) -> None:
        ini = tmp_path / "ini"
        ini.touch(0o600)
        lines = ["[west]", *(f"{name} = {value}" for name, value in case.fields.items())]
        ini.write_text("\n".join(lines), encoding="utf-8")
        found = case.account("west", environment={}, ini=ini)
        assert found == case.expected
        assert case.secret not in repr(found)
        with pytest.raises(ValueError, match=f"section other .* names no {' and no '.join(case.fields)}"):
            case.account("other", environment={}, ini=ini)
        ini.chmod(0o644)
        with pytest.raises(ValueError, match=r"others may read it \(mode 644\); chmod 640 it") as refused:
            case.account("west", environment={}, ini=ini)
        assert case.secret not in str(refused.value)
        ini.chmod(0o600)
        ini.write_text(f"secret = {case.secret}", encoding="utf-8")
        with pytest.raises(ValueError, match=r"ini is not sections of name = value\Z"):
            case.account("west", environment={}, ini=ini)
