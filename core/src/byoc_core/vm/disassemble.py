"""Human-readable listings of programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from byoc_core.dims import Dim
from byoc_core.printable import to_printable
from byoc_core.runtime.memory import Pool
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm.instructions import BUILTINS, Builtin, Call, CallKind, Goto, If, Instruction, Ret
from byoc_core.vm.program import HOST, Program, VMFunction

__all__ = ["callee_name", "disassemble"]


def disassemble(program: Program) -> str:
    """Return a listing of a verified program: externs, constants, and each function's registers and code."""
    lines = [
        f"domain {name}: aligned to {domain.alignment} bytes"
        + (", accessible to the host" if domain.host_accessible else "")
        + "".join(map(_pool_text, domain.pools))
        + (", copied between devices" if domain.peer_copies else "")
        for name, domain in zip(program.domain_names, program.domains, strict=True)
    ]
    lines += [
        f"extern {symbol}{_domain_text(program, program.domain_of(number))}"
        for number, symbol in enumerate(program.externs)
    ]
    lines += [
        f"constant {index}: {_tensor_text(ref.dtype, ref.shape)} {ref.digest}"
        for index, ref in enumerate(program.constants)
    ]
    for function in program.functions:
        if lines:
            lines.append("")
        lines += _function_lines(program, function)
    return "\n".join(map(to_printable, lines)) + "\n"


def callee_name(program: Program, call: Call) -> str:
    """Return the name of the callee of a call."""
    match call.kind:
        case CallKind.EXTERN | CallKind.PACKED:
            return program.externs[call.callee]
        case CallKind.FUNCTION:
            return program.functions[call.callee].name
        case CallKind.BUILTIN:
            return BUILTINS[Builtin(call.callee)].name


def _function_lines(program: Program, function: VMFunction) -> list[str]:
    names = [str(register) for register in program.registers(function)]
    num_params = len(function.params)
    domain_texts = [_domain_text(program, function.domain_of(number)) for number in range(function.first_view)]
    yield_text = _specs_text(function.results, names[num_params:], domain_texts[num_params:])
    lines = [f"function {function.name}({_specs_text(function.params, names, domain_texts)}) -> ({yield_text})"]
    first_constant, first_dynamic = num_params + len(function.results), function.first_view - len(function.dynamics)
    lines += [
        f"    c{index} = constant {number}{domain_texts[first_constant + index]}"
        for index, number in enumerate(function.constants)
    ]
    pools = [program.pool(domain, function.pool_of(index)) for index, domain in enumerate(function.storage_domains)]
    lines += [
        f"    storage {index}: {nbytes} bytes" + ("" if pool is None else f" in pool {pool.name}")
        for index, (nbytes, pool) in enumerate(zip(function.storages, pools, strict=True))
    ]
    lines += [
        f"    t{index} = {_tensor_text(tensor.dtype, tensor.shape)} at storage {tensor.storage} + {tensor.offset}"
        f"{domain_texts[function.first_tensor + index]}"
        for index, tensor in enumerate(function.tensors)
    ]
    lines += [
        f"    v{index} = {_tensor_text(tensor.dtype, tensor.shape)}"
        + (f" binds {', '.join(tensor.binds)}" if tensor.binds else "")
        + domain_texts[first_dynamic + index]
        for index, tensor in enumerate(function.dynamics)
    ]
    lines += [
        f"    w{index} = {_tensor_text(view.dtype, view.shape)} at {names[view.base]} + {view.offset}"
        + (f" strides [{', '.join(map(str, view.strides))}]" if view.strides is not None else "")
        for index, view in enumerate(function.views)
    ]
    lines += [
        f"    state {names[state.param]} -> {names[num_params + state.result]}"
        + ("" if state.initial is None else f" initially constant {state.initial}")
        + ("" if state.axis is None else f" moving along axis {state.axis}")
        for state in function.states
    ]
    lines += [
        f"    {index:4}: {_instruction_text(program, names, instruction)}"
        for index, instruction in enumerate(function.code)
    ]
    return lines


def _instruction_text(program: Program, names: Sequence[str], instruction: Instruction) -> str:
    match instruction:
        case Call(kind=kind, args=args, results=results):
            text = f"{kind.mnemonic} {callee_name(program, instruction)}({_join(names, args)})"
            return f"{text} -> {_join(names, results)}" if results else text
        case Ret(values=values):
            return f"ret {_join(names, values)}".rstrip()
        case Goto(target=target):
            return f"goto {target}"
        case If(condition=condition, otherwise=target):
            return f"if {names[condition]} else {target}"


def _domain_text(program: Program, domain: int) -> str:
    return "" if domain == HOST else f" in {program.domain_name(domain)}"


def _pool_text(pool: Pool) -> str:
    limit = "" if pool.nbytes is None else f" of {pool.nbytes} bytes"
    return f", pool {pool.name}{limit} to {' and '.join(sorted(pool.accesses))}, aligned to {pool.alignment}"


def _join(names: Sequence[str], registers: Iterable[int]) -> str:
    return ", ".join(names[register] for register in registers)


def _specs_text(specs: Sequence[TensorSpec], names: Sequence[str], domain_texts: Sequence[str]) -> str:
    return ", ".join(
        f"{name} {spec.name}: {_tensor_text(spec.dtype, spec.shape)}{domain_text}"
        for spec, name, domain_text in zip(specs, names, domain_texts, strict=False)
    )


def _tensor_text(dtype: str, shape: Iterable[Dim]) -> str:
    return f"{dtype}[{', '.join(map(str, shape))}]"
