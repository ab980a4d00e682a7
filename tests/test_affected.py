"""A change is tested by what imports it, directly or not, and not by the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.affected import ALWAYS, affected


@pytest.mark.parametrize(
    ("file", "found", "not_found"),
    [
        ("cotenant_client/client.py", "tests/client/test_client_service.py", "tests/models/test_models_prior.py"),
        ("lab/campaign.py", "tests/lab/test_campaign.py", "tests/advisor/core/test_core_placement.py"),
        ("profiler/demand.py", "tests/advisor/core/test_core_placement.py", "test_nova_asking.py"),
        ("integrations/nova/cotenant_nova/asking.py", "test_nova_asking.py", "tests/api/test_web_page.py"),
        ("api/app.py", "test_opennebula_scripts.py", "tests/lab/test_campaign.py"),
        ("api/html/templates/home.html", "tests/api/test_web_home.py", "tests/lab/test_campaign.py"),
        ("tests/api/conftest.py", "tests/api/test_web_home.py", "tests/lab/test_campaign.py"),
        ("docs/index.md", "tests/docs", "tests/lab/test_campaign.py"),
    ],
)
def test_a_change_is_tested_by_what_imports_it(file: str, found: str, not_found: str) -> None:
    there = affected([Path(file)])
    assert set(ALWAYS) <= set(there)
    assert any(one.endswith(found) for one in there)
    assert not any(one.endswith(not_found) for one in there)


def test_what_all_tests_rest_on_is_tested_by_all() -> None:
    assert affected([Path("pyproject.toml")]) == affected([Path("conftest.py")]) == ["tests", "integrations"]
