"""Ids for any name, and the name that goes along where it is not the id."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.names import instance_id, name_label
from profiler.observed import check_id


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("web-1", {}),
        ("Почта (архив) №7", {"name": "Почта (архив) №7"}),
        ("宏观数据库", {"name": "宏观数据库"}),
        ("two words", {"name": "two words"}),
        (r"cont\xc3\xa9n\x2d1", {"name": "conté" + "n-1"}),  # as systemd writes it in the name of a unit
        (r"half\xc3", {"name": r"half\xc3"}),  # which is no UTF-8
        ("left\u202etfel\x1b[2J", {"name": "lefttfel[2J"}),
        ("\u200b", {}),
        ("", {}),
    ],
)
def test_a_name_that_is_no_id_is_kept_as_far_as_it_can_be_seen(name: str, label: dict[str, str]) -> None:
    assert name_label(name) == label


@given(st.text())
def test_any_name_has_an_id_and_a_label_that_can_be_stored(name: str) -> None:
    check_id(instance_id(name))
    assert all(text.isprintable() and 0 < len(text) <= 255 for text in name_label(name).values())
