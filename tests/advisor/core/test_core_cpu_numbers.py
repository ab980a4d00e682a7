"""CPUs whose numbers have gaps, and isolated ones: the same answers, by the host's own numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import Candidate, Host, Instance, Pinning
from models.physics.prior import PriorPredictor
from tests.advisor.core.core_clouds import ask, cloud, codes, host, hosts_of, request, vm
from tests.examples import examples

NUMBERS = {4: (0, 2, 24, 25), 6: (1, 8, 9, 40, 57, 63)}


def _renumbered(pinning: Pinning | None, numbers: tuple[int, ...]) -> Pinning | None:
    return pinning and Pinning(tuple(tuple(numbers[cpu] for cpu in cpus) for cpus in pinning.cpus))


def _gapped(one: Host) -> Host:
    numbers = NUMBERS[one.pcpus]
    numa = tuple(tuple(numbers[cpu] for cpu in node) for node in one.numa)
    driver = tuple(numbers[cpu] for cpu in one.driver_cpus)
    isolated = tuple(numbers[cpu] for cpu in one.isolated_cpus)
    return replace(one, cpu_ids=numbers, numa=numa, driver_cpus=driver, isolated_cpus=isolated)


def _moved(one: Instance, numbers: Mapping[str, tuple[int, ...]]) -> Instance:
    pinning = _renumbered(one.settings.pinning, numbers[one.host or ""])
    return replace(one, settings=replace(one.settings, pinning=pinning))


@st.composite
def clouds(draw: st.DrawFn) -> tuple[list[Host], list[Instance], Instance]:
    hosts, residents = [], []
    for name in ("a", "b"):
        pcpus = draw(st.sampled_from(sorted(NUMBERS)))
        hosts.append(
            host(
                name,
                pcpus=pcpus,
                threads_per_core=draw(st.sampled_from([1, 2])),
                numa=draw(st.sampled_from([(), (tuple(range(pcpus // 2)), tuple(range(pcpus // 2, pcpus)))])),
                driver_cpus=draw(st.sampled_from([(), (0,)])),
                isolated_cpus=draw(st.sampled_from([(), (pcpus - 1,)])),
            )
        )
        for at in range(draw(st.integers(0, 3))):
            pins = draw(st.sampled_from(["", f"0:{at}", f"0:{pcpus - 1}", f"0:0,{pcpus - 1}"]))
            residents.append(vm(f"{name}{at}", draw(st.sampled_from(["spin", "web"])), on=name, pins=pins))
    new_vm = vm(
        "new",
        draw(st.sampled_from(["spin", "web"])),
        vcpus=draw(st.integers(1, 3)),
        service=draw(st.sampled_from(["latency", "throughput"])),
        max_time_short=draw(st.sampled_from([None, 0.05])),
    )
    return hosts, residents, new_vm


@given(clouds())
@settings(max_examples=examples(60), deadline=None)
def test_the_numbers_of_cpus_change_no_answer_but_the_numbers_in_it(
    drawn: tuple[list[Host], list[Instance], Instance],
) -> None:
    hosts, residents, new_vm = drawn
    numbers = {one.id: NUMBERS[one.pcpus] for one in hosts}
    plain = ask(cloud(hosts, residents), request(new_vm))
    gapped = ask(cloud([_gapped(one) for one in hosts], [_moved(one, numbers) for one in residents]), request(new_vm))
    assert [(one.host, one.code) for one in gapped.rejected] == [(one.host, one.code) for one in plain.rejected]

    def shown(one: Candidate, known: tuple[int, ...] | None) -> tuple[object, ...]:
        def named(pinning: Pinning | None) -> Pinning | None:
            return pinning if known is None else _renumbered(pinning, known)

        driver = one.mitigation[-1].driver_cpus if one.mitigation else None
        driver = driver if known is None or driver is None else tuple(sorted(known[cpu] for cpu in driver))
        changes = {name: named(settings.pinning) for name, settings in (one.changes or {}).items()}
        return one.host, one.score, named(one.pinning), changes, driver

    assert [shown(one, None) for one in gapped.candidates] == [
        shown(one, numbers[one.host]) for one in plain.candidates
    ]


def test_isolated_cpus_leave_the_others_for_who_is_not_pinned() -> None:
    isolated = host("iso", pcpus=6, isolated_cpus=(4, 5))
    small = host("small", pcpus=4)
    residents = [vm(f"{name}{at}", on=name) for name in ("iso", "small") for at in range(3)]
    apart = vm("apart", on="iso", vcpus=2, pins="0:4|1:5")
    predicted = PriorPredictor().predict(cloud([isolated, small], [*residents, apart]).scenes).throughput.expected
    at = {one.id: slot for slot, one in enumerate(cloud([isolated], [*residents, apart]).residents[0])}
    assert predicted[0, [at["iso0"], at["iso1"], at["iso2"]]] == pytest.approx(predicted[1, :3])
    assert predicted[0, at["apart"]] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    ("pins", "vcpus", "overcommit", "refused"),
    [
        ("", 4, 1.5, False),
        ("", 5, 4.0, True),  # more than the shared CPUs
        ("", 3, 1.0, True),  # the four shared ones are promised to r by half
        ("0:4|1:5", 2, 0.5, False),  # the shared ones are full
        ("0:0|1:5", 2, 0.5, True),
    ],
)
def test_isolated_cpus_are_room_for_who_is_pinned_there_only(
    pins: str, vcpus: int, overcommit: float, refused: bool
) -> None:
    there = host("iso", pcpus=6, isolated_cpus=(4, 5), cpu_overcommit=overcommit)
    residents = [vm("r", "calm", on="iso", vcpus=2), vm("own", "calm", on="iso", vcpus=2, pins="0:4|1:5")]
    found = ask(cloud([there], residents), request(vm("new", "calm", vcpus=vcpus, pins=pins)))
    assert codes(found) == ({"iso": "capacity.vcpus"} if refused else {})


def test_who_is_not_pinned_has_no_room_where_every_cpu_is_isolated() -> None:
    there = host("iso", pcpus=4, isolated_cpus=(0, 1, 2, 3))
    asked = cloud([there], [vm("own", on="iso", pins="0:1")])
    assert codes(ask(asked, request(vm("new")))) == {"iso": "capacity.vcpus"}
    assert hosts_of(ask(asked, request(vm("new", pins="0:2")))) == ["iso"]


def test_pack_fills_the_host_whose_shared_cpus_are_fuller() -> None:
    isolated, plain = host("iso", pcpus=6, isolated_cpus=(2, 3, 4, 5)), host("plain", pcpus=6)
    residents = [vm("a", "calm", on="iso", vcpus=1), vm("b", "calm", on="plain", vcpus=2)]
    pinned = vm("own", "calm", on="iso", vcpus=2, pins="0:4|1:5")
    found = ask(cloud([plain, isolated], [*residents, pinned]), request(vm("new", "calm"), objective="pack"))
    assert [(one.host, one.score) for one in found.candidates] == [("iso", 2.0), ("plain", 1.5)]


def test_a_pin_to_a_cpu_that_a_host_lacks_is_refused_there() -> None:
    asked = cloud([host("a", cpu_ids=(0, 2, 4, 6)), host("b"), host("c", cpu_ids=(2, 3, 5, 6))])
    found = ask(asked, request(vm("new", pins="0:6")))
    assert (codes(found), hosts_of(found)) == ({"b": "capacity.pinning"}, ["a", "c"])
