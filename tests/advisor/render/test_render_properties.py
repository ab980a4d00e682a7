"""What holds for every host, instance and pair of settings: undo after do is the identity, nothing is for nothing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.render import commands, plan
from profiler.observed import Instance, IsolationSettings, NetworkSettings, Pinning
from tests.advisor.render.render_simulators import Machine
from tests.advisor.render.render_strategies import (
    EVERYTHING,
    NOTHING,
    PLACES,
    SERVICES,
    VCPUS,
    Place,
    complete,
    isolations,
)
from tests.examples import examples


@given(PLACES, SERVICES, st.integers(0, 1), isolations(), isolations(), st.booleans())
@settings(max_examples=examples(250), deadline=None)
def test_undo_after_do_restores_the_state(
    place: Place, service: str, number: int, now: IsolationSettings, then: IsolationSettings, beside_a_shaped_one: bool
) -> None:
    host, instance = place.host(), place.instance("shop-7", number, NOTHING, service)
    shaped = IsolationSettings(network=NetworkSettings("dedicated", 50))
    tools, neighbours = Machine(), (place.instance("batch-1", 57, shaped),) if beside_a_shaped_one else ()
    for neighbour in neighbours:
        tools.do(commands(host, neighbour, NOTHING, shaped, neighbours=(), **place.options))
    options = {**place.options, "neighbours": neighbours}
    tools.settle(commands(host, instance, NOTHING, EVERYTHING, **options))
    tools.do(commands(host, instance, NOTHING, now, **options))
    tools.check_undo(commands(host, instance, now, then, **options))
    assert not any(c.argv for c in commands(host, instance, complete(now, then), then, **options))


@given(PLACES, isolations())
@settings(deadline=None)
def test_nothing_is_rendered_for_settings_that_hold_already(place: Place, now: IsolationSettings) -> None:
    host, instance = place.host(), place.instance("shop-7", 1, now)
    assert commands(host, instance, now, now, **place.options) == ()
    assert commands(host, instance, now, NOTHING, **place.options) == ()


@given(PLACES, SERVICES, st.integers(0, 1), isolations(), isolations())
@settings(deadline=None)
def test_every_argument_is_one_line_of_text_and_no_command_is_without_undo(
    place: Place, service: str, number: int, now: IsolationSettings, then: IsolationSettings
) -> None:
    host, instance = place.host(), place.instance("shop-7", number, NOTHING, service)
    for command in commands(host, instance, now, then, **place.options):
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
@settings(max_examples=examples(300), deadline=None)
def test_a_hostile_name_is_refused_or_stays_an_operand(
    place: Place, name: str, labels: dict[str, str], otherwise_named: bool
) -> None:
    host, plain = place.host(), place.instance("vm", 1, NOTHING)
    if otherwise_named:
        labels = {**plain.labels, **labels}
    wanted = IsolationSettings(Pinning(((2,), (3,))), 50, 512, NetworkSettings("dedicated", 9), 9)
    try:
        hostile = Instance(name, VCPUS, labels=labels)
        made = commands(host, hostile, NOTHING, wanted, **place.options)
        made += plan(host, hostile, wanted, (), {}, **place.options)
    except InvalidInput as error:
        assert error.field
        return
    other = replace(plain, labels={key: value for key, value in plain.labels.items() if key != "port"})
    harmless = [c for one in (plain, other) for c in commands(host, one, NOTHING, wanted, **place.options)]
    options = {part for c in harmless for part in (*c.argv, *c.undo) if part.startswith("-")} - {"-1"}
    for command in made:
        for part in (*command.argv, *command.undo):
            assert not part.startswith("-") or part in options
            assert ".." not in part.split("/")
            assert not set(part) & set("\n\r\0")
        assert not set(command.note) & set("\n\r\0")


@given(PLACES, st.sampled_from(["uplink", "kernel", "render"]), HOSTILE)
@settings(max_examples=examples(100), deadline=None)
def test_a_hostile_label_of_the_host_is_refused_or_never_written(place: Place, label: str, value: str) -> None:
    host = replace(place.host(), labels={"uplink": "eth0", label: value})
    instance = place.instance("shop-7", 1, NOTHING, "latency")
    options = {key: one for key, one in place.options.items() if key != "target"}
    try:
        made = commands(host, instance, NOTHING, EVERYTHING, **options)
    except InvalidInput as error:
        assert error.field.endswith(label)  # type: ignore[union-attr]
        return
    if label != "uplink":
        plain = replace(host, labels={"uplink": "eth0"})
        harmless = commands(plain, instance, NOTHING, EVERYTHING, **options)
        written, expected = ({part for c in many for part in c.argv} for many in (made, harmless))
        assert {part for part in written if "burst" not in part} <= expected
