"""What depends on chosen ops, through bodies and calls."""

from __future__ import annotations

from collections.abc import Mapping

from byoc_core.ir import CALL, STRUCTURAL_OPS, Binding, Function, IRModule

__all__ = ["find_dependents"]


def find_dependents(module: IRModule, origins: Mapping[int, str]) -> dict[tuple[str, str], str]:
    """Gives the ops that depend on the results of chosen bindings.

    A binding depends on what it reads, with all that it runs: bodies, and the function that it calls. The results of a
    binding that runs a chosen one depend on it. The way round a loop does not count.

    Args:
        module: all of it is looked at.
        origins: the name of each chosen binding, by its ``id``.

    Returns:
        For each dependent op the name of what it depends on, by the name of the function that it came from and that of
        its first result.

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
        self._held: dict[str, str | None] = {}
        self._marked: set[str] = set()
        self.dependents: dict[tuple[str, str], str] = {}

    def enter(self, name: str) -> str | None:
        """Looks through a function, once, and gives the name of a chosen binding that it runs, if any."""
        if name not in self._held and name in self._module.functions:
            self._held[name] = None
            function = self._module[name]
            self._held[name] = self._body(function, str(function.attrs.get("source", name)), None)
        return self._held.get(name)

    def _body(self, function: Function, source: str, cause: str | None) -> str | None:
        """Looks through a body; ``cause`` is what all of it depends on."""
        held = None
        depends: dict[int, str] = {}
        for binding in function.bindings:
            reason = cause or next((depends[id(o)] for o in binding.operands if id(o) in depends), None)
            if reason is not None:
                self._mark(binding, source, reason)
            inner = [self._body(region, source, reason) for region in binding.regions]
            if binding.op is CALL:
                inner.append(self.enter(str(binding.attrs["callee"])))
            origin = self._origins.get(id(binding)) or next(filter(None, inner), None)
            held = held or origin
            if reason is not None or origin is not None:
                depends.update(dict.fromkeys(map(id, binding.results), reason or origin or ""))
        return held

    def _mark(self, binding: Binding, source: str, reason: str) -> None:
        if binding.op not in STRUCTURAL_OPS:
            self.dependents.setdefault((source, binding.results[0].name), reason)
        callee = str(binding.attrs["callee"]) if binding.op is CALL else None
        if callee in self._module.functions and callee not in self._marked:
            self._marked.add(str(callee))
            function = self._module[str(callee)]
            self._body(function, str(function.attrs.get("source", callee)), reason)
