"""No op of the core is forgotten: each has a kernel, or a reason why it has none."""

from __future__ import annotations

import byoc_ccompiler.backend as ccompiler
import pytest
from byoc_ccompiler.byte_ops import BYTE_CONVOLUTION, BYTE_PRODUCT
from byoc_ccompiler.declined import DECLINED
from byoc_ccompiler.options import CCompilerOptions
from byoc_ccompiler.registry import FAMILIES
from byoc_core.backend.hooks import CompileContext, Rejection, Support
from byoc_core.ir import FunctionBuilder, tensor
from byoc_core.ops import default_ops
from byoc_core.ops.cases import canonical_cases, new_function

CONTEXT = CompileContext("ccompiler", CCompilerOptions.model_validate({}))


def test_every_op_is_compiled_or_declined_with_a_reason() -> None:
    """A composite is no op of its own: the ops in it are."""
    ops = default_ops().keys() - {"composite"}
    own = {BYTE_PRODUCT.name, BYTE_CONVOLUTION.name}
    assert sorted(ops - FAMILIES.keys() - DECLINED.keys()) == []
    assert sorted(FAMILIES.keys() & DECLINED.keys()) == []
    assert sorted((FAMILIES.keys() | DECLINED.keys()) - default_ops().keys() - own) == []


@pytest.mark.parametrize("op", sorted(DECLINED.keys() & canonical_cases(default_ops()).keys()))
def test_what_has_no_kernel_is_declined_by_its_reason(op: str) -> None:
    case = canonical_cases(default_ops())[op][0]
    _, binding = new_function(default_ops()[op], case.types(), case.attrs)
    assert ccompiler.byoc_supports(binding, CONTEXT) == Rejection(*DECLINED[op])
    text = (
        f"how large the result of {op} is shows only when it has been computed, but a caller has to allocate it before"
    )
    assert DECLINED[op] == ("data-dependent", text)


def test_a_size_that_only_an_attribute_has_is_refused_where_no_tensor_tells_it() -> None:
    """The op is taken: its region gets a tensor that tells the size, where there is one."""
    builder = FunctionBuilder("f", ops=default_ops())
    x = builder.param("x", tensor((2, 3)))
    binding = builder.bind("trilu", [x], {"k": "n"})
    assert ccompiler.byoc_supports(binding, CONTEXT) == Support()
    refused = ccompiler.byoc_codegen([builder.finish(*binding.results)], CONTEXT).rejections
    reason = "the shapes of what the region takes and gives do not tell `n`"
    assert refused == {"f": Rejection("dynamic-shape", reason)}
