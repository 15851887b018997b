"""A handful of small functions claimed by the subject, found by asking the subject: the basis of levels 3 and 4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core import FunctionBuilder
from byoc_core.errors import ByocError, IRTypeError
from byoc_core.ir import Binding, Constant, ConstantStore, Function, IRModule, OpDef, TensorType, Value, Var
from byoc_core.lint import find_instances
from byoc_core.ops.cases import OpCase, array_of, dtypes_of, function_of
from byoc_core.transform import evaluate_function

from byoc_conformance.drawing import generator_of
from byoc_conformance.outcome import NotCoveredError
from byoc_conformance.subject import Attempt, Subject, call_function

__all__ = ["Array", "Example", "compile_examples", "find_examples", "join_examples"]

Array = npt.NDArray[Any]

_COUNTS = {
    "single": 3,
    "two-inputs": 2,
    "several-results": 2,
    "constant": 3,
    "symbolic": 2,
    "data-dependent": 1,
    "chain": 1,
}
"""The number of examples of each kind, of different ops if available; of each pattern, a single instance."""
_MAX_PATTERNS = 12
_MAX_INSTANCES = 40
"""The number of instances of a pattern tried until the subject claims an instance."""


@dataclass(frozen=True, eq=False, slots=True)
class Example:
    """A small function, claimed as a whole, compiled and run by the subject.

    Attributes:
        name: a description for messages: ``"constant nn.dense 0"``.
        kind: ``"single"`` (one op), ``"two-inputs"`` (a binary op), ``"several-results"``, ``"constant"`` (a single op,
            with constants for all operands but the first), ``"symbolic"`` (a single op, sizes are symbols),
            ``"data-dependent"`` (a single op, with sizes of results known only after running), ``"pattern"``, or
            ``"chain"`` (three ops).
        module: holds the function alone, with the constants.
        function: the function's name; distinct for all examples of a subject.
        inputs: read-only arrays, in order of the parameters.
    """

    name: str
    kind: str
    module: IRModule
    function: str
    inputs: tuple[Array, ...]

    def new_inputs(self) -> tuple[Array, ...]:
        """Return writeable copies of the inputs."""
        return tuple(array.copy() for array in self.inputs)

    def expected(self) -> tuple[Array, ...]:
        """Return the results of the reference kernels."""
        return evaluate_function(self.module, self.function, self.inputs)


def find_examples(subject: Subject) -> tuple[Example, ...]:
    """Return the examples of a subject; none if the subject claims nothing.

    Functions with an error at compile time or run time are left out: levels 1 and 2 report these errors. Equal
    specifications give equal examples in every process: level 3 compares bytes saved by two processes.

    Raises:
        NotCoveredError: nothing can be compiled, or run, on this machine.
    """
    examples, reason = _look_for_examples(subject)
    if reason:
        raise NotCoveredError(reason)
    return examples


@cache
def _look_for_examples(subject: Subject) -> tuple[tuple[Example, ...], str]:
    """Return the examples, and the reason if this machine allows none."""
    try:
        claimed = _claimed(subject, [*_op_examples(subject), *_pattern_examples(subject)])
        if not claimed:
            claimed = _claimed(subject, list(_examples_of_other_dtypes(subject)))
        claimed += _claimed(subject, list(_chains(subject, claimed)))
        selection = [example for kind, count in _COUNTS.items() for example in _first_of(claimed, kind, count)]
        selection += _first_of(claimed, "pattern", _MAX_PATTERNS)
        return tuple(_running(subject, selection)), ""
    except NotCoveredError as error:
        return (), str(error)


@cache
def compile_examples(subject: Subject) -> Attempt:
    """Return all examples compiled as a single module, once per subject. Tests must modify copies only."""
    return subject.attempt(join_examples(find_examples(subject)))


def join_examples(examples: Iterable[Example]) -> IRModule:
    """Return a module with the functions of several examples."""
    constants, functions = ConstantStore(), {}
    for example in examples:
        functions[example.function] = example.module[example.function]
        for array in example.module.constants.values():
            constants.add(array)
    return IRModule(functions, constants)


def _claimed(subject: Subject, examples: Sequence[Example]) -> list[Example]:
    """Return the examples claimed by the subject; bisect if an example makes partition fail."""
    if not examples:
        return []
    try:
        attempt = subject.attempt(join_examples(examples))
    except ByocError:  # level 1 tells
        middle = len(examples) // 2
        return [found for half in (examples[:middle], examples[middle:]) if middle for found in _claimed(subject, half)]
    return [example for example in examples if _is_claimed(attempt, example)]


def _is_claimed(attempt: Attempt, example: Example) -> bool:
    if not attempt.is_claimed(example.function):
        return False
    if example.kind != "pattern":
        return True
    pattern = example.name.removeprefix("pattern ").rpartition(" ")[0]
    regions = attempt.regions[example.function]
    return any(binding.attrs.get("name") == pattern for region in regions for binding in region.bindings)


def _first_of(examples: Iterable[Example], kind: str, count: int) -> list[Example]:
    """Return examples of a kind, of different ops (or patterns), spread evenly over the ops present."""
    firsts: dict[str, Example] = {}
    for example in examples:
        if example.kind == kind:
            firsts.setdefault(example.name.rpartition(" ")[0], example)
    found = list(firsts.values())
    if len(found) <= count:
        return found
    return [found[index * len(found) // count] for index in range(count)]


def _running(subject: Subject, examples: Sequence[Example]) -> Iterator[Example]:
    if not examples:
        return
    attempt = subject.attempt(join_examples(examples))
    for example in examples:
        if example.function not in attempt.failures:
            try:
                call_function(attempt.vm, example.function, example.new_inputs())
            except ByocError:
                continue
            yield example


def _op_examples(subject: Subject) -> Iterator[Example]:
    """Yield the canonical cases of all ops, static and symbolic, with constants and without."""
    for op in subject.ops_with_cases:
        for number, case in enumerate(op.canonical_cases):
            yield from _case_examples(subject, case, f"{op.name} {number}")


def _examples_of_other_dtypes(subject: Subject) -> Iterator[Example]:
    """Yield the most common case of each op in all other dtypes: for subjects without any common dtype."""
    for op in subject.ops_with_cases:
        case = op.canonical_cases[0]
        for dtype in dtypes_of(case, op)[1:]:
            yield from _case_examples(subject, replace(case, dtype=dtype), f"{op.name} {dtype}")


def _case_examples(subject: Subject, case: OpCase, ending: str) -> Iterator[Example]:
    op = subject.ops[case.op]
    arrays = case.arrays(generator_of(subject.spec.seed, ending))
    yield from _op_example(_static_kind(op, case), ending, op, case, case.types(), arrays)
    if len(arrays) > 1:
        yield from _op_example("constant", ending, op, case, case.types()[:1], arrays)
    symbolic = case.symbolic_types()
    if subject.info.dynamic_shapes and symbolic != case.types():
        yield from _op_example("symbolic", ending, op, case, symbolic, arrays)


def _static_kind(op: OpDef, case: OpCase) -> str:
    function, _ = function_of(op, [Var(f"x{i}", type_) for i, type_ in enumerate(case.types())], case.attrs)
    if any(type_.symbols for type_ in function.result_types if isinstance(type_, TensorType)):
        return "data-dependent"
    if len(function.results) > 1:
        return "several-results"
    return "two-inputs" if len(case.operands) == 2 else "single"


def _op_example(
    kind: str, ending: str, op: OpDef, case: OpCase, types: Sequence[TensorType], arrays: Sequence[Array]
) -> Iterator[Example]:
    """Yield the example with parameters of these types and constants for all further operands, if the op permits."""
    constants = ConstantStore()
    params = [Var(f"x{index}", type_) for index, type_ in enumerate(types)]
    fixed = [constants.add(array) for array in arrays[len(params) :]]
    name = _identifier(kind, ending)
    try:
        function, _ = function_of(op, [*params, *fixed], case.attrs, name)
    except IRTypeError:  # sizes incompatible for some values of the symbols
        return
    yield Example(f"{kind} {ending}", kind, IRModule({name: function}, constants), name, _frozen(arrays[: len(params)]))


def _pattern_examples(subject: Subject) -> Iterator[Example]:
    """Yield static instances of the subject's patterns, if the reference kernels can run the instance."""
    for pattern in subject.handle.patterns():
        found = [item for item in find_instances(pattern.pattern, subject.ops).found if item.kind != "symbolic"]
        for number, instance in enumerate(found[:_MAX_INSTANCES]):
            ending = f"{pattern.name} {number}"
            name = _identifier("pattern", ending)
            function = replace(instance.module["main"], name=name)
            example = Example(
                f"pattern {ending}",
                "pattern",
                IRModule({name: function}, _cited(function, instance.module)),
                name,
                _frozen(_arrays(subject, function, ending)),
            )
            if _is_computable(example):
                yield example


def _chains(subject: Subject, claimed: Sequence[Example]) -> Iterator[Example]:
    """Yield functions of three claimed ops on values of one type: in a chain, with the last or with all results."""
    bindings = [e.module[e.function].bindings[0] for e in claimed if e.kind in {"single", "two-inputs"}]
    fitting: dict[str, Binding] = {}
    for binding in bindings:
        types = {value.type for value in (*binding.operands, *binding.results)}
        if len(types) == 1 and len(binding.operands) <= 2:
            fitting.setdefault(binding.op.name, binding)
    ordered = sorted(fitting.values(), key=lambda binding: (not _is_float32(binding), -len(binding.operands)))
    for start in range(len(ordered)):
        steps = [ordered[(start + offset) % len(ordered)] for offset in range(3)]
        for kind in ("chain", "several-results"):
            example = _chain(subject, kind, steps)
            if example is not None and _is_computable(example):
                yield example


def _is_float32(binding: Binding) -> bool:
    return all(isinstance(value.type, TensorType) and value.type.dtype == "float32" for value in binding.results)


def _chain(subject: Subject, kind: str, steps: Sequence[Binding]) -> Example | None:
    """Return ``step(step(step(x, y), y), y)``, or ``None`` if the types do not match."""
    ending = f"{' '.join(step.op.name for step in steps)} in a row"
    name = _identifier(kind, ending)
    builder = FunctionBuilder(name, ops=subject.ops)
    x, y = (builder.param(letter, steps[0].result.type) for letter in "xy")
    values: list[Value] = [x]
    try:
        for step in steps:
            values += builder.bind(step.op, (values[-1], y)[: len(step.operands)], step.attrs).results
    except IRTypeError:
        return None
    function = builder.finish(*(values[-1:] if kind == "chain" else values[1:]))
    inputs = _frozen(_arrays(subject, function, ending))
    return Example(f"{kind} {ending}", kind, IRModule({name: function}), name, inputs)


def _is_computable(example: Example) -> bool:
    """Return whether the reference kernels accept the inputs and return finite numbers."""
    try:
        results = example.expected()
    except Exception:  # noqa: BLE001 - an index out of range, or any other error on blindly drawn numbers
        return False
    return all(bool(np.all(np.isfinite(result.astype(np.float64)))) for result in results)


def _arrays(subject: Subject, function: Function, ending: str) -> list[Array]:
    generator = generator_of(subject.spec.seed, ending)
    return [array_of(param.type, generator) for param in function.params if isinstance(param.type, TensorType)]


def _cited(function: Function, module: IRModule) -> ConstantStore:
    constants = ConstantStore()
    for binding in function.walk():
        for operand in binding.operands:
            if isinstance(operand, Constant):
                constants.add(module.constants[operand.digest])
    return constants


def _frozen(arrays: Iterable[Array]) -> tuple[Array, ...]:
    copies = tuple(np.array(array) for array in arrays)
    for array in copies:
        array.flags.writeable = False
    return copies


def _identifier(kind: str, ending: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in f"{kind} {ending}")
