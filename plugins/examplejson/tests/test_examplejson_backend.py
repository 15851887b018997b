"""The two halves through their hooks, as called by the core (S002.5, S002.6, S002.9)."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.backend import backends
from byoc_core.backend.hooks import CodegenResult, Rejection, Support
from byoc_core.errors import CallError
from byoc_core.ir import IRModule
from byoc_core.lint import lint_backend
from byoc_core.runtime import runtimes
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.module import NDArray, RuntimeModule

pytestmark = pytest.mark.interpreter

GUIDE = """\
subgraph_0
  input 0 10 10
  input 1 10 10
  input 2 10 10
  input 3 10 10
  add 4 inputs: 0 1 shape: 10 10
  sub 5 inputs: 4 2 shape: 10 10
  mul 6 inputs: 5 3 shape: 10 10
"""
ATTRS = 'R.func_attr({"Codegen": "examplejson", "global_symbol": "subgraph_0"})'


def module_of(params: str, *lines: str) -> IRModule:
    body = "\n".join(f"        {line}" for line in (ATTRS, *lines))
    return R.parse(f"@R.ir_module\nclass M:\n    @R.function\n    def f({params}):\n{body}\n")


def tensors(*names: str, shape: str = "(10, 10)", dtype: str = "float32") -> str:
    return ", ".join(f'{name}: R.Tensor({shape}, "{dtype}")' for name in names)


def codegen(module: IRModule) -> CodegenResult:
    backend = backends().get("examplejson")
    return backend.codegen(tuple(module.functions.values()), backend.context(module))


def compiled(module: IRModule) -> RuntimeModule:
    result = codegen(module).module
    assert result is not None
    return result


def guide_module() -> IRModule:
    return module_of(
        tensors("a", "b", "c", "d"),
        "s = R.add(a, b)",
        "t = R.subtract(s, c)",
        "u = R.multiply(t, d)",
        "return u",
    )


def arrays(count: int, *shape: int) -> list[NDArray]:
    return list(np.random.default_rng(7).normal(size=(count, *shape)).astype("float32"))


def load(text: str) -> RuntimeModule:
    return runtimes().get("examplejson").load_file(text.encode(), "examplejson", LoadContext(source="text"))


def test_s002_5_the_text_of_the_guide_exactly() -> None:
    assert compiled(guide_module()).get_source() == GUIDE


def test_s002_6_the_module_runs() -> None:
    module = compiled(guide_module())
    assert module.type_key == "examplejson"
    assert module.function_names == ("subgraph_0",)
    a, b, c, d = arrays(4, 10, 10)
    out = np.empty((10, 10), "float32")
    module.get_function("subgraph_0")(a, b, c, d, out)
    np.testing.assert_array_equal(out, (a + b - c) * d)


def test_s002_6_an_unknown_function_lists_the_known_ones() -> None:
    with pytest.raises(CallError) as caught:
        load(GUIDE).get_function("subgraph_1")
    assert str(caught.value) == (
        "module `examplejson`: has no function `subgraph_1`; expected subgraph_0. Did you mean 'subgraph_0'?"
    )


def test_s002_6_wrong_arguments_are_named() -> None:
    function = load("f\n  input 0 2\n  add 1 inputs: 0 0 shape: 2\n").get_function("f")
    with pytest.raises(CallError, match="input0"):
        function(np.zeros(3, "float32"), np.zeros(2, "float32"))


def test_s002_7_saving_and_loading_gives_the_same_text() -> None:
    runtime = runtimes().get("examplejson")
    payload = runtime.save(compiled(guide_module()))
    assert runtime.load(payload, LoadContext()).get_source() == GUIDE


def test_several_results_a_parameter_as_result_and_unused_parameters() -> None:
    module = compiled(
        module_of(
            tensors("unused", "x", "y", shape="(2,)"), "s = R.add(y, x)", "d = R.subtract(y, x)", "return d, x, s, d"
        )
    )
    assert module.get_source().splitlines()[-1] == "  output 4 1 3 4"
    x, y = arrays(2, 2)
    outs = [np.empty(2, "float32") for _ in range(4)]
    module.get_function("subgraph_0")(x, x, y, *outs)
    for out, expected in zip(outs, [y - x, x, y + x, y - x], strict=True):
        np.testing.assert_array_equal(out, expected)


def test_scalars_and_five_axes() -> None:
    for shape in ((), (1, 2, 1, 3, 2)):
        module = compiled(module_of(tensors("x", shape=str(shape)), "s = R.multiply(x, x)", "return s"))
        (x,) = arrays(1, *shape)
        out = np.empty(shape, "float32")
        module.get_function("subgraph_0")(np.asarray(x), out)
        np.testing.assert_array_equal(out, x * x)


@pytest.mark.parametrize(
    ("params", "line", "code"),
    [
        (tensors("x", "y"), "R.divide(x, y)", "op"),
        (tensors("x", "y", dtype="float64"), "R.add(x, y)", "type"),
        (tensors("x", "y", shape='("n", 2)'), "R.add(x, y)", "type"),
        (tensors("x") + ", " + tensors("y", shape="(10,)"), "R.add(x, y)", "broadcasting"),
    ],
)
def test_what_the_format_cannot_say_is_rejected_with_a_reason(params: str, line: str, code: str) -> None:
    module = module_of(params, f"z = {line}", "return z")
    backend = backends().get("examplejson")
    answer = backend.supports(module["f"].bindings[0], backend.context(module))
    assert isinstance(answer, Rejection)
    assert answer.code == code
    rejection = codegen(module).rejections["f"]
    assert rejection.code == code


def test_a_refusal_names_all_results_of_the_op() -> None:
    module = module_of(tensors("x"), "a, b = R.split(x, sections=(4, 6))", "return a, b")
    assert codegen(module).rejections["f"] == Rejection("op", "`a, b = split(...)`: the format has no `split`")


def test_what_it_can_say_is_supported() -> None:
    module = guide_module()
    backend = backends().get("examplejson")
    context = backend.context(module)
    assert [backend.supports(binding, context) for binding in module["f"].bindings] == [Support()] * 3
    assert backend.compile_status().ok
    assert runtimes().get("examplejson").status().ok


def test_s002_9_two_subgraphs_of_different_shapes_in_one_file() -> None:
    module = load("f0\n input 0 2\n add 1 inputs: 0 0 shape: 2\nf1\n input 0 3 1\n mul 1 inputs: 0 0 shape: 3 1\n")
    f0, f1 = module.get_function("f0"), module.get_function("f1")
    x, out = np.full(2, 3, "float32"), np.empty(2, "float32")
    assert f1.name == "f1"
    f0(x, out)
    f0(x, out)
    np.testing.assert_array_equal(out, [6, 6])


def test_s002_9_an_output_may_overlap_an_input() -> None:
    function = load(
        "f\n input 0 4\n input 1 4\n sub 2 inputs: 0 1 shape: 4\n sub 3 inputs: 1 2 shape: 4\n output 2 3\n"
    )
    x, y = arrays(2, 4)
    first, second = x - y, y - (x - y)
    function.get_function("f")(x, y, y, x)
    np.testing.assert_array_equal([y, x], [first, second])


def test_s002_9_two_threads_run_one_function() -> None:
    size = 100_000
    text = f"f\n  input 0 {size}\n" + "".join(f"  add {i} inputs: {i - 1} {i - 1} shape: {size}\n" for i in range(1, 9))
    function = load(text).get_function("f")
    inputs = [np.full(size, value, "float32") for value in (1, 3)]
    outputs = [np.empty(size, "float32") for _ in inputs]

    def work(index: int) -> None:
        for _ in range(20):
            function(inputs[index], outputs[index])

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [set(output) for output in outputs] == [{256.0}, {768.0}]


def test_the_run_half_imports_nothing_of_the_compile_side() -> None:
    script = (
        "import sys\n"
        "from byoc_core.runtime.registry import runtimes\n"
        "assert runtimes().get('examplejson').status().ok\n"
        "loaded = {'byoc_examplejson.backend', 'byoc_core.ir', 'byoc_core.backend', 'pydantic'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_overflow_is_no_warning() -> None:
    function = load("f\n  input 0 1\n  mul 1 inputs: 0 0 shape: 1\n").get_function("f")
    out = np.empty(1, "float32")
    function(np.full(1, 3e38, "float32"), out)
    assert np.isinf(out).all()


def test_the_lint_finds_nothing() -> None:
    assert lint_backend("examplejson", compile_claims=True) == ()
