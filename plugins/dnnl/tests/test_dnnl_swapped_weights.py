"""Artifacts of oneDNN's primitives with other values of weights: the bytes of a fresh build."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from core.tests.weighted_modules import WeightedModule, check_swap, weighted_modules


@pytest.mark.parametrize("backends", [["dnnl"], ["dnnl", "ccompiler"]])
@settings(max_examples=max(3, settings().max_examples // 20))
@given(drawn=weighted_modules())
def test_a_swap_equals_a_fresh_build(drawn: WeightedModule, backends: list[str]) -> None:
    with TemporaryDirectory() as folder:
        check_swap(drawn, backends, Path(folder))
