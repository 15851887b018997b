"""``explain(kernels=True)``: backends report their generated kernels; other calls have no cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import byoc_core
import pytest
from byoc_core import script as R
from byoc_core.backend.hooks import CompileContext, KernelReport, LoweringBuilder, hookimpl
from byoc_core.errors import HookError, OptionsError
from byoc_core.ir import Function, tensor

from core.tests.conftest import FakeBackend
from core.tests.lowered_toys import SOURCE, LoweringToy

pytestmark = pytest.mark.asks_for_plugins

MODULE = R.parse("""
def main(x: R.Tensor(("n", 4))):
    a = R.nn.relu(x)
    b = R.tanh(a)
    d = R.exp(b)
    return d
""")


class TellingBackend(FakeBackend):
    """A backend reporting a kernel for each function."""

    asked: int = 0
    answer: Any = None

    @hookimpl
    def byoc_generated_kernels(self, functions: Sequence[Function], context: CompileContext) -> Any:
        self.asked += 1
        if self.answer is not None:
            return self.answer() if callable(self.answer) else self.answer
        assert context.module is not None
        names = (f"{self.name}_{number}" for number in range(len(functions)))
        return [
            KernelReport(name, str(function.attrs["global_symbol"]), "text", tuple(b.op.name for b in function.walk()))
            for name, function in zip(names, functions, strict=True)
        ]


def test_each_backend_that_compiled_something_tells_its_kernels_or_that_it_has_none() -> None:
    backends = [TellingBackend("aone", ["nn.relu", "exp"]), FakeBackend("btwo", ["tanh"]), TellingBackend("cthree", [])]
    explanation = byoc_core.explain(MODULE, backends, kernels=True)
    told = {item["backend"]: item for item in explanation.report_data["kernels"]}
    assert list(told) == ["aone", "btwo"]
    assert [(kernel["name"], kernel["ops"]) for kernel in told["aone"]["kernels"]] == [
        ("aone_0", ["nn.relu"]),
        ("aone_1", ["exp"]),
    ]
    assert told["btwo"] == {"backend": "btwo", "kernels": [], "text": "reports no generated kernels"}
    assert explanation.report_kernels().startswith("aone: 2 kernels in 2 regions, counting n = 1\n")
    assert "counting n = 5" in explanation.with_sizes(n=5).report_kernels()


def test_nobody_is_asked_unless_the_user_asks() -> None:
    backend = TellingBackend("aone", None)
    assert "kernels" not in byoc_core.build(MODULE, [backend]).report_data
    explanation = byoc_core.explain(MODULE, [backend])
    assert backend.asked == 0
    assert "kernels" not in explanation.report_data
    with pytest.raises(OptionsError) as caught:
        explanation.report_kernels()
    assert str(caught.value) == "explanation: contains no kernels. Pass `kernels=True` to `explain`."


def test_a_failing_hook_is_told_in_place_of_its_kernels_and_an_error_where_the_user_wants_it() -> None:
    backend = TellingBackend("aone", None)
    for answer, text in (
        (lambda: 1 // 0, "raised ZeroDivisionError"),
        (["k"], "returned among other values a value of the wrong"),
    ):
        backend.answer = answer
        (item,) = byoc_core.explain(MODULE, [backend], kernels=True).report_data["kernels"]
        assert item["kernels"] == []
        assert text in item["text"]
        with pytest.raises(HookError, match="byoc_generated_kernels"):
            byoc_core.explain(MODULE, [backend], kernels=True, strict=True)


def test_a_backend_of_static_shapes_tells_of_regions_of_known_sizes() -> None:
    backend = TellingBackend("aone", None, dynamic_shapes=False)
    (item,) = byoc_core.explain(MODULE, [backend], kernels=True).report_data["kernels"]
    assert item == {"backend": "aone", "kernels": []}
    fixed = R.parse("def main(x: R.Tensor((2, 4))):\n    a = R.nn.relu(x)\n    return a\n")
    (item,) = byoc_core.explain(fixed, [backend], kernels=True).report_data["kernels"]
    assert [kernel["ops"] for kernel in item["kernels"]] == [["nn.relu"]]


def lower_rows(function: Function, builder: LoweringBuilder) -> None:
    """Lower ``relu`` to a call for each row, and then a call for all rows."""
    builder.add_source(SOURCE)
    (x,), (out,) = builder.inputs, builder.outputs
    scratch = builder.allocate(tensor(x.shape), "scratch")
    with builder.loop(x.shape[0]) as row:
        builder.call_extern("toy_scale", x.part(row * 4, 4), scratch.part(row * 4, 4).written(), 4, 2.0)
    builder.call_extern("toy_add", scratch, x, out.written(), x.size)


def test_lowered_functions_report_a_kernel_for_each_step() -> None:
    explanation = byoc_core.explain(MODULE, [LoweringToy(lower_rows, ops=["nn.relu"])], kernels=True)
    assert explanation.report_kernels().startswith(
        """\
toy: 2 kernels in 1 region, counting n = 1

toy_main_0_step0 -> scratch
  function: toy_main_0
  loops:
    for index_0 in 0..n
  source:
    for (int64_t dim_index_0 = 0; dim_index_0 < dim_n; ++dim_index_0) {
      toy_scale(x + (4 * dim_index_0), out + (4 * dim_index_0), 4, 2.0);
    }

toy_main_0_step1 -> a
  function: toy_main_0
  loops: none
  source:
    toy_add(v_scratch, x, out, (4 * dim_n));
"""
    )


class TellingToy(LoweringToy):
    """A backend that lowers ``relu``, and reports a kernel for each other function."""

    @hookimpl
    def byoc_generated_kernels(self, functions: Sequence[Function], context: CompileContext) -> list[KernelReport]:
        return [KernelReport("own", str(function.attrs["global_symbol"]), "text") for function in functions]


def test_the_hook_gets_the_functions_not_lowered() -> None:
    explanation = byoc_core.explain(MODULE, [TellingToy(lower_rows, ops=["nn.relu"])], kernels=True)
    (toy, _) = explanation.report_data["kernels"]
    assert [kernel["name"] for kernel in toy["kernels"]] == ["toy_main_0_step0", "toy_main_0_step1"]
