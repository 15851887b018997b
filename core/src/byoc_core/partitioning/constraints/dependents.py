"""Dependents of chosen ops, through bodies and calls."""

from __future__ import annotations

from collections.abc import Mapping

from byoc_core.ir import CALL, STRUCTURAL_OPS, Binding, Function, IRModule

__all__ = ["find_dependents"]


def find_dependents(module: IRModule, origins: Mapping[int, str]) -> dict[tuple[str, str], str]:
    """Return the ops depending on the results of chosen bindings.

    A binding depends on its operands, and so does everything run by the binding: bodies, and the called function. The
    results of a binding running a chosen binding depend on the latter. The back edge of a loop does not count.

    Args:
        module: the module, examined as a whole.
        origins: the name of each chosen binding, by ``id``.

    Returns:
        For each dependent op the name of the chosen binding, keyed by the name of the original function and the name of
        the op's first result.

    Cost: linear in the ops of the module.
    """
    search = _Search(module, origins)
    for name in module.functions if origins else ():
        search.enter(name)
    return search.dependents


class _Search:
    def __init__(self, module: IRModule, origins: Mapping[int, str]) -> None:
        self._module = module
        self._origins = origins
        self._origin_of: dict[str, str | None] = {}
        self._marked: set[str] = set()
        self.dependents: dict[tuple[str, str], str] = {}

    def enter(self, name: str) -> str | None:
        """Search a function, once, and return the name of a chosen binding run by the function, if any."""
        if name not in self._origin_of and name in self._module.functions:
            self._origin_of[name] = None
            function = self._module[name]
            self._origin_of[name] = self._body(function, str(function.attrs.get("source", name)), None)
        return self._origin_of.get(name)

    def _body(self, function: Function, source: str, cause: str | None) -> str | None:
        """Search a body and return the name of a chosen binding run by the body, if any.

        ``cause`` is the name of the chosen binding the whole body depends on, or ``None``.
        """
        first_origin = None
        depends: dict[int, str] = {}
        for binding in function.bindings:
            reason = cause or next((depends[id(o)] for o in binding.operands if id(o) in depends), None)
            if reason is not None:
                self._mark(binding, source, reason)
            inner = [self._body(region, source, reason) for region in binding.regions]
            if binding.op is CALL:
                inner.append(self.enter(str(binding.attrs["callee"])))
            origin = self._origins.get(id(binding)) or next(filter(None, inner), None)
            first_origin = first_origin or origin
            if reason is not None or origin is not None:
                depends.update(dict.fromkeys(map(id, binding.results), reason or origin or ""))
        return first_origin

    def _mark(self, binding: Binding, source: str, reason: str) -> None:
        if binding.op not in STRUCTURAL_OPS:
            self.dependents.setdefault((source, binding.results[0].name), reason)
        callee = str(binding.attrs["callee"]) if binding.op is CALL else None
        if callee in self._module.functions and callee not in self._marked:
            self._marked.add(str(callee))
            function = self._module[str(callee)]
            self._body(function, str(function.attrs.get("source", callee)), reason)
