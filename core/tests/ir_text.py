"""A common way to test passes: IR text in, IR text out."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from byoc_core import script as R
from byoc_core.ir import IRModule, verify

Transform = Callable[[IRModule], IRModule]


def parse_main(params: str, body: str) -> IRModule:
    """Return a module with a single function, ``main``, from the text of the parameters and the lines of the body."""
    lines = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    return R.parse(f"class Module:\n    @R.function\n    def main({params}):\n{lines}\n")


def check_pass(transform: Transform, params: str, before: str, after: str) -> None:
    """Check a pass on a function: see :func:`check_module_pass`.

    Args:
        transform: the pass.
        params: the parameters of the function, before and after.
        before: the input body.
        after: the output body.
    """
    _check(transform, parse_main(params, before), parse_main(params, after))


def check_module_pass(transform: Transform, before: str, after: str) -> None:
    """Check the output text of a pass, the unchanged input, and no change by a second run."""
    _check(transform, R.parse(before), R.parse(after))


def _check(transform: Transform, module: IRModule, wanted: IRModule) -> None:
    text = str(module)
    result = verify(transform(module))
    assert str(result) == str(wanted)
    assert str(module) == text
    assert transform(result) is result


def check_unchanged(transform: Transform, params: str, body: str) -> None:
    """Check for the same module object as result of a pass."""
    module = parse_main(params, body)
    assert transform(module) is module
