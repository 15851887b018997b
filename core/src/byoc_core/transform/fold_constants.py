"""Constant folding: ops of constants only are computed once, at compile time."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.dtypes import is_float, to_numpy
from byoc_core.errors import ExecutionError, IRTypeError
from byoc_core.ir import CALL, Binding, Constant, ConstantStore, Function, IRModule, Trait, Value, Var, is_static
from byoc_core.ir.sizes import is_data_dependent
from byoc_core.opset.types import TensorType
from byoc_core.transform.evaluate import evaluate_binding
from byoc_core.transform.folding_budget import FoldingBudget, declared_nbytes, distinct_nbytes, folding_cost
from byoc_core.transform.infer_types import retype
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import map_functions, map_regions, with_bindings

__all__ = ["FoldConstants", "may_compute_once"]

_LOGGER = logging.getLogger("byoc_core")

Array = npt.NDArray[Any]

MAX_GROWTH_NBYTES = 1 << 20


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replacement of pure ops of constants by their values.

    Attributes:
        max_growth_nbytes: the most bytes by which the results of an op may exceed the distinct operands (a broadcast of
            a small constant to a large one stays in the program). Casts of floats to wider floats and ``dequantize``
            may exceed the limit: weights stored in a narrow dtype are widened once, not in each call.
        kept: names of ops to keep in the program.
        max_cost: bytes read and written plus FLOPs of all folded ops, with 4096 for each op and each round of a
            kernel's loop in Python; by default 512 Mi plus 16 for each byte of the module's constants. Folded values
            may occupy an eighth as many bytes at once. Ops beyond the bound stay in the program, with a warning in the
            log.
    """

    max_growth_nbytes: int = MAX_GROWTH_NBYTES
    kept: tuple[str, ...] = ()
    max_cost: int | None = None

    def __call__(self, module: IRModule) -> IRModule:
        """Return the folded module; functions annotated for a backend are left alone.

        Cost: linear in ops, plus the kernels of the folded ops. Each folded data-dependent op adds a round if its
        result makes operands of other such ops known. ``max_cost`` bounds both.
        """
        called = {str(b.attrs["callee"]) for f in module.functions.values() for b in f.walk() if b.op is CALL}
        folder = _Folder(self, module, FoldingBudget(declared_nbytes(module), self.max_cost))
        folded = map_functions(
            module, lambda f: f if "Codegen" in f.attrs else folder.fold(f, keeps_types=f.name in called)
        )
        if folder.budget.num_refused:
            _LOGGER.warning(
                "%d ops of constants stay in the program: folding all these ops costs more than %d bytes and FLOPs. "
                "Raise the bound with build(..., max_fold_cost=...), on the command line with --max-fold-cost.",
                folder.budget.num_refused,
                folder.budget.max_cost,
            )
        return folded


@dataclass(frozen=True)
class _Folder:
    """A single run of the pass over a module."""

    options: FoldConstants
    module: IRModule
    budget: FoldingBudget

    def fold(self, function: Function, *, keeps_types: bool) -> Function:
        while True:
            folded = self._fold_static(function)
            selections = self._fold_selections(folded) if self.budget.spend_rounds(len(folded.bindings)) else {}
            if not selections:
                return folded
            replaced = [
                (result, self.module.constants.add(output))
                for binding in folded.bindings
                for result, output in zip(binding.results, selections.get(id(binding), ()), strict=False)
            ]
            rest = tuple(binding for binding in folded.bindings if id(binding) not in selections)
            try:
                retyped = retype(replace(folded, bindings=rest), self.module.functions, replaced)
            except IRTypeError:  # an op does not fit the size: reported at run time
                return folded
            if keeps_types and retyped.result_types != folded.result_types:
                return folded
            function = retyped

    def _fold_selections(self, function: Function) -> dict[int, tuple[Array, ...]]:
        """Return the results of data-dependent ops of constants, by the ``id`` of the binding."""
        selections = {}
        for binding in function.bindings:
            if not self._is_foldable_selection(binding) or not self.budget.spend(folding_cost(binding)):
                continue
            outputs = _value_of(binding, [self.module.constants[o.digest] for o in _constants(binding.operands)])
            if outputs is None:
                continue
            nbytes = sum(output.nbytes for output in outputs)
            allowed = self.options.max_growth_nbytes + distinct_nbytes(binding.operands)
            if nbytes <= allowed and self.budget.spend(0, nbytes):
                selections[id(binding)] = outputs
        return selections

    def _is_foldable_selection(self, binding: Binding) -> bool:
        """Return whether a data-dependent op has only constant operands, and no more elements than these operands.

        An op of scalars only (a range) has no bound.
        """
        is_scalar = all(isinstance(o.type, TensorType) and o.type.shape == () for o in binding.operands)
        is_of_constants = len(_constants(binding.operands)) == len(binding.operands)
        return is_data_dependent(binding) and is_of_constants and _may_fold(binding) and not is_scalar

    def _fold_static(self, function: Function) -> Function:
        bindings = tuple(map_regions(function.bindings, lambda region: self.fold(region, keeps_types=True)))
        uses = Counter(id(operand) for binding in bindings for operand in binding.operands)
        uses.update(map(id, function.results))
        values = _FoldedValues(self.module.constants, self.budget, uses)
        remaining: list[Binding] = []
        for binding in bindings:
            outputs = self._results_of(binding, values)
            if outputs is None:
                operands = tuple(map(values.as_value, binding.operands))
                same = all(new is old for new, old in zip(operands, binding.operands, strict=True))
                remaining.append(binding if same else replace(binding, operands=operands))
            else:
                values.add(binding, outputs)
            values.release(binding.operands)
        if not values.found:
            return with_bindings(function, remaining)
        results = tuple(map(values.as_value, function.results))
        return replace(function, bindings=tuple(remaining), results=results)

    def _results_of(self, binding: Binding, values: _FoldedValues) -> tuple[Array, ...] | None:
        """Return the results of an op of constants if the op is folded, else ``None``."""
        if not self._is_foldable(binding, values.is_known):
            return None
        nbytes = distinct_nbytes(binding.results)
        if not self.budget.spend(folding_cost(binding), nbytes):
            return None
        outputs = _value_of(binding, [values.array(operand) for operand in binding.operands])
        if outputs is None:
            self.budget.release(nbytes)
        return outputs

    def _is_foldable(self, binding: Binding, is_known: Callable[[Value], bool]) -> bool:
        return (
            binding.op.name not in self.options.kept
            and all(map(is_known, binding.operands))
            and may_compute_once(binding, self.options.max_growth_nbytes)
        )


@dataclass
class _FoldedValues:
    """The folded values of a function: arrays, turned into constants only for remaining readers.

    Attributes:
        store: the destination of constants.
        budget: the budget; gets back the bytes of values without further readers.
        uses: the number of remaining reads of each value, by ``id``.
        found: whether any value was folded.
    """

    store: ConstantStore
    budget: FoldingBudget
    uses: Counter[int]
    found: bool = False
    _arrays: dict[int, Array] = field(default_factory=dict)
    _constants: dict[int, Constant] = field(default_factory=dict)

    def add(self, binding: Binding, outputs: Sequence[Array]) -> None:
        """Keep the results of a folded op. Kernels of readers get contiguous arrays, the same as at run time."""
        self.found = True
        for result, output in zip(binding.results, outputs, strict=True):
            self._arrays[id(result)] = np.asarray(output, order="C")
        self.release(result for result in binding.results if not self.uses[id(result)])

    def is_known(self, value: Value) -> bool:
        """Return whether a value is a constant or folded."""
        return isinstance(value, Constant) or id(value) in self._arrays

    def array(self, value: Value) -> Array:
        """Return the array of a known value."""
        return self.store[value.digest] if isinstance(value, Constant) else self._arrays[id(value)]

    def as_value(self, value: Value) -> Value:
        """Return a folded value as constant, any other value unchanged."""
        if isinstance(value, Constant) or id(value) not in self._arrays:
            return value
        if id(value) not in self._constants:
            self._constants[id(value)] = self.store.add(self._arrays[id(value)])
        return self._constants[id(value)]

    def release(self, values: Iterable[Value]) -> None:
        """Decrement the uses of each value, and drop the arrays of folded values without further uses."""
        for value in values:
            self.uses[id(value)] -= 1
            array = self._arrays.pop(id(value), None) if self.uses[id(value)] <= 0 else None
            if array is not None and id(value) not in self._constants:
                self.budget.release(array.nbytes)


def may_compute_once(binding: Binding, max_growth_nbytes: int = MAX_GROWTH_NBYTES) -> bool:
    """Return whether an op of operands known before all calls may be computed before all calls.

    Args:
        binding: the op.
        max_growth_nbytes: the most bytes by which the results may exceed the distinct operands; see
            :class:`FoldConstants`.
    """
    if not _may_fold(binding) or not all(is_static(result.type) for result in binding.results):
        return False
    growth = distinct_nbytes(binding.results) - distinct_nbytes(binding.operands)
    return growth <= max_growth_nbytes or _widens_weights(binding)


def _widens_weights(binding: Binding) -> bool:
    """Return whether an op is a cast of floats to other floats, or ``dequantize``."""
    return binding.op.has_trait(Trait.WIDENING) or (
        binding.op.name == "cast"
        and all(
            isinstance(value.type, TensorType) and is_float(value.type.dtype)
            for value in (*binding.operands, *binding.results)
        )
    )


def _may_fold(binding: Binding) -> bool:
    """Return whether an op may be computed at compile time if its operands are known."""
    return binding.op.kernel is not None and binding.codegen is None and binding.op.has_trait(Trait.PURE)


def _constants(values: Sequence[Value]) -> list[Constant]:
    return [value for value in values if isinstance(value, Constant)]


def _value_of(binding: Binding, arrays: Sequence[Array]) -> tuple[Array, ...] | None:
    """Return the results of an op of constants, ``None`` if the op depends on a size.

    Return ``None`` as well if the kernel fails or its results differ from the declared types: a run reports the error.
    """
    try:
        outputs = evaluate_binding(binding, arrays, {})
    except (ExecutionError, IRTypeError):
        return None
    fits = len(outputs) == len(binding.results) and all(map(_is_of_type, outputs, binding.results))
    return outputs if fits else None


def _is_of_type(array: Array, result: Var) -> bool:
    """Return whether an array has the declared dtype, rank and known sizes."""
    type_ = result.type
    return (
        isinstance(type_, TensorType)
        and array.dtype == to_numpy(type_.dtype)
        and (type_.shape is None or array.ndim == len(type_.shape))
        and all(dim == size for dim, size in zip(type_.shape or (), array.shape, strict=False) if isinstance(dim, int))
    )
