"""One function: linear code over virtual registers, then planned storage, then the machine's registers.

While code is emitted, every buffer is a virtual register. A result of the function is written into its result
register by the op that makes it, a result of an ``if`` by both branches into one register, and the parameters of
a region are the registers of its operands; so nothing is copied but inputs, constants and values that are results
twice, and the values that a loop takes and those of a round that are made before the last round's were read for the
last time. What a loop carries unchanged stays where it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import Dim, DimExpr, bound_symbols, shape_symbols, symbols_of
from byoc_core.errors import CodegenError
from byoc_core.ir.constants import Constant
from byoc_core.ir.module import Binding, Function, IRModule, Value, Var
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.ir.types import TensorType, Type
from byoc_core.lower.assign_registers import VirtualRegister, assign_registers
from byoc_core.lower.loop_values import is_unchanged, results_in_place
from byoc_core.runtime.module import TensorSpec
from byoc_core.runtime.workspaces import caller_nbytes
from byoc_core.vm.instructions import Builtin, Call, CallKind, Goto, If, Instruction, Ret
from byoc_core.vm.program import ConstantRef, RegisterKind, VMFunction

__all__ = ["ProgramTables", "lower_function"]

_BOOL = TensorType((), "bool")
_INT64 = TensorType((), "int64")
_HOW_SIZES_ARE_KNOWN = "A shape tells a size by an axis where it is the only unknown one, such as `n` or `2*n+1`."


class ProgramTables:
    """The program's external symbols and constants, numbered in order of first use, and its functions."""

    def __init__(self, module: IRModule) -> None:
        self._functions = {name: index for index, name in enumerate(module.functions)}
        self._modules = {
            symbol: external
            for external in module.attrs.get(EXTERNAL_MODULES, ())
            for symbol in external.function_names
        }
        self._externs: dict[str, int] = {}
        self._constants: dict[Constant, int] = {}

    @property
    def externs(self) -> tuple[str, ...]:
        """The external symbols."""
        return tuple(self._externs)

    @property
    def constants(self) -> tuple[ConstantRef, ...]:
        """The constants."""
        return tuple(
            ConstantRef(
                constant.digest, constant.type.dtype, tuple(d for d in constant.type.shape or () if isinstance(d, int))
            )
            for constant in self._constants
        )

    def extern(self, symbol: str) -> int:
        """Gives the number of an external symbol."""
        return self._externs.setdefault(symbol, len(self._externs))

    def workspace_nbytes(self, symbol: str, shapes: Sequence[Sequence[Dim]]) -> Dim:
        """Gives the bytes of scratch memory that a function wants from its caller.

        Args:
            symbol: the function; 0 for one that no module of the program defines.
            shapes: of the operands and results of the call, whose symbols the size is given in.
        """
        module = self._modules.get(symbol)
        nbytes = 0 if module is None else module.call_traits(symbol).workspace_nbytes
        if module is None or isinstance(nbytes, int):
            return nbytes
        return caller_nbytes(nbytes, module.find_signature(symbol), shapes) or 0

    def constant(self, constant: Constant) -> int:
        """Gives the number of a constant."""
        return self._constants.setdefault(constant, len(self._constants))

    def function(self, name: str) -> int | None:
        """Gives the number of a function; ``None`` where the module has none of that name."""
        return self._functions.get(name)


def lower_function(function: Function, tables: ProgramTables) -> VMFunction:
    """Gives the machine's form of a function.

    Raises:
        CodegenError: see :func:`byoc_core.lower.lower`.
    """
    return _Lowering(function, tables).run()


class _Lowering:
    def __init__(self, function: Function, tables: ProgramTables) -> None:
        self._function = function
        self._tables = tables
        self._where = f"function `{function.name}`"
        self._registers: list[VirtualRegister] = []
        self._code: list[Instruction] = []
        self._places: dict[Var, int] = {}
        self._constants: dict[Constant, int] = {}
        # Where a value that is not made yet has to go.
        self._targets: dict[Var, int] = {}
        self._known: frozenset[str] = frozenset()
        self._input_symbols: frozenset[str] = frozenset()

    def run(self) -> VMFunction:
        function = self._function
        params = self._specs(function.input_names, [param.type for param in function.params])
        results = self._specs(function.output_names, function.result_types)
        self._input_symbols = self._known = bound_symbols([param.shape for param in params])
        for param, spec in zip(function.params, params, strict=True):
            self._places[param] = self._new(RegisterKind.PARAM, TensorType(spec.shape, spec.dtype))
        outputs = [self._new(RegisterKind.RESULT, TensorType(spec.shape, spec.dtype)) for spec in results]
        early = [shape_symbols(spec.shape) <= self._input_symbols for spec in results]
        self._aim(function, outputs, early)
        self._emit_bindings(function)
        returned: list[int] = []
        for value, output, is_early in zip(function.results, outputs, early, strict=True):
            returned.append(self._return(value, output, returned, is_early=is_early))
        self._code.append(Ret(tuple(returned)))
        return assign_registers(
            function.name,
            params,
            results,
            [self._tables.constant(c) for c in self._constants],
            self._registers,
            self._code,
        )

    def _aim(self, function: Function, buffers: Sequence[int], ready: Sequence[bool]) -> None:
        """Lets the ops that make the results of a function or region write into the buffers that exist already."""
        made = {var for binding in function.bindings for var in binding.results}
        for value, buffer, is_ready in zip(function.results, buffers, ready, strict=True):
            if is_ready and isinstance(value, Var) and value in made:
                self._targets[value] = buffer
                made.remove(value)

    def _return(self, value: Value, output: int, returned: Sequence[int], *, is_early: bool) -> int:
        """Gives the register in which the caller finds a result."""
        place = self._place(value)
        if is_early:
            self._copy(place, output)
            return output
        if self._registers[place].kind is RegisterKind.DYNAMIC and place not in returned:
            return place
        own = self._allocated(self._tensor_type(value.type, "result"), "result")
        self._copy(place, own)
        return own

    def _specs(self, names: Sequence[str], types: Sequence[Type]) -> tuple[TensorSpec, ...]:
        specs = []
        for name, type_ in zip(names, types, strict=True):
            tensor = self._tensor_type(type_, f"`{name}`")
            specs.append(TensorSpec(name, tensor.dtype, _shape(tensor)))
        return tuple(specs)

    def _tensor_type(self, type_: Type, what: str) -> TensorType:
        if not isinstance(type_, TensorType) or type_.shape is None:
            raise CodegenError(self._where, f"{what} has no storage", got=type_, expected="a tensor of known rank")
        return type_

    def _new(self, kind: RegisterKind, type_: TensorType, binds: tuple[str, ...] = ()) -> int:
        self._registers.append(VirtualRegister(kind, type_.dtype, _shape(type_), binds))
        return len(self._registers) - 1

    def _place(self, value: Value) -> int:
        if isinstance(value, Var):
            return self._places[value]
        if value not in self._constants:
            self._tables.constant(value)
            self._constants[value] = self._new(RegisterKind.CONSTANT, value.type)
        return self._constants[value]

    def _builtin(self, builtin: Builtin, args: Sequence[int], result: int) -> None:
        self._code.append(Call(CallKind.BUILTIN, builtin, tuple(args), (result,)))

    def _copy(self, source: int, target: int) -> None:
        if source != target:
            self._builtin(Builtin.COPY, (source,), target)

    def _temporary(self, type_: TensorType) -> int:
        return self._new(RegisterKind.TENSOR, type_)

    def _allocated(self, type_: TensorType, what: str) -> int:
        """Gives a buffer: a planned one, or one that is allocated here where only a running call knows its size."""
        symbols = type_.symbols
        if symbols <= self._input_symbols:
            return self._temporary(type_)
        if not symbols <= self._known:
            unknown = ", ".join(sorted(symbols - self._known))
            raise CodegenError(
                self._where,
                f"the size of {what} is not known when it is made: nothing gives {unknown}",
                got=type_,
                hint=_HOW_SIZES_ARE_KNOWN,
            )
        register = self._new(RegisterKind.DYNAMIC, type_)
        self._builtin(Builtin.ALLOCATE, (), register)
        return register

    def _buffer(self, var: Var) -> int:
        """Gives the buffer into which a value has to be written, and makes it the value's place."""
        target = self._targets.pop(var, None)
        self._places[var] = (
            self._allocated(self._tensor_type(var.type, f"`{var.name}`"), f"`{var.name}`") if target is None else target
        )
        return self._places[var]

    def _returned(self, var: Var, binds: Sequence[str]) -> int:
        """Gives the dynamic register that a returned value defines, and makes it the value's place."""
        type_ = self._tensor_type(var.type, f"`{var.name}`")
        self._targets.pop(var, None)
        self._places[var] = self._new(RegisterKind.DYNAMIC, type_, tuple(binds))
        return self._places[var]

    def _emit_bindings(self, function: Function) -> None:
        for binding in function.bindings:
            match binding.op.name:
                case "call":
                    self._emit_call(binding)
                case "call_dps_packed":
                    self._emit_dps(binding)
                case "call_packed":
                    self._emit_packed(binding)
                case "if":
                    self._emit_if(binding)
                case "loop":
                    self._emit_loop(binding)
                case name:
                    raise CodegenError(
                        f"{self._where}, op `{name}` (`{binding.results[0].name}`)",
                        "has no code: no backend compiled it",
                        hint="Give `RunCodegen` a backend for every op, or build with the host as the last backend.",
                    )

    def _operands(self, binding: Binding) -> tuple[int, ...]:
        return tuple(self._place(operand) for operand in binding.operands)

    def _emit_dps(self, binding: Binding) -> None:
        extern = self._tables.extern(str(binding.attrs["symbol"]))
        args = self._operands(binding)
        results = tuple(self._buffer(result) for result in binding.results)
        workspace = self._workspace(binding)
        self._code.append(Call(CallKind.EXTERN, extern, args, (*results, *workspace)))

    def _workspace(self, binding: Binding) -> tuple[int, ...]:
        """Gives the scratch memory that the called function may have from its caller, as one more result.

        Where it is unknown at the entry how much that is, the function makes its own.
        """
        types = [self._tensor_type(value.type, "an operand") for value in (*binding.operands, *binding.results)]
        nbytes = self._tables.workspace_nbytes(str(binding.attrs["symbol"]), [_shape(type_) for type_ in types])
        if nbytes == 0 or not symbols_of(nbytes) <= self._input_symbols:
            return ()
        return (self._temporary(TensorType((nbytes,), "uint8")),)

    def _emit_packed(self, binding: Binding) -> None:
        extern = self._tables.extern(str(binding.attrs["symbol"]))
        args = self._operands(binding)
        learnt = self._learn(binding.results)
        results = tuple(self._returned(var, binds) for var, binds in zip(binding.results, learnt, strict=True))
        self._code.append(Call(CallKind.PACKED, extern, args, results))

    def _emit_call(self, binding: Binding) -> None:
        name = str(binding.attrs["callee"])
        callee = self._tables.function(name)
        if callee is None:
            raise CodegenError(f"{self._where}, op `call`", f"function `{name}` is not in the module")
        args = self._operands(binding)
        learnt = self._learn(binding.results)
        results = tuple(
            self._returned(var, binds) if not self._symbols(var) <= self._input_symbols else self._buffer(var)
            for var, binds in zip(binding.results, learnt, strict=True)
        )
        self._code.append(Call(CallKind.FUNCTION, callee, args, results))

    def _symbols(self, var: Var) -> frozenset[str]:
        return self._tensor_type(var.type, f"`{var.name}`").symbols

    def _learn(self, results: Sequence[Var]) -> list[tuple[str, ...]]:
        """Gives the symbols that each returned value binds; they are known from here on."""
        learnt = []
        for var in results:
            type_ = self._tensor_type(var.type, f"`{var.name}`")
            bound = bound_symbols([_shape(type_)], self._known)
            if not type_.symbols <= bound:
                unknown = ", ".join(sorted(type_.symbols - bound))
                raise CodegenError(
                    self._where,
                    f"the shape of `{var.name}` does not determine {unknown}",
                    got=type_,
                    hint=_HOW_SIZES_ARE_KNOWN,
                )
            learnt.append(tuple(sorted(bound - self._known)))
            self._known = bound
        return learnt

    def _emit_if(self, binding: Binding) -> None:
        condition, *inputs = self._operands(binding)
        then_region, else_region = binding.regions
        # A buffer whose size the branches learn can be made at their ends only.
        ready = [self._symbols(var) <= self._known for var in binding.results]
        buffers = [
            self._buffer(var) if is_ready else self._returned(var, ())
            for var, is_ready in zip(binding.results, ready, strict=True)
        ]
        known = self._known
        branch = len(self._code)
        self._code.append(If(condition, 0))
        self._emit_branch(then_region, inputs, buffers, ready)
        known_then, self._known = self._known, known
        skip = len(self._code)
        self._code.append(Goto(0))
        self._code[branch] = If(condition, len(self._code))
        self._emit_branch(else_region, inputs, buffers, ready)
        self._code[skip] = Goto(len(self._code))
        # What a branch learns for itself may be learnt again later; only the sizes of the results stay.
        told = frozenset[str]().union(*map(self._symbols, binding.results))
        self._known = known | (self._known & known_then & told)

    def _emit_branch(
        self, region: Function, inputs: Sequence[int], buffers: Sequence[int], ready: Sequence[bool]
    ) -> None:
        self._places.update(zip(region.params, inputs, strict=True))
        self._aim(region, buffers, ready)
        self._emit_bindings(region)
        for value, buffer, is_ready in zip(region.results, buffers, ready, strict=True):
            source = self._place(value)
            if not is_ready:
                self._check_known(self._registers[buffer].shape)
                self._builtin(Builtin.ALLOCATE, (), buffer)
            self._copy(source, buffer)

    def _check_known(self, shape: Sequence[Dim]) -> None:
        unknown = shape_symbols(shape) - self._known
        if unknown:
            raise CodegenError(
                f"{self._where}, op `if`",
                f"the size of a result is not known: nothing gives {', '.join(sorted(unknown))}",
            )

    def _emit_loop(self, binding: Binding) -> None:
        max_trip, condition, *initial = self._operands(binding)
        (body,) = binding.regions
        carried = []
        for index, (var, source) in enumerate(zip(binding.results, initial, strict=True)):
            if is_unchanged(body, index):
                self._places[var] = source
                self._targets.pop(var, None)
            else:
                self._copy(source, self._buffer(var))
            carried.append(self._places[var])
        iteration, keep_going, test = self._temporary(_INT64), self._temporary(_BOOL), self._temporary(_BOOL)
        self._builtin(Builtin.ZERO, (), iteration)
        self._copy(condition, keep_going)
        head = len(self._code)
        self._builtin(Builtin.LOOP_TEST, (iteration, max_trip, keep_going), test)
        leave = len(self._code)
        self._code.append(If(test, 0))
        known = self._known
        self._places.update(zip(body.params, (iteration, *carried), strict=True))
        self._aim(body, (keep_going, *carried), results_in_place(body))
        self._emit_bindings(body)
        self._copy_at_once([self._place(value) for value in body.results], [keep_going, *carried])
        self._known = known
        self._builtin(Builtin.INCREMENT, (), iteration)
        self._code.append(Goto(head))
        self._code[leave] = If(test, len(self._code))

    def _copy_at_once(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copies as if all sources were read before any target is written."""
        saved: dict[int, int] = {}
        written = frozenset(targets)
        for source, target in zip(sources, targets, strict=True):
            if source in written and source != target and source not in saved:
                register = self._registers[source]
                saved[source] = self._allocated(TensorType(register.shape, register.dtype), "a carried value")
                self._copy(source, saved[source])
        for source, target in zip(sources, targets, strict=True):
            if source != target:
                self._copy(saved.get(source, source), target)


def _shape(type_: TensorType) -> tuple[int | DimExpr, ...]:
    return type_.shape or ()
