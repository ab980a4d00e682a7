"""Containers: what is found where, and what is said where a host does not show it."""

from __future__ import annotations

import errno
from itertools import pairwise

import pytest

from profiler.backends import BackendError, LxcBackend
from profiler.backends.lxc import control_groups
from profiler.backends.lxc.control_groups import GroupsV2
from profiler.collectors import collect
from tests.profiler.contract import MAKERS
from tests.profiler.fake_host import FakeHost, host_of_shop

DOCKER_ID = "ab12" * 16
BOTH = pytest.mark.parametrize("version", ["v1", "v2"])


def _backend(version: str) -> LxcBackend:
    case = MAKERS[f"containers {version}"]
    return LxcBackend(case.source(), host="h1")


@BOTH
def test_both_versions_give_the_same_settings(version: str) -> None:
    backend = _backend(version)
    instance = backend.list_instances()[1]
    assert instance.id == "shop"
    settings = backend.read_isolation(instance)
    assert instance.vcpus == 2
    assert settings.pinning is not None
    assert str(settings.pinning) == "0:0-1|1:0-1"
    assert (settings.cap_percent, settings.weight, settings.disk_limit_mb_s) == (150.0, 512, 2.0)


@BOTH
def test_both_versions_give_the_same_counters(version: str) -> None:
    counters = _backend(version).read_counters().instances["shop"]
    assert counters.cpu_ns == 1_000_000_000
    assert (counters.net_bytes, counters.disk_bytes) == (16_384, 4096)
    assert counters.further["system_ns"] == 500_000_000
    assert sum(task.run_ns for task in counters.tasks.values()) == 1_000_000_000


@pytest.mark.parametrize(("isolated", "vcpus"), [("1", 1), ("0-1", 2), ("", 2), ("5", 2)])
def test_a_container_has_the_cpus_on_which_the_scheduler_runs_it(isolated: str, vcpus: int) -> None:
    host = host_of_shop(version=2)
    host.files["/sys/devices/system/cpu/isolated"] = f"{isolated}\n"
    assert [one.vcpus for one in LxcBackend(host).list_instances()] == [vcpus]


def test_a_group_without_a_cpuset_of_its_own_is_pinned_as_the_group_above() -> None:
    host = host_of_shop(version=2)
    path = next(name for name in host.files if name.endswith("/cpuset.cpus.effective"))
    above = path.rsplit("/", 2)[0]
    host.files[f"{above}/cpuset.cpus.effective"] = "4-5\n"
    del host.files[path]
    backend = LxcBackend(host)
    (instance,) = backend.list_instances()
    assert str(backend.read_isolation(instance).pinning) == "0:4-5|1:4-5"


def test_a_task_that_ends_while_it_is_read_is_left_out() -> None:
    host = FakeHost()
    host.version_1("lxc/shop", [1, 2], 5)
    host.task(1, 5)
    host.files["/proc/2/task/2/schedstat"] = errno.ESRCH
    assert set(LxcBackend(host, host="h").read_counters().instances["shop"].tasks) == {"1"}


def test_task_lists_that_change_all_the_time_do_not_fill_the_memory() -> None:
    control_groups._known_ids.cache_clear()
    host = FakeHost()
    found = GroupsV2(host, "/cg")
    for turn in range(3000):
        many = turn % 2 * 500
        host.files["/cg/shop/cgroup.threads"] = "".join(f"{turn + number}\n" for number in range(1 + many))
        assert found.tasks("shop") == tuple(range(turn, turn + 1 + many))
    remembered = control_groups._known_ids.cache_info()
    assert remembered.currsize <= 1024
    assert remembered.misses <= 3000 / 2 + 1024, "long lists are not remembered at all"


def test_tasks_of_groups_inside_an_instance_count_for_it() -> None:
    host = FakeHost()
    host.version_2("lxc.payload.shop", [], 5)
    host.files["/cg/lxc.payload.shop/init.scope/cgroup.threads"] = "5\n"
    host.task(5, 5)
    assert _tasks(LxcBackend(host, host="h")) == {"5"}


CPUACCT, SERVICE_BYTES = "/cg/cpuacct/lxc/shop", "/cg/blkio/lxc/shop/blkio.throttle.io_service_bytes_recursive"


@pytest.mark.parametrize(
    ("version", "files", "name", "reason"),
    [
        (1, {SERVICE_BYTES: "Total 0\n", "/proc/7/task/7/io": errno.EACCES}, "disk_bytes", "run as root"),
        (1, {}, "psi_cpu_us", "no such file"),
        (1, {"/proc/7/task/7/schedstat": errno.ENOENT}, "tasks", "none of its 1 tasks"),
        (1, {f"{CPUACCT}/tasks": "7\n8\n", "/proc/8/task/8/schedstat": "1 2\n"}, "tasks", "3 numbers expected"),
        (2, {"/cg/lxc/shop/cpu.stat": "usage_usec 5\nsystem_usec 2\n"}, "throttled_ns", "has no throttled_usec"),
    ],
    ids=["block I/O", "pressure", "no scheduler counts", "one garbled task", "throttling"],
)
def test_what_a_host_does_not_show_is_absent_with_the_reason_and_not_zero(
    version: int, files: dict[str, str | int], name: str, reason: str
) -> None:
    host = host_of_shop(version)
    host.files |= files
    shop = LxcBackend(host, host="h").read_counters().instances["shop"]
    assert getattr(shop, name, None) is None or name == "tasks"
    assert name not in shop.further
    assert reason in shop.absent[name]


def test_block_io_comes_from_the_tasks_where_the_group_does_not_count_it() -> None:
    host = host_of_shop()
    host.files |= {SERVICE_BYTES: "Total 0\n", "/proc/7/task/7/io": "read_bytes: 4096\nwrite_bytes: 1\n"}
    shop = LxcBackend(host, host="h").read_counters().instances["shop"]
    assert shop.tasks["7"].io_bytes == 4097
    assert "disk_bytes" not in shop.absent


def test_a_group_that_may_not_be_read_asks_for_root() -> None:
    host = host_of_shop()
    host.files[f"{CPUACCT}/tasks"] = errno.EACCES
    with pytest.raises(BackendError, match="run as root"):
        LxcBackend(host, host="h").read_counters()


def test_tasks_that_may_not_be_read_are_absent_and_not_idle() -> None:
    host = host_of_shop()
    backend = LxcBackend(host, host="h")
    first = backend.read_counters()
    host.files["/proc/7/task/7/schedstat"] = errno.EACCES
    host.files[f"{CPUACCT}/cpuacct.usage"] = "900000000\n"
    host.later()
    collected = collect(first, backend.read_counters())
    absences = {absence.metric: absence.reason for absence in collected.absences if absence.instance == "shop"}
    assert {"waiting", "block", "execution", "pages_per_execution"} <= absences.keys()
    assert all("permission denied" in absences[metric] for metric in ("waiting", "block", "execution"))


def test_a_group_that_counts_no_run_time_and_hides_its_tasks_has_no_cpu() -> None:
    host = host_of_shop()
    host.files[f"{CPUACCT}/cpuacct.usage"] = errno.EACCES
    host.files["/proc/7/task/7/schedstat"] = errno.EACCES
    backend = LxcBackend(host, host="h")
    first = backend.read_counters()
    host.later()
    collected = collect(first, backend.read_counters())
    assert not [row for row in collected.rows if row.instance == "shop" and "cpu" in row.values]
    assert [a.reason for a in collected.absences if (a.instance, a.metric) == ("shop", "cpu")]


def test_slow_counters_give_the_rate_over_their_own_time_in_every_reading() -> None:
    host = host_of_shop()
    backend = LxcBackend(host, host="h")
    rates: list[float] = []
    first = backend.read_counters()
    for second in range(1, 26):
        host.later()
        host.files[f"{CPUACCT}/cpuacct.usage_sys"] = f"{500_000 + second * 250_000_000}\n"
        counters = backend.read_counters()
        rates += [row.values["system"] for row in collect(first, counters).rows if "system" in row.values]
        first = counters
    assert rates == pytest.approx([25.0] * 25)


def test_a_group_made_anew_under_its_name_drops_one_sample_and_goes_on() -> None:
    host = host_of_shop()
    backend = LxcBackend(host, host="h")
    readings = []
    for usage in (9_000_000_000, 9_000_000_000, 9_000_000_000, 1_000_000, 2_000_000, 2_000_000_000):
        host.files[f"{CPUACCT}/cpuacct.usage"] = f"{usage}\n"
        host.files[f"{CPUACCT}/cpuacct.usage_sys"] = f"{usage // 2}\n"
        readings.append(backend.read_counters())
        host.later(2.0)
    pairs = [collect(*pair) for pair in pairwise(readings)]
    assert [[drop.reason for drop in each.drops] for each in pairs] == [[], [], ["reset"], [], []]
    # Not the rate of the group that is gone: 0.0 until it ended, and the new one's since it was first read.
    system = [row.values["system"] for each in pairs for row in each.rows if "system" in row.values]
    assert system == pytest.approx([0.0, 0.0, 0.025, 0.025])


def test_block_io_that_is_counted_elsewhere_since_is_absent_for_one_reading() -> None:
    host = host_of_shop()
    counted, host.files[SERVICE_BYTES] = host.files[SERVICE_BYTES], "Total 0\n"
    host.files["/proc/7/task/7/io"] = "read_bytes: 4096\nwrite_bytes: 0\n"
    backend = LxcBackend(host, host="h")
    first = backend.read_counters()
    host.files[SERVICE_BYTES] = counted
    gaps = []
    for _ in range(40):
        host.later()
        second = backend.read_counters()
        gaps += [a.reason for a in collect(first, second).absences if a.metric == "pages_exchanged"]
        first = second
    assert gaps == ["they are counted in another way since this reading"]


def test_resident_memory_is_that_of_all_processes() -> None:
    host = host_of_shop()
    host.files[f"{CPUACCT}/cgroup.procs"] = "7\n9\n8\n"
    host.files["/proc/9/statm"] = "1000 256 100 1 0 50 0\n"  # 8 ended meanwhile
    assert LxcBackend(host, host="h").read_counters().instances["shop"].gauges["rss_mb"] == 2.0


def _ran(host: FakeHost, tids: dict[int, int]) -> None:
    """A second in which these tasks have run, in ns since they began; the group's own account agrees."""
    host.later(1.0)
    for tid, run_ns in tids.items():
        host.task(tid, run_ns, 5, 3)
    host.files[f"{CPUACCT}/cpuacct.usage"] = f"{sum(tids.values())}\n"


def _tasks(backend: LxcBackend) -> set[str]:
    return set(backend.read_counters().instances["shop"].tasks)


def test_a_new_task_is_seen_as_soon_as_it_used_cpu_time() -> None:
    host, backend = _shop_with_tasks({1: 1_000_000})
    host.files[f"{CPUACCT}/tasks"] = "1\n2\n"
    _ran(host, {1: 2_000_000, 2: 100_000})
    assert _tasks(backend) == {"1", "2"}


def test_a_new_task_that_used_nothing_yet_is_seen_within_five_readings() -> None:
    host, backend = _shop_with_tasks({1: 1_000_000})
    host.files[f"{CPUACCT}/tasks"] = "1\n2\n"
    seen = []
    for second in range(2, 7):
        _ran(host, {1: second * 1_000_000, 2: 0})
        seen.append(_tasks(backend))
    assert seen[-1] == {"1", "2"}


def test_a_task_that_ended_is_missed_in_the_next_reading() -> None:
    host, backend = _shop_with_tasks({1: 1_000_000, 2: 1_000_000})
    host.files[f"{CPUACCT}/tasks"] = "1\n"
    host.files["/proc/2/task/2/schedstat"] = errno.ESRCH
    host.later(1.0)
    host.task(1, 2_000_000, 5, 3)
    host.files[f"{CPUACCT}/cpuacct.usage"] = "3000000\n"
    assert _tasks(backend) == {"1"}


def test_a_group_that_used_no_time_has_the_same_counts_without_a_look_at_its_tasks() -> None:
    host, backend = _shop_with_tasks({1: 1_000_000})
    before = backend.read_counters()
    host.files["/proc/1/task/1/schedstat"] = "garbage"
    host.later(1.0)
    collected = collect(before, backend.read_counters())
    values = next(row.values for row in collected.rows if row.instance == "shop" and row.scope == "instance")
    assert (values["cpu"], values["waiting"], values["execution"]) == (0, 0, 0)


def _shop_with_tasks(tids: dict[int, int]) -> tuple[FakeHost, LxcBackend]:
    host = FakeHost()
    host.version_1("lxc/shop", list(tids), sum(tids.values()))
    for tid, run_ns in tids.items():
        host.task(tid, run_ns, 5, 3)
    backend = LxcBackend(host, host="h")
    assert _tasks(backend) == {str(tid) for tid in tids}
    return host, backend


@pytest.mark.parametrize(
    ("ready", "threads"),
    [({7: (2, 8)}, 1.0), ({7: (2, 8), 8: (0, 0)}, 1.0), ({7: (2, 8), 8: (5, 5)}, 2.0), ({7: (1, 8), 8: (1, 0)}, 1.22)],
    ids=["one thread", "one beside a sleeper", "two alike", "one beside a little of another"],
)
def test_ready_time_is_divided_among_so_many_threads(ready: dict[int, tuple[int, int]], threads: float) -> None:
    host = FakeHost()
    host.version_2("lxc/shop", [7, 8], 0)
    for tid in (7, 8):
        host.task(tid, 0)
    backend = LxcBackend(host, host="h")
    first = backend.read_counters()
    for tid, (run, wait) in ready.items():
        host.task(tid, run * 10_000_000, wait * 10_000_000, run)
    host.files["/cg/lxc/shop/cpu.stat"] = (
        f"usage_usec {sum(run for run, _ in ready.values()) * 10_000}\nsystem_usec 0\n"
    )
    host.later(1.0)
    samples = collect(first, backend.read_counters()).samples
    (found,) = [one.value for one in samples if (one.instance, one.metric) == ("shop", "ready_threads")]
    assert found == pytest.approx(threads, abs=0.01)


def test_an_instance_that_is_never_ready_has_no_number_of_threads() -> None:
    host = host_of_shop(2)
    backend = LxcBackend(host, host="h")
    first = backend.read_counters()
    host.later(1.0)
    assert "ready_threads" not in {one.metric for one in collect(first, backend.read_counters()).samples}
