"""Times of ops from profiles of kernels with several ops."""

from __future__ import annotations

import pytest
from byoc_core import script as R
from byoc_core.profiling import OpName, PartProfile, Profile, RegionProfile
from byoc_core.tuning.op_times import measured_ops

MODULE = R.parse("""
def main(x: R.Tensor((1, 8, 16, 16)), v: R.Tensor((8, 1, 3, 3)), w: R.Tensor((24, 8, 1, 1))):
    a = R.nn.conv2d(x, v, padding=(1, 1), groups=8)
    b = R.nn.relu(a)
    c = R.nn.conv2d(b, w)
    d = R.nn.relu(c)
    e = R.tanh(d)
    return e
""")


def seconds_of(*kernels: str) -> dict[str, float | None]:
    """Return the seconds of the ops of a region with kernels of one second each, by name."""
    parts = tuple(
        PartProfile(f"k{number}", tuple(OpName("op", name) for name in names.split()), 1.0, 1.0, 0.0, 0.0)
        for number, names in enumerate(kernels)
    )
    report = {"ops": [{"function": "main", "name": name, "region": "r0"} for name in "abcde"]}
    region = RegionProfile("r0", "aone", 1, float(len(parts)), parts=parts)
    found = Profile("main", {}, 1, 1, float(len(parts)), (region,), None, report)
    return {op.key[1]: op.seconds for op in measured_ops(found, "aone", MODULE, scale=False)}


def test_elementwise_ops_are_computed_along_with_a_convolution() -> None:
    assert seconds_of("a b", "c d", "e") == {"a": 1.0, "b": None, "c": 1.0, "d": None, "e": 1.0}


def test_convolutions_of_one_kernel_share_its_time_by_flops() -> None:
    """9 products for each element of 8 channels, 8 products for each element of 24 channels."""
    found = seconds_of("a b c d", "e")
    assert found["a"] == pytest.approx(9 * 8 / (9 * 8 + 8 * 24))
    assert found["c"] == pytest.approx(8 * 24 / (9 * 8 + 8 * 24))
    assert found == {"a": found["a"], "b": None, "c": found["c"], "d": None, "e": 1.0}


def test_the_first_of_the_heaviest_elementwise_ops_has_the_time() -> None:
    assert seconds_of("a", "c", "b d e") == {"a": 1.0, "b": None, "c": 1.0, "d": 1.0, "e": None}
