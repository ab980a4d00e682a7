"""What holds for every host, instance and pair of settings: undo after do is the identity, nothing is for nothing."""

from __future__ import annotations

from dataclasses import fields, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from render_simulators import Machine

from advisor.errors import InvalidInput
from advisor.render import commands
from profiler.observed import HOST_KINDS, Host, Instance, IsolationSettings, NetworkSettings, Pinning

PCPUS, VCPUS = 4, 2
MACHINES = st.sampled_from(
    [
        (kind, cgroup, scheduler)
        for kind in HOST_KINDS
        for cgroup in (1, 2)
        for scheduler in ("credit", "credit2", "rtds")
    ]
)


def networks() -> st.SearchStrategy[NetworkSettings]:
    rates = st.floats(0.1, 1000)
    shaped = st.builds(
        lambda mode, rate, more: NetworkSettings(mode, rate, None if more is None else rate + more),
        st.sampled_from(["shared", "dedicated"]), rates, st.none() | st.floats(0, 500),
    )  # fmt: skip
    return st.just(NetworkSettings()) | shaped


def isolations() -> st.SearchStrategy[IsolationSettings]:
    cpus = st.lists(st.integers(0, PCPUS - 1), unique=True).map(lambda found: tuple(sorted(found)))
    return st.builds(
        IsolationSettings,
        pinning=st.none() | st.tuples(cpus, cpus).map(Pinning),
        cap_percent=st.none() | st.floats(0.1, 100 * VCPUS),
        weight=st.none() | st.integers(1, 65_535),
        network=st.none() | networks(),
        disk_limit_mb_s=st.none() | st.floats(0.001, 10_000),
    )


def place(kind: str) -> tuple[Host, Instance]:
    disk = "8:0" if kind == "lxc" else "vda"
    host = Host("h1", kind, PCPUS, 8192, nic_mbit=1000, labels={"uplink": "eth0"})  # type: ignore[arg-type]
    return host, Instance("shop-7", vcpus=VCPUS, labels={"mac": "52:54:00:12:34:56", "disk": disk})


def complete(now: IsolationSettings, then: IsolationSettings) -> IsolationSettings:
    """What holds after `then` was applied on `now`."""
    given_ones = {f.name: value for f in fields(then) if (value := getattr(then, f.name)) is not None}
    return replace(now, **given_ones)


@given(MACHINES, isolations(), isolations(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_undo_after_do_restores_the_state(
    machine: tuple[str, int, str], now: IsolationSettings, then: IsolationSettings, beside_a_shaped_one: bool
) -> None:
    kind, cgroup, scheduler = machine
    host, instance = place(kind)
    shaped = IsolationSettings(network=NetworkSettings("dedicated", 50))
    neighbour = Instance("batch-1", vcpus=VCPUS, labels={"mac": "52:54:00:12:34:57"})
    tools, neighbours = Machine(), ()
    if beside_a_shaped_one:
        tools.do(
            commands(host, neighbour, IsolationSettings(), shaped, scheduler=scheduler, cgroup=cgroup, neighbours=())
        )
        neighbours = (replace(neighbour, settings=shaped),)
    everything = IsolationSettings(Pinning(((1,), (2,))), 150, 7, NetworkSettings("dedicated", 7), 7)
    options = {"scheduler": scheduler, "cgroup": cgroup, "neighbours": neighbours}
    # Every setting is written once and taken back, so that the state before holds a value for each.
    once = commands(host, instance, IsolationSettings(), everything, **options)
    tools.do(once)
    tools.undo(once)
    tools.do(commands(host, instance, IsolationSettings(), now, **options))
    before = dict(tools.state)
    rendered = commands(host, instance, now, then, **options)
    tools.do(rendered)
    after = dict(tools.state)
    tools.undo(rendered)
    assert tools.state == before
    # and what was done is what would have been done from scratch
    tools.do(rendered)
    assert tools.state == after
    assert not any(c.argv for c in commands(host, instance, complete(now, then), then, **options))


@given(MACHINES, isolations())
@settings(deadline=None)
def test_nothing_is_rendered_for_settings_that_hold_already(
    machine: tuple[str, int, str], now: IsolationSettings
) -> None:
    kind, cgroup, scheduler = machine
    assert commands(*place(kind), now, now, scheduler=scheduler, cgroup=cgroup) == ()
    assert commands(*place(kind), now, IsolationSettings(), scheduler=scheduler, cgroup=cgroup) == ()


@given(MACHINES, isolations(), isolations())
@settings(deadline=None)
def test_every_argument_is_one_line_of_text_and_no_command_is_without_undo(
    machine: tuple[str, int, str], now: IsolationSettings, then: IsolationSettings
) -> None:
    kind, cgroup, scheduler = machine
    for command in commands(*place(kind), now, then, scheduler=scheduler, cgroup=cgroup):
        assert bool(command.argv) == bool(command.undo)
        assert command.argv or command.note
        assert command.argv != command.undo or not command.argv
        for part in (*command.argv, *command.undo):
            assert isinstance(part, str)
            assert part
            assert not set(part) & set("\n\r\0")


IDS = st.from_regex(r"[A-Za-z0-9._:-]{1,40}", fullmatch=True) | st.sampled_from(
    ["-x", "--", "..", ".", "0", "Domain-0", "-"]
)


@given(MACHINES, IDS, st.dictionaries(st.sampled_from(["mac", "disk", "cgroup"]), st.text(max_size=20)))
@settings(max_examples=300, deadline=None)
def test_a_hostile_name_is_refused_or_stays_an_operand(
    machine: tuple[str, int, str], name: str, labels: dict[str, str]
) -> None:
    kind, cgroup, scheduler = machine
    host, _ = place(kind)
    wanted = IsolationSettings(Pinning(((2,),)), 50, 512, NetworkSettings("dedicated", 9), 9)
    try:
        made = commands(
            host, Instance(name, labels=labels), IsolationSettings(), wanted, scheduler=scheduler, cgroup=cgroup
        )
    except InvalidInput:
        return
    harmless = commands(host, Instance("vm"), IsolationSettings(), wanted, scheduler=scheduler, cgroup=cgroup)
    options = {part for command in harmless for part in command.argv if part.startswith("-")} | {
        "--device", "--total-bytes-sec",
    }  # fmt: skip
    for command in made:
        for part in command.argv:
            assert not part.startswith("-") or part in options
            assert ".." not in part.split("/")
            assert not set(part) & set("\n\r\0")
