"""The first call of a size: equal layers share descriptors and primitives, bounded over any number of sizes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from byoc_core.ir import tensor
from byoc_dnnl.calls import Call, calls_of
from byoc_dnnl.capi import Algorithm, Api, Query
from byoc_dnnl.desc_facts import Facts, query_facts, query_facts_singly
from byoc_dnnl.engine import MAX_PROGRAMS, open_engine
from byoc_dnnl.engine import Region as BuiltRegion
from byoc_dnnl.extension import extension, extension_status
from byoc_dnnl.handles import Engine, MemoryDesc
from byoc_dnnl.library import load_library
from byoc_dnnl.memo import Memo
from byoc_dnnl.post_ops import PostOp
from byoc_dnnl.primitives import PrimitiveFactory, Windows
from byoc_dnnl.program import Program

from plugins.dnnl.tests.dnnl_region import NDArray, Region, emit, need_avx512

ROOT = Path(__file__).parents[3]
WIDTH = 64


def layers(count: int) -> Region:
    """Return equal layers on any number of rows, each with two products, functions, a sum and a norm."""
    region = Region()
    const = region.builder.const
    value = region.builder.param("x", tensor(("n", WIDTH)))
    for _ in range(count):
        inner = emit(region, "matmul", value, const(region.draw(WIDTH, 2 * WIDTH) / 8))
        inner = emit(region, "tanh", emit(region, "add", inner, const(region.draw(2 * WIDTH))))
        outer = emit(region, "matmul", inner, const(region.draw(2 * WIDTH, WIDTH) / 8))
        total = emit(region, "add", outer, value)
        value = emit(region, "nn.layer_norm", total, const(region.draw(WIDTH)), const(region.draw(WIDTH)))
    return region.finish(value)


def program_of(region: Region, rows: int, number: int = 1) -> Program:
    built = region.module.get_function("f").impl
    assert isinstance(built, BuiltRegion)
    program = built.program(number, ((rows, WIDTH), (rows, WIDTH)))
    assert isinstance(program, Program)
    return program


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the created primitives and primitive descriptors."""
    functions = open_engine().api._functions
    saved, calls = dict(functions), Counter[str]()

    def counting(name: str, function: Callable[..., int]) -> Callable[..., int]:
        def call(*arguments: object) -> int:
            calls[name] += 1
            return function(*arguments)

        return call

    names = [name for name in saved if name == "dnnl_primitive_create" or name.endswith("_desc_create")]
    functions.update({name: counting(name, saved[name]) for name in names})
    try:
        yield calls
    finally:
        functions.clear()
        functions.update(saved)


def created(region: Region, rows: int) -> Counter[str]:
    with counted() as calls:
        program_of(region, rows)
    return calls


def test_more_equal_layers_create_nothing_more() -> None:
    few, many = layers(3), layers(6)
    program_of(few, 5), program_of(many, 5)  # the layouts of weights are known from here on
    counts = [created(few, 31), created(many, 37)]
    assert counts[0] == counts[1]
    assert counts[0]["dnnl_primitive_create"] >= 3
    program = program_of(many, 37)
    assert len(program.primitives) >= 18
    assert len(set(map(id, program.primitives))) == counts[1]["dnnl_primitive_create"]


def test_a_size_known_from_another_region_creates_nothing() -> None:
    first, second = layers(2), layers(2)
    program_of(first, 41)
    assert created(second, 41) == {}
    primitives = {id(primitive) for primitive in program_of(first, 41).primitives}
    assert {id(primitive) for primitive in program_of(second, 41).primitives} == primitives


def test_a_primitive_lives_as_long_as_its_programs() -> None:
    region = layers(1)
    descs = [step.desc for step in program_of(region, 43).plan.steps if hasattr(step, "desc")]
    references = [desc.primitive_ref for desc in descs if desc.recipe is None]
    assert references
    assert all(reference is not None and reference() is not None for reference in references)
    del region
    gc.collect()
    assert all(reference is not None and reference() is None for reference in references)


def test_results_after_many_sizes_are_those_of_a_fresh_process() -> None:
    script = (
        "from plugins.dnnl.tests.test_dnnl_fresh_sizes import layers, WIDTH\n"
        "import numpy as np\n"
        "x = np.linspace(-2, 2, 29 * WIDTH, dtype=np.float32).reshape(29, WIDTH)\n"
        "print(layers(4).run(x)[0].tobytes().hex())\n"
    )
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    region = layers(4)
    for rows in range(1, 80):
        region.run(np.zeros((rows, WIDTH), np.float32))
    x = np.linspace(-2, 2, 29 * WIDTH, dtype=np.float32).reshape(29, WIDTH)
    assert region.run(x)[0].tobytes().hex() == done.stdout.strip()


def test_threads_plan_sizes_at_once() -> None:
    regions = [layers(2), layers(2)]
    inputs = [np.full((rows, WIDTH), rows / 50, np.float32) for rows in range(50, 90)]
    expected = [layers(2).run(x)[0] for x in inputs]

    def run(number: int) -> NDArray:
        return regions[number % 2].run(inputs[number // 2])[0]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(run, range(2 * len(inputs))))
    for number, result in enumerate(found):
        np.testing.assert_array_equal(result, expected[number // 2])


FORK = """
import os, tempfile, threading, warnings
import numpy as np
from plugins.dnnl.tests.test_dnnl_creation import WIDTH, layers, run
warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
region, other = layers(), layers()
for item in (region, other):  # compiled before the threads, with all imports: a fork inside an import hangs the child
    run(item, np.zeros((999, WIDTH), np.float32), NUMBER)
folder, done = tempfile.TemporaryDirectory(), threading.Event()
def call(number):
    return run(other, np.ones((700 + number, WIDTH), np.float32), 1 + number % NUMBER)
def plan():
    rows = 300
    while not done.is_set():
        rows = rows % 300 + 301
        run(region, np.zeros((rows, WIDTH), np.float32), NUMBER)
threads = [threading.Thread(target=plan) for _ in range(2)]
for thread in threads: thread.start()
try:
    for number in range(20):
        child = os.fork()
        if child == 0:
            np.save(f"{folder.name}/{number}.npy", call(number))
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status == 0, status
finally:
    done.set()
    for thread in threads: thread.join()
with folder:
    for number in range(20):
        assert np.array_equal(np.load(f"{folder.name}/{number}.npy"), call(number)), number
print("planned in all children")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_child_forked_beside_planning_plans(num_threads: int) -> None:
    """With two threads, the extension's threads create primitives beside the planning threads."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    done = subprocess.run(
        [sys.executable, "-c", FORK.replace("NUMBER", str(num_threads))],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(num_threads)},
    )
    assert (done.stdout.strip(), done.returncode) == ("planned in all children", 0), done.stderr


def _resident_nbytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell")
def test_memory_is_bounded_over_many_sizes() -> None:
    region = layers(2)

    def run(sizes: range) -> None:
        for rows in sizes:
            program_of(region, rows)
        gc.collect()

    run(range(1, 301))  # both generations are full
    before = _resident_nbytes()
    run(range(301, 901))
    assert _resident_nbytes() - before < 8 << 20  # 600 sizes of eight primitives and descriptors would be 500 MB
    engine, built = open_engine(), region.module.get_function("f").impl
    assert isinstance(built, BuiltRegion)
    assert len(engine.primitives) <= 256
    assert len(engine.api.descs) <= 2048
    assert len(built.programs) <= MAX_PROGRAMS


def test_a_memo_keeps_the_latest_results() -> None:
    memo: Memo[int | None] = Memo(2)
    assert memo.get("a", 7) == 7
    assert [memo.put(key, number) for number, key in enumerate("ab")] == [0, 1]
    memo.put("c", None)
    assert (memo.get("a", 7), memo.get("c", 7), len(memo)) == (0, None, 3)  # "a" is young again
    memo.put("d", 3)
    assert [memo.get(key, 7) for key in "acd"] == [0, None, 3]
    assert memo.get("b", 7) == 7
    for number in range(100):
        memo.put(number, number)
        assert len(memo) <= 4


SIZES = [(6,), (1, 6), (2, 3, 4), (2, 1, 4), (1, 8, 1, 5), (3, 4, 2, 1)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_known_facts_are_those_of_the_library(sizes: tuple[int, ...]) -> None:
    engine = open_engine()
    gaps = tuple(3 * stride for stride in MemoryDesc.strided(engine, sizes).facts.strides)
    descs = [
        MemoryDesc.strided(engine, sizes, strides, dtype) for strides in (None, gaps) for dtype in ("float32", "int8")
    ]
    descs += [desc.permuted(order) for desc in descs for order in permutations(range(len(sizes)))]
    descs += [found for desc in descs if (found := desc.reshaped((1, *sizes))) is not None]
    descs += [desc.with_plain_unit_axes() for desc in descs]
    descs += [found for desc in descs if (found := desc.part((0,) * len(desc.sizes), desc.sizes)) is not None]
    descs.append(MemoryDesc.any_layout(engine, sizes))
    for desc in descs:
        assert desc.facts == query_facts(engine.api, desc.pointer)


@pytest.mark.skipif(extension() is None, reason=extension_status())
def test_the_extension_finds_the_facts_found_by_single_queries() -> None:
    engine = open_engine()
    image, weights = MemoryDesc.any_layout(engine, (1, 24, 9, 9)), MemoryDesc.any_layout(engine, (20, 24, 3, 3))
    target = MemoryDesc.any_layout(engine, (1, 20, 9, 9))
    windows = Windows((1, 1), (1, 1), (1, 1), (1, 1))
    convolution = PrimitiveFactory(engine).convolution(image, weights, None, target, windows, ())
    assert convolution is not None
    plain = MemoryDesc.strided(engine, (6, 4, 8), dtype="int8")
    part = plain.part((2, 0, 4), (2, 4, 3))
    assert part is not None
    queries = (Query.SRC_MD, Query.WEIGHTS_MD, Query.DST_MD, Query.SCRATCHPAD_MD)
    no_bias = convolution.memory_desc(Query.WEIGHTS_MD, 1)
    descs = [image, plain, part, plain.permuted((2, 0, 1)), *map(convolution.memory_desc, queries), no_bias]
    found = [query_facts(engine.api, desc.pointer) for desc in descs]
    assert found == [query_facts_singly(engine.api, desc.pointer) for desc in descs]
    assert any(facts.blocks for facts in found)
    assert any(facts.padded_sizes > facts.sizes for facts in found)
    assert any(facts.offset for facts in found)
    assert {len(facts.sizes) for facts in found} >= {0, 3, 4}


@pytest.mark.skipif(extension() is None, reason=extension_status())
def test_plans_are_the_same_without_the_extension_for_facts() -> None:
    engine, queried = open_engine(), list[Facts]()

    def query_singly(api: Api, pointer: object) -> Facts:
        queried.append(query_facts_singly(api, pointer))
        return queried[-1]

    def plans() -> list[str]:
        with pytest.MonkeyPatch.context() as patch:  # nothing known from other tests
            patch.setattr(engine.api, "descs", Memo(1024))
            patch.setattr(engine, "primitives", Memo(1024))
            region = layers(3)
            return [str(program_of(region, rows)) for rows in (5, 31)]

    expected = plans()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("byoc_dnnl.desc_facts.extension", lambda: None)
        patch.setattr("byoc_dnnl.desc_facts.query_facts_singly", query_singly)
        assert plans() == expected
    assert queried


def test_a_request_is_answered_by_the_recent_description() -> None:
    engine = open_engine()
    plain = MemoryDesc.strided(engine, (2, 3, 4))
    assert MemoryDesc.strided(engine, (2, 3, 4)) is plain
    assert MemoryDesc.strided(engine, [2, 3, 4], (12, 4, 1)) is plain
    assert plain.permuted((0, 2, 1)) is plain.permuted([0, 2, 1])
    assert plain.permuted((0, 2, 1)).permuted((0, 2, 1)) is plain
    assert plain.reshaped((6, 4)) is MemoryDesc.strided(engine, (6, 4))
    assert plain.permuted((0, 2, 1)).reshaped((8, 3)) is None
    others = [
        MemoryDesc.strided(engine, (2, 3, 4), dtype="int32"),
        MemoryDesc.strided(engine, (2, 4, 3)),
        MemoryDesc.strided(engine, (2, 3, 4), (24, 4, 1)),
        MemoryDesc.any_layout(engine, (2, 3, 4)),
    ]
    assert len({plain.token, *(other.token for other in others)}) == 5


def test_strides_of_unit_axes_tell_requests_apart() -> None:
    engine = open_engine()
    one, other = MemoryDesc.strided(engine, (1, 4), (4, 1)), MemoryDesc.strided(engine, (1, 4), (99, 1))
    assert one == other  # as oneDNN compares
    assert one.token != other.token
    assert other.with_plain_unit_axes() is one


def test_a_description_with_room_for_sums_is_none_without() -> None:
    script = (
        "from byoc_dnnl.engine import open_engine\n"
        "from byoc_dnnl.capi import Query\n"
        "from byoc_dnnl.handles import MemoryDesc\n"
        "from byoc_dnnl.primitives import PrimitiveFactory\n"
        "engine, any_layout = open_engine(), MemoryDesc.any_layout\n"
        "def weights(dtype):\n"
        "    source, any_ = MemoryDesc.strided(engine, (64, 128), dtype=dtype), any_layout(engine, (128, 64), 'int8')\n"
        "    made = PrimitiveFactory(engine).matmul(source, any_, None, MemoryDesc.strided(engine, (64, 64)), ())\n"
        "    return made.memory_desc(Query.WEIGHTS_MD)\n"
        "first, second, third = weights('uint8'), weights('int8'), weights('uint8')\n"
        "print(first.facts == second.facts, first == second, first.nbytes < second.nbytes, first is third)\n"
    )
    need_avx512()
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"},
    )
    assert done.stdout.strip() == "True False True True"


def _product(engine: Engine, *post_ops: PostOp, number: int = 0) -> object:
    left, right = MemoryDesc.strided(engine, (32, 48)), MemoryDesc.strided(engine, (48, 64))
    target = MemoryDesc.strided(engine, (32, 64))
    return PrimitiveFactory(engine).matmul(left, right, None, target, post_ops, number=number)


def test_requests_tell_primitives_apart() -> None:
    engine = open_engine()

    def linear(beta: float) -> PostOp:
        return PostOp(Algorithm.ELTWISE_LINEAR, 2.0, beta=beta)

    operand = MemoryDesc.strided(engine, (1, 64))
    requests = [
        (),
        (linear(0.0),),
        (linear(-0.0),),
        (linear(0.0), linear(0.0)),
        (PostOp(Algorithm.BINARY_ADD, operand=operand),),
        (PostOp(Algorithm.BINARY_MUL, operand=operand),),
        (PostOp(Algorithm.BINARY_ADD, operand=MemoryDesc.strided(engine, (32, 64))),),
    ]
    with engine.threads(1):
        found = [_product(engine, *post_ops) for post_ops in requests]
        assert [id(desc) for desc in found] == [id(_product(engine, *post_ops)) for post_ops in requests]
        found.append(_product(engine, number=1))
    with engine.threads(2):
        found.append(_product(engine))
    assert None not in found
    is_threaded = load_library().runtime.name == "OPENMP"
    assert len(set(map(id, found))) == len(found) - (not is_threaded)


def test_passing_over_an_implementation_leaves_the_usual_one_alone() -> None:
    engine = open_engine()
    usual = PrimitiveFactory(engine)
    desc = (
        MemoryDesc.strided(engine, (8, 16)),
        MemoryDesc.strided(engine, (16, 24)),
        MemoryDesc.strided(engine, (8, 24)),
    )
    first = usual.matmul(desc[0], desc[1], None, desc[2], ())
    assert first is not None
    name = first.implementation
    second = usual.matmul(desc[0], desc[1], None, desc[2], (), number=1)
    assert second is not None
    assert second.implementation != name
    assert usual.matmul(desc[0], desc[1], None, desc[2], ()) is first
    assert first.implementation == name
    assert first.memory_desc(Query.DST_MD) is desc[2]


def test_forms_share_the_wiring_and_types_without_symbols() -> None:
    built = layers(3).module.get_function("f").impl
    assert isinstance(built, BuiltRegion)
    forms = built._forms
    first, second = forms.at({"n": 5}), forms.at({"n": 9})
    pairs = zip(first.constants, second.constants, strict=True)
    assert all(constant.tensor is other.tensor for constant, other in pairs)
    for form in (first, second):
        own, shared = calls_of(form), calls_of(form, forms.wiring)
        assert [replace(call, kind=-1) for call in shared] == [replace(call, kind=-1) for call in own]
        alike = [shared[forms.wiring.first_of_kind[call.kind]] for call in shared]
        assert [_type_of(call) for call in shared] == [_type_of(call) for call in alike]
        assert len(forms.wiring.first_of_kind) < len(shared)


def _type_of(call: Call) -> tuple[object, ...]:
    return call.op, call.operands, call.results, call.attrs


def test_plans_of_other_sizes_share_the_locations_of_constants() -> None:
    need_avx512()  # packed weights of products
    region = layers(1)
    plans = [program_of(region, rows).plan for rows in (33, 34)]
    sources = [[packing.source for packing in plan.packings] for plan in plans]
    assert sources[0]
    assert all(one is other for one, other in zip(*sources, strict=True) if one.desc.is_row_major())
