"""The features of this machine."""

from __future__ import annotations

import pytest
from byoc_core.native import cpu


@pytest.mark.parametrize(
    ("features", "expected"),
    [(frozenset({"avx2", "sse4a"}), True), (frozenset({"avx2", "avx512f"}), False), (None, False)],
    ids=["AMD", "Intel", "no list of features"],
)
def test_processors_of_amd_are_known_by_an_instruction_set(
    features: frozenset[str] | None, monkeypatch: pytest.MonkeyPatch, *, expected: bool
) -> None:
    monkeypatch.setattr(cpu, "machine_features", lambda: features)
    assert cpu.is_amd() is expected
