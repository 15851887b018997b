"""The verifier: checks every law of the IR and shows the faulty line.

Laws: functions have names expressible in script; every value has a single definition and is defined before use,
in its own function (regions see only their parameters); every binding has a result; attributes are the attributes of
the op, in stored form; result types equal the results of the type rules; a called function exists and no function calls
itself, directly or indirectly; cited constants are in the store; global symbols are unique; symbolic sizes are given by
the parameters or determined by an earlier binding; a binding introducing sizes uses new names for these sizes; sizes
learnt by a region are known only inside the region, except sizes in the results of both branches of an ``if``; bodies
are nested at most :data:`MAX_NESTING` deep; states keep the laws of :mod:`byoc_core.ir.state_laws`.
"""

from __future__ import annotations

from collections.abc import Mapping

from byoc_core.dims import is_name
from byoc_core.errors import IRError, VerifyError
from byoc_core.ir.constants import Constant
from byoc_core.ir.infer import infer_results
from byoc_core.ir.module import Binding, Function, IRModule, Value, Var
from byoc_core.ir.printer import binding_window
from byoc_core.ir.sizes import attribute_symbols, introduced_symbols, learnt_symbols, type_symbols
from byoc_core.ir.state_laws import check_states
from byoc_core.ir.structural import CALL, COMPOSITE
from byoc_core.ir.structural_equality import attributes_text
from byoc_core.opset.types import TensorType

__all__ = ["MAX_NESTING", "check_global_symbols", "verify", "verify_function"]

MAX_NESTING = 64
"""The maximal nesting depth of bodies of ``if`` and ``loop`` in a function; the innermost may hold a composite.

Readers of nested bodies may recurse, and Python parses no script of more than 100 indentations.
"""


def verify(module: IRModule) -> IRModule:
    """Check a module and return the module.

    Raises:
        VerifyError: a law is broken; the message names the law and shows the surrounding IR.

    Cost: linear in the size of the module.
    """
    _check_names(module)
    for function in module.functions.values():
        _check_nesting(function)
    _check_call_graph(module)
    check_global_symbols(module)
    check_states(module)
    owners: dict[int, str] = {}
    for function in module.functions.values():
        _Verifier(module, function, owners).check(function, frozenset())
    return module


def verify_function(module: IRModule, function: Function) -> None:
    """Check a function as part of a module; see :func:`verify`."""
    _check_nesting(function)
    _Verifier(module, function, {}).check(function, frozenset())


class _Verifier:
    def __init__(self, module: IRModule, top: Function, owners: dict[int, str]) -> None:
        self._module = module
        self._top = top
        self._owners = owners

    def check(self, function: Function, outer_symbols: frozenset[str]) -> None:
        """Check a function, or a region with access to the sizes known outside."""
        defined: set[int] = set()
        symbols = set(outer_symbols)
        for param in function.params:
            self._define(param, defined, function, None)
            if isinstance(param.type, TensorType):
                symbols |= param.type.symbols
        for binding in function.bindings:
            for operand in binding.operands:
                self._check_read(operand, defined, function, binding)
            for region in binding.regions:
                self.check(region, frozenset(symbols))
            self._check_types(binding, function)
            for result in binding.results:
                self._define(result, defined, function, binding)
            self._check_symbols(binding, symbols, function)
        for value in function.results:
            self._check_read(value, defined, function, None)

    def _fail(
        self,
        function: Function,
        binding: Binding | None,
        problem: str,
        *,
        got: object = None,
        expected: object = None,
        hint: str | None = None,
    ) -> VerifyError:
        where = f"function `{self._top.name}`"
        if function is not self._top:
            where += f", region `{function.name}`"
        if binding is not None:
            where += f", binding `{', '.join(r.name for r in binding.results)}`"
        detail = binding_window(function, binding, self._module.constants)
        return VerifyError(where, problem, got=got, expected=expected, hint=hint, detail=detail)

    def _define(self, var: Var, defined: set[int], function: Function, binding: Binding | None) -> None:
        if id(var) in self._owners:
            raise self._fail(
                function, binding, f"value `{var.name}` is defined twice (also in `{self._owners[id(var)]}`)"
            )
        self._owners[id(var)] = self._top.name
        defined.add(id(var))

    def _check_read(self, value: Value, defined: set[int], function: Function, binding: Binding | None) -> None:
        if isinstance(value, Constant):
            if value.digest not in self._module.constants:
                raise self._fail(function, binding, f"constant {value.digest[:16]}... is not in the module's store")
        elif id(value) not in defined:
            role = "result" if binding is None else "operand"
            raise self._fail(function, binding, f"{role} `{value.name}` is read before the definition")

    def _check_types(self, binding: Binding, function: Function) -> None:
        declared = tuple(result.type for result in binding.results)
        try:
            _check_attributes(binding)
            types = infer_results(
                binding.op,
                binding.operands,
                binding.attrs,
                regions=binding.regions,
                declared=declared,
                functions=self._module.functions,
            )
        except IRError as error:
            raise self._fail(
                function,
                binding,
                f"{error.where}: {error.problem}",
                got=error.got,
                expected=error.expected,
                hint=error.hint,
            ) from error
        if types != declared:
            raise self._fail(
                function,
                binding,
                f"the result types of `{binding.op.name}` differ from the type rule",
                got=", ".join(map(str, declared)),
                expected=", ".join(map(str, types)),
            )

    def _check_symbols(self, binding: Binding, symbols: set[str], function: Function) -> None:
        """Check the sizes required or introduced by a binding, and add the newly determined sizes to the known ones."""
        functions = self._module.functions
        redefined = introduced_symbols(binding, functions) & symbols
        if redefined:
            raise self._fail(
                function,
                binding,
                f"introduces the known size {', '.join(sorted(redefined))} again",
                hint="Give the new size another name.",
            )
        if not type_symbols(binding.results) <= symbols:
            learnt = symbols | learnt_symbols(binding, functions)
            for result in binding.results:
                unknown = type_symbols((result,)) - learnt
                if unknown:
                    names = ", ".join(sorted(unknown))
                    raise self._fail(function, binding, f"size {names} is determined by no parameter", got=result.type)
            symbols |= learnt
        missing = attribute_symbols(binding.attrs) - symbols
        if missing:
            raise self._fail(
                function, binding, f"an attribute needs the undetermined size {', '.join(sorted(missing))}"
            )


def _check_attributes(binding: Binding) -> None:
    normal = binding.op.normalise_attrs(binding.attrs)
    if not normal and not binding.attrs:
        return
    if dict(normal) != dict(binding.attrs) or attributes_text(normal) != attributes_text(binding.attrs):
        raise IRError(
            f"op `{binding.op.name}`",
            "attributes are not in stored form",
            got=dict(binding.attrs),
            expected=dict(normal),
        )


def _check_names(module: IRModule) -> None:
    for name, function in module.functions.items():
        if not is_name(name):
            raise VerifyError(
                f"function {name!r}",
                "has a name invalid in script",
                expected="a Python identifier other than a keyword",
                detail=binding_window(function, None, module.constants),
            )


def _check_nesting(function: Function) -> None:
    """Check the nesting depth of bodies without recursion, before any recursion into bodies."""
    pending = [(function, 0)]
    while pending:
        body, depth = pending.pop()
        for binding in body.bindings:
            if not binding.regions:
                continue
            if depth > MAX_NESTING or (depth == MAX_NESTING and binding.op is not COMPOSITE):
                # Without a window: the printer recurses as well.
                raise VerifyError(
                    f"function `{function.name}`, binding `{', '.join(r.name for r in binding.results)}`",
                    f"bodies are nested more than {MAX_NESTING} deep",
                    hint="Move the inner bodies into a function and call the function.",
                )
            pending.extend((region, depth + 1) for region in binding.regions)


def _check_call_graph(module: IRModule) -> None:
    callees = {
        name: [str(b.attrs["callee"]) for b in function.walk() if b.op is CALL]
        for name, function in module.functions.items()
    }
    state: dict[str, int] = {}
    for root in callees:
        _visit_calls(module, root, callees, state)


def _visit_calls(module: IRModule, root: str, callees: Mapping[str, list[str]], state: dict[str, int]) -> None:
    """Search calls depth-first without recursion; state 1 = on the path, 2 = done."""
    path = [(root, iter(callees[root]))] if state.get(root) is None else []
    state.setdefault(root, 1)
    while path:
        name, pending = path[-1]
        callee = next(pending, None)
        if callee is None:
            state[name] = 2
            path.pop()
        elif callee not in callees:
            raise VerifyError(
                f"function `{name}`",
                f"calls the function `{callee}`, absent from the module",
                expected=", ".join(callees),
                detail=_call_window(module, name, callee),
            )
        elif state.get(callee) == 1:
            chain = " -> ".join([n for n, _ in path] + [callee])
            detail = _call_window(module, name, callee)
            raise VerifyError(f"function `{callee}`", f"calls itself: {chain}", detail=detail)
        elif callee not in state:
            state[callee] = 1
            path.append((callee, iter(callees[callee])))


def _call_window(module: IRModule, caller: str, callee: str) -> str:
    function = module.functions[caller]
    call = next(b for b in function.walk() if b.op is CALL and b.attrs["callee"] == callee)
    return binding_window(function, call, module.constants)


def check_global_symbols(module: IRModule) -> None:
    """Raise ``VerifyError`` if two functions have the same ``global_symbol``; names both."""
    owners: dict[object, str] = {}
    for name, function in module.functions.items():
        symbol = function.attrs.get("global_symbol")
        if symbol is None:
            continue
        if symbol in owners:
            raise VerifyError(
                f"functions `{owners[symbol]}` and `{name}`",
                f"have the same global symbol `{symbol}`",
                detail=binding_window(function, None, module.constants),
            )
        owners[symbol] = name
