"""The C of lowered functions: text, names, prototypes, groups of options, errors, workspaces."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from byoc_core.authoring.lowered_source import lowered_modules
from byoc_core.backend.hooks import CValue, LoweringBuilder
from byoc_core.backend.lowered_function import LoweredFunction
from byoc_core.dims import symbol
from byoc_core.errors import CodegenError, ExecutionError, ToolchainError
from byoc_core.ir import tensor
from byoc_core.native.toolchain import BuildOptions, Toolchain
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import CallStep, CallSteps, CallTraits, NDArray, TensorSpec

from core.tests.lowered_toys import builder_of

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")

RELU = "def {name}(x: R.Tensor(({size},))):\n    y = R.nn.relu(x)\n    return y\n"
N = symbol("n")
F32 = np.float32


def lowered(
    fill: Callable[[LoweringBuilder], object], text: str = "", *, name: str = "f", size: str = "4"
) -> LoweredFunction:
    builder = builder_of(text or RELU.format(name=name, size=size))
    builder.options = BuildOptions(opt_level=0, march="generic")
    fill(builder)
    return builder.finish()


def module_of(
    fill: Callable[[LoweringBuilder], object],
    text: str = "",
    *,
    size: str = "4",
    constants: Mapping[str, NDArray] | None = None,
) -> CSourceModule:
    (module,) = lowered_modules([lowered(fill, text, size=size)], constants or {})
    return module


def call(module: CSourceModule, *inputs: NDArray, name: str = "f") -> list[NDArray]:
    """Call a function with outputs of not-a-number."""
    function = module.get_function(name)
    assert function.signature is not None
    sizes = {
        str(dim): size
        for spec, x in zip(function.signature.inputs, inputs, strict=True)
        for dim, size in zip(spec.shape, x.shape, strict=True)
    }
    shapes = [
        [dim if isinstance(dim, int) else sizes[str(dim)] for dim in spec.shape] for spec in function.signature.outputs
    ]
    outputs = [np.full(shape, 99, spec.dtype) for shape, spec in zip(shapes, function.signature.outputs, strict=True)]
    function(*inputs, *outputs)
    return outputs


def accumulate(builder: LoweringBuilder) -> None:
    """Compute ``3 * x + 1`` in an intermediate changed by three steps."""
    (x,), (out,) = builder.inputs, builder.outputs
    total = builder.allocate(tensor(x.shape), "total")
    builder.call_extern("toy_fill", total.written(), total.size, 1.0)
    with builder.loop(3):
        builder.call_extern("toy_accumulate", x, total.updated(), total.size)
    builder.copy(total, out)


def test_a_function_for_each_step_and_a_function_for_all() -> None:
    module = module_of(accumulate)
    assert module.function_names == ("f_step0", "f_step1", "f_step2", "f")
    assert module.call_steps("f") == CallSteps(
        (TensorSpec("total", "float32", (4,)),),
        (CallStep("f_step0", (), (2,)), CallStep("f_step1", (0, 2), (2,)), CallStep("f_step2", (2,), (1,))),
    )
    assert module.call_steps("f_step0") is None
    assert module.call_traits("f") == CallTraits(workspace_nbytes=64)
    assert module.call_traits("f_step1").in_place == ((0, 1),)
    np.testing.assert_array_equal(call(module, np.arange(4, dtype=F32))[0], 3 * np.arange(4) + 1)


def test_the_text_of_steps_loops_and_the_whole_function() -> None:
    source = module_of(accumulate, size='"n"').get_source()
    for part in (
        # The size of a buffer without a read is taken from a parameter.
        (
            "BYOC_EXPORT int32_t f_step0_(const float *x, float *out, int64_t dim_n) {\n  (void)x;\n"
            "  toy_fill(out, dim_n, 1.0);\n  return 0;\n}"
        ),
        (
            "  if (out != total) memcpy(out, total, (size_t)dim_n * 4);\n"
            "  for (int64_t dim_index_0 = 0; dim_index_0 < 3; ++dim_index_0) {\n"
            "    toy_accumulate(x, out, dim_n);\n  }\n"
        ),
        (
            "  if ((status = f_step0_(x, total_data, dim_n))) goto done;\n"
            '  BYOC_MARK_PART("f_step0", "");\n'
            "  if ((status = f_step1_(x, total_data, total_data, dim_n))) goto done;\n"
            '  BYOC_MARK_PART("f_step1", "");\n'
            "  if ((status = f_step2_(total_data, out, dim_n))) goto done;\n"
        ),
    ):
        assert part in source


@pytest.mark.parametrize("size", [0, 1, 5])
def test_symbolic_sizes_and_intermediates(size: int) -> None:
    module = module_of(accumulate, size='"n"')
    np.testing.assert_array_equal(call(module, np.arange(size, dtype=F32))[0], 3 * np.arange(size) + 1)


def test_a_step_called_with_apart_memory_copies_first() -> None:
    function = module_of(accumulate).get_function("f_step1")
    total, out = np.full(4, 2, F32), np.empty(4, F32)
    function(np.ones(4, F32), total, out)
    np.testing.assert_array_equal([total, out], [[2] * 4, [5] * 4])


def test_live_ranges_share_the_workspace() -> None:
    def chain(builder: LoweringBuilder, length: int) -> None:
        values = [builder.inputs[0], *(builder.allocate(tensor((64,)), "t") for _ in range(length - 1))]
        values.append(builder.outputs[0])
        for source, target in itertools.pairwise(values):
            builder.call_extern("toy_scale", source, target.written(), 64, 2.0)

    for length, buffers in ((1, 0), (2, 1), (3, 2), (4, 2), (9, 2)):
        module = module_of(lambda b, length=length: chain(b, length), size="64")  # type: ignore[misc]
        assert module.call_traits("f").workspace_nbytes == buffers * 256
        np.testing.assert_array_equal(call(module, np.ones(64, F32))[0], np.full(64, 2.0**length))


def test_unused_buffers_take_no_memory() -> None:
    def fill(builder: LoweringBuilder) -> None:
        builder.allocate(tensor((10**9,)), "unused")
        builder.call_extern("toy_scale", builder.inputs[0], builder.outputs[0].written(), 4, 2.0)

    module = module_of(fill)
    steps = module.call_steps("f")
    assert steps is not None
    assert (steps.buffers, module.call_traits("f").workspace_nbytes) == ((), 0)


def test_offsets_and_arguments_by_index() -> None:
    def fill(builder: LoweringBuilder) -> None:
        (x,), (out,) = builder.inputs, builder.outputs
        builder.add_source(
            "static void put(const float *x, float *out, int64_t i, int64_t n) { *out = *x + 10 * i + n; }"
        )
        with builder.loop(N) as i, builder.loop(3) as j:
            builder.call_extern("put", x.part(3 * i + 2 - j, 1), out.part(3 * i + j, 1).written(), i, N)

    text = 'def f(x: R.Tensor(("n", 3))):\n    y = R.nn.relu(x)\n    return y\n'
    x = np.arange(12, dtype=F32).reshape(4, 3)
    np.testing.assert_array_equal(call(module_of(fill, text), x)[0], x[:, ::-1] + 10 * np.arange(4)[:, None] + 4)


def test_results_that_are_parameters_constants_or_repeated() -> None:
    text = (
        "def f(x: R.Tensor((4,))):\n    y = R.add(x, R.const([1.0, 2.0, 3.0, 4.0], 'float32'))\n"
        "    return y, x, R.const([1.0, 2.0, 3.0, 4.0], 'float32'), y\n"
    )
    table = np.arange(1, 5, dtype=F32)

    def fill(builder: LoweringBuilder) -> None:
        (binding,) = builder.function.bindings
        operands = map(builder.buffer, binding.operands)
        builder.call_extern("toy_add", *operands, builder.buffer(binding.result).written(), 4)

    constant = builder_of(text).function.bindings[0].operands[1]
    module = module_of(fill, text, constants={constant.digest: table})  # type: ignore[union-attr]
    x = np.full(4, 5, F32)
    np.testing.assert_array_equal(call(module, x), [x + table, x, table, x + table])


@pytest.mark.parametrize("size", [4, 400])
def test_constants_of_the_builder(size: int) -> None:
    table = np.arange(size, dtype=F32)
    builder = builder_of(RELU.format(name="f", size=size))
    operands = (builder.inputs[0], builder.constant(table, "table"), builder.outputs[0].written())
    builder.call_extern("toy_add", *operands, size)
    (module,) = lowered_modules([builder.finish()], builder.constants)
    np.testing.assert_array_equal(call(module, table)[0], 2 * table)


def test_bool_and_float16() -> None:
    text = (
        'def f(x: R.Tensor((3,), "float16"), m: R.Tensor((3,), "bool")):\n'
        "    y = R.where(m, x, x)\n    n = R.logical_not(m)\n    return y, n\n"
    )

    def fill(builder: LoweringBuilder) -> None:
        builder.add_source(
            "static void halves(const byoc_f16 *x, const uint8_t *m, byoc_f16 *y, uint8_t *n) {\n"
            "  for (int i = 0; i < 3; ++i) { y[i] = x[m[i] ? i : 0]; n[i] = !m[i]; }\n}"
        )
        builder.call_extern("halves", *builder.inputs, *(out.written() for out in builder.outputs))

    x, m = np.array([1, 2, 3], np.float16), np.array([False, True, False])
    m.view(np.uint8)[1] = 7  # any byte but 0 is true
    values, inverted = call(module_of(fill, text), x, m)
    np.testing.assert_array_equal(values, np.array([1, 2, 1], np.float16))
    np.testing.assert_array_equal(inverted, [True, False, True])


def test_a_size_known_from_another_parameter_only() -> None:
    text = (
        'def f(x: R.Tensor(("n*m",)), n: R.Tensor(("n",)), m: R.Tensor(("m",))):\n    y = R.nn.relu(x)\n    return y\n'
    )

    def fill(builder: LoweringBuilder) -> None:
        x, out = builder.inputs[0], builder.outputs[0]
        t = builder.allocate(tensor(("n",)), "t")
        builder.call_extern("toy_fill", t.written(), N, 5.0)
        with builder.loop(symbol("m")) as i:
            builder.call_extern("toy_add", x.part(N * i, N), t, out.part(N * i, N).written(), N)

    module = module_of(fill, text)
    steps = module.call_steps("f")
    assert steps is not None
    assert [step.args for step in steps.steps] == [(1,), (0, 4, 2)]
    x = np.arange(6, dtype=F32)
    (result,) = call(module, x, np.empty(2, F32), np.empty(3, F32))
    np.testing.assert_array_equal(result, x + 5)


def test_a_size_determined_by_no_parameter() -> None:
    def fill(builder: LoweringBuilder) -> None:
        builder.call_extern("toy_scale", builder.inputs[0], builder.outputs[0].written(), N * symbol("m"), 2.0)

    with pytest.raises(CodegenError) as caught:
        module_of(fill, size='"n*m"')
    assert str(caught.value) == ("function `f`: the size of m, n cannot be computed from the shapes of the parameters")


def test_buffers_without_elements_are_read_and_left_unwritten() -> None:
    text = "def f(x: R.Tensor((4,)), z: R.Tensor((0,))):\n    y = R.nn.relu(x)\n    e = R.nn.relu(z)\n    return y, e\n"

    def fill(builder: LoweringBuilder) -> None:
        t = builder.allocate(tensor((0, 3)), "t")
        builder.call_extern("toy_accumulate", t, builder.outputs[0].part(0, 0).updated(), 0)
        builder.call_extern("toy_fill", builder.outputs[0].written(), 4, 2.0)

    module = module_of(fill, text)
    assert [array.tolist() for array in call(module, np.ones(4, F32), np.ones(0, F32))] == [[2] * 4, []]


def test_a_size_below_zero_is_an_error_of_the_call() -> None:
    def fill(builder: LoweringBuilder) -> None:
        t, u = (builder.allocate(tensor((size,)), "t") for size in (N - 3, N))
        builder.call_extern("toy_fill", t.written(), N - 3, 1.0)
        builder.call_extern("toy_fill", u.written(), N, 1.0)
        builder.copy(u, builder.outputs[0])
        builder.call_extern("toy_accumulate", t, builder.outputs[0].updated(), 0)

    module = module_of(fill, size='"n"')
    np.testing.assert_array_equal(call(module, np.zeros(5, F32))[0], np.ones(5))
    with pytest.raises(ExecutionError) as caught:
        call(module, np.zeros(2, F32))
    assert str(caught.value).endswith(
        "function `f`, op `allocate`: axis 0 of buffer `t` is too small; got -1, expected 0 or more"
    )


class TestNames:
    def test_a_parameter_with_the_name_of_a_called_function(self) -> None:
        text = "def f(toy_add: R.Tensor((4,)), Rows: R.Tensor((4,))):\n    y = R.add(toy_add, Rows)\n    return y\n"

        def fill(builder: LoweringBuilder) -> None:
            builder.add_source("enum { Rows = 4 };")
            builder.call_extern("toy_add", *builder.inputs, builder.outputs[0].written(), CValue("Rows", "int"))

        x = np.arange(4, dtype=F32)
        np.testing.assert_array_equal(call(module_of(fill, text), x, x)[0], 2 * x)

    def test_prototypes_are_made_from_the_arguments(self) -> None:
        builder = builder_of(RELU.format(name="f", size=4))
        arguments = (builder.inputs[0], builder.outputs[0].written(), 4, 0.5, True, CValue("1.0f", "float"))
        builder.call_extern("elsewhere", *arguments, returns_status=True)
        builder.call_extern("elsewhere_too", builder.outputs[0].updated())
        with pytest.raises(CodegenError) as caught:
            lowered_modules([builder.finish()], {})
        assert str(caught.value).splitlines()[0] == (
            "function `f`: calls `elsewhere`, `elsewhere_too`, defined by no library; expected a linked library"
        )
        kept = re.search(r"sources kept in: (\S+)", str(caught.value))
        assert kept is not None
        source = (Path(kept[1]) / "module.c").read_text("utf-8")
        assert "int elsewhere(const float *, float *, int64_t, double, int, float);" in source
        assert "void elsewhere_too(float *);" in source

    def test_functions_called_with_different_types(self) -> None:
        def fill(builder: LoweringBuilder) -> None:
            builder.call_extern("elsewhere", builder.outputs[0].written(), 4)
            builder.call_extern("elsewhere", builder.outputs[0].written(), 0.5)

        with pytest.raises(CodegenError) as caught:
            module_of(fill)
        assert str(caught.value) == (
            "extern function `elsewhere`: is called with arguments of different types; "
            "got `void elsewhere(float *, double);` and `void elsewhere(float *, int64_t);`. "
            "Declare the function with `builder.add_source` or `builder.include`."
        )

    def test_a_header_without_the_called_function_is_an_error(self) -> None:
        def fill(builder: LoweringBuilder) -> None:
            builder.include("<math.h>")
            builder.call_extern("elsewhere", builder.outputs[0].written(), 4)

        with pytest.raises(ToolchainError, match="implicit"):
            module_of(fill)

    def test_headers_of_one_function_declare_nothing_for_another(self) -> None:
        def with_header(builder: LoweringBuilder) -> None:
            builder.include("<math.h>")
            builder.call_extern("toy_fill", builder.outputs[0].written(), 4, 1.0)

        def without(builder: LoweringBuilder) -> None:
            builder.call_extern("elsewhere", builder.outputs[0].written())

        both = [lowered(with_header, name="f"), lowered(without, name="g")]
        with pytest.raises(CodegenError, match="function `g`: calls `elsewhere`, defined by no library"):
            lowered_modules(both, {})


def test_functions_of_equal_options_share_a_module() -> None:
    def scale(builder: LoweringBuilder) -> None:
        builder.call_extern("toy_scale", builder.inputs[0], builder.outputs[0].written(), 4, 2.0)

    def other(builder: LoweringBuilder) -> None:
        builder.options = BuildOptions(opt_level=1, march="generic")
        builder.call_extern("toy_scale", builder.inputs[0], builder.outputs[0].written(), 4, 3.0)

    functions = [lowered(scale, name="f"), lowered(other, name="g"), lowered(accumulate, name="h")]
    first, second = lowered_modules(functions, {})
    assert first.function_names == ("f_step0", "f", "h_step0", "h_step1", "h_step2", "h")
    assert second.function_names == ("g_step0", "g")
    x = np.ones(4, F32)
    for module, name, factor in ((first, "f", 2), (second, "g", 3), (first, "h", 4)):
        np.testing.assert_array_equal(call(module, x, name=name)[0], factor * x)


def test_a_status_ends_the_call_with_an_error() -> None:
    def fill(builder: LoweringBuilder) -> None:
        (x,), (out,) = builder.inputs, builder.outputs
        t = builder.allocate(tensor(("n",)), "t")
        with builder.loop(2):
            builder.call_extern("toy_refuse_large", x, t.written(), N, returns_status=True)
        builder.copy(t, out)

    module = module_of(fill, size='"n"')
    np.testing.assert_array_equal(call(module, np.ones(3, F32))[0], np.ones(3))
    function, x, out = module.get_function("f"), np.ones(4, F32), np.full(4, 9, F32)
    with pytest.raises(ExecutionError) as caught:
        function(x, out)
    assert str(caught.value).endswith("function `f`: `toy_refuse_large` returned 7")
    np.testing.assert_array_equal(out, np.full(4, 9))  # no later step ran


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/statm")
def test_a_failing_call_frees_its_workspace() -> None:
    def fill(builder: LoweringBuilder) -> None:
        t = builder.allocate(tensor((4_000_000,)), "t")
        builder.call_extern("toy_fill", t.written(), 4_000_000, 1.0)
        builder.call_extern("toy_refuse_large", t, builder.outputs[0].written(), 4, returns_status=True)

    def resident_pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    function, x = module_of(fill).get_function("f"), np.ones(4, F32)
    before = resident_pages()
    for _ in range(20):
        with pytest.raises(ExecutionError, match="`toy_refuse_large` returned 7"):
            function(x, np.empty_like(x))
    assert (resident_pages() - before) * os.sysconf("SC_PAGE_SIZE") < 10 * 16_000_000  # a leak would take twice as much


def test_dtypes_without_a_c_type() -> None:
    def fill(builder: LoweringBuilder) -> None:
        t = builder.allocate(tensor((4,), "float8_e4m3fn"), "t")
        builder.call_extern("toy_fill", t.written(), 4, 1.0)
        builder.call_extern("toy_add", builder.inputs[0], t, builder.outputs[0].written(), 4)

    with pytest.raises(CodegenError) as caught:
        module_of(fill)
    assert str(caught.value).startswith(
        'function `f`: value `t_out` has no C form; got R.Tensor((4,), "float8_e4m3fn"), expected a tensor of float32'
    )
