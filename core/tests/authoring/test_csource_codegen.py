"""The kit for backends printing C: three layers, order, names, refusals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from byoc_core.authoring.csource import CSourceCodegen, FunctionScope
from byoc_core.authoring.csource_shared import WORKSPACE_ALIGNMENT, ConstantPool
from byoc_core.dims import symbol
from byoc_core.errors import CodegenError, ExecutionError
from byoc_core.ir import COMPOSITE, Binding, Function, FunctionBuilder, IRModule, tensor
from byoc_core.native.toolchain import BuildOptions
from byoc_core.ops import default_ops

OPTIONS = BuildOptions(1, "generic", ("-Wall", "-Wextra", "-Werror"))


def _builder(name: str = "f") -> Any:
    return FunctionBuilder(name, ops=default_ops())


def _random(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")


def test_the_text_of_the_smallest_function() -> None:
    builder = _builder()
    x = builder.param("x", tensor((2, 3)))
    source = CSourceCodegen().generate(builder.finish(builder.emit("nn.relu", x))).get_source()
    assert source == (
        '#include "byoc_ffi.h"\n'
        '#include "byoc_scalar.h"\n'
        "\n"
        "#include <stdlib.h>\n"
        "#include <string.h>\n"
        "\n\n"
        '/* nn.relu: R.Tensor((2, 3), "float32") */\n'
        "static void f_0(const float *a, float *restrict out) {\n"
        "  for (int64_t i = 0; i < 6; ++i) {\n"
        "    out[i] = byoc_relu_f32(a[i]);\n"
        "  }\n"
        "}\n"
        "\n"
        "BYOC_EXPORT int32_t f_(const float *x, float *out) {\n"
        "  f_0(x, out);\n"
        '  BYOC_MARK_PART("nn.relu", "nn.relu lv0");\n'
        "  return 0;\n"
        "}\n"
        "\n"
        "#ifndef BYOC_PLAIN_C\n"
        "BYOC_EXPORT int32_t f_wrapper_(const DLTensor *x, const DLTensor *out) {\n"
        "  static const int64_t byoc_shape_0[] = {2, 3};\n"
        '  if (byoc_check_shape("f", "x", x, kDLFloat, 32, 2, byoc_shape_0)) return -1;\n'
        "  static const int64_t byoc_shape_1[] = {2, 3};\n"
        '  if (byoc_check_shape("f", "out", out, kDLFloat, 32, 2, byoc_shape_1)) return -1;\n'
        "  return f_(byoc_data(x), byoc_data(out));\n"
        "}\n"
        "\n"
        "BYOC_EXPORT int32_t __tvm_ffi_f(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {\n"
        "  (void)handle;\n"
        "  (void)args;\n"
        "  (void)result;\n"
        '  static const char *const names[] = {"x", "out"};\n'
        "  const DLTensor *tensors[2];\n"
        '  if (byoc_read_tensors("f", names, 2, 0, args, num_args, tensors)) return -1;\n'
        "  return f_wrapper_(tensors[0], tensors[1]);\n"
        "}\n"
        "#endif\n"
    )


def test_order_of_parameters_and_values_used_twice() -> None:
    builder = _builder()
    x, _, z = (builder.param(name, tensor((3,))) for name in ("x", "unused", "z"))
    a = builder.emit("subtract", z, x)
    b = builder.emit("multiply", a, a)
    function = builder.finish(builder.emit("add", b, a), a, x, a)
    module = CSourceCodegen(OPTIONS).generate(function)
    assert [spec.name for spec in module.signatures["f"].inputs] == ["x", "unused", "z"]
    inputs = [_random(3), _random(3), _random(3, 1).reshape(3)]
    outputs = [np.zeros(3, "float32") for _ in range(4)]
    module.get_function("f")(*inputs, *outputs)
    difference = inputs[2] - inputs[0]
    for actual, expected in zip(
        outputs, (difference * difference + difference, difference, inputs[0], difference), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


def test_dtypes_have_their_own_sizes() -> None:
    builder = _builder()
    x = builder.param("x", tensor((5,), "float64"))
    y = builder.emit("add", builder.emit("cast", builder.emit("negative", x), dtype="int8"), np.ones(5, "int8"))
    module = CSourceCodegen(OPTIONS).generate(builder.finish(y), builder.constants)
    assert re.findall(r"malloc\((.*?)\)", module.get_source()) == ["8 * 5", "1 * 5"]
    out = np.zeros(5, "int8")
    module.get_function("f")(np.arange(5.0), out)
    assert out.tolist() == [1, 0, -1, -2, -3]


def test_several_functions_share_nothing() -> None:
    functions = {}
    for name, op in (("first", "add"), ("second", "subtract")):
        builder = _builder(name)
        x, y = builder.param("x", tensor((4,))), builder.param("y", tensor((4,)))
        functions[name] = builder.finish(builder.emit(op, builder.emit("nn.relu", x), y))
    module = CSourceCodegen(OPTIONS).generate(IRModule(functions))
    assert module.function_names == ("first", "second")
    x, y, out = _random(4), _random(4) + 1, np.zeros(4, "float32")
    module.get_function("second")(x, y, out)
    np.testing.assert_array_equal(out, np.maximum(x, 0) - y)
    module.get_function("first")(x, y, out)
    np.testing.assert_array_equal(out, np.maximum(x, 0) + y)


def _with_composite() -> Function:
    inner = _builder("body")
    a, b = inner.param("a", tensor((4,))), inner.param("b", tensor((4,)))
    total = inner.emit("add", b, a)
    body = inner.finish(inner.emit("nn.relu", total), total)
    builder = _builder()
    x, y = builder.param("x", tensor((4,))), builder.param("y", tensor((4,)))
    first, second = builder.emit(COMPOSITE, x, y, regions=(body,), name="own.add_relu")
    function: Function = builder.finish(builder.emit("multiply", first, x), second)
    return function


def test_composites_are_visited_inside() -> None:
    module = CSourceCodegen(OPTIONS).generate(_with_composite())
    x, y = _random(4), _random(4)[::-1].copy()
    outputs = [np.zeros(4, "float32") for _ in range(2)]
    module.get_function("f")(x, y, *outputs)
    np.testing.assert_array_equal(outputs[0], np.maximum(x + y, 0) * x)
    np.testing.assert_array_equal(outputs[1], x + y)
    # The second result of the composite is written where it belongs, not copied there.
    assert "memcpy" not in module.get_source()


def test_a_composite_may_have_one_kernel() -> None:
    class Codegen(CSourceCodegen):
        def visit_composite(self, scope: FunctionScope, binding: Binding, inputs: Sequence[str]) -> None:
            total, _relu = binding.regions[0].bindings
            kernel = scope.declare_kernel(
                "static void {name}(const float *a, const float *b, float *out, float *sum) {"
                " for (int i = 0; i < 4; ++i) { sum[i] = a[i] + b[i]; out[i] = sum[i] > 0 ? sum[i] : 0; } }"
            )
            read = [scope.value(operand) for operand in total.operands]
            assert (list(inputs), read) == (["x", "y"], ["y", "x"])
            scope.call(kernel, *read, *map(scope.buffer, binding.results))

    module = Codegen(OPTIONS).generate(_with_composite())
    x, y = _random(4), _random(4)[::-1].copy()
    outputs = [np.zeros(4, "float32") for _ in range(2)]
    module.get_function("f")(x, y, *outputs)
    np.testing.assert_array_equal(outputs[0], np.maximum(x + y, 0) * x)
    np.testing.assert_array_equal(outputs[1], x + y)
    assert [line for line in module.get_source().splitlines() if line.startswith("  f_")] == [
        "  f_0(y, x, buf_0, out1);",
        "  f_1(buf_0, x, out0);",
    ]


def test_constants_by_literal_and_by_table() -> None:
    builder = _builder()
    x = builder.param("x", tensor((20,)))
    y = builder.emit("add", builder.emit("multiply", x, np.float32(3)), _random(20))
    module = CSourceCodegen(OPTIONS).generate(builder.finish(y), builder.constants)
    assert "static const float constant_0[1] = {3.0f};" in module.get_source()
    assert "BYOC_CONSTANT_TABLE(1);" in module.get_source()
    assert [array.shape for array in module.constants.values()] == [(20,)]
    x_value, out = _random(20) * 2, np.zeros(20, "float32")
    module.get_function("f")(x_value, out)
    np.testing.assert_array_equal(out, x_value * 3 + _random(20))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("shape", [(1000, 3), (5,), (), (0, 4)])
def test_derived_constants_are_aligned_and_frozen(shape: tuple[int, ...], dtype: str) -> None:
    pool = ConstantPool({})
    array = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape).T
    constant = pool.derive(array)
    stored = pool.array(constant, "here")
    assert stored.size == 0 or stored.ctypes.data % WORKSPACE_ALIGNMENT == 0
    assert stored.flags.c_contiguous
    assert not stored.flags.writeable
    np.testing.assert_array_equal(stored, array, strict=True)


def test_symbolic_sizes_are_found_and_checked() -> None:
    builder = _builder()
    x, y = builder.param("x", tensor(("2*n", 3))), builder.param("y", tensor(("n",)))
    z = builder.emit("add", x, builder.emit("nn.relu", x))
    module = CSourceCodegen(OPTIONS).generate(builder.finish(z, builder.emit("negative", y)))
    impl = module.get_function("f").impl
    out = [np.zeros((4, 3), "float32"), np.zeros(2, "float32")]
    impl(_random(4, 3), _random(2), *out)
    np.testing.assert_array_equal(out[1], -_random(2))
    with pytest.raises(ExecutionError) as caught:
        impl(_random(5, 3), _random(2), *out)
    assert str(caught.value) == (
        "function `f`, argument `x`: wrong size of axis 0; got 5, expected 2 * s + 0 for some s >= 0"
    )
    with pytest.raises(ExecutionError) as caught:
        impl(_random(4, 3), _random(3), *out)
    assert str(caught.value) == "function `f`, argument `y`: wrong size of axis 0; got 3, expected 2"


def test_fixed_sizes_are_a_table_and_symbolic_sizes_are_checked_apart() -> None:
    builder = _builder()
    x, y = builder.param("x", tensor((3, "n", 2))), builder.param("y", tensor(("n",)))
    z = builder.param("z", tensor(()))
    function = builder.finish(*(builder.emit("nn.relu", value) for value in (x, y, z)))
    source = CSourceCodegen(OPTIONS).generate(function).get_source()
    lines = source[source.index("f_wrapper_(") : source.index("  return f_(")].splitlines()[1:]
    assert [line.strip() for line in lines] == [
        "int64_t dim_n = 0;",
        "static const int64_t byoc_shape_0[] = {3, -1, 2};",
        'if (byoc_check_shape("f", "x", x, kDLFloat, 32, 3, byoc_shape_0)) return -1;',
        'if (byoc_check_tensor("f", "y", y, kDLFloat, 32, 1)) return -1;',
        'if (byoc_check_tensor("f", "z", z, kDLFloat, 32, 0)) return -1;',
        "static const int64_t byoc_shape_3[] = {3, -1, 2};",
        'if (byoc_check_shape("f", "out0", out0, kDLFloat, 32, 3, byoc_shape_3)) return -1;',
        'if (byoc_check_tensor("f", "out1", out1, kDLFloat, 32, 1)) return -1;',
        'if (byoc_check_tensor("f", "out2", out2, kDLFloat, 32, 0)) return -1;',
        'if (byoc_solve_size("f", "x", x, 1, 1, 0, &dim_n)) return -1;',
        'if (byoc_check_size("f", "y", y, 0, dim_n)) return -1;',
        'if (byoc_check_size("f", "out0", out0, 1, dim_n)) return -1;',
        'if (byoc_check_size("f", "out1", out1, 0, dim_n)) return -1;',
    ]


def test_a_kernel_may_fail_and_sizes_may_have_to_be_equal() -> None:
    class Codegen(CSourceCodegen):
        def visit_call(self, scope: FunctionScope, binding: Binding, inputs: Sequence[str]) -> None:
            scope.require_equal("negative", "x", [symbol("n")], [3])
            scratch = scope.allocate("float", "scratch_x", "64")
            kernel = scope.declare_kernel(
                "static int32_t {name}(const float *x, float *scratch, float *out) {"
                ' if (x[0] > 5) return byoc_fail("ValueError", "x is %d", (int)x[0]);'
                " for (int i = 0; i < 3; ++i) { scratch[i] = -x[i]; out[i] = scratch[i]; } return 0; }"
            )
            scope.call_checked(kernel, *inputs, scratch, scope.buffer(binding.result))

    builder = _builder()
    x = builder.param("x", tensor(("n",)))
    module = Codegen(OPTIONS).generate(builder.finish(builder.emit("negative", x)))
    impl, out = module.get_function("f").impl, np.zeros(3, "float32")
    impl(_random(3), out)
    np.testing.assert_array_equal(out, -_random(3))
    for array, text in (
        (np.full(3, 7, "float32"), "x is 7"),
        (_random(4), "function `f`, op `negative`, operand `x`: wrong size of axis 0; got 4, expected 3"),
    ):
        with pytest.raises(ExecutionError) as caught:
            impl(array, np.zeros_like(array))
        assert str(caught.value).endswith(text)


def test_what_has_no_plain_kernel_is_an_error_that_names_it() -> None:
    builder = _builder()
    x = builder.param("x", tensor((2, 3)))
    function = builder.finish(builder.emit("nn.softmax", x))
    with pytest.raises(CodegenError) as caught:
        CSourceCodegen().generate(function)
    assert str(caught.value) == (
        "function `f`, op `nn.softmax`: has no plain C kernel; got float32, expected an elementwise op on float32, "
        "float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool"
    )


def test_what_c_cannot_hold_is_an_error() -> None:
    builder = _builder()
    x = builder.param("x", tensor((2,), "int4"))
    with pytest.raises(CodegenError, match=r"^function `f`: value `x` has no C form; got R.Tensor\(\(2,\), \"int4\"\)"):
        CSourceCodegen().generate(builder.finish(x))
    builder = _builder()
    x = builder.param("x", tensor(("n*m",)))
    with pytest.raises(CodegenError) as caught:
        CSourceCodegen().generate(builder.finish(builder.emit("negative", x)))
    assert str(caught.value) == "function `f`: the size of m, n cannot be computed from the shapes of the arguments"


def test_symbols_must_be_c_names_and_differ() -> None:
    def function(name: str, symbol: str) -> Function:
        builder = _builder(name)
        x = builder.param("x", tensor((2,)))
        made: Function = builder.finish(builder.emit("negative", x), global_symbol=symbol)
        return made

    with pytest.raises(CodegenError) as caught:
        CSourceCodegen().generate(function("f", "a-b"))
    assert (
        str(caught.value)
        == "function `f`: the symbol is not a valid name of a C function; got 'a-b', expected a C identifier"
    )
    with pytest.raises(CodegenError) as caught:
        CSourceCodegen().generate([function("f", "same"), function("g", "same")])
    assert str(caught.value) == "function `g`: exports the symbol `same`, also exported by `f`"
    with pytest.raises(CodegenError) as caught:
        CSourceCodegen().generate([function("f", "h"), function("g", "h_")])
    assert str(caught.value) == "function `g`: exports the symbol `h_`, also exported by `f`"


def test_equal_functions_give_equal_text() -> None:
    assert len({CSourceCodegen().generate(_with_composite()).get_source() for _ in range(3)}) == 1
