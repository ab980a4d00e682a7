"""The lab's network: what is asked of tc, and what packets really get from it."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import network
from lab.errors import PreparationError
from lab.network import Wiring
from lab.processes import call, wait_until
from lab.shaping import check_promises, htb_commands, most_segments
from lab.workloads import ProbeWorkload, WebWorkload
from profiler.observed import IsolationSettings, NetworkSettings, parse_cpus
from tests.lab.container_run import answered_ms, ask, containers, echo, placed, registered, switch_of
from tests.lab.uplink import ShapingCase, reach

GENERATORS = "10.77.0.1"
HALF = NetworkSettings("dedicated", 0.5)
rates = st.floats(0.05, 2000, allow_nan=False)


def test_unshaped_instances_get_no_qdisc() -> None:
    assert htb_commands("up", [("10.0.0.2", None), ("10.0.0.3", NetworkSettings("none"))], 1000) == []


def test_dedicated_classes_keep_to_their_rate_and_shared_ones_borrow_up_to_the_link() -> None:
    attached = [
        ("10.0.0.2", NetworkSettings("dedicated", 100.0)),
        ("10.0.0.3", NetworkSettings("shared", 200.0)),
    ]
    lines = htb_commands("up", attached, 1000)
    assert lines[0] == "qdisc add dev up root handle 1: htb"
    assert any("parent 1: classid 1:1 htb rate 1000000kbit ceil 1000000kbit" in line for line in lines)
    assert any("parent 1: classid 1:10 htb rate 100000kbit ceil 100000kbit" in line for line in lines)
    assert any("parent 1:1 classid 1:11 htb rate 200000kbit ceil 1000000kbit" in line for line in lines)
    assert sum(line.startswith("filter add dev up parent 1: protocol ip ") for line in lines) == 2


def test_on_a_line_without_classes_all_wait_in_one_fifo() -> None:
    lines = htb_commands("up", [("10.0.0.2", None), ("10.0.0.3", NetworkSettings("none"))], None, 1.0, 500)
    assert lines[0] == "qdisc add dev up root handle 1: htb default 2"
    assert lines[1].startswith("class add dev up parent 1: classid 1:1 htb rate 1000kbit ceil 1000kbit ")
    assert lines[2].startswith("class add dev up parent 1:1 classid 1:2 htb rate 1000kbit ceil 1000kbit ")
    assert lines[3:] == ["qdisc add dev up parent 1:2 pfifo limit 500"]


def test_on_a_line_dedicated_and_shared_classes_stay_within_it() -> None:
    lines = htb_commands("up", [("10.0.0.2", HALF), ("10.0.0.3", NetworkSettings("shared", 0.4, 9.0))], None, 1.0)
    assert any("parent 1:1 classid 1:2 htb rate 100kbit ceil 1000kbit" in line for line in lines)
    assert any("parent 1:1 classid 1:10 htb rate 500kbit ceil 500kbit" in line for line in lines)
    assert any("parent 1:1 classid 1:11 htb rate 400kbit ceil 1000kbit" in line for line in lines)


def test_promises_beyond_the_line_are_refused() -> None:
    attached = [("10.0.0.2", HALF), ("10.0.0.3", NetworkSettings("dedicated", 0.6))]
    with pytest.raises(PreparationError, match=r"promised 1\.1 Mbit/s of a line of 1 Mbit/s"):
        htb_commands("up", attached, None, 1.0)
    htb_commands("up", attached, None)  # each on a link of its own
    shared = [NetworkSettings("shared", 60.0), NetworkSettings("shared", 60.0)]
    with pytest.raises(PreparationError, match=r"promised 120 Mbit/s of a line of 100 Mbit/s"):
        check_promises(shared, 100.0, None)
    check_promises(shared, None, None)  # the link they share is as wide as what they are promised


@given(st.lists(st.tuples(st.sampled_from(["shared", "dedicated"]), rates), min_size=1, max_size=6), rates)
def test_promised_rates_never_exceed_their_parent(wanted: list[tuple[str, float]], line: float) -> None:
    nets = [NetworkSettings("shared" if mode == "shared" else "dedicated", rate) for mode, rate in wanted]
    attached = [(f"10.0.0.{number}", net) for number, net in enumerate(nets)]
    try:
        lines = htb_commands("up", attached, None, line)
    except PreparationError:
        assert sum(rate for _, rate in wanted) > line
        return
    rated = [
        (line.split()[7], float(line.split(" rate ")[1].split("kbit")[0])) for line in lines if " classid " in line
    ]
    whole = next(rate for name, rate in rated if name == "1:1")
    parts = sum(rate for name, rate in rated if name not in ("1:1", "1:2"))
    assert parts <= whole + len(nets)  # rounded to whole kbit/s


@pytest.mark.parametrize(("mbit", "segments"), [(0.1, 1), (1, 1), (10, 1), (100, 8), (1000, None)])
def test_a_packet_lasts_a_millisecond_of_its_line_at_most(mbit: float, segments: int | None) -> None:
    assert most_segments(None, None, mbit) == segments
    assert most_segments(NetworkSettings("dedicated", mbit), None, 1000.0) == segments
    assert most_segments(NetworkSettings("shared", mbit / 3), mbit, None) == segments


def test_without_a_limit_packets_are_as_big_as_ever() -> None:
    assert most_segments(None, 1.0, None) is None
    assert most_segments(NetworkSettings("none"), None, None) is None


@given(st.sets(st.integers(0, 300), min_size=1))
def test_a_mask_of_cpus_says_them_all_and_no_other(cpus: set[int]) -> None:
    words = network.cpu_mask(sorted(cpus)).split(",")
    assert all(len(word) == 8 for word in words)
    value = int("".join(words), 16)
    assert {cpu for cpu in range(400) if value >> cpu & 1} == cpus


@pytest.mark.lab
@pytest.mark.parametrize("transport", ["tcp", "udp"])
@pytest.mark.parametrize("mode", ["line", "dedicated"])
@pytest.mark.parametrize("rate_mbit", [1.0, 100.0])
@pytest.mark.measured
def test_what_arrives_is_within_a_tenth_of_the_limit(mode: str, rate_mbit: float, transport: str) -> None:
    reached = reach(ShapingCase(mode, rate_mbit, transport), 1.5, 0.7)  # type: ignore[arg-type]
    assert reached.payload_mbit == pytest.approx(rate_mbit, rel=0.10)
    assert reached.frames_mbit == pytest.approx(rate_mbit, rel=0.10)


@pytest.mark.lab
@pytest.mark.measured
def test_shared_classes_get_what_they_were_promised_when_both_send() -> None:
    reached = reach(ShapingCase("shared", 10.0, "udp"), 1.5, 0.7)
    assert reached.frames_mbit == pytest.approx(10, rel=0.10)
    assert reached.first == pytest.approx(1 / 3, rel=0.05)


@pytest.mark.lab
@pytest.mark.measured
def test_a_line_is_shared_by_all_and_a_class_on_it_is_not_delayed_by_a_sender_that_fills_it() -> None:
    """Beside a sender that fills a line of 1 Mbit/s, an answer takes seconds in the one fifo, not in an own class."""

    def answer_ms(net: NetworkSettings | None) -> float | None:
        entries = [placed(0, IsolationSettings(network=net)), placed(1)]
        with containers(entries, wiring=Wiring(line_mbit=1.0)) as (quiet, greedy):
            echoes = echo(quiet, outside=True)
            receiver = greedy.start(["iperf3", "-s", "-1", "--forceflush"])
            assert wait_until(lambda: "listening" in receiver.output(), 5)
            sender = greedy.start_inside(["iperf3", "-c", GENERATORS, "-u", "-b", "5M", "-t", "10"])
            time.sleep(1.2)  # then 4.8 s of the line wait in the fifo, more than anybody asks for below
            answer = answered_ms(ask(quiet, GENERATORS))
            for process in (echoes, receiver, sender):
                process.stop(0)
        return answer

    apart = answer_ms(NetworkSettings("dedicated", 0.3))
    assert apart is not None
    assert apart < 200
    assert answer_ms(None) is None


def _packets() -> list[int]:
    """Packets that CPU 0 and CPU 1 took into the network stack so far, of all namespaces (the first column)."""
    lines = Path("/proc/net/softnet_stat").read_text().splitlines()
    return [int(line.split()[0], 16) for line in lines[:2]]


def _left_to_cpu_0(driver: int) -> float:
    """Part of the packets that CPU 0 works on while a web server and its client, both on CPU 0, talk."""
    with containers([placed(0, clients=(0,))], [WebWorkload(1)], wiring=Wiring(driver_cpus=(driver,))) as (web,):
        load = web.start(web.workload.work(web.site, 60, None))
        before = _packets()
        assert wait_until(lambda: sum(_packets()) > sum(before) + 50_000, 50)  # however much of the CPU they get
        counted = [now - then for then, now in zip(before, _packets(), strict=True)]
        load.stop(0)
    return counted[0] / sum(counted)


@pytest.mark.lab
@pytest.mark.measured
def test_packets_are_worked_on_by_the_drivers_cpus() -> None:
    """Packets, not time in softirqs: CPU 0 spends that, too, on an interrupt for CPU 1 per few packets."""
    if len(parse_cpus(Path("/sys/devices/system/cpu/online").read_text().strip())) < 2:
        pytest.skip("one CPU cannot be distinguished from another")
    at_home = _left_to_cpu_0(0)
    assert at_home > 0.5, "something else has most of this machine's packets"
    assert _left_to_cpu_0(1) < at_home / 4


@pytest.mark.lab
def test_every_end_of_every_pair_is_steered() -> None:
    with containers([placed(0), placed(1)], wiring=Wiring(driver_cpus=(1,))) as made:
        ends = [(switch_of(made), device) for device in ("uplink", "port0", "port1")]
        paths = [made[0].generators, *(container.namespace for container in made)]
        for namespace, device in [*ends, *((Path(path).name, "eth0") for path in paths)]:
            file = f"/sys/class/net/{device}/queues/rx-0/rps_cpus"
            mask = call(["ip", "netns", "exec", namespace, "cat", file])
            assert int(mask.replace(",", ""), 16) == 2, (namespace, device)


def _ended(running: Any) -> bool:
    return running.returncode is not None


@pytest.mark.lab
def test_routers_stand_in_a_row_before_the_generators_and_each_answers() -> None:
    probe = ProbeWorkload("hops", 5, ("--every", "0.02", "--hops", "4"))
    with containers([placed(0), placed(1)], [probe, probe], wiring=Wiring(routers=3)) as (one, other):
        for container in (one, other):
            running = container.start(container.workload.work(container.site, 0, None))
            ended = functools.partial(_ended, running)
            assert wait_until(ended, 20), running.errors()
            report = json.loads(running.output())
            way = ["10.78.3.1", "10.78.2.1", "10.78.1.1", container.site.address]
            assert report["circumstances"]["path"].split(" > ") == way
            assert [report["values"][f"hop{hop}_lost"]["value"] for hop in (1, 2, 3, 4)] == [0, 0, 0, 0]


def test_a_kernel_without_packet_steering_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "STEERING", "queues/rx-0/no_such_file")
    with registered() as (registry, _):
        with pytest.raises(PreparationError, match="cannot steer packets"):
            network.build(registry, [None], Wiring(driver_cpus=(0,)))
        assert not list(Path("/run/netns").glob(f"*{registry.run}*"))


@pytest.mark.lab
@pytest.mark.measured
def test_eight_instances_at_once_reach_the_generators_and_each_other() -> None:
    with containers([placed(number) for number in range(8)]) as made:
        echoes = [echo(made[0], outside=True), echo(made[7])]
        asking = [ask(container, GENERATORS) for container in made] + [ask(made[0], made[7].site.address)]
        assert all(answered_ms(container) is not None for container in asking)
        for process in echoes:
            process.stop(0)


@pytest.mark.lab
def test_taps_of_guests_hang_on_the_same_bridge_and_keep_their_namespace() -> None:
    with registered() as (registry, _):
        switch = registry.network("mine")
        registry.made("network", switch)
        call(["ip", "netns", "add", switch])
        call(["ip", "-n", switch, "tuntap", "add", "dev", "tap0", "mode", "tap"])
        net = network.build(registry, [HALF], Wiring(switch=switch, taps=("tap0",)))
        assert [(port.device, port.namespace) for port in net.ports] == [("tap0", f"/run/netns/{switch}")]
        shown = json.loads(call(["ip", "-n", switch, "-j", "-d", "link", "show", "master", "bridge"]))
        kinds = {link["ifname"]: link["linkinfo"]["info_kind"] for link in shown}
        assert kinds == {"uplink": "veth", "tap0": "tun"}
        network.unplug(switch)
        left = json.loads(call(["ip", "-n", switch, "-j", "link", "show"]))
        assert {link["ifname"] for link in left} == {"lo", "tap0"}


@pytest.mark.lab
def test_where_no_namespace_was_ever_named_the_folder_for_names_is_made() -> None:
    """In a mount namespace of its own /run is empty, as on a host that has just booted."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from tests.lab.container_run import answered_ms, ask, containers, echo, placed\n"
        "from pathlib import Path\n"
        "assert not Path('/run/netns').exists()\n"
        "with containers([placed(0)]) as (one,):\n"
        "    echo(one, outside=True)\n"
        "    assert answered_ms(ask(one, '10.77.0.1')) is not None\n"
        "print('answered', sorted(path.name for path in Path('/run/netns').iterdir()))\n"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh", sys.executable, "-c", script,
         str(Path(__file__).parents[2])],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "answered []\n"), done.stderr
