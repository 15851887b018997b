"""Names: by scope, and never with another meaning."""

from __future__ import annotations

import pytest
from byoc_core.authoring.c import Names, Variable


@pytest.mark.parametrize(
    ("hint", "name"),
    [
        ("x", "x"),
        ("a/b:0", "a_b_0"),
        ("0", "_0"),
        ("", "_"),
        ("for", "_for"),
        ("exp", "exp_1"),
        ("int64_t", "int64_t_1"),
        ("dim_n", "v_dim_n"),
        ("vec_f32x8", "v_vec_f32x8"),
        ("byoc_min", "v_byoc_min"),
        ("BYOC_UNROLL", "v_BYOC_UNROLL"),
        ("__attribute__", "v___attribute__"),
        ("twice", "twice_1"),
    ],
)
def test_a_name_is_a_free_identifier(hint: str, name: str) -> None:
    assert Names(["twice"]).new_name(hint) == name


def test_a_name_is_free_again_behind_its_block() -> None:
    names = Names()
    outside, inside, other = (Variable("x") for _ in range(3))
    assert names.declare(outside) == "x"
    names.enter()
    assert names.declare(inside) == "x_1"
    names.leave()
    assert inside not in names
    assert list(names) == [outside]
    assert names.declare(other) == "x_1"
