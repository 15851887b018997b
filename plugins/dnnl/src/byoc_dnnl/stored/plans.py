"""The stored plans of a module: a text, and the constants cited by the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from byoc_core.errors import ArtifactError, IRTypeError, PluginError
from byoc_core.runtime.graph import check_function_types
from byoc_core.runtime.graph.document import GraphFunction
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.threads import num_threads

from byoc_dnnl.library import load_library
from byoc_dnnl.planning import best_plan
from byoc_dnnl.precision import Precision
from byoc_dnnl.ranges_constants import ConstantRanges
from byoc_dnnl.static_form import StaticForms
from byoc_dnnl.stored.grammar import FIRST_LINE
from byoc_dnnl.stored.recording import recording_engine
from byoc_dnnl.stored.writing import plan_lines

__all__ = ["PlanStore", "StoredPlans"]


@dataclass(frozen=True)
class StoredPlans:
    """Plans for programs without Python.

    Attributes:
        text: the lines of :mod:`byoc_dnnl.stored.grammar`.
        constants: the cited constants by digest; derived constants beside those of the module.
    """

    text: bytes
    constants: Mapping[str, NDArray]


class PlanStore:
    """The plans of functions, added one after the other, with the current number of threads and this machine's oneDNN.

    Args:
        constants: arrays by digest.
        sizes: sizes by symbol, for each call to be stored.
        precision: the precision of float32 computations.
    """

    def __init__(
        self, constants: Mapping[str, NDArray], sizes: Sequence[Mapping[str, int]], precision: Precision = "float32"
    ) -> None:
        self._library = load_library()
        self._constants, self._sizes, self._precision = constants, sizes, precision
        self._ranges = ConstantRanges(constants)
        self._lines = [FIRST_LINE, f"library {' '.join(map(str, self._library.version))} {self._library.isa}"]
        self._cited: dict[str, NDArray] = {}

    def add(self, function: GraphFunction, schedules: Mapping[str, str]) -> str | None:
        """Add the plans of a function; return the reason why there is no plan for some sizes, or ``None``.

        A function without symbols has one plan; a function with symbols has a plan for each entry with all its symbols.

        Args:
            function: the function; for a reason, nothing is added.
            schedules: the names of schedules chosen for nodes, by the name of the result.

        Raises:
            PluginError: the sizes do not fit the function.
        """
        plans = []
        for form in _forms(function, self._sizes):
            plan = self._lines_of(form, schedules)
            if plan is None:
                sizes = ", ".join(str([*spec.shape]) for spec in form.inputs)
                return f"oneDNN has no primitives for inputs {sizes}, sizes of the option `stored_plans`"
            plans.append(plan)
        self._lines.append(f"region {function.name} {len(function.inputs)} {len(function.outputs)}")
        for lines, constants in plans:
            self._lines += lines
            self._cited.update(constants)
        return None

    def finish(self) -> StoredPlans:
        """Return all plans."""
        return StoredPlans("".join(f"{line}\n" for line in self._lines).encode("ascii"), self._cited)

    def _lines_of(
        self, form: GraphFunction, schedules: Mapping[str, str]
    ) -> tuple[list[str], dict[str, NDArray]] | None:
        """Return the lines of a plan, and the cited constants; ``None`` without primitives, or if a tensor is empty."""
        if any(0 in value.shape for value in form.values):
            return None
        number = num_threads()
        with recording_engine(self._library) as (engine, recorder):
            found = best_plan(engine, number, form, self._ranges, self._precision, schedules)
            if found is None:
                return None
            plan = found.plan
            computed = {digest: compute() for digest, compute in plan.constants.items()}
            arrays = {**self._constants, **computed}
            return plan_lines(plan, form, recorder, arrays, num_threads=number, planned_for=found.num_threads)


def _forms(function: GraphFunction, sizes: Sequence[Mapping[str, int]]) -> list[GraphFunction]:
    """Return the forms of a function at the sizes, each once."""
    forms = StaticForms(function)
    found: dict[tuple[tuple[str, int], ...], GraphFunction] = {}
    for entry in sizes:
        if forms.symbols <= entry.keys():
            of_function = {name: entry[name] for name in sorted(forms.symbols)}
            found.setdefault(tuple(of_function.items()), _form(function, forms, of_function))
    return [*found.values()]


def _form(function: GraphFunction, forms: StaticForms, sizes: Mapping[str, int]) -> GraphFunction:
    where = f"graph function `{function.name}`"
    try:
        form = forms.at(sizes)
        check_function_types(form, where)
    except (ArtifactError, IRTypeError) as error:
        raise PluginError("byoc-dnnl, option `stored_plans`", f"has sizes that do not fit {where}: {error}") from error
    return form
