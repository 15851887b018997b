"""The table of vector sets: the set for a target, and code from compilers for this set."""

from __future__ import annotations

import platform
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from byoc_ccompiler.vector_unit import VECTOR_SETS, VectorSet, VectorUnit
from byoc_core.native.toolchain import find_toolchain


@pytest.mark.parametrize(
    ("machine", "features", "name"),
    [
        ("x86_64", ("avx", "avx2", "avx512f"), "avx512"),
        ("AMD64", ("avx", "fma"), "avx2"),
        ("x86_64", (), "sse2"),
        ("aarch64", ("asimddp", "sve", "sve2"), "neon"),  # how wide SVE is no feature tells
        ("arm64", (), "neon"),
    ],
)
def test_a_target_gets_the_widest_set_that_its_features_name(
    machine: str, features: tuple[str, ...], name: str
) -> None:
    (expected,) = (item.unit for item in VECTOR_SETS if item.name == name)
    assert replace(VectorUnit.of_features(machine, features), has_byte_pairs=False) == expected


def test_x86_multiplies_pairs_of_bytes_unless_it_multiplies_four() -> None:
    for features, has_pairs in (((), True), (("avx", "avx2"), True), (("avx", "avx2", "avx_vnni"), False)):
        assert VectorUnit.of_features("x86_64", features).has_byte_pairs == has_pairs
    assert not VectorUnit.of_features("AMD64", ("avx512f", "avx512_vnni")).has_byte_pairs
    assert not VectorUnit.of_features("aarch64", ("avx2",)).has_byte_pairs


def test_weights_come_faster_where_that_was_measured() -> None:
    wide, narrow = VectorUnit.of_features("x86_64", ("avx512f",)), VectorUnit.of_features("x86_64", ("avx2",))
    assert wide.on_amd() == replace(wide, far_rate=8)
    assert narrow.on_amd() == narrow


def test_a_family_that_nobody_knows_gets_16_bytes() -> None:
    assert VectorUnit.of_features("riscv64", ("v",)) == VectorUnit(16, 32)


def test_sets_of_a_family_come_widest_first_and_have_names_of_their_own() -> None:
    assert len({item.name for item in VECTOR_SETS}) == len(VECTOR_SETS)
    for item in VECTOR_SETS:
        later = VECTOR_SETS[VECTOR_SETS.index(item) + 1 :]
        names = [
            other for other in later if other.machines == item.machines and None not in (other.feature, item.feature)
        ]
        assert all(other.unit.nbytes < item.unit.nbytes for other in names)


@pytest.mark.parametrize(
    "vectors", [item for item in VECTOR_SETS if platform.machine() in item.machines and item.flags]
)
def test_the_flags_of_a_set_make_its_predicate_hold(vectors: VectorSet, tmp_path: Path) -> None:
    source = tmp_path / "guard.c"
    source.write_text(f"#if !({vectors.predicate})\n#error other vectors\n#endif\n", "utf-8")
    command = [*find_toolchain().command, "-fsyntax-only", str(source)]
    assert subprocess.run([*command, *vectors.flags], capture_output=True, check=False).returncode == 0
    assert b"other vectors" in subprocess.run(command, capture_output=True, check=False).stderr
