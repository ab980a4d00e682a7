"""Newcomers on clouds of large hosts: what policies may know, and the simple rules."""

import numpy as np
import pytest

from research.benchmarks.newcomers import FIGURES, RULES, NewcomerCluster, by_rule, policies, product, table


@pytest.fixture(scope="module")
def few() -> NewcomerCluster:
    """The last five of 150 VMs come anew."""
    return NewcomerCluster.draw(1, 1.0, 5, kinds=True, never_known=False)


def test_newcomers_are_the_last_of_the_cloud_and_names_of_kinds_change_nobody_s_size(few: NewcomerCluster) -> None:
    plain = NewcomerCluster.draw(1, 1.0, 5, kinds=False, never_known=False)
    everybody = few.cluster.inventory.instances

    assert (*few.residents, *few.newcomers) == everybody
    assert [one.vcpus for one in everybody] == [one.vcpus for one in plain.cluster.inventory.instances]
    assert len({one.id.partition("-")[0] for one in everybody}) > 3
    assert all(one.demand["cpu"].mean <= one.vcpus for one in everybody)


@pytest.mark.parametrize("name", RULES)
def test_rules_of_thumb_go_by_what_is_known_of_each_host(few: NewcomerCluster, name: str) -> None:
    chosen = by_rule(RULES[name], few)

    hosts = [host.id for host in few.cluster.inventory.hosts]
    wanted, promised = np.zeros(len(hosts)), np.zeros(len(hosts))
    for one in few.residents:
        wanted[hosts.index(str(one.host))] += one.demand["cpu"].mean
        promised[hosts.index(str(one.host))] += one.vcpus
    first = {"first fit": 0, "fewest vCPUs": int(promised.argmin()), "least CPU by means": int(wanted.argmin())}
    assert chosen[0] == first.get(name, chosen[0])
    assert len(chosen) == 5


def test_the_product_is_not_told_what_newcomers_want_before_they_are_there(few: NewcomerCluster) -> None:
    other = NewcomerCluster.draw(1, 1.0, 5, kinds=True, never_known=True)

    assert product("worst", few)[0] == product("worst", other)[0]


def test_the_table_has_every_policy_and_how_much_less_the_first_has(few: NewcomerCluster) -> None:
    row = {
        name: [dict.fromkeys(FIGURES, 10.0 * at), dict.fromkeys(FIGURES, 10.0 * at)]
        for at, name in enumerate(policies())
    }

    lines = table(row).splitlines()

    assert lines[2].startswith("| Cotenant | 0.0 | 0.0 | 0.0 |  |")
    assert lines[4] == "| first fit | 20.0 | 20.0 | 20.0 | 20.0 (20.0 to 20.0) |"
    assert len(lines) == 2 + len(policies())
