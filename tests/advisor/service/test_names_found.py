"""Hosts and instances are found by the names that people and other systems give them."""

from __future__ import annotations

import unicodedata

import pytest

from advisor.domain import Host, Instance, Inventory, known_as
from advisor.errors import InvalidInput, NotFound
from advisor.service import Advisor

MAIL, TWIN = "Почта (архив) №7", "données"
HOSTS = (Host("h_1-11aa", "kvm", 8, 8192, labels={"name": "hôte-β"}), Host("h2", "kvm", 8, 8192))
INSTANCES = (
    Instance("______-22bb", host="h2", labels={"name": MAIL, "uuid": "u-1"}),
    Instance("a", host="h2", labels={"name": TWIN}),
    Instance("b", host="h2", labels={"name": TWIN}),
    Instance("c", host="h2", labels={"name": "a", "domain": "instance-0000c"}),  # another one's id
)


@pytest.fixture
def named(advisor: Advisor) -> Advisor:
    advisor.inventory.put(Inventory(HOSTS, INSTANCES), mode="replace", generation=None)
    return advisor


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (MAIL, "______-22bb"),
        ("u-1", "______-22bb"),
        ("instance-0000c", "c"),
        ("a", "a"),
        (f" {MAIL}\u202e", "______-22bb"),
    ],
)
def test_an_instance_is_found_by_its_id_before_any_name(named: Advisor, name: str, found: str) -> None:
    assert named.inventory.find_instance(name).id == found
    assert known_as(INSTANCES, name) == [found]


def test_a_name_is_found_however_its_accents_are_written(named: Advisor) -> None:
    decomposed = unicodedata.normalize("NFD", "hôte-β")
    assert decomposed != "hôte-β"
    assert named.inventory.find_host(decomposed).id == "h_1-11aa"
    assert known_as(HOSTS, decomposed) == ["h_1-11aa"]


def test_a_name_of_two_is_refused_with_the_ids_of_both(named: Advisor) -> None:
    with pytest.raises(InvalidInput, match="a, b; give the id of one") as caught:
        named.inventory.find_instance(TWIN)
    assert caught.value.field == "instance"


@pytest.mark.parametrize("name", ["ghost", "", "\0", "\ud800", "\u200b", "%", "x" * 5000])
def test_a_name_of_none_is_not_found(named: Advisor, name: str) -> None:
    for find in (named.inventory.find_instance, named.inventory.find_host):
        with pytest.raises(NotFound):
            find(name)
    assert known_as(INSTANCES, name) == []


def test_parts_of_names_are_suggested(named: Advisor) -> None:
    assert [instance.id for instance in named.inventory.named("Почта")] == ["______-22bb"]
    assert named.inventory.named("a")[0].id == "a"
