"""Origins of a module's dynamic sizes."""

from __future__ import annotations

from byoc_core import script as R
from byoc_core.transform import SizeKind, trace_sizes

SOURCE = """
class Module:
    @R.function
    def main(x: R.Tensor(("n", "past+seq"), "float32"), y: R.Tensor(("seq", 3), "float32"), z: R.Tensor(None, "int8")):
        a = R.strided_slice(x, axes=(1,), begin=(0,), end=(8,), strides=(1,))
        b = R.negative(a)
        k = R.call_packed("select", (y,), out_types=[R.Tensor(("found", 3), "float32")])
        c = R.concat(k, y, axis=0)
        d = R.negative(z)
        return b, c, d

    @R.function
    def static(x: R.Tensor((2, 3), "float32")):
        a = R.negative(x)
        return a
"""


def test_each_size_has_the_place_that_gives_it_first() -> None:
    trace = trace_sizes(R.parse(SOURCE))
    assert str(trace).splitlines() == [
        "function  size              kind        where",
        "main      n                 input       input `x`, axis 0",
        "main      past              input       input `x`, axis 1",
        "main      seq               input       input `x`, axis 1",
        "main      ?                 unknown     input `z`",
        "main      min(8, past+seq)  expression  op `strided_slice` (`a`) of <script>:line 5, axis 1",
        "main      found             unknown     op `call_packed` (`k`) of <script>:line 7, axis 0",
        "main      ?                 unknown     op `negative` (`d`) of <script>:line 9",
    ]
    assert [origin.size for origin in trace.of_kind(SizeKind.UNKNOWN)] == ["?", "found", "?"]
    assert trace.of_kind(SizeKind.INPUT)[0].to_data() == {
        "function": "main",
        "size": "n",
        "kind": "input",
        "where": "input `x`, axis 0",
    }


def test_a_static_module_has_nothing_to_trace() -> None:
    text = 'class M:\n    @R.function\n    def f(x: R.Tensor((2,), "int8")):\n        return x\n'
    assert str(trace_sizes(R.parse(text))) == "all sizes are known"
