"""Ops of a third-party package: folded, judged, printed, parsed, run on the host, saved, loaded elsewhere, debugged.

The package lies on disk with metadata, and separate modules for the compile half and the run half. Each step runs in a
separate process.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core.tests.plugin.conftest import Site

pytestmark = [pytest.mark.lowest, pytest.mark.asks_for_plugins]

COMPILE_HALF = """
    from byoc_core.authoring import GraphCodegen
    from byoc_core.backend.hooks import BackendInfo, Rejection, Support, hookimpl
    from byoc_core.dims import symbol
    from byoc_core.ir import AttrKind, AttrSpec, OpDef, OperandSpec, TensorType, Trait, no_flops
    import toynpu_run as run

    X = (OperandSpec("x"),)


    def doubled(context):
        first, *rest = context.shape(0)
        return [TensorType([2 * first, *rest], context.tensor(0).dtype)]


    def halves(context):
        (size,) = context.shape(0)
        return (TensorType((part,), context.tensor(0).dtype) for part in (size // 2, size - size // 2))


    SWISH = OpDef("toynpu.swish", X, infer=lambda context: [context.tensor(0)], kernel=run.swish)
    OPS = [
        SWISH,
        OpDef("toynpu.twice", X, infer=doubled, flops=no_flops, kernel=run.twice),
        OpDef("toynpu.halves", X, infer=halves, flops=no_flops, kernel=run.halves),
        OpDef(
            "toynpu.fill", X, infer=lambda context: [context.tensor(0)], kernel=run.fill,
            attrs=(AttrSpec("value", AttrKind.FLOAT), AttrSpec("sizes", AttrKind.DIMS)),
        ),
        OpDef("toynpu.wrong", X, infer=lambda context: [context.tensor(0)], kernel=run.wrong),
    ]


    @hookimpl
    def byoc_backend_info():
        return BackendInfo("toynpu")


    @hookimpl
    def byoc_ops():
        return OPS


    @hookimpl
    def byoc_supports(binding):
        return Support() if binding.op.name == "toynpu.swish" else Rejection("op", "takes only swish")


    @hookimpl
    def byoc_codegen(functions, context):
        return GraphCodegen().compile(functions, context)
"""

RUN_HALF = """
    import numpy as np
    from byoc_core.runtime.hooks import RuntimeInfo, hookimpl


    def swish(x):
        return x / (1 + np.exp(-x))  # overflows, and says so, for large negative numbers


    def twice(x):
        return np.concatenate([x, x])


    def halves(x):
        return [x[: len(x) // 2], x[len(x) // 2 :]]


    def fill(x, value, sizes):
        return np.full(sizes, value, x.dtype)


    def wrong(x):
        return x.astype(np.float64)


    @hookimpl
    def byoc_runtime_info():
        return RuntimeInfo("toynpu")


    @hookimpl
    def byoc_kernels():
        return {f"toynpu.{f.__name__}": f for f in (swish, twice, halves, fill, wrong)}
"""

ENTRY_POINTS = """
    [byoc.backends]
    toynpu = toynpu_compile
    [byoc.runtimes]
    toynpu = toynpu_run
"""

MODEL = '''
import numpy as np
import byoc_core
from byoc_core import script as R
from byoc_core.ops import default_ops

OPS = default_ops().extended(byoc_core.backends.ops(["toynpu"]))
TEXT = """
def main(x: R.Tensor(("n",), "float32")):
    a = R.toynpu.swish(x)
    b = R.toynpu.twice(a)
    c, d = R.toynpu.halves(b)
    e = R.toynpu.fill(c, value=2.0, sizes=("n",))
    f = R.add(d, e)
    return f, c
"""
MODULE = R.parse(TEXT, ops=OPS)


def expected(x):
    with np.errstate(over="ignore"):
        a = x / (1 + np.exp(-x))
    b = np.concatenate([a, a])
    return b[len(x) :] + np.float32(2), b[: len(x)]


def check(main):
    for n in (1, 5, 4):
        x = np.linspace(-200, 200, n, dtype=np.float32)
        assert all(map(np.array_equal, main(x), expected(x))), n
'''


@pytest.fixture
def toynpu(site: Site) -> Site:
    """The site containing the package."""
    site.install("byoc-toynpu", ENTRY_POINTS, {"toynpu_compile": COMPILE_HALF, "toynpu_run": RUN_HALF})
    return site


def build_and_save(site: Site, path: Path) -> None:
    site.run(MODEL + f"byoc_core.build(MODULE, []).save({str(path)!r})\n")


def test_an_op_is_printed_parsed_and_run_on_the_host(toynpu: Site) -> None:
    toynpu.run(
        MODEL
        + """
assert R.parse(str(MODULE), ops=OPS) == MODULE
executable = byoc_core.build(MODULE, [])
check(byoc_core.VirtualMachine(executable)["main"])
assert {op["op"]: op["outcome"] for op in executable.report_data["ops"]}["toynpu.swish"] == "host"
"""
    )


def test_an_artifact_runs_where_the_compile_half_is_not(toynpu: Site, tmp_path: Path) -> None:
    path = tmp_path / "model.byoc"
    build_and_save(toynpu, path)
    (toynpu.folder / "toynpu_compile.py").unlink()
    load = f"""
import sys
import numpy as np
import byoc_core

byoc_core.verify({str(path)!r})
assert "toynpu_run" not in sys.modules  # which runs nothing of a plugin
executable = byoc_core.load({str(path)!r})
main = byoc_core.VirtualMachine(executable)["main"]
x = np.linspace(-200, 200, 7, dtype=np.float32)
f, c = main(x)
assert np.array_equal(f, c + np.float32(2)) and c[-1] == 200
assert "toynpu_run" in sys.modules
assert not {{"byoc_core.backend", "byoc_core.transform", "byoc_core.driver"}} & sys.modules.keys()
executable.save({str(tmp_path / "again.byoc")!r})
print([(need.type_key, need.distribution, need.is_installed) for need in byoc_core.inspect({str(path)!r}).runtimes])
"""
    told = toynpu.run(load)
    assert told.strip() == "[('graph', 'byoc-core', True), ('toynpu', 'byoc-toynpu', True)]"
    assert (tmp_path / "again.byoc").read_bytes() == path.read_bytes()


def test_what_is_missing_is_named_with_its_package(toynpu: Site, tmp_path: Path) -> None:
    path = tmp_path / "model.byoc"
    build_and_save(toynpu, path)
    load = f"""
import byoc_core

try:
    byoc_core.load({str(path)!r})
except byoc_core.errors.ByocError as error:
    print(type(error).__name__, error)
"""
    run_half = toynpu.folder / "toynpu_run.py"
    run_half.write_text(run_half.read_text().replace("(swish, twice, halves, fill, wrong)", "(swish, twice, halves)"))
    told = toynpu.run(load)
    assert told.startswith(
        "ArtifactError graph document: needs a kernel of op `toynpu.fill` missing in runtime `toynpu`"
    )
    assert told.strip().endswith("; got byoc-toynpu 1.0. pip install -U byoc-toynpu")
    (toynpu.folder / "byoc_toynpu-1.0.dist-info" / "entry_points.txt").unlink()
    told = toynpu.run(load)
    assert told.startswith("RuntimeNotFoundError byoc.runtimes: runtime `toynpu` is not installed")
    assert "pip install byoc-toynpu" in told


def test_an_op_is_folded(toynpu: Site) -> None:
    toynpu.run(
        MODEL
        + """
from byoc_core.transform import FoldConstants

text = '''
def main(x: R.Tensor((4,), "float32")):
    a = R.toynpu.swish(R.const([-200.0, 0.0, 1.0, 2.0], "float32"))
    b, c = R.toynpu.halves(a)
    d = R.concat(b, c)
    e = R.add(x, d)
    return e
'''
folded = FoldConstants()(R.parse(text, ops=OPS))
assert [binding.op.name for binding in folded["main"].bindings] == ["add"]
x = np.zeros(4, np.float32)
found = byoc_core.VirtualMachine(byoc_core.build(folded, []))["main"](x)
assert found[0] == 0 and found[1] == 0 and abs(found[2] - 0.7310586) < 1e-6, found
"""
    )


def test_a_kernel_that_gives_another_type_is_told(toynpu: Site) -> None:
    told = toynpu.run(
        MODEL
        + """
for operand in ("x", "R.const([1.0, 2.0], 'float32')"):
    text = f"def main(x: R.Tensor((2,), 'float32')):\\n    a = R.toynpu.wrong({operand})\\n    return a\\n"
    main = byoc_core.VirtualMachine(byoc_core.build(R.parse(text, ops=OPS)))["main"]
    try:
        main(np.ones(2, np.float32))
    except byoc_core.errors.ExecutionError as error:
        print(error)
"""
    )
    (line,) = set(told.splitlines())
    assert (
        "kernel of op `toynpu.wrong`, result 0: is not of the declared type; got float64[2], expected float32[2]"
        in line
    )


def test_an_op_without_flops_counts_one_operation_for_each_element(toynpu: Site) -> None:
    toynpu.run(
        MODEL
        + """
flops = {op["op"]: op["flops"] for op in byoc_core.build(MODULE, []).report_data["ops"]}
assert flops["toynpu.swish"] == "n" and flops["toynpu.twice"] == 0, flops
"""
    )


def test_an_op_is_offloaded_saved_and_debugged(toynpu: Site, tmp_path: Path) -> None:
    path = tmp_path / "model.byoc"
    toynpu.run(
        MODEL
        + f"""
from byoc_core.debugging import debug_model

text = '''
def main(x: R.Tensor((4,), "float32")):
    a = R.toynpu.swish(x)
    b = R.add(a, a)
    return b
'''
module = R.parse(text, ops=OPS)
executable = byoc_core.build(module, ["toynpu"])
takers = [(op["op"], op["outcome"]) for op in executable.report_data["ops"]]
assert takers == [("toynpu.swish", "toynpu"), ("add", "host")], takers
executable.save({str(path)!r})
for isolate in (True, False):
    report = debug_model(module, ["toynpu"], [np.linspace(-3, 3, 4, dtype=np.float32)], isolate=isolate)
    assert report.is_tested and report.is_right and len(report.checks) == 1, str(report)
"""
    )
    toynpu.run(
        f"""
import numpy as np
import byoc_core

main = byoc_core.VirtualMachine(byoc_core.load({str(path)!r}))["main"]
x = np.linspace(-3, 3, 4, dtype=np.float32)
a = x / (1 + np.exp(-x))
assert np.array_equal(main(x), a + a)
"""
    )


def test_a_rewrite_rule_emits_an_op(toynpu: Site) -> None:
    toynpu.run(
        MODEL
        + """
from byoc_core.pattern import is_op, wildcard
from byoc_core.transform.rewriter import pattern_rule, rewrite_module

x = wildcard()
pattern = is_op("multiply")(x, is_op("sigmoid")(x))
swish = OPS["toynpu.swish"]
rule = pattern_rule(pattern, lambda match, graph: graph.emit(swish, [match.root.operands[0]]))
text = '''
def main(x: R.Tensor(("n",), "float32")):
    a = R.sigmoid(x)
    b = R.multiply(x, a)
    return b
'''
after = rewrite_module(R.parse(text), {"multiply": [rule]})
assert [binding.op.name for binding in after["main"].bindings] == ["toynpu.swish"]
x = np.linspace(-3, 3, 5, dtype=np.float32)
assert np.array_equal(byoc_core.VirtualMachine(byoc_core.build(after, []))["main"](x), x / (1 + np.exp(-x)))
"""
    )
