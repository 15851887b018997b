"""Scenarios as text: IR in, sketch of the IR out. A file holds the cases of a single code of the list of scenarios::

    # P3 a diamond of one backend is one region
    == backends
    aone: nn.relu add                           a backend's name, its ops, and perhaps options
    == patterns
    aone.relu_add = add(nn.relu(_), const)      `_` is anything, `const` a constant; perhaps leaked=, priority=, check=
    == do
    partition                                   the steps, a line each; without this section `partition` alone
    == in
    def main(x: R.Tensor((4,))): ...            IR
    == out
    def main(x): ...                            the result, without types; `same` if nothing changes
    == constants
    1                                           how many the module keeps

``== error`` with the full text replaces ``== out`` if the last step must fail.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core import script as R
from byoc_core.dims import DimExpr, evaluate
from byoc_core.errors import ByocError
from byoc_core.ir import Function, IRModule, TensorType, Type, verify
from byoc_core.partitioning import AnnotateSupported, FuseOpsByPattern, MergeCompositeFunctions, RunCodegen, partition
from byoc_core.pattern import CompositePattern, Match, Pattern, Rejection, is_const, is_op, wildcard
from byoc_core.transform import UniqueNames, evaluate_function
from byoc_core.transform.rewrite import map_functions

from core.tests.conftest import FakeBackend, with_inlined_externals
from core.tests.partitioning.graphs import with_effects

__all__ = ["Scenario", "check_scenario", "load_scenarios", "parse_scenarios", "sketch"]

_SECTIONS = ("backends", "patterns", "do", "in", "out", "error", "constants")


@dataclass(frozen=True)
class Scenario:
    """A case.

    Attributes:
        code: of the list of scenarios, e.g. ``"P3"``.
        sentence: the subject.
        sections: text by name.
    """

    code: str
    sentence: str
    sections: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.code} {self.sentence}"


def load_scenarios(folder: Path) -> list[Scenario]:
    """Return the cases of all files of a folder."""
    return [case for path in sorted(folder.glob("*.txt")) for case in parse_scenarios(path.read_text("utf-8"))]


def parse_scenarios(text: str) -> Iterator[Scenario]:
    """Yield the cases of a file.

    Raises:
        ValueError: a heading or a section is malformed or missing.
    """
    for block in re.split(r"^(?=# )", text, flags=re.MULTILINE):
        heading, _, rest = block.partition("\n")
        if not block.strip():
            continue
        found = re.fullmatch(r"# (P\d+) (\S.*)", heading)
        parts = re.split(r"^== (\w+)\n", rest, flags=re.MULTILINE)
        sections = {name: body.strip("\n") for name, body in zip(parts[1::2], parts[2::2], strict=True)}
        if found is None or parts[0].strip() or "in" not in sections or sections.keys() - set(_SECTIONS):
            raise ValueError(f"malformed scenario `{heading}`")
        if ("out" in sections) == ("error" in sections):
            raise ValueError(f"scenario `{heading}` needs either `out` or `error`")
        yield Scenario(found[1], found[2], sections)


def check_scenario(case: Scenario) -> None:
    """Run a case: check texts, numbers, effects and constants, and no change by a repetition of every step.

    Raises:
        AssertionError: a check fails; shows the difference.
    """
    module = R.parse(case.sections["in"])
    fakes = [_backend(line, _patterns(case)) for line in case.sections.get("backends", "").splitlines()]
    steps = [_step(line, fakes, _patterns(case)) for line in case.sections.get("do", "partition").splitlines()]
    after = module
    try:
        for step in steps:
            after = verify(step(after))
            repeated = step(after)
            _check_text(str(repeated), str(after))
            _check(repeated == after, "a step run twice gives another module")
    except ByocError as error:
        _check_text(str(error), case.sections.get("error", "no error"))
        return
    _check("error" not in case.sections, "no error came")
    if case.sections["out"] == "same":
        _check_text(str(after), str(module))
    else:
        _check_text(sketch(after), case.sections["out"])
    if "constants" in case.sections:
        _check_text(str(len(after.constants)), case.sections["constants"])
    _check_numbers(module, after, fakes)


def _check(holds: bool, problem: str) -> None:
    if not holds:
        raise AssertionError(problem)


def _check_text(have: str, want: str) -> None:
    lines = difflib.unified_diff(want.splitlines(), have.splitlines(), "expected", "found", lineterm="")
    _check(have == want, "\n".join(lines))


def sketch(module: IRModule) -> str:
    """Print a module without types, annotations, decorators and the digests of constants."""
    lines = []
    for line in str(module).splitlines():
        line = re.sub(r'R\.Tensor\((None|\(.*?\)), "\w+"\)', "T", line)
        line = re.sub(r": T|, out_types=\[.*?\]|, codegen=\"\w+\"| -> .*(?=:$)", "", line).replace("R.", "")
        if line.startswith("    ") and not re.match(r" *(@|func_attr|#|const\d+ = constant)", line):
            lines.append(line[4:])
    return "\n".join(lines)


def _step(line: str, fakes: Sequence[Any], patterns: Sequence[CompositePattern]) -> Callable[[IRModule], IRModule]:
    steps: dict[str, Callable[[IRModule], IRModule]] = {
        "partition": lambda module: partition(module, fakes),
        "unique names": UniqueNames(),
        "fuse": FuseOpsByPattern(patterns),
        "fuse, constants as operands": FuseOpsByPattern(patterns, bind_constants=False),
        "fuse, each composite a function": FuseOpsByPattern(patterns, annotate_codegen=True),
        **{f"annotate {fake.name}": AnnotateSupported(fake) for fake in fakes},
        "merge": MergeCompositeFunctions(),
        "merge sideways": MergeCompositeFunctions(sideways=True),
        "codegen": RunCodegen(backends=fakes),
    }
    return steps[line]


def _backend(line: str, patterns: Sequence[CompositePattern]) -> FakeBackend:
    name, _, rest = line.partition(":")
    options = dict(word.split("=") for word in rest.split() if "=" in word)
    return FakeBackend(
        name,
        [word for word in rest.split() if "=" not in word],
        [pattern for pattern in patterns if pattern.backend == name],
        constants="lifted" if options.get("constants") == "lifted" else "embedded",
        dynamic_shapes=options.get("sizes") != "static",
        forgets=[options["forgets"]] if "forgets" in options else [],
    )


def _patterns(case: Scenario) -> list[CompositePattern]:
    return [_pattern(line) for line in case.sections.get("patterns", "").splitlines()]


def _pattern(line: str) -> CompositePattern:
    name, _, rest = line.partition(" = ")
    text, *words = re.split(r" +(?=\w+=)", rest)
    options: dict[str, Any] = dict(word.split("=") for word in words)
    return CompositePattern(
        name,
        _expression(ast.parse(text, mode="eval").body),
        _CHECKS[options["check"]] if "check" in options else None,
        int(options.get("priority", 0)),
        options.get("leaked", "decline"),
    )


def _expression(node: ast.expr) -> Pattern:
    if isinstance(node, ast.Call):
        return is_op(ast.unparse(node.func))(*map(_expression, node.args))
    return {"_": wildcard, "const": is_const}[ast.unparse(node)]()


def _raising(match: Match) -> Rejection | None:
    raise KeyError("padding")


_CHECKS: dict[str, Any] = {"raises": _raising, "false": lambda match: False}


def _check_numbers(before: IRModule, after: IRModule, fakes: Sequence[FakeBackend]) -> None:
    """Compare runs of every function, in the given dtypes and in float64: bit for bit, as no op has changed.

    Functions left uncompiled by the steps are compiled too.
    """
    compiled = RunCodegen(backends=fakes)(after) if fakes else after
    for name, function in before.functions.items():
        for exact in (False, True):
            results, effects = _run(before, function, exact)
            for module in (after, compiled) if "Codegen" not in function.attrs else ():
                found, found_effects = _run(with_inlined_externals(module), function, exact)
                _check(found_effects == effects, f"the effects of `{name}` are {found_effects}, were {effects}")
                for have, want in zip(found, results, strict=True):
                    _check(have.dtype == want.dtype, f"a result of `{name}` is {have.dtype}, was {want.dtype}")
                    np.testing.assert_array_equal(have, want)


def _run(module: IRModule, function: Function, exact: bool) -> tuple[tuple[Any, ...], list[Any]]:
    """Run a function of the original, as found in a module, with the same drawn inputs each time."""
    symbols = sorted({symbol for param in function.params for symbol in _tensor(param.type).symbols})
    sizes = {symbol: number for number, symbol in enumerate(symbols, 2)}
    effects: list[Any] = []
    rng = np.random.default_rng(0)
    inputs = [_array(_tensor(param.type), sizes, rng) for param in function.params]
    recording = map_functions(module, with_effects(effects))
    return evaluate_function(recording, function.name, inputs, exact=exact), effects


def _tensor(type_: Type) -> TensorType:
    assert isinstance(type_, TensorType)
    return type_


def _array(type_: TensorType, sizes: Mapping[str, int], rng: np.random.Generator) -> npt.NDArray[Any]:
    shape = [evaluate(dim, sizes) if isinstance(dim, DimExpr) else dim for dim in type_.shape or ()]
    if type_.dtype in ("bool", "int64"):  # a condition, or how often a loop runs
        return np.full(shape, 3).astype(type_.dtype)
    return 2 * rng.standard_normal(shape).astype(type_.dtype)
