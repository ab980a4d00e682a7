"""The list of what a run made: whose things are removed, and whose are not."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import control_groups
from lab import resource_registry as registry_module
from lab.control_groups import group_places
from lab.errors import RunError
from lab.processes import call
from lab.resource_registry import ResourceRegistry, clean
from profiler.observed import IsolationSettings
from tests.lab.container_run import left_of, prepared_maker, registered


@pytest.mark.lab
def test_a_group_of_that_name_with_another_owner_is_refused_and_stays() -> None:
    with registered() as (registry, _):
        name = registry.group("web.1")
        place = group_places(name)[0]
        place.mkdir()
        try:
            with pytest.raises(RunError, match=f"group {name} is there already"):
                registry.made("group", name)
            registry.remove_run()
            assert place.is_dir()
        finally:
            place.rmdir()


@pytest.mark.lab
def test_an_id_that_anything_on_this_host_carries_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = "aaaaa1", "aaaaa2"
    monkeypatch.setattr(secrets, "token_hex", lambda _, ids=iter([taken, taken, free]): next(ids))
    call(["ip", "netns", "add", f"other-{taken}"])
    try:
        with registered() as (registry, _):
            assert registry.run == free
    finally:
        call(["ip", "netns", "delete", f"other-{taken}"])


@pytest.mark.lab
def test_what_cannot_be_removed_is_named_stays_listed_and_does_not_hold_up_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_groups, "_EMPTY_WITHIN_S", 0.2)
    state = tmp_path / "state"
    registry, maker = ResourceRegistry(state), prepared_maker()
    stuck, fine = registry.group("stuck"), registry.group("fine")
    for name in (fine, stuck):
        registry.made("group", name)
        maker.make(name, (0,), IsolationSettings(), None)
    place = str(group_places(stuck)[0])
    call(["mount", "--bind", place, place])  # the kernel removes nothing that something is mounted on
    try:
        with pytest.raises(RunError, match=f"{stuck} cannot be removed"):
            registry.close()
        assert not any(place.exists() for place in group_places(fine))
        with pytest.raises(RunError, match=f"{stuck} cannot be removed"):
            clean(state)
    finally:
        call(["umount", place])
    assert f"group {stuck}" in clean(state)
    assert left_of(registry.run) == []
    assert [path.name for path in state.iterdir()] == ["lock"]


@pytest.mark.lab
def test_groups_that_were_made_within_one_go_with_it(tmp_path: Path) -> None:
    registry, maker = ResourceRegistry(tmp_path / "state"), prepared_maker()
    name = registry.group("outer")
    registry.made("group", name)
    maker.make(name, (0,), IsolationSettings(), None)
    (group_places(name)[0] / "middle" / "inner").mkdir(parents=True)
    registry.close()
    assert not any(place.exists() for place in group_places(name))


@given(st.text(max_size=30), st.sampled_from(["group", "network", "directory"]))
def test_no_name_without_the_runs_id_is_ever_removed(name: str, kind: str) -> None:
    assert not registry_module._is_ours("abcdef", kind, name.replace("abcdef", ""))


@pytest.mark.parametrize("name", ["../x/cotenant-abcdef", "/etc/cotenant-abcdef", "cotenant-abcdef/.."])
@pytest.mark.parametrize("kind", ["group", "network"])
def test_groups_and_namespaces_are_never_looked_for_elsewhere(kind: str, name: str) -> None:
    assert not registry_module._is_ours("abcdef", kind, name)


@pytest.mark.parametrize(
    "line",
    [
        '{"kind": "group"}',
        "[]",
        "null",
        '{"kind": "group", "name": ',
        '{"kind": "mount", "name": "cotenant-abcdef"}',
        "\udcff",
    ],
)
def test_lines_that_say_nothing_are_left_alone(tmp_path: Path, line: str) -> None:
    directory = tmp_path / ".cotenant-lab-abcdef"
    directory.mkdir()
    known = json.dumps({"kind": "directory", "name": str(directory)})
    (tmp_path / "abcdef.jsonl").write_bytes(f"{known}\n{line}\n".encode(errors="surrogateescape"))
    assert clean(tmp_path) == [f"directory {directory}"]
    assert not directory.exists()


@pytest.mark.lab
def test_an_action_at_the_end_that_fails_does_not_keep_anything(tmp_path: Path) -> None:
    registry = ResourceRegistry(tmp_path / "state")
    name = registry.network("0")
    registry.made("network", name)
    call(["ip", "netns", "add", name])

    def fail() -> None:
        raise RunError("no such luck")

    registry.at_end(fail)
    with pytest.raises(RunError, match="no such luck"):
        registry.close()
    assert name not in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


def test_what_a_tool_prints_need_not_be_text() -> None:
    """The names of interfaces are any bytes."""
    script = "import sys; sys.stdout.buffer.write(b'link \\xff up\\n')"
    assert call([sys.executable, "-I", "-S", "-c", script]) == "link \ufffd up\n"
