"""The printer: the exact C of statements and functions."""

from __future__ import annotations

import textwrap

import pytest
from byoc_core.authoring.c import (
    C11,
    C11_VECTORS,
    CUDA,
    Address,
    Alias,
    Assign,
    Broadcast,
    Buffer,
    Call,
    Callee,
    Comment,
    Copy,
    CType,
    Declare,
    Dispatch,
    Element,
    Evaluate,
    For,
    Function,
    If,
    Let,
    Literal,
    Load,
    LocalArray,
    LoopKind,
    MemoryAccess,
    RawStatement,
    Return,
    Select,
    Size,
    Store,
    Variable,
    print_definitions,
    print_function,
    verify,
)
from byoc_core.dims import symbol
from byoc_core.errors import InternalError

FLOAT = CType("float32")
ROW, COLUMN = Variable("i"), Variable("j")
X, OUT = Buffer("x", "float32"), Buffer("out", "float32", MemoryAccess.WRITE)
N = symbol("n")


def text_of(
    *body: Store | For | Let | Declare | If | Alias | Copy | Comment | LocalArray | Assign | RawStatement,
) -> str:
    """Return the lines of C of a body over ``x`` and ``out``."""
    lines = print_function(verify(Function("f", (X, OUT), body))).splitlines()
    return "\n".join(line for line in lines[1:-1] if "(void)" not in line)


def test_a_function_of_symbolic_sizes_takes_them_behind_its_parameters() -> None:
    body = For(ROW, Size(0), Size(N * 2), (Store(OUT, ROW, X[Size(N * 2 - 1) - ROW] * Literal(0.5, FLOAT)),))
    assert print_function(verify(Function("f", (X, OUT), (body,), comments=("// Backwards.",)))) == textwrap.dedent("""\
        // Backwards.
        static void f(const float *x, float *restrict out, int64_t dim_n) {
          for (int64_t i = 0; i < (2 * dim_n); ++i) out[i] = x[(2 * dim_n + (-1)) - i] * 0.5f;
        }""")


def test_a_function_returns_a_value_and_names_its_unused_parameters() -> None:
    count = Variable("count", CType("int32"))
    function = Function("f", (X, count), (Return(Literal(3, CType("int32"))),), CType("int32"))
    assert print_function(verify(function)) == textwrap.dedent("""\
        static int32_t f(const float *x, int32_t count) {
          (void)x;
          (void)count;
          return 3;
        }""")


def test_a_function_that_is_to_be_copied_into_its_callers_says_so() -> None:
    function = Function("f", (), (Return(),), is_inline=True)
    assert print_function(function).startswith("static inline void f(void) {")
    assert print_function(function, CUDA).startswith("static __device__ inline void f(void) {")


def test_declarations_assignments_and_branches() -> None:
    total = Variable("total", FLOAT)
    body = (
        Declare(total, Literal(0, FLOAT)),
        For(ROW, Size(0), Size(8), (Assign(total, total + X[ROW]),), step=2),
        If(total.compare("<", 0), (Assign(total, Literal(0, FLOAT)),), (Assign(total, total * 2),)),
        If(total.compare("==", 0), (Store(OUT, Size(0), total),)),
    )
    assert text_of(*body) == (
        "  float total = 0.0f;\n"
        "  for (int64_t i = 0; i < 8; i += 2) total += x[i];\n"
        "  if (total < 0.0f) {\n"
        "    total = 0.0f;\n"
        "  } else {\n"
        "    total *= 2.0f;\n"
        "  }\n"
        "  if (total == 0.0f) out[0] = total;"
    )


def test_pointers_and_copies_take_offsets_of_any_kind() -> None:
    pointer = Buffer("p", "float32")
    offset = Select(Size(N).compare("<", 4), Size(N), Size(4))
    body = (Alias(pointer, X, offset), Copy(OUT, offset, pointer, Size(N * 2), Size(N + 1)))
    assert text_of(*body) == (
        "  const float *p = x + (dim_n < 4 ? dim_n : 4);\n"
        "  memcpy(out + (dim_n < 4 ? dim_n : 4), p + 2 * dim_n, (size_t)(dim_n + 1) * sizeof(float));"
    )


def test_arrays_of_vectors_count_elements() -> None:
    sums = Buffer("sums", "float32", MemoryAccess.WRITE, 16)
    body = (
        LocalArray(sums, lanes=4),
        For(ROW, Size(0), Size(4), (Store(sums, ROW * 4, Broadcast(Literal(0, FLOAT), 4)),), kind=LoopKind.UNROLLED),
        Store(OUT, Size(0), Load(sums, Size(8), 4) * Load(X, Size(1), 4)),
    )
    assert text_of(*body) == (
        "  vec_f32x4 sums[4];\n"
        "  BYOC_UNROLL\n"
        "  for (int64_t i = 0; i < 4; ++i) sums[i] = (vec_f32x4){0};\n"
        "  *(vec_f32x4u *)out = sums[2] * *(const vec_f32x4u *)(x + 1);"
    )


def test_an_aligned_array_of_zeros_for_each_target() -> None:
    body = (LocalArray(Buffer("a", "float32", MemoryAccess.WRITE, 4), is_zeroed=True, alignment=64),)
    function = verify(Function("f", (OUT,), body))
    assert "  _Alignas(64) float a[4] = {0};" in print_function(function, C11)
    assert "  alignas(64) float a[4] = {0};" in print_function(function, CUDA)
    assert "static __device__ void f(float *__restrict__ out) {" in print_function(function, CUDA)


def test_a_comment_is_one_line() -> None:
    body = (Comment("two\nlines"), Comment("back\\"), Comment("trigraph??/"))
    assert text_of(*body) == "  // two lines\n  // back\\.\n  // trigraph??/."


def test_a_dispatch_takes_what_it_uses() -> None:
    first, end, scale = Variable("data"), Variable("loop"), Variable("scale", FLOAT)
    part = For(ROW, first, end, (Store(OUT, ROW, X[ROW] * scale),))
    body = (Let(scale, X[0]), Dispatch(first, end, (part,), N, 4, 10**8))
    assert print_function(verify(Function("f", (X, OUT), body))) == textwrap.dedent("""\
        struct f_loop0 { const float *x; float *out; float scale; };
        static void f_loop0_items(const float *x, float *restrict out, float scale, int64_t data, int64_t loop) {
          for (int64_t i = data; i < loop; ++i) out[i] = x[i] * scale;
        }
        static void f_loop0_part(int64_t first_item, int64_t end_item, const void *data) {
          const struct f_loop0 *loop = (const struct f_loop0 *)data;
          f_loop0_items(loop->x, loop->out, loop->scale, first_item, end_item);
        }
        static void f(const float *x, float *restrict out, int64_t dim_n) {
          const float scale = x[0];
          byoc_parallel_for(dim_n, 4, f_loop0_part, &(const struct f_loop0){x, out, scale});
        }""")


def test_a_target_without_threads_takes_no_dispatch() -> None:
    body = (Dispatch(ROW, COLUMN, (), 8, 1, 10**8),)
    with pytest.raises(InternalError, match="the target has no threads"):
        print_function(Function("f", (OUT,), body), C11)


def test_definitions_bring_headers_vector_types_and_helpers() -> None:
    twice = Callee("twice", lambda x: x * 2, definition="static float {name}(float x) { return x * 2.0f; }")
    total = Callee("total", lambda x: x.sum(), header="totals.h")
    body = (
        Store(OUT, Size(0), Call(twice, (X[0],), FLOAT)),
        Evaluate(Call(total, (Address(X, Size(4)),))),
        Store(OUT, Size(4), Load(X, Size(4), 4)),
    )
    assert print_definitions([verify(Function("f", (X, OUT), body))]) == textwrap.dedent("""\
        #include "totals.h"
        typedef float vec_f32x4 __attribute__((vector_size(16)));
        typedef float vec_f32x4u __attribute__((vector_size(16), aligned(4), may_alias));
        static float twice(float x) { return x * 2.0f; }
        static void f(const float *x, float *restrict out) {
          out[0] = twice(x[0]);
          total(x + 4);
          *(vec_f32x4u *)(out + 4) = *(const vec_f32x4u *)(x + 4);
        }
        """)


def test_a_rolled_loop_asks_a_compiler_to_leave_it_one() -> None:
    loop = For(ROW, Size(0), Size(16), (Store(OUT, ROW, Literal(0, FLOAT)),), kind=LoopKind.ROLLED)
    with_vectors, plain = (print_function(Function("f", (OUT,), (loop,)), target) for target in (C11_VECTORS, C11))
    assert "  BYOC_ROLL\n  for (" in with_vectors
    assert "ROLL" not in plain


@pytest.mark.parametrize("name", ["k", "i", "out", "first_item", "for", "loop", "data", "exp", "twice", "BYOC_UNROLL"])
def test_no_name_of_a_model_takes_another_meaning(name: str) -> None:
    twice = Callee("twice", lambda x: x * 2)
    tensor, value = Buffer(name, "float32"), Variable(name, FLOAT)
    first, end = Variable("first_item"), Variable("end_item")
    part = For(
        Variable(name),
        first,
        end,
        (Let(value, Call(twice, (tensor[0],), FLOAT)), Store(OUT, first, Element("exp", (value,), FLOAT))),
        kind=LoopKind.UNROLLED,
    )
    raw = RawStatement(("{{ float k = {0}; {w0}[1] = k; }}",), (tensor[1],), (OUT,))
    body = (raw, Dispatch(first, end, (part,), 8, 1, 10**8))
    lines = print_function(Function("f", (tensor, OUT), body), C11_VECTORS).splitlines()
    (loop,) = (line for line in lines if line.startswith("  for ("))
    (let,) = (line.strip() for line in lines if "twice(" in line)
    names = [lines[1].split("float *")[1].split(",")[0], loop.split("int64_t ")[1].split(" ")[0], let.split()[2]]
    assert len(set(names)) == 3
    assert not {"k", "twice", "exp", "for", "BYOC_UNROLL"} & set(names)
    assert let == f"const float {names[2]} = twice({names[0]}[0]);"
    assert f"{{ float k = {names[0]}[1]; out" in "\n".join(lines)
