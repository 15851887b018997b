"""Type rules on operands of rank 0 in every place: accepted, or refused with an ``IRTypeError``."""

from __future__ import annotations

import itertools

from byoc_core.errors import IRTypeError
from byoc_core.ir import TensorType
from byoc_core.ops import default_ops
from byoc_core.ops.cases import canonical_cases, new_function


def test_a_type_rule_takes_scalars_or_refuses_them() -> None:
    """A rule reading an axis before checking the rank raises an ``IndexError`` instead."""
    num_taken = num_refused = 0
    for name, cases in canonical_cases(default_ops()).items():
        for case in cases:
            for choice in itertools.product((False, True), repeat=len(case.operands)):
                types = [
                    TensorType((), type_.dtype) if is_scalar else type_
                    for type_, is_scalar in zip(case.types(), choice, strict=True)
                ]
                try:
                    new_function(default_ops()[name], types, case.attrs)
                    num_taken += any(choice)
                except IRTypeError:
                    num_refused += any(choice)
    assert num_taken > 300
    assert num_refused > 300
