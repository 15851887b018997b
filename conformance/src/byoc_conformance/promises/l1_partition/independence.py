"""Independence of claims: a claim depends on the op, and not on the surroundings."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from byoc_core.ir import Binding, Function, IRModule, Trait, Value, Var, print_module
from byoc_core.transform import remap

from byoc_conformance.fresh_process import run_in_fresh_process
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l1_partition.case_functions import CaseFunction, sample
from byoc_conformance.subject import Attempt, Subject, SubjectSpec

__all__ = ["PROMISES", "print_partition"]

Claims = Mapping[str, int]
"""The claims in a function: the count of each op or composite with result types."""


def _check(subject: Subject, case: str) -> None:
    attempt, items = sample(subject)
    if not any(attempt.regions[name] for name in items):
        raise NotCoveredError("the backend claims no canonical case")
    _CASES[case](subject, attempt, items)


def _claims(attempt: Attempt, name: str) -> Claims:
    bindings = (binding for region in attempt.regions[name] for binding in region.bindings)
    return Counter(
        f"{binding.attrs.get('name', binding.op.name)} -> {', '.join(str(result.type) for result in binding.results)}"
        for binding in bindings
    )


def _check_names(subject: Subject, attempt: Attempt, items: Mapping[str, CaseFunction]) -> None:
    renamed = {f"renamed_{name}": _renamed(attempt.module[name], "other_name_") for name in items}
    functions = {name: replace(function, name=name) for name, function in renamed.items()}
    other = subject.attempt(attempt.module.with_functions(functions))
    for name in items:
        _compare(
            attempt, name, _claims(attempt, name), _claims(other, f"renamed_{name}"), "with other names in the function"
        )


def _check_order(subject: Subject, attempt: Attempt, items: Mapping[str, CaseFunction]) -> None:
    other = subject.attempt(
        attempt.module.with_functions({name: attempt.module[name] for name in reversed(list(items))})
    )
    for name in items:
        _compare(attempt, name, _claims(attempt, name), _claims(other, name), "with the functions in another order")


def _check_neighbours(subject: Subject, attempt: Attempt, items: Mapping[str, CaseFunction]) -> None:
    if subject.handle.claims_by_itself:
        raise NotCoveredError("the backend claims by an algorithm of its own, possibly dependent on the whole module")
    alone = [name for name, item in items.items() if item.kind == "static" and not _is_data_dependent(item.function)]
    pairs = {f"{first}_{second}": (first, second) for first, second in itertools.pairwise(alone)}
    functions = {
        name: _joined(name, attempt.module[first], attempt.module[second]) for name, (first, second) in pairs.items()
    }
    other = subject.attempt(attempt.module.with_functions(functions))
    for name, (first, second) in pairs.items():
        expected = Counter(_claims(attempt, first)) + Counter(_claims(attempt, second))
        _compare(other, name, expected, _claims(other, name), "beside an unrelated op")


def _check_process(subject: Subject, attempt: Attempt, items: Mapping[str, CaseFunction]) -> None:
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    code = f"from {__name__} import print_partition; print_partition(sys.argv[2])"
    spec = json.dumps(subject.spec.to_json())
    printed = run_in_fresh_process(code, spec, timeout=120.0, environment={"PYTHONHASHSEED": seed})
    other_lines = json.loads(printed.splitlines()[-1])
    for own_line, other_line in itertools.zip_longest(
        print_module(attempt.partitioned).splitlines(), other_lines, fillvalue="nothing"
    ):
        if own_line != other_line:
            raise FailedError(
                f"another process, with another hash seed, makes another partition:\n{own_line}\nthen\n{other_line}"
            )


def print_partition(spec: str) -> None:
    """Print the lines of the partitioned sample as JSON; called by code of a fresh process.

    Args:
        spec: a :class:`SubjectSpec` as JSON.
    """
    attempt, _ = sample(Subject(SubjectSpec.from_json(json.loads(spec))))
    sys.stdout.write(f"\n{json.dumps(print_module(attempt.partitioned).splitlines())}\n")


def _compare(attempt: Attempt, name: str, expected: Claims, found: Claims, when: str) -> None:
    if expected != found:
        texts = [", ".join(sorted(claims)) or "nothing" for claims in (expected, found)]
        text = print_module(IRModule({name: attempt.module[name]}, attempt.module.constants))
        raise FailedError(f"the backend claims {texts[0]}, but {when} {texts[1]}:\n{text}")


def _is_data_dependent(function: Function) -> bool:
    return any(binding.op.has_trait(Trait.DATA_DEPENDENT) for binding in function.walk())


def _renamed(function: Function, prefix: str) -> Function:
    """Return the function with a prefix on the names of the values."""
    mapping: dict[int, Value] = {}

    def rename(var: Var) -> Var:
        renamed = Var(prefix + var.name, var.type)
        mapping[id(var)] = renamed
        return renamed

    params = tuple(map(rename, function.params))
    bindings = tuple(_rename_bindings(function, mapping, rename))
    results = tuple(remap(result, mapping) for result in function.results)
    return replace(function, params=params, bindings=bindings, results=results)


def _rename_bindings(function: Function, mapping: dict[int, Value], rename: Callable[[Var], Var]) -> Iterator[Binding]:
    for binding in function.bindings:
        operands = tuple(remap(operand, mapping) for operand in binding.operands)
        yield replace(binding, operands=operands, results=tuple(map(rename, binding.results)))


def _joined(name: str, *functions: Function) -> Function:
    """Return a function with the ops of several functions, without data flow between the parts."""
    parts = [_renamed(function, f"part{number}_") for number, function in enumerate(functions)]
    return Function(
        name,
        tuple(param for part in parts for param in part.params),
        tuple(binding for part in parts for binding in part.bindings),
        tuple(result for part in parts for result in part.results),
    )


_CASES = {
    "names": _check_names,
    "order": _check_order,
    "neighbours": _check_neighbours,
    "process": _check_process,
}

PROMISES = (
    Promise(
        Level.L1,
        "claims-independent",
        "claims an op regardless of names, order, neighbouring ops and process",
        _check,
        cases=lambda: tuple(_CASES),
        deadline=180.0,
    ),
)
