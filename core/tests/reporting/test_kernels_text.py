"""Generated kernels as text."""

from __future__ import annotations

from byoc_core.backend import KernelReport, SharedLoop
from byoc_core.dims import symbol
from byoc_core.reporting.kernels import render_kernels

N = symbol("n")
WHOLE = KernelReport(
    "k_0",
    "region",
    "void k_0(void) {\n  stop();\n}\n",
    ("add", "nn.relu"),
    ("s", "y"),
    ("for i in 0..dim_n: writes out", "  for j in 0..8"),
    (SharedLoop(N, 4, N * 2_500_000),),
    N * 1000,
    N * 64,
    N * 2_500_000,
    {"rows": "8", "is_packed": "yes"},
)
TEXT = """\
npu: 2 kernels in 2 regions, counting n = 3

k_0: add, nn.relu -> s, y
  function: region
  estimate: 3k FLOPs, 192B, 7.5 us on one thread
  for threads: 3 rounds by 4, 7.5 us on one thread
  schedule: rows = 8, is_packed = yes
  loops:
    for i in 0..dim_n: writes out
      for j in 0..8
  source:
    void k_0(void) {
      stop();
    }

k_1: tanh
  function: other
  loops: unknown, the kernel was written as text
  source:
    ...

tpu: reports no generated kernels"""


def test_kernels_are_told_by_backend() -> None:
    bare = KernelReport("k_1", "other", "...", ("tanh",))
    data = {
        "counted_sizes": {"n": 3},
        "kernels": [
            {"backend": "npu", "kernels": [WHOLE.to_data(), bare.to_data()]},
            {"backend": "tpu", "kernels": [], "text": "reports no generated kernels"},
        ],
    }
    assert render_kernels(data) == TEXT


def test_an_empty_kernel_and_no_kernels_at_all() -> None:
    empty = KernelReport("k\x1b", "f", "", loops=(), flops=0, nbytes=0, ps=0)
    text = render_kernels({"kernels": [{"backend": "npu", "kernels": [empty.to_data()]}]})
    assert "estimate: 0 FLOPs, 0B, 0 ps on one thread\n  loops: none\n" in text
    assert "\x1b" not in text
    assert render_kernels({"kernels": []}) == "no backend compiled anything"
