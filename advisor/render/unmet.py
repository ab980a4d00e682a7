"""What stands in the way of carrying settings out as commands: a label that is missing, or what a tool cannot say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from advisor.domain import Host, Instance, IsolationSettings
from advisor.errors import InvalidInput
from advisor.render import driver
from advisor.render.change import SettingsChange
from advisor.render.tools import Tools


def unmet(
    host: Host,
    instances: Sequence[Instance],
    changes: Mapping[str, IsolationSettings],
    driver_cpus: tuple[int, ...] | None = None,
) -> tuple[str, ...]:
    """Why commands cannot give these instances of `host` their `changes` (by id), or its driver domain these CPUs.

    One phrase for each reason, in the order of the instances; () = nothing stands in the way. Options are the host's
    own, as in `plan` without any.
    """
    return tuple(dict.fromkeys(_reasons(host, instances, changes, driver_cpus)))


def _reasons(
    host: Host,
    instances: Sequence[Instance],
    changes: Mapping[str, IsolationSettings],
    driver_cpus: tuple[int, ...] | None,
) -> Iterator[str]:
    try:
        tools = Tools.of(host, None, None, None, None)
        for command in driver.commands(host, driver_cpus, instances, tools.target) if driver_cpus else ():
            if not command.argv:
                yield command.note
        for instance in instances:
            if instance.id in changes:
                change = SettingsChange(host, instance, instance.settings, changes[instance.id])
                for step in (*tools.cpu_and_disk(change), *tools.network(change, None)):
                    if step.needs:
                        yield f"needs {step.needs} to be carried out"
                    elif not step.command.argv:
                        yield step.command.note
    except InvalidInput as error:  # a name or a label that no command may hold; without commands it is no fault
        yield error.message
