"""Each op has a kernel, a reason for its absence, or is new to this backend: then the lint lists the op."""

from __future__ import annotations

import byoc_ccompiler.backend as ccompiler
import numpy as np
import pytest
from byoc_ccompiler.byte_ops import BYTE_CONVOLUTION, BYTE_PRODUCT
from byoc_ccompiler.declined import DECLINED
from byoc_ccompiler.options import CCompilerOptions
from byoc_ccompiler.quantised_weights import QUANTISED_DENSE
from byoc_ccompiler.registry import FAMILIES
from byoc_core.backend.hooks import CompileContext, Rejection, Support
from byoc_core.ir import FunctionBuilder, tensor
from byoc_core.ops import default_ops, unary_op
from byoc_core.ops.cases import canonical_cases, new_function

CONTEXT = CompileContext("ccompiler", CCompilerOptions.model_validate({}))


def test_an_op_has_a_kernel_or_a_reason_not_both() -> None:
    own = {BYTE_PRODUCT.name, BYTE_CONVOLUTION.name, QUANTISED_DENSE.name}
    assert sorted(FAMILIES.keys() & DECLINED.keys()) == []
    assert sorted((FAMILIES.keys() | DECLINED.keys()) - default_ops().keys() - own) == []


def test_an_op_that_is_in_neither_table_is_refused_as_new() -> None:
    op = unary_op("log2p", "Return the logarithm of ``2 + x``.", lambda x: np.log2(x + 2))
    _, binding = new_function(op, [tensor((2, 3))], {})
    refused = Rejection.of_new_op("log2p")
    assert ccompiler.byoc_supports(binding, CONTEXT) == refused
    assert refused.text == "this backend has neither a rule nor a reason for `log2p` yet"


@pytest.mark.parametrize("op", sorted(DECLINED.keys() & canonical_cases(default_ops()).keys()))
def test_what_has_no_kernel_is_declined_by_its_reason(op: str) -> None:
    case = canonical_cases(default_ops())[op][0]
    _, binding = new_function(default_ops()[op], case.types(), case.attrs)
    assert ccompiler.byoc_supports(binding, CONTEXT) == Rejection(*DECLINED[op])
    text = f"the result size of {op} depends on the data, but the caller allocates the result before the call"
    assert DECLINED[op] == ("data-dependent", text)


def test_a_size_that_only_an_attribute_has_is_refused_where_no_tensor_tells_it() -> None:
    """The op is taken: its region gets a tensor with the size, if there is any."""
    builder = FunctionBuilder("f", ops=default_ops())
    x = builder.param("x", tensor((2, 3)))
    binding = builder.bind("trilu", [x], {"k": "n"})
    assert ccompiler.byoc_supports(binding, CONTEXT) == Support()
    refused = ccompiler.byoc_codegen([builder.finish(*binding.results)], CONTEXT).rejections
    reason = "no shape of a parameter or result of the region determines `n`"
    assert refused == {"f": Rejection("dynamic-shape", reason)}
