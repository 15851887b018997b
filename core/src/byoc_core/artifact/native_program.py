"""The functions of a program that machine code can run alone, and the obstacles of the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from byoc_core.dims import Dim, bound_symbols, shape_symbols, substitute, symbol, symbols_of
from byoc_core.errors import LinkError
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.graph import GraphModule
from byoc_core.runtime.module import RuntimeModule
from byoc_core.vm.disassemble import callee_name
from byoc_core.vm.instructions import Builtin, Call, CallKind, Instruction
from byoc_core.vm.permissions import check_permissions
from byoc_core.vm.program import HOST, Program, VMFunction

__all__ = ["NativeProgram", "has_c_name", "ops_text", "solve_sizes"]

_BUILTINS = frozenset({Builtin.COPY, Builtin.ZERO, Builtin.INCREMENT, Builtin.LOOP_TEST})
_MAX_NAMED = 4


class NativeProgram:
    """The functions of a program that machine code can run alone, and the obstacles of the others.

    Args:
        program: a verified program.
        modules: the modules defining the program's external symbols; the first module with a symbol counts.
        keeps_states: whether callers keep states.
    """

    def __init__(self, program: Program, modules: Sequence[RuntimeModule], *, keeps_states: bool = False) -> None:
        self.program = program
        self._keeps_states = keeps_states
        self._owners: dict[str, RuntimeModule] = {}
        for module in modules:
            for name in module.function_names:
                self._owners.setdefault(name, module)
        self._obstacles = {function.name: self._own_obstacles(function, modules) for function in program.functions}
        for name in self._recursive_functions():
            self._obstacles[name].append(f"`{name}`, a function calling itself")
        self._propagate_obstacles()

    def python_regions(self) -> Iterator[tuple[str, RuntimeModule]]:
        """Yield the regions that only Python can run, with the regions' modules, if the name is a free C identifier."""
        functions = set(self.program.function_names)
        for name, owner in self._owners.items():
            if (
                not isinstance(owner, CSourceModule)
                and name not in functions
                and name.isascii()
                and name.isidentifier()
            ):
                yield name, owner

    def region_symbol(self, name: str) -> str:
        """Return the symbol of a region in the library, distinct from the export of a function with the same name."""
        return f"byoc_region_{name}" if name in self._obstacles else f"__tvm_ffi_{name}"

    def is_native(self, function: VMFunction) -> bool:
        """Return whether machine code can run a function alone."""
        return not self._obstacles[function.name]

    def obstacles(self, function: VMFunction) -> tuple[str, ...]:
        """Return everything in a function that machine code alone cannot run, each once."""
        return tuple(dict.fromkeys(self._obstacles[function.name]))

    def called_sources(self, functions: Iterable[VMFunction]) -> Iterator[tuple[str, CSourceModule]]:
        """Yield the external symbols called by native functions, each once, with the sources of generated C."""
        externs = self.program.externs
        calls = (call for function in functions for call in function.code if isinstance(call, Call))
        for name in dict.fromkeys(externs[call.callee] for call in calls if call.kind is CallKind.EXTERN):
            module = self._owners[name]
            assert isinstance(module, CSourceModule)
            yield name, module

    def owner(self, symbol: str) -> RuntimeModule | None:
        """Return the module defining an external symbol."""
        return self._owners.get(symbol)

    def reason(self, function: VMFunction) -> str:
        """Return the reasons for a function's need of Python, for the middle of a sentence."""
        found = self.obstacles(function)
        more = f" and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
        return f"needs Python for {', '.join(found[:_MAX_NAMED])}{more}"

    def _own_obstacles(self, function: VMFunction, modules: Sequence[RuntimeModule]) -> list[str]:
        found = [text for instruction in function.code for text in self._obstacles_of(function, instruction)]
        if function.states and not self._keeps_states:
            found.append("states kept from call to call")
        if self._keeps_states:
            found += _undetermined_states(function)
        names = [self.program.domain_name(domain) for domain in sorted(set(function.domains) - {HOST})]
        found += [f"memory of device `{name}`" for name in names]
        if not found and function.dynamics:
            found.append("tensors of sizes known only after running")
        if not found and solve_sizes(function) is None:
            found.append("sizes not determined by a linear equation with a single unknown")
        if not found:
            try:
                check_permissions(Program((function,), self.program.externs, self.program.constants), modules, ())
            except LinkError as error:
                found.append(f"a call without a valid link ({error.problem})")
        return found

    def _obstacles_of(self, function: VMFunction, instruction: Instruction) -> Iterator[str]:
        if not isinstance(instruction, Call):
            return
        name = callee_name(self.program, instruction)
        match instruction.kind:
            case CallKind.EXTERN:
                owner = self._owners.get(name)
                if owner is None:
                    yield f"`{name}`, not defined by any module"
                elif not isinstance(owner, CSourceModule):
                    yield f"`{name}` of runtime `{owner.type_key}`{ops_text(owner, name)}"
            case CallKind.PACKED:
                yield f"`{name}`, a function returning results"
            case CallKind.FUNCTION:
                callee = self.program.functions[instruction.callee]
                input_symbols = callee.input_symbols
                early = all(shape_symbols(spec.shape) <= input_symbols for spec in callee.results)
                if not has_c_name(callee):
                    yield f"`{name}`, not a C identifier"
                elif not early or any(_is_strided(function, n) for n in (*instruction.args, *instruction.results)):
                    yield f"the call of `{name}`"
            case CallKind.BUILTIN:
                if instruction.callee not in _BUILTINS:
                    yield f"`{name}`"

    def _recursive_functions(self) -> list[str]:
        """Return the functions reached by their own calls: their memory has no fixed size."""
        callees = {
            function.name: {
                self.program.functions[call.callee].name
                for call in function.code
                if isinstance(call, Call) and call.kind is CallKind.FUNCTION
            }
            for function in self.program.functions
        }
        found = []
        for name, own in callees.items():
            reached: set[str] = set()
            pending = list(own)
            while pending:
                callee = pending.pop()
                if callee not in reached:
                    reached.add(callee)
                    pending += callees[callee]
            if name in reached:
                found.append(name)
        return found

    def _propagate_obstacles(self) -> None:
        """Propagate obstacles from callees to callers until nothing changes."""
        changed = True
        while changed:
            changed = False
            for function in self.program.functions:
                for instruction in function.code:
                    if isinstance(instruction, Call) and instruction.kind is CallKind.FUNCTION:
                        callee = self.program.functions[instruction.callee].name
                        new = [text for text in self._obstacles[callee] if text not in self._obstacles[function.name]]
                        self._obstacles[function.name] += new
                        changed = changed or bool(new)


def ops_text(owner: RuntimeModule, name: str) -> str:
    """Return the ops of a function of a graph runtime, in parentheses; empty if the runtime has no graph."""
    if not isinstance(owner, GraphModule):
        return ""
    ops = list(dict.fromkeys(node.op for node in owner.document.functions[name].nodes))
    more = ", ..." if len(ops) > _MAX_NAMED else ""
    return f" ({', '.join(ops[:_MAX_NAMED])}{more})"


def has_c_name(function: VMFunction) -> bool:
    """Return whether a function's name is a C identifier."""
    return function.name.isascii() and function.name.isidentifier()


def _is_strided(function: VMFunction, number: int) -> bool:
    return number >= function.first_view and not function.views[number - function.first_view].is_compact


def _undetermined_states(function: VMFunction) -> Iterator[str]:
    """Yield the states with a size determined neither from the inputs nor as a moving length."""
    lengths = {str(function.params[s.param].shape[s.axis]) for s in function.states if s.axis is not None}
    determined = bound_symbols([spec.shape for spec in function.inputs], lengths) | lengths
    for state in function.states:
        spec = function.params[state.param]
        if not shape_symbols(spec.shape) <= determined:
            yield f"the state `{spec.name}`, of a size unknown before the first call"


def solve_sizes(function: VMFunction) -> dict[tuple[int, int], tuple[str, int, Dim]] | None:
    """Return the axes of parameters determining the function's symbols, in order: ``factor * symbol + offset``.

    ``None`` if a needed symbol is not determined by these axes.
    """
    solved: dict[tuple[int, int], tuple[str, int, Dim]] = {}
    solved_symbols: set[str] = set()
    axes = [(i, axis, dim) for i, spec in enumerate(function.params) for axis, dim in enumerate(spec.shape)]
    progress = True
    while progress:
        progress = False
        for index, axis, dim in axes:
            unknown = symbols_of(dim) - solved_symbols
            if len(unknown) != 1:
                continue
            (name,) = unknown
            offset = substitute(dim, {name: 0})
            factor = substitute(dim, {name: 1}) - offset
            if isinstance(factor, int) and factor != 0 and dim == offset + factor * symbol(name):
                solved[index, axis] = (name, factor, offset)
                solved_symbols.add(name)
                progress = True
    needed = shape_symbols(dim for spec in (*function.params, *function.results) for dim in spec.shape)
    return solved if needed <= solved_symbols else None
