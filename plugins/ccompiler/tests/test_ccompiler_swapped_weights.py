"""Artifacts of generated C with other values of weights: the bytes of a fresh build."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import byoc_core
import pytest
from hypothesis import given, settings

from core.tests.weighted_modules import WeightedModule, check_swap, weighted_modules


@settings(max_examples=max(3, settings().max_examples // 20))
@given(weighted_modules())
def test_a_swap_equals_a_fresh_build(drawn: WeightedModule) -> None:
    with TemporaryDirectory() as folder:
        check_swap(drawn, ["ccompiler"], Path(folder))


def test_the_swap_runs_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from core.tests.artifact.test_swapped_weights import B0, B1, W0, W1, affine

    first, second = (byoc_core.build(affine(w, b), backends=["ccompiler"]) for w, b in ((W0, B0), (W1, B1)))
    byoc_core.build(affine(W0, B0), backends=["ccompiler"]).require_offload(1.0)
    first.save(tmp_path / "model.byoc")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("BYOC_CACHE_DIR", str(tmp_path / "empty"))
    byoc_core.artifact.swap_weights(tmp_path / "model.byoc", {"w": W1, "b": B1})
    assert (tmp_path / "model.byoc").read_bytes() == second.to_bytes()
