"""The laws of memory domains: each call gets tensors in the memory of the callee, and only copies cross domains."""

from __future__ import annotations

from collections.abc import Iterable

from byoc_core.errors import ProgramError
from byoc_core.opset.device_numbers import MAX_DEVICE_NUMBER
from byoc_core.runtime.memory import ACCESSES, MemoryDomain
from byoc_core.vm.disassemble import callee_name
from byoc_core.vm.instructions import Builtin, Call, CallKind, If, Instruction, Ret
from byoc_core.vm.liveness import is_defining
from byoc_core.vm.program import HOST, HOST_NAME, Program, VMFunction
from byoc_core.vm.view_laws import is_strided

__all__ = ["check_domains", "check_program_domains"]

_MAX_ALIGNMENT = 1 << 20


def check_program_domains(program: Program) -> None:
    """Check the declarations of a program's domains, and of the domains of its externs.

    Raises:
        ProgramError: a name is empty, repeated or the host's, an alignment is impossible, or a number is out of range.
            Domains of one memory have equal names, and different numbers of devices.

    Cost: linear in the domains and externs.
    """
    if program.device_numbers and (
        len(program.device_numbers) != len(program.domains) or not any(program.device_numbers)
    ):
        raise ProgramError(
            "program",
            "has other numbers of devices than domains",
            got=list(program.device_numbers),
            expected=f"a number for each of {len(program.domains)} domains, or none if all are 0",
        )
    names: set[str] = set()
    memories: dict[str, MemoryDomain] = {}
    for index, domain in enumerate(program.domains, start=1):
        where, name, number = f"domain {index}", program.domain_name(index), program.device_number(index)
        if not 0 <= number <= MAX_DEVICE_NUMBER:
            raise ProgramError(
                where, "has an impossible number of a device", got=number, expected=f"0 to {MAX_DEVICE_NUMBER}"
            )
        if domain.name in ("", HOST_NAME):  # the number of a device makes no name of the host's
            raise ProgramError(where, "has no name of its own", got=repr(domain.name))
        if name in names:
            raise ProgramError(where, "has no name of its own", got=repr(name))
        names.add(name)
        first = memories.setdefault(domain.name, domain)
        if first != domain:
            raise ProgramError(where, f"states `{domain.name}` in another way", got=domain, expected=first)
        alignment = domain.alignment
        if not 1 <= alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
            raise ProgramError(
                where, "has an impossible alignment", got=alignment, expected=f"a power of two up to {_MAX_ALIGNMENT}"
            )
        _check_pools(where, domain)
    _check_numbers("program", program, program.extern_domains, len(program.externs), "externs")


def _check_pools(where: str, domain: MemoryDomain) -> None:
    names: set[str] = set()
    for pool in domain.pools:
        if pool.name in names:
            raise ProgramError(where, "has two pools of one name", got=repr(pool.name))
        names.add(pool.name)
        if not domain.alignment <= pool.alignment <= _MAX_ALIGNMENT:
            raise ProgramError(
                f"{where}, pool `{pool.name}`",
                "has an alignment unfit for the domain",
                got=pool.alignment,
                expected=f"{domain.alignment} to {_MAX_ALIGNMENT}",
            )
    if domain.pools and not any(pool.accesses >= ACCESSES for pool in domain.pools):
        raise ProgramError(where, "has no pool for intermediates", expected="a pool with the accesses read and write")


def check_domains(program: Program, function: VMFunction) -> None:
    """Check the domains of a function's registers and calls; the instructions are well-formed already.

    Raises:
        ProgramError: a param or result other than of a state is not in the host's memory, param and result of a state
            are in different memory, a storage belongs to two domains, a storage lies in a missing or read-only pool,
            the storages of a pool exceed the limit, a tensor is not aligned for its domain or pool, a call
            has a register outside the callee's domain, a copy is between two devices without memory visible to the
            host and without direct copies, or a register of a device has strides. A call of the host may have registers
            of a host-accessible domain, except for results defined by the call.
    """
    where = f"function `{function.name}`"
    _check_numbers(where, program, function.domains, function.first_view, "registers owning memory")
    _check_storage_pools(where, program, function)
    if not function.domains:
        if program.extern_domains:
            _check_code(program, function)
        return
    registers = program.registers(function)
    state_registers: set[int] = set()
    for state in function.states:
        param, result = state.param, len(function.params) + state.result
        state_registers.update((param, result))
        if function.domains[param] != function.domains[result]:
            raise ProgramError(
                f"{where}, register {registers[result]}",
                "has a new value of a state in other memory than the old value",
                got=program.domain_name(function.domains[result]),
                expected=program.domain_name(function.domains[param]),
            )
    for number in range(len(function.params) + len(function.results)):
        if function.domains[number] != HOST and number not in state_registers:
            raise ProgramError(
                f"{where}, register {registers[number]}",
                "lies in the memory of a device",
                got=program.domain_name(function.domains[number]),
                expected="host",
            )
    storage_domains: dict[int, int] = {}
    for number, tensor in enumerate(function.tensors, start=function.first_tensor):
        domain = function.domains[number]
        first = storage_domains.setdefault(tensor.storage, domain)
        if first != domain:
            raise ProgramError(
                f"{where}, register {registers[number]}",
                f"lies in storage {tensor.storage} of another domain",
                got=program.domain_name(domain),
                expected=program.domain_name(first),
            )
        alignment = program.alignment_in(domain, function.pool_of(tensor.storage))
        if tensor.offset % alignment:
            raise ProgramError(
                f"{where}, register {registers[number]}",
                f"is not aligned for `{program.domain_name(domain)}`",
                got=tensor.offset,
                expected=f"a multiple of {alignment}",
            )
    for number in range(function.first_view, function.num_registers):
        if not program.is_visible(function.domain_of(number)) and is_strided(function, number):
            raise ProgramError(f"{where}, register {registers[number]}", "has strides in the memory of a device")
    _check_code(program, function)


def _check_storage_pools(where: str, program: Program, function: VMFunction) -> None:
    """Check the pools of a function's storages: existing, writable, and large enough for the storages of known size."""
    numbers = function.storage_pools
    if numbers and (len(numbers) != len(function.storages) or not any(numbers)):
        raise ProgramError(
            where,
            "has other numbers of pools than storages",
            got=list(numbers),
            expected=f"a number for each of {len(function.storages)} storages, or none if all are 0",
        )
    ends: dict[tuple[int, int], int] = {}
    for index, (nbytes, domain) in enumerate(zip(function.storages, function.storage_domains, strict=True)):
        number = function.pool_of(index)
        pools = () if domain == HOST else program.domains[domain - 1].pools
        location = f"{where}, storage {index}"
        if number >= max(len(pools), 1):
            name = program.domain_name(domain)
            raise ProgramError(
                location, f"lies in a missing pool of `{name}`", got=number, expected=f"{len(pools)} pools"
            )
        if not pools:
            continue
        pool = pools[number]
        if not pool.accesses >= ACCESSES:
            raise ProgramError(location, f"lies in the pool `{pool.name}` without access to read and write")
        if isinstance(nbytes, int):
            alignment = program.alignment_in(domain, number)
            end = -(-ends.get((domain, number), 0) // alignment) * alignment + nbytes
            ends[domain, number] = end
            if pool.nbytes is not None and end > pool.nbytes:
                raise ProgramError(
                    location, f"reaches beyond the pool `{pool.name}`", got=end, expected=f"at most {pool.nbytes} bytes"
                )


def _check_code(program: Program, function: VMFunction) -> None:
    for index, instruction in enumerate(function.code):
        where = f"function `{function.name}`, instruction {index}"
        if isinstance(instruction, Call) and instruction.kind is CallKind.BUILTIN:
            if instruction.callee == Builtin.COPY:
                _check_copy(where, program, function, instruction)
                continue
            if instruction.callee == Builtin.ALLOCATE:
                continue
        expected, numbers = _requirement(program, function, instruction)
        defined = set(instruction.results) if isinstance(instruction, Call) and is_defining(instruction) else set()
        for number in numbers:
            domain = function.domain_of(number)
            is_host = expected == HOST and not isinstance(instruction, Ret)
            if domain != expected and not (is_host and program.is_visible(domain) and number not in defined):
                name = f"`{callee_name(program, instruction)}`" if isinstance(instruction, Call) else "the instruction"
                raise ProgramError(
                    where,
                    f"register {program.registers(function)[number]} is not in the memory of {name}",
                    got=program.domain_name(function.domain_of(number)),
                    expected=program.domain_name(expected),
                )
            if expected != HOST and is_strided(function, number):
                raise ProgramError(where, f"register {program.registers(function)[number]} has strides on a device")
        if (
            isinstance(instruction, Call)
            and instruction.kind is CallKind.PACKED
            and _is_on_device(program, instruction)
        ):
            raise ProgramError(where, "a call_packed runs on a device", expected="a call_dps_packed")


def _check_copy(where: str, program: Program, function: VMFunction, call: Call) -> None:
    (source,), (target,) = call.args, call.results
    domains = function.domain_of(source), function.domain_of(target)
    if not program.copies_directly(*domains):
        raise ProgramError(
            where,
            "a copy between two devices",
            got=" to ".join(map(program.domain_name, domains)),
            expected="a copy from or to the host's memory",
        )


def _requirement(program: Program, function: VMFunction, instruction: Instruction) -> tuple[int, tuple[int, ...]]:
    """Return the domain required by an instruction, and the registers of the instruction.

    The result of a state may stay on a device.
    """
    match instruction:
        case Call(kind=kind, callee=callee, args=args, results=results):
            is_extern = kind in (CallKind.EXTERN, CallKind.PACKED)
            return (program.domain_of(callee) if is_extern else HOST), (*args, *results)
        case Ret(values=values):
            states = {len(function.params) + state.result for state in function.states}
            return HOST, tuple(number for number in values if number not in states)
        case If(condition=condition):
            return HOST, (condition,)
        case _:
            return HOST, ()


def _is_on_device(program: Program, call: Call) -> bool:
    return program.domain_of(call.callee) != HOST


def _check_numbers(where: str, program: Program, numbers: Iterable[int], count: int, subject: str) -> None:
    found = tuple(numbers)
    if not found:
        return
    if len(found) != count:
        raise ProgramError(where, f"has another number of domains than {subject}", got=len(found), expected=count)
    for number in found:
        if not 0 <= number <= len(program.domains):
            raise ProgramError(where, "names a missing domain", got=number, expected=f"at most {len(program.domains)}")
    if not any(found):
        raise ProgramError(where, "lists domains although all memory is the host's")
