"""The contract that every backend keeps, on hosts in memory and on recordings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.backends import Backend, BackendError, Counters
from profiler.collectors import collect
from profiler.observed import Instance, check_id
from tests.examples import examples
from tests.profiler.contract import CASES, MAKERS, Case, check_whole
from tests.profiler.unsteady import Unsteady


@pytest.fixture(params=CASES, ids=[case.name for case in CASES])
def case(request: pytest.FixtureRequest) -> Case:
    made: Case = request.param
    return made


@pytest.fixture
def backend(case: Case) -> Backend:
    return case.backend(case.source())


def _two(case: Case) -> tuple[Counters, Counters]:
    source = case.source()
    backend = case.backend(source)
    first = backend.read_counters()
    case.later(source)
    return first, backend.read_counters()


def test_instances_are_listed_in_order_of_their_ids(backend: Backend) -> None:
    names = [instance.id for instance in backend.list_instances()]
    assert names
    assert names == sorted(set(names))
    assert all(check_id(name) for name in names)


def test_one_reading_holds_every_listed_instance(backend: Backend) -> None:
    counters = backend.read_counters()
    assert set(counters.instances) == {instance.id for instance in backend.list_instances()}
    assert counters.host == backend.host
    assert check_id(backend.host)
    assert counters.vanished == ()


def test_counters_are_not_negative_and_every_missing_one_has_a_reason(backend: Backend) -> None:
    for domain in backend.read_counters().instances.values():
        assert domain.vcpus >= 1
        for name in ("cpu_ns", "net_bytes", "disk_bytes"):
            value = getattr(domain, name)
            assert value is None or value >= 0
            by_tasks = "tasks" not in domain.absent and (
                name == "cpu_ns" or all(task.io_bytes is not None for task in domain.tasks.values())
            )
            by_rings = name != "cpu_ns" and domain.pages is not None
            assert value is not None or domain.absent.get(name) or by_rings or (name != "net_bytes" and by_tasks)


def test_two_readings_give_every_metric_of_every_instance_or_the_reason_why_not(case: Case) -> None:
    first, second = _two(case)
    collected = collect(first, second)
    check_whole(first, second, collected)
    assert second.monotonic_s > first.monotonic_s
    assert collected.drops == ()
    assert {row.instance for row in collected.rows if row.scope == "instance"} == set(second.instances)


def test_cpu_waiting_and_block_fill_the_virtual_cpus(case: Case) -> None:
    first, second = _two(case)
    rows = {row.instance: row.values for row in collect(first, second).rows if row.scope == "instance" and row.instance}
    for name, values in rows.items():
        parts = [values[metric] for metric in ("cpu", "waiting", "block")]
        assert sum(parts) == pytest.approx(max(100 * second.instances[name].vcpus, values["cpu"]), rel=1e-3)


def test_isolation_of_every_instance_can_be_read(backend: Backend) -> None:
    for instance in backend.list_instances():
        settings_ = backend.read_isolation(instance)
        assert settings_.weight is not None
        assert settings_.pinning is None or len(settings_.pinning.cpus) == instance.vcpus


def test_isolation_of_an_unknown_instance_says_so(backend: Backend) -> None:
    with pytest.raises(BackendError, match="ghost is not on this host"):
        backend.read_isolation(Instance("ghost"))


def test_closing_twice_is_harmless(backend: Backend) -> None:
    backend.read_counters()
    backend.close()
    backend.close()


@pytest.mark.parametrize("name", sorted(MAKERS))
@given(seed=st.integers(0, 2**32), share=st.sampled_from([0.002, 0.02, 0.2, 1.0]), garbled=st.booleans())
@settings(max_examples=examples(40), deadline=None)
def test_files_that_fail_at_random_give_absences_or_one_error(
    name: str, seed: int, share: float, garbled: bool
) -> None:
    case = MAKERS[name]
    source = case.source()
    unsteady = Unsteady(source, seed, garbled=garbled)
    try:
        backend = case.backend(unsteady)
    except BackendError as error:
        pytest.fail(f"nothing failed yet: {error}")
    unsteady.share = share
    before: Counters | None = None
    for _ in range(4):
        try:
            counters = backend.read_counters()
            for instance in backend.list_instances():
                backend.read_isolation(instance)
        except BackendError as error:
            assert str(error)
            before = None
        else:
            if before is not None:
                check_whole(before, counters, collect(before, counters))
            before = counters
        case.later(source)
    backend.close()
