"""The device of each domain of a program: given by the user, or the device of an index among a runtime's devices.

A program may have several devices of one memory, such as ``npu:0`` and ``npu:1``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.errors import LinkError, OptionsError, near_names
from byoc_core.runtime.devices import Device, find_device, label_of
from byoc_core.runtime.module import MemoryDomain, RuntimeModule
from byoc_core.runtime.registry import runtimes
from byoc_core.vm.program import Program

__all__ = ["choose_devices", "devices_by_domain"]


def choose_devices(
    program: Program, modules: Sequence[RuntimeModule], choices: Mapping[str, Device | int]
) -> tuple[Device, ...]:
    """Return the device of each domain of a program, in the order of the domains.

    Args:
        program: a verified program.
        modules: the modules defining the program's external symbols.
        choices: devices, or indexes of devices, by name of the domain; for the other domains the index is the number
            of the device in the program. ``npu:0`` names the domain ``npu`` too. A device may serve several domains.

    Raises:
        OptionsError: ``choices`` names a domain absent from the program, or holds neither a device nor an index.
        LinkError: a device is absent, or has memory of another domain.
        HookError: a runtime cannot list its devices.
    """
    names = program.domain_names
    numbered = [f"{domain.name}:{program.device_number(n)}" for n, domain in enumerate(program.domains, start=1)]
    found: dict[int, Device | int] = {}
    for name, choice in choices.items():
        if name in names or name in numbered:
            domain = (names.index(name) if name in names else numbered.index(name)) + 1
            if domain in found:
                raise OptionsError(f"devices[{name!r}]", "is given twice, by two names of a domain")
            found[domain] = choice
        else:
            raise OptionsError(
                f"devices[{name!r}]",
                "is no domain of the program",
                expected=", ".join(names) or "no devices at all",
                hint=near_names(name, names) or None,
            )
    return tuple(
        _choose(program, modules, domain, found.get(domain, program.device_number(domain)))
        for domain in range(1, len(program.domains) + 1)
    )


def devices_by_domain(
    program: Program, choices: Device | int | Mapping[str, Device | int] | None
) -> Mapping[str, Device | int]:
    """Return devices, or indexes of devices, by name of the domain.

    Args:
        program: the program.
        choices: a mapping by domain, or the device of the only domain of the program.

    Raises:
        OptionsError: a single device is given for a program without devices, or with several domains.
    """
    if choices is None or isinstance(choices, Mapping):
        return choices or {}
    names = program.domain_names
    if len(names) != 1:
        raise OptionsError(
            "device",
            "is given for a program of several domains" if names else "is given for a program without devices",
            expected=f"a mapping by {', '.join(names)}" if names else None,
        )
    return {names[0]: choices}


def _choose(program: Program, modules: Sequence[RuntimeModule], number: int, choice: Device | int) -> Device:
    domain, name = program.domains[number - 1], program.domain_name(number)
    where = f"devices[{name!r}]"
    if isinstance(choice, Device):
        if not choice.domain.covers(domain):
            raise LinkError(where, "has memory of another domain", got=choice.domain, expected=domain)
        return choice
    if type(choice) is not int or choice < 0:
        raise OptionsError(where, "is neither a device nor the index of a device", got=repr(choice))
    symbols = {name for index, name in enumerate(program.externs) if program.domain_of(index) == number}
    type_keys = dict.fromkeys(module.type_key for module in modules if not symbols.isdisjoint(module.function_names))
    found = [device for type_key in type_keys for device in runtimes().get(type_key).devices()]
    device = find_device(found, domain, choice)
    if device is None:
        raise LinkError(
            f"device `{domain.name}:{choice}`",
            "is not on this machine",
            got=", ".join(map(label_of, found)) or "no device",
            hint=_absence_hint(found, domain, name),
        )
    return device


def _absence_hint(devices: Sequence[Device], domain: MemoryDomain, name: str) -> str:
    if not any(device.domain.covers(domain) for device in devices):
        return "`byoc doctor` shows the state of the runtime."
    return f"Choose a device: devices={{{name!r}: 0}}. A device may run the functions of several domains."
