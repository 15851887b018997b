"""Emission of the code of one function: linear code over virtual registers.

During code emission, every buffer is a virtual register. The op producing a result of the function writes into the
result register. Both branches of an ``if`` write a result into one register. The parameters of a region are the
registers of the operands. Copies remain only for returned inputs and constants, for values returned twice, for the
initial values of a loop, and for values of a round made before the last read of the previous round's values. Values
carried unchanged by a loop stay in place. New values of states lie in the place of the old values
(:mod:`byoc_core.lower.states`). Ops for pure rearrangement are views if possible: either the result is a view
of the operands, or the operands are made in the place of the result. Values cross between the host's memory and a
device by copies too, one for each value and domain (:mod:`byoc_core.lower.domains`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import compress

from byoc_core.dims import Dim, bound_symbols, shape_symbols, substitute, symbols_of
from byoc_core.errors import CodegenError
from byoc_core.ir.module import Binding, Function, Value, Var
from byoc_core.ir.structural import CALL, CALL_DPS_PACKED, CALL_PACKED, IF, LOOP
from byoc_core.lower.assign_registers import assign_registers
from byoc_core.lower.buffers import KNOWN_SIZES_HINT, Buffers, shape_of
from byoc_core.lower.domains import ValueDomains
from byoc_core.lower.loop_values import is_unchanged, results_in_place
from byoc_core.lower.lower_views import emit_view_op
from byoc_core.lower.placement_hints import Sharing, compact_values, placement_hints
from byoc_core.lower.states import StatePlacement, find_slots
from byoc_core.lower.tables import ProgramTables
from byoc_core.opset.types import TensorType, Type
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm.instructions import Builtin, Call, CallKind, Goto, If, Ret
from byoc_core.vm.program import HOST, RegisterKind, VMFunction

__all__ = ["Emission", "is_view", "no_code_error"]

_BOOL = TensorType((), "bool")
_INT64 = TensorType((), "int64")


def is_view(binding: Binding) -> bool:
    """Return whether an op only rearranges elements."""
    return binding.op.view is not None


def no_code_error(where: str, binding: Binding) -> CodegenError:
    """Return the error of an op left without code."""
    return CodegenError(
        f"{where}, op `{binding.op.name}` (`{binding.results[0].name}`)",
        "has no code: no backend compiled the op",
        hint="Give `RunCodegen` a backend for every op, or build with the host as the last backend.",
    )


class Emission:
    """The code of a function, with planned storage and the machine's registers.

    Args:
        function: the function to lower.
        tables: the tables of the whole program.
        domains: the memory domain of each value.
        sharing: the memory sharing between values.
        placement: the limits on the use of the buffers of states.
    """

    def __init__(
        self,
        function: Function,
        tables: ProgramTables,
        domains: ValueDomains,
        sharing: Sharing,
        placement: StatePlacement,
    ) -> None:
        self._function = function
        self._states = find_slots(function, tables)
        self._placement = placement
        self._tables = tables
        self._domains = domains
        self._sharing = sharing
        self._where = f"function `{function.name}`"
        self._buffers = Buffers(self._where, tables, domains)

    def run(self) -> VMFunction:
        """Return the function in the machine's form.

        Raises:
            CodegenError: see :func:`byoc_core.lower.lower`.
        """
        function = self._function
        params = self._specs(function.input_names, [param.type for param in function.params])
        results = self._specs(function.output_names, function.result_types)
        self._buffers.input_symbols = self._buffers.known_symbols = bound_symbols([param.shape for param in params])
        state_domains = dict(zip((state.result for state in self._states), self._domains.states, strict=False))
        for param, spec in zip(function.params, params, strict=True):
            self._buffers.register_of[param] = self._buffers.new(
                RegisterKind.PARAM, TensorType(spec.shape, spec.dtype), (), self._domains.home(param)
            )
        outputs = [
            self._buffers.new(
                RegisterKind.RESULT, TensorType(spec.shape, spec.dtype), (), state_domains.get(index, HOST)
            )
            for index, spec in enumerate(results)
        ]
        early = [shape_symbols(spec.shape) <= self._buffers.input_symbols for spec in results]
        made_elsewhere = {self._states[number].result for number in self._placement.copied}
        self._set_targets(function, outputs, [ok and index not in made_elsewhere for index, ok in enumerate(early)])
        for param in function.params:
            self._buffers.make_copies(param)
        self._emit_bindings(function)
        returned: list[int] = []
        state_results = {state.result for state in self._states}
        for index, (value, output, is_early) in enumerate(zip(function.results, outputs, early, strict=True)):
            returned.append(
                output if index in state_results else self._return(value, output, returned, is_early=is_early)
            )
        self._store_states(function, outputs)
        self._buffers.code.append(Ret(tuple(returned)))
        lowered = assign_registers(
            function.name,
            params,
            results,
            [self._tables.constant(constant) for constant, _ in self._buffers.constants],
            self._buffers.registers,
            self._buffers.code,
            self._tables.extern_traits,
            self._tables.alignment,
            self._tables.pools,
            frozenset(outputs[self._states[number].result] for number in self._placement.reserved),
        )
        return replace(lowered, states=self._states)

    def _store_states(self, function: Function, outputs: Sequence[int]) -> None:
        """Emit copies of new values made elsewhere, at the end: no old value is read later, except by these copies."""
        registers = self._buffers.registers
        old = {self._buffers.register_of[function.params[state.param]]: state for state in self._states}
        pending = []
        for state in self._states:
            target = outputs[state.result]
            source = self._buffers.register(function.results[state.result], registers[target].domain)
            owner = old.get(registers.owner(source))
            if owner is not None and (owner is not state or registers.layout(source) != registers.layout(target)):
                # The old value of another state, or moved: saved before any copy can overwrite the old value.
                type_, domain = self._buffers.type_of_register(source), registers[source].domain
                saved = self._buffers.allocate(type_, "a state", domain)
                self._buffers.copy(source, saved)
                source = saved
            pending.append((source, target))
        for source, target in pending:
            self._buffers.copy(source, target)

    def _set_targets(self, function: Function, buffers: Sequence[int], ready: Sequence[bool]) -> None:
        """Let the ops producing the results of a function or region write into existing buffers."""
        local_results = {var for binding in function.bindings for var in binding.results}
        targeted: set[tuple[Value, int]] = set()
        for value, buffer, is_ready in zip(function.results, buffers, ready, strict=True):
            domain = self._buffers.registers[buffer].domain
            if is_ready and isinstance(value, Var) and value in local_results and (value, domain) not in targeted:
                if domain == self._domains.home(value):
                    self._buffers.targets[value] = buffer
                else:
                    self._buffers.copy_targets[value, domain] = buffer
                targeted.add((value, domain))

    def _return(self, value: Value, output: int, returned: Sequence[int], *, is_early: bool) -> int:
        """Return the register with a result for the caller; emit a copy if the result lies elsewhere."""
        register = self._buffers.register(value)
        if is_early:
            self._buffers.copy(register, output)
            return output
        found = self._buffers.registers[register]
        if found.kind is RegisterKind.DYNAMIC and found.domain == HOST and register not in returned:
            return register
        copied = self._buffers.allocate(self._buffers.tensor_type(value.type, "result"), "result")
        self._buffers.copy(register, copied)
        return copied

    def _specs(self, names: Sequence[str], types: Sequence[Type]) -> tuple[TensorSpec, ...]:
        specs = []
        for name, type_ in zip(names, types, strict=True):
            tensor = self._buffers.tensor_type(type_, f"`{name}`")
            specs.append(TensorSpec(name, tensor.dtype, shape_of(tensor)))
        return tuple(specs)

    def _emit_bindings(self, body: Function, *, is_round: bool = False) -> None:
        """Emit the code of a function or region; in a loop's round, carried values may be read until overwritten."""
        targets = {var for binding in body.bindings for var in binding.results if var in self._buffers.targets}

        def may_own(var: Var) -> bool:
            return not (is_round and var in targets) and self._symbols(var) <= self._buffers.input_symbols

        compact: set[Value] = set()
        if any(map(is_view, body.bindings)):
            compact = compact_values(body, self._tables.traits)
            hints = placement_hints(body, targets, may_own, self._tables.traits, compact, self._sharing)
            home = self._domains.home
            self._buffers.hints.update(
                (var, hint) for var, hint in hints.items() if home(var) == home(hint.owner.results[0])
            )
        emitters = {
            CALL: self._emit_call,
            CALL_DPS_PACKED: self._emit_dps,
            CALL_PACKED: self._emit_packed,
            IF: self._emit_if,
            LOOP: self._emit_loop,
        }
        for binding in body.bindings:
            if binding.op in emitters:
                emitters[binding.op](binding)
            elif binding.op.view is None or not emit_view_op(
                binding, binding.op.view, self._buffers, compact, self._sharing
            ):
                raise no_code_error(self._where, binding)
            for var in binding.results:
                self._buffers.make_copies(var)

    def _operands(self, binding: Binding, domain: int = HOST) -> tuple[int, ...]:
        return tuple(self._buffers.register(operand, domain) for operand in binding.operands)

    def _place_constants(self, values: Iterable[Value]) -> None:
        """Give constants passed to a region a register now, so that numbers follow the order of the operands."""
        for value in values:
            if not isinstance(self._buffers.resolve(value), Var):
                self._buffers.register(value)

    def _emit_dps(self, binding: Binding) -> None:
        domain = self._tables.domain(str(binding.attrs["symbol"]))
        args = self._operands(binding, domain)
        results = tuple(self._buffers.buffer(result) for result in binding.results)
        if self._emit_steps(binding, args, results):
            return
        extern = self._tables.extern(str(binding.attrs["symbol"]))
        types = [self._buffers.tensor_type(value.type, "an operand") for value in (*binding.operands, *binding.results)]
        workspace = self._workspace(str(binding.attrs["symbol"]), types)
        self._buffers.code.append(Call(CallKind.EXTERN, extern, args, (*results, *workspace)))

    def _emit_steps(self, binding: Binding, args: tuple[int, ...], results: tuple[int, ...]) -> bool:
        """Emit the calls inside a lowered region, if stated, with a register for each buffer between the calls.

        Return ``False`` if there are none, or if the size of a buffer is unknown at the entry.
        """
        types = [self._buffers.tensor_type(value.type, "an operand") for value in (*binding.operands, *binding.results)]
        found = self._tables.steps(str(binding.attrs["symbol"]), [shape_of(type_) for type_ in types])
        if found is None:
            return False
        steps, sizes = found
        if not all(shape_symbols(buffer.shape) <= sizes.keys() for buffer in steps.buffers):
            return False
        buffers = [
            TensorType(tuple(substitute(dim, sizes) for dim in buffer.shape), buffer.dtype) for buffer in steps.buffers
        ]
        if not all(type_.symbols <= self._buffers.input_symbols for type_ in buffers):
            return False
        domain = self._tables.domain(str(binding.attrs["symbol"]))
        if any(self._tables.domain(step.symbol) != domain for step in steps.steps):
            return False
        registers = (*args, *results, *(self._buffers.temporary(type_, domain) for type_ in buffers))
        all_types = (*types, *buffers)
        for step in steps.steps:
            workspace = self._workspace(step.symbol, [all_types[number] for number in (*step.args, *step.results)])
            self._buffers.code.append(
                Call(
                    CallKind.EXTERN,
                    self._tables.extern(step.symbol),
                    tuple(registers[number] for number in step.args),
                    (*(registers[number] for number in step.results), *workspace),
                )
            )
        return True

    def _workspace(self, symbol: str, types: Sequence[TensorType]) -> tuple[int, ...]:
        """Return the register of the scratch memory for the called function, to be passed as one more result.

        There is none if the function needs none, or if the size is unknown at the entry: then the function makes its
        own scratch memory.

        Args:
            symbol: the function.
            types: the types of the operands and results of the call.
        """
        nbytes = self._tables.workspace_nbytes(symbol, [shape_of(type_) for type_ in types])
        if nbytes == 0 or not symbols_of(nbytes) <= self._buffers.input_symbols:
            return ()
        return (self._buffers.temporary(TensorType((nbytes,), "uint8"), self._tables.domain(symbol)),)

    def _emit_packed(self, binding: Binding) -> None:
        symbol = str(binding.attrs["symbol"])
        if self._tables.domain(symbol) != HOST:
            raise CodegenError(
                f"{self._where}, `{symbol}`",
                "runs on a device and returns results of sizes known only after the run",
                expected="a function filling buffers",
            )
        extern = self._tables.extern(symbol)
        args = self._operands(binding)
        new_symbols = self._bind_symbols(binding.results)
        results = tuple(
            self._buffers.define_returned(var, binds) for var, binds in zip(binding.results, new_symbols, strict=True)
        )
        self._buffers.code.append(Call(CallKind.PACKED, extern, args, results))

    def _emit_call(self, binding: Binding) -> None:
        name = str(binding.attrs["callee"])
        callee = self._tables.function(name)
        if callee is None:
            raise CodegenError(f"{self._where}, op `call`", f"function `{name}` is not in the module")
        args = self._operands(binding)
        new_symbols = self._bind_symbols(binding.results)
        results = tuple(
            self._buffers.define_returned(var, binds)
            if not self._symbols(var) <= self._buffers.input_symbols
            else self._buffers.buffer(var)
            for var, binds in zip(binding.results, new_symbols, strict=True)
        )
        self._buffers.code.append(Call(CallKind.FUNCTION, callee, args, results))

    def _symbols(self, var: Var) -> frozenset[str]:
        return self._buffers.type_of(var).symbols

    def _bind_symbols(self, results: Sequence[Var]) -> list[tuple[str, ...]]:
        """Return the symbols bound by each returned value; the symbols are known from here on."""
        new_symbols = []
        for var in results:
            type_ = self._buffers.type_of(var)
            bound = bound_symbols([shape_of(type_)], self._buffers.known_symbols)
            if not type_.symbols <= bound:
                unknown = ", ".join(sorted(type_.symbols - bound))
                raise CodegenError(
                    self._where,
                    f"the shape of `{var.name}` does not determine {unknown}",
                    got=type_,
                    hint=KNOWN_SIZES_HINT,
                )
            new_symbols.append(tuple(sorted(bound - self._buffers.known_symbols)))
            self._buffers.known_symbols = bound
        return new_symbols

    def _emit_if(self, binding: Binding) -> None:
        self._place_constants(binding.operands)
        condition = self._buffers.register(binding.operands[0])
        then_region, else_region = binding.regions
        # A buffer with a size learnt in the branches can be made only at the ends of the branches.
        ready = [self._symbols(var) <= self._buffers.known_symbols for var in binding.results]
        buffers = [
            self._buffers.buffer(var) if is_ready else self._buffers.define_returned(var, ())
            for var, is_ready in zip(binding.results, ready, strict=True)
        ]
        known_before = self._buffers.known_symbols
        branch = len(self._buffers.code)
        self._buffers.code.append(If(condition, 0))
        self._emit_branch(then_region, binding.operands[1:], buffers, ready)
        known_then, self._buffers.known_symbols = self._buffers.known_symbols, known_before
        skip = len(self._buffers.code)
        self._buffers.code.append(Goto(0))
        self._buffers.code[branch] = If(condition, len(self._buffers.code))
        self._emit_branch(else_region, binding.operands[1:], buffers, ready)
        self._buffers.code[skip] = Goto(len(self._buffers.code))
        # Symbols learnt by one branch may be learnt again later; only the sizes of the results stay known.
        result_symbols = frozenset[str]().union(*map(self._symbols, binding.results))
        self._buffers.known_symbols = known_before | (self._buffers.known_symbols & known_then & result_symbols)

    def _emit_branch(
        self, region: Function, inputs: Sequence[Value], buffers: Sequence[int], ready: Sequence[bool]
    ) -> None:
        copies_before = dict(self._buffers.copies)
        self._buffers.aliases.update(zip(region.params, inputs, strict=True))
        self._set_targets(region, buffers, ready)
        for param in region.params:
            self._buffers.make_copies(param)
        self._emit_bindings(region)
        for value, buffer, is_ready in zip(region.results, buffers, ready, strict=True):
            source = self._buffers.source(value, self._buffers.registers[buffer].domain)
            if not is_ready:
                self._check_known(self._buffers.registers[buffer].shape)
                self._buffers.builtin(Builtin.ALLOCATE, (), buffer)
            self._buffers.copy(source, buffer)
        self._buffers.copies = copies_before

    def _check_known(self, shape: Sequence[Dim]) -> None:
        unknown = shape_symbols(shape) - self._buffers.known_symbols
        if unknown:
            raise CodegenError(
                f"{self._where}, op `if`",
                f"the size of a result is unknown: no shape determines {', '.join(sorted(unknown))}",
            )

    def _emit_loop(self, binding: Binding) -> None:
        self._place_constants(binding.operands)
        max_trip, condition = map(self._buffers.register, binding.operands[:2])
        initial = binding.operands[2:]
        (body,) = binding.regions
        carried = []
        is_resized = [
            var.type != operand.type for var, operand in zip(binding.results, binding.operands[2:], strict=True)
        ]
        resized = self._define_resized(list(compress(binding.results, is_resized)), compress(initial, is_resized))
        is_constant = [is_unchanged(body, index) and not new for index, new in enumerate(is_resized)]
        for index, (var, value) in enumerate(zip(binding.results, initial, strict=True)):
            if is_constant[index]:
                self._buffers.aliases.update({var: value, body.params[index + 1]: value})
                self._buffers.targets.pop(var, None)
                carried.append(self._buffers.register(value, self._domains.home(var)))
                continue
            if not is_resized[index]:
                source = self._buffers.source(value, self._domains.home(var))
                self._buffers.copy(source, self._buffers.buffer(var))
            carried.append(self._buffers.register_of[var])
        iteration, keep_going, test = (
            self._buffers.temporary(_INT64),
            self._buffers.temporary(_BOOL),
            self._buffers.temporary(_BOOL),
        )
        self._buffers.builtin(Builtin.ZERO, (), iteration)
        self._buffers.copy(condition, keep_going)
        copies_before = dict(self._buffers.copies)
        head = len(self._buffers.code)
        self._buffers.builtin(Builtin.LOOP_TEST, (iteration, max_trip, keep_going), test)
        leave = len(self._buffers.code)
        self._buffers.code.append(If(test, 0))
        known_before = self._buffers.known_symbols
        self._buffers.register_of.update(zip(body.params, (iteration, *carried), strict=True))
        in_place = zip(results_in_place(body), (False, *is_resized), strict=True)
        self._set_targets(body, (keep_going, *carried), [is_in_place and not new for is_in_place, new in in_place])
        for param in body.params:
            self._buffers.make_copies(param)
        self._emit_bindings(body, is_round=True)
        # Values of a changing size are cloned in the host's memory.
        sources = [
            self._buffers.register(value)
            if is_new
            else self._buffers.source(value, self._buffers.registers[target].domain)
            for value, target, is_new in zip(body.results, (keep_going, *carried), (False, *is_resized), strict=True)
        ]
        # Clones first: a value of a changing size is never the source of a value of a fixed size.
        self._clone(compress(sources[1:], is_resized), resized)
        is_copied = [True, *(not new for new in is_resized)]
        self._parallel_copy(list(compress(sources, is_copied)), list(compress((keep_going, *carried), is_copied)))
        self._buffers.known_symbols = known_before
        self._buffers.copies = copies_before
        self._buffers.builtin(Builtin.INCREMENT, (), iteration)
        self._buffers.code.append(Goto(head))
        self._buffers.code[leave] = If(test, len(self._buffers.code))

    def _define_resized(self, results: Sequence[Var], initial: Iterable[Value]) -> list[int]:
        """Define the registers of carried values whose sizes change from round to round."""
        sources = list(map(self._buffers.register, initial))
        binds = self._bind_symbols(results)
        registers = [self._buffers.define_returned(var, names) for var, names in zip(results, binds, strict=True)]
        self._clone(sources, registers)
        return registers

    def _clone(self, sources: Iterable[int], targets: Sequence[int]) -> None:
        if targets:
            self._buffers.code.append(Call(CallKind.BUILTIN, Builtin.CLONE, tuple(sources), tuple(targets)))

    def _parallel_copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Emit copies with the effect of reading all sources before writing any target."""
        registers = self._buffers.registers
        saved: dict[int, int] = {}
        written = frozenset(map(registers.owner, targets))
        for source, target in zip(sources, targets, strict=True):
            if registers.owner(source) in written and source != target and source not in saved:
                register = registers[source]
                type_ = TensorType(register.shape, register.dtype)
                saved[source] = self._buffers.allocate(type_, "a carried value", register.domain)
                self._buffers.copy(source, saved[source])
        for source, target in zip(sources, targets, strict=True):
            if source != target:
                self._buffers.copy(saved.get(source, source), target)
