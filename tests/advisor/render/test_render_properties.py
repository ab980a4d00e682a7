"""What holds for every host, instance and pair of settings: undo after do is the identity, nothing is for nothing."""

from __future__ import annotations

from dataclasses import fields, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.render import commands, plan
from profiler.observed import Instance, IsolationSettings, NetworkSettings, Pinning
from tests.advisor.render.render_simulators import Machine
from tests.advisor.render.render_strategies import PLACES, SERVICES, VCPUS, Place, isolations

EVERYTHING = IsolationSettings(Pinning(((1,), (2,))), 150, 7, NetworkSettings("dedicated", 7), 7)


def complete(now: IsolationSettings, then: IsolationSettings) -> IsolationSettings:
    """What holds after `then` was applied on `now`."""
    given_ones = {f.name: value for f in fields(then) if (value := getattr(then, f.name)) is not None}
    return replace(now, **given_ones)


@given(PLACES, SERVICES, st.integers(0, 1), isolations(), isolations(), st.booleans())
@settings(max_examples=250, deadline=None)
def test_undo_after_do_restores_the_state(
    place: Place,
    service: str,
    number: int,
    now: IsolationSettings,
    then: IsolationSettings,
    beside_a_shaped_one: bool,
) -> None:
    host, instance = place.host(), place.instance("shop-7", number, IsolationSettings(), service)
    shaped = IsolationSettings(network=NetworkSettings("dedicated", 50))
    neighbour = place.instance("batch-1", 57, shaped)
    tools = Machine()
    neighbours: tuple[Instance, ...] = ()
    if beside_a_shaped_one:
        tools.do(commands(host, neighbour, IsolationSettings(), shaped, neighbours=(), **place.options))  # type: ignore[arg-type]
        neighbours = (neighbour,)
    options = {**place.options, "neighbours": neighbours}
    # Every setting is written once and taken back, so that the state before holds a value for each.
    once = commands(host, instance, IsolationSettings(), EVERYTHING, **options)  # type: ignore[arg-type]
    tools.do(once)
    tools.undo(once)
    tools.do(commands(host, instance, IsolationSettings(), now, **options))  # type: ignore[arg-type]
    before = dict(tools.state)
    rendered = commands(host, instance, now, then, **options)  # type: ignore[arg-type]
    tools.do(rendered)
    after = dict(tools.state)
    tools.undo(rendered)
    assert tools.state == before
    # and what was done is what would have been done from scratch
    tools.do(rendered)
    assert tools.state == after
    assert not any(c.argv for c in commands(host, instance, complete(now, then), then, **options))  # type: ignore[arg-type]


@given(PLACES, isolations())
@settings(deadline=None)
def test_nothing_is_rendered_for_settings_that_hold_already(place: Place, now: IsolationSettings) -> None:
    host, instance = place.host(), place.instance("shop-7", 1, now)
    assert commands(host, instance, now, now, **place.options) == ()  # type: ignore[arg-type]
    assert commands(host, instance, now, IsolationSettings(), **place.options) == ()  # type: ignore[arg-type]


@given(PLACES, SERVICES, st.integers(0, 1), isolations(), isolations())
@settings(deadline=None)
def test_every_argument_is_one_line_of_text_and_no_command_is_without_undo(
    place: Place, service: str, number: int, now: IsolationSettings, then: IsolationSettings
) -> None:
    host, instance = place.host(), place.instance("shop-7", number, IsolationSettings(), service)
    for command in commands(host, instance, now, then, **place.options):  # type: ignore[arg-type]
        # a rule of a QoS policy has no name of its own: it comes and goes with the policy
        of_a_policy = command.tool == "openstack" and "rule" in (*command.argv, *command.undo)
        assert bool(command.argv) == bool(command.undo) or of_a_policy
        assert command.argv or command.note
        assert command.argv != command.undo or not command.argv
        for part in (*command.argv, *command.undo):
            assert isinstance(part, str)
            assert part
            assert not set(part) & set("\n\r\0")


IDS = st.from_regex(r"(?!\.{1,2}\Z)[A-Za-z0-9._:-]{1,40}", fullmatch=True) | st.sampled_from(
    ["-x", "--", "...", "0", "Domain-0", "-"]
)
HOSTILE = st.text(max_size=20) | st.sampled_from(
    ["-", "--help", "--property", "-x y", "a\nb", "a\0b", "../../etc", "$(id)", "a;b", " a", "a ", "x=y", "vda --live"]
)
LABELS = ("mac", "disk", "cgroup", "iothreads", "flavor", "port", "qos_policy")


@given(PLACES, IDS, st.dictionaries(st.sampled_from(LABELS), HOSTILE), st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_hostile_name_is_refused_or_stays_an_operand(
    place: Place, name: str, labels: dict[str, str], otherwise_named: bool
) -> None:
    host, plain = place.host(), place.instance("vm", 1, IsolationSettings())
    if otherwise_named:
        labels = {**plain.labels, **labels}
    wanted = IsolationSettings(Pinning(((2,), (3,))), 50, 512, NetworkSettings("dedicated", 9), 9)
    try:
        hostile = Instance(name, VCPUS, labels=labels)
        made = commands(host, hostile, IsolationSettings(), wanted, **place.options)  # type: ignore[arg-type]
        made += plan(host, hostile, wanted, (), {}, **place.options)  # type: ignore[arg-type]
    except InvalidInput as error:
        assert error.field
        return
    other = replace(plain, labels={key: value for key, value in plain.labels.items() if key != "port"})
    harmless = [c for one in (plain, other) for c in commands(host, one, IsolationSettings(), wanted, **place.options)]  # type: ignore[arg-type]
    options = {part for c in harmless for part in (*c.argv, *c.undo) if part.startswith("-")} - {"-1"}
    for command in made:
        for part in (*command.argv, *command.undo):
            assert not part.startswith("-") or part in options
            assert ".." not in part.split("/")
            assert not set(part) & set("\n\r\0")
        assert not set(command.note) & set("\n\r\0")


@given(PLACES, st.sampled_from(["uplink", "kernel", "render"]), HOSTILE)
@settings(max_examples=100, deadline=None)
def test_a_hostile_label_of_the_host_is_refused_or_never_written(place: Place, label: str, value: str) -> None:
    host = replace(place.host(), labels={"uplink": "eth0", label: value})
    instance = place.instance("shop-7", 1, IsolationSettings(), "latency")
    options = {key: one for key, one in place.options.items() if key != "target"}
    try:
        made = commands(host, instance, IsolationSettings(), EVERYTHING, **options)  # type: ignore[arg-type]
    except InvalidInput as error:
        assert error.field.endswith(label)  # type: ignore[union-attr]
        return
    if label != "uplink":
        plain = replace(host, labels={"uplink": "eth0"})
        harmless = commands(plain, instance, IsolationSettings(), EVERYTHING, **options)  # type: ignore[arg-type]
        written, expected = ({part for c in many for part in c.argv} for many in (made, harmless))
        assert {part for part in written if "burst" not in part} <= expected
