"""Stored plans of the C runtime: the same bits as in Python, for the kinds of steps, and errors for everything else."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.artifact import Executable
from byoc_core.errors import OptionsError, PluginError
from byoc_core.ir import IRModule, tensor
from byoc_core.runtime.threads import num_threads, set_num_threads
from byoc_dnnl.engine import DnnlModule
from byoc_dnnl.library import load_library
from byoc_dnnl.payload import join_payload, split_payload
from byoc_dnnl.runtime import byoc_check_payload, byoc_save_module
from byoc_dnnl.stored.grammar import cited_digests
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from core.tests.artifact.fuzzing.members import packed, taken_apart
from plugins.dnnl.tests.dnnl_region import Region, emit, need_avx512
from plugins.dnnl.tests.drawn_graphs import DrawnGraph
from rt.tests.runner import NativeError, Status
from rt.tests.saved import assert_same_bits, results_of

if TYPE_CHECKING:
    from rt.tests.runner import NativeFunction, NativeLibrary, NativeProgram

NDArray = npt.NDArray[Any]
ROOT = Path(__file__).parents[3]


def build(module: IRModule, sizes: Sequence[Mapping[str, int]] = ({},), **options: Any) -> Executable:
    """Compile a module by dnnl alone, with stored plans."""
    return byoc_core.build(module, backends=["dnnl"], options={"dnnl": {"stored_plans": [*sizes], **options}})


def load(executable: Executable, native: NativeLibrary, folder: Path, number: int = 0) -> NativeProgram:
    """Save an executable, and load the artifact by the C runtime, for calls with Python's number of threads."""
    executable.save(folder / "saved.byoc")
    return native.load(folder / "saved.byoc", num_threads=number or num_threads())


def plans_of(executable: Executable) -> str:
    """Return the text of the stored plans of the only module."""
    (module,) = executable.modules
    assert isinstance(module, DnnlModule)
    assert module.stored is not None
    return module.stored.text.decode()


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Set the number of threads of the process."""
    before = num_threads()
    set_num_threads(number)
    try:
        yield
    finally:
        set_num_threads(before)


def _convolutions() -> tuple[Region, Sequence[tuple[int, ...]]]:
    region = Region()
    x = region.builder.param("x", tensor((1, 3, 13, 12)))
    value = emit(region, "nn.conv2d", x, region.builder.const(region.draw(16, 3, 3, 3)), padding=(1,) * 4)
    value = emit(region, "nn.bias_add", value, region.builder.const(region.draw(16)), axis=1)
    value = emit(region, "nn.relu", value)
    value = emit(region, "nn.max_pool2d", value, pool_size=(2, 2), strides=(2, 2))
    deep = emit(region, "nn.conv2d", value, region.builder.const(region.draw(16, 1, 3, 3)), padding=(1,) * 4, groups=16)
    value = emit(region, "add", deep, value)
    value = emit(region, "nn.avg_pool2d", value, pool_size=(2, 2), strides=(1, 1))
    value = emit(region, "concat", value, value, axis=1)
    return region.finish(emit(region, "mean", value, axis=(2, 3))), [(1, 3, 13, 12)]


def _encoder() -> tuple[Region, Sequence[tuple[int, ...]]]:
    region = Region()
    x = region.builder.param("x", tensor((5, 16)))
    weights = [region.builder.const(region.draw(16, 16)) for _ in range(3)]
    query, key, value = (emit(region, "nn.dense", x, weight) for weight in weights)
    scores = emit(region, "nn.softmax", emit(region, "nn.dense", query, key), axis=-1)
    mixed = emit(region, "add", emit(region, "matmul", scores, value), x)
    scale, shift = (region.builder.const(region.draw(16)) for _ in range(2))
    normal = emit(region, "nn.layer_norm", mixed, scale, shift, axes=(-1,))
    return region.finish(emit(region, "nn.gelu", normal), emit(region, "exp", normal)), [(5, 16)]


def _functions_of_the_core() -> tuple[Region, Sequence[tuple[int, ...]]]:
    region = Region()
    x = region.builder.param("x", tensor((4, 33)))
    logarithms = emit(region, "nn.log_softmax", x, axis=1)
    return region.finish(logarithms, emit(region, "nn.softplus", x), emit(region, "nn.elu", x)), [(4, 33)]


def _moves() -> tuple[Region, Sequence[tuple[int, ...]]]:
    region = Region()
    x = region.builder.param("x", tensor((4, 6, 8)))
    turned = emit(region, "permute_dims", x, axes=(1, 0, 2))
    part = emit(region, "strided_slice", turned, begin=(1, 0), end=(5, 8), axes=(0, 2), strides=(1, 2))
    flat = emit(region, "reshape", part, shape=(4, 16))
    return region.finish(emit(region, "sigmoid", flat), emit(region, "sum", x, axis=(1,))), [(4, 6, 8)]


CASES: Mapping[str, Callable[[], tuple[Region, Sequence[tuple[int, ...]]]]] = {
    "convolutions": _convolutions,
    "encoder": _encoder,
    "functions of the core": _functions_of_the_core,
    "moves": _moves,
}
WORDS = {
    "convolutions": ("convolution", "pooling", "pack", "check"),
    "encoder": ("matmul", "softmax", "layer_normalization", "compute exp"),
    "functions of the core": ("compute log_softmax", "compute softplus", "compute elu"),
    "moves": ("reorder", "part", "reshaped", "eltwise"),
}


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_a_region_gives_the_bits_of_python(c_runtime: NativeLibrary, tmp_path: Path, name: str, number: int) -> None:
    region, shapes = CASES[name]()
    with _threads(number):
        executable = build(region.ir)
        assert all(word in plans_of(executable) for word in WORDS[name])
        machine = byoc_core.VirtualMachine(executable, num_threads=number)
        function = load(executable, c_runtime, tmp_path)["f"]
        for _ in range(3):
            inputs = [region.draw(*shape) for shape in shapes]
            assert_same_bits(function(*inputs), results_of(machine, "f", inputs))


@settings(max_examples=max(1, settings().max_examples // 4), suppress_health_check=list(HealthCheck), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_graphs_give_the_bits_of_python(
    c_runtime: NativeLibrary, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    graph = DrawnGraph(np.random.default_rng(seed))
    calls = [graph.inputs(), graph.inputs(images=4)]
    plain = byoc_core.build(graph.module, backends=["dnnl"])
    assume({module.type_key for module in plain.modules} == {"dnnl"})
    executable = build(graph.module, [{"n": inputs[0].shape[0]} for inputs in calls])
    assume({module.type_key for module in executable.modules} == {"dnnl"})  # oneDNN has primitives for 4 images too
    function = load(executable, c_runtime, tmp_path_factory.mktemp("random"))["f"]
    machine = byoc_core.VirtualMachine(executable)
    for inputs in calls:
        expected = results_of(machine, "f", inputs)
        actual = _called(function, inputs)
        if actual is not None:
            assert_same_bits(actual, expected)


def _called(function: NativeFunction, inputs: Sequence[NDArray]) -> tuple[NDArray, ...] | None:
    """Return the results; ``None`` if a check of numbers has failed."""
    try:
        return function(*inputs)
    except NativeError as error:
        if "only Python has the reference kernels" not in str(error):
            raise
        return None


def _symbolic() -> Region:
    region = Region()
    x = region.builder.param("x", tensor(("n", 16)))
    value = emit(region, "nn.dense", x, region.builder.const(region.draw(8, 16)))
    return region.finish(emit(region, "nn.relu", value))


def test_sizes_without_a_plan_are_an_error_with_the_stored_sizes(c_runtime: NativeLibrary, tmp_path: Path) -> None:
    region = _symbolic()
    executable = build(region.ir, [{"n": 3}, {"n": 5, "other": 2}, {"n": 3}])
    assert plans_of(executable).count("\nplan ") == 2
    function = load(executable, c_runtime, tmp_path)["f"]
    machine = byoc_core.VirtualMachine(executable)
    for size in (3, 5):
        x = region.draw(size, 16)
        assert_same_bits(function(x), results_of(machine, "f", [x]))
    with pytest.raises(NativeError) as caught:
        function(region.draw(4, 16))
    assert caught.value.status is Status.EXECUTION
    assert "has no stored plan for inputs of these sizes; got [4, 16], expected [3, 16]; or [5, 16]." in str(
        caught.value
    )


def test_a_module_without_stored_plans_is_refused(c_runtime: NativeLibrary, tmp_path: Path) -> None:
    executable = byoc_core.build(_convolutions()[0].ir, backends=["dnnl"])
    with pytest.raises(NativeError, match="has no stored plans, and only Python plans regions") as caught:
        load(executable, c_runtime, tmp_path)
    assert caught.value.status is Status.UNSUPPORTED


def test_a_region_whose_symbols_have_no_sizes_is_refused(c_runtime: NativeLibrary, tmp_path: Path) -> None:
    with pytest.raises(NativeError, match="has symbolic sizes, and no stored plan") as caught:
        load(build(_symbolic().ir, [{"other": 3}]), c_runtime, tmp_path)
    assert caught.value.status is Status.UNSUPPORTED


def test_numbers_refused_by_a_check_are_an_error(c_runtime: NativeLibrary, tmp_path: Path) -> None:
    region, (shape,) = _convolutions()
    function = load(build(region.ir), c_runtime, tmp_path)["f"]
    x = region.draw(*shape)
    x[0, 0, 0, 0] = np.nan
    with pytest.raises(NativeError, match="is NaN or too large") as caught:
        function(x)
    assert caught.value.status is Status.EXECUTION
    x[0, 0, 0, 0] = 0
    function(x)


def test_threads_of_a_process_call_at_once(c_runtime: NativeLibrary, tmp_path: Path) -> None:
    region, (shape,) = _convolutions()
    executable = build(region.ir)
    function = load(executable, c_runtime, tmp_path)["f"]
    machine = byoc_core.VirtualMachine(executable)
    inputs = [region.draw(*shape) for _ in range(8)]
    expected = [results_of(machine, "f", [x]) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for found, exact in zip(pool.map(function, inputs), expected, strict=True):
                assert_same_bits(found, exact)


def test_other_numbers_of_threads_use_the_same_layouts(c_runtime: NativeLibrary, tmp_path: Path) -> None:
    region = Region()
    x = region.builder.param("x", tensor((64, 256)))
    product = emit(region, "nn.dense", x, region.builder.const(region.draw(128, 256)))
    executable = build(region.finish(emit(region, "nn.relu", product)).ir)
    executable.save(tmp_path / "model.byoc")
    array = region.draw(64, 256)
    for number in (1, 2):
        function = c_runtime.load(tmp_path / "model.byoc", num_threads=number)["f"]
        expected = results_of(byoc_core.VirtualMachine(executable, num_threads=number), "f", [array])
        assert_same_bits(function(array), expected)


def _anonymous_nbytes() -> int:
    """Return the resident bytes of this process outside of files."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident pages are counted on Linux only")
def test_loaded_artifacts_share_packed_constants(c_runtime_file: Path, native_half: Path, tmp_path: Path) -> None:
    """In a process of its own: only there nothing else takes or frees memory."""
    need_avx512()  # oneDNN packs the weights of products
    code = (
        "import sys; from plugins.dnnl.tests.test_dnnl_stored_plans import check_sharing; check_sharing(*sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, str(c_runtime_file), str(native_half), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def check_sharing(library: str, half: str, folder: str) -> None:
    """Load an artifact twice, and another artifact; compare the growth of the memory."""
    from rt.tests.runner import NativeLibrary

    load_library()  # found by the native half under its name
    c_runtime, tmp_path = NativeLibrary(Path(library)), Path(folder)
    c_runtime.load_runtime(half)
    depth, columns = 2048, 5120  # larger than any memory that malloc keeps
    nbytes = 4 * depth * columns

    def product(seed: int) -> Path:
        region = Region()
        x, weight = region.builder.param("x", tensor((64, depth))), draw(seed, depth, columns)
        executable = build(region.finish(emit(region, "matmul", x, region.builder.const(weight))).ir)
        assert "\npack " in plans_of(executable)
        executable.save(tmp_path / f"model{seed}.byoc")
        return tmp_path / f"model{seed}.byoc"

    def draw(seed: int, *shape: int) -> NDArray:
        return np.random.default_rng(seed).standard_normal(shape, np.float32)

    def load_again(path: Path) -> tuple[NativeProgram, int]:
        gc.collect()
        before = _anonymous_nbytes()
        program = c_runtime.load(path, num_threads=1)
        program["f"](x)
        return program, _anonymous_nbytes() - before

    path, other = product(0), product(1)
    x = draw(2, 64, depth)
    first, first_growth = load_again(path)
    expected = [array.copy() for array in first["f"](x)]  # results keep the program
    second, second_growth = load_again(path)
    third, third_growth = load_again(other)
    assert first_growth > 0.9 * nbytes
    assert second_growth < 0.5 * nbytes
    assert third_growth > 0.9 * nbytes  # other weights of the same shape
    del first
    assert_same_bits(second["f"](x), expected)
    before = _anonymous_nbytes()
    del second
    gc.collect()
    assert before - _anonymous_nbytes() > 0.9 * nbytes  # the last user frees the packed constant
    np.testing.assert_allclose(third["f"](x)[0], x @ draw(1, depth, columns), rtol=1e-3, atol=1e-3)


def test_other_layouts_than_in_the_plan_are_an_error(c_runtime: NativeLibrary, tmp_path: Path) -> None:
    members = taken_apart(build(_encoder()[0].ir).to_bytes())
    parts = split_payload(members["modules/0/payload"])
    line = next(line for line in parts.plans.split(b"\n") if line.startswith(b"execute"))
    plans = parts.plans.replace(line, line[:-1] + (b"1" if line.endswith(b"0") else b"0"))  # another fingerprint
    payload = join_payload(replace(parts, plans=plans))
    (tmp_path / "model.byoc").write_bytes(packed({**members, "modules/0/payload": payload}))
    with pytest.raises(NativeError, match=r"does not hold: for \d+ threads oneDNN takes other layouts") as caught:
        c_runtime.load(tmp_path / "model.byoc")
    assert caught.value.status is Status.LINK


def _refusal(native: NativeLibrary, folder: Path, module: IRModule, change: Callable[[str], str]) -> NativeError:
    """Return the error of the C runtime for a module with changed plans."""
    members = taken_apart(build(module).to_bytes())
    parts = split_payload(members["modules/0/payload"])
    text = parts.plans.decode()
    changed = change(text)
    assert changed != text
    payload = join_payload(replace(parts, plans=changed.encode()))
    (folder / "model.byoc").write_bytes(packed({**members, "modules/0/payload": payload}))
    with pytest.raises(NativeError) as caught:
        native.load(folder / "model.byoc")
    return caught.value


@pytest.mark.parametrize("name", ["convolutions", "encoder"])
def test_primitives_for_training_are_refused(c_runtime: NativeLibrary, tmp_path: Path, name: str) -> None:
    """Training writes more arguments: the mean, the variance, a workspace."""
    region = {"convolutions": _convolutions, "encoder": _encoder}[name]()[0]

    def train(text: str) -> str:
        return re.sub(r"^(primitive \w+ .*? )96( .*)$", r"\g<1>64\2", text, count=1, flags=re.MULTILINE)

    assert "a number is out of range" in str(_refusal(c_runtime, tmp_path, region.ir, train))


@pytest.mark.parametrize(
    ("found", "replaced"),
    [(r"^pack \d+ ", "pack 0 "), (r"^primitive reorder 0 0 ", "primitive reorder 0 1 0 0 0 -1 ")],
    ids=["a convolution", "a reorder with a sum"],
)
def test_constants_are_packed_by_plain_reorders(
    c_runtime: NativeLibrary, tmp_path: Path, found: str, replaced: str
) -> None:
    def change(text: str) -> str:
        return re.sub(found, replaced, text, count=1, flags=re.MULTILINE)

    assert "a plain reorder is expected" in str(_refusal(c_runtime, tmp_path, _convolutions()[0].ir, change))


def test_large_images_are_resized_into_aligned_memory(c_runtime: NativeLibrary, tmp_path: Path) -> None:
    """oneDNN writes these by instructions that fault at addresses not divisible by 64."""

    def change(text: str) -> str:
        return re.sub(r"^location arena 0 \d+ ", "location argument 1 ", text, count=1, flags=re.MULTILINE)

    region = Region()
    x = region.builder.param("x", tensor((2, 16, 64, 64)))
    region.finish(emit(region, "nn.resize", x, axes=(2, 3), sizes=(128, 128)))
    array = region.draw(2, 16, 64, 64)
    executable = build(region.ir)
    function = load(executable, c_runtime, tmp_path)["f"]
    assert_same_bits(function(array), results_of(byoc_core.VirtualMachine(executable), "f", [array]))
    assert "an operand is not aligned" in str(_refusal(c_runtime, tmp_path, region.ir, change))


def test_stored_plans_are_saved_with_a_loaded_module(tmp_path: Path) -> None:
    executable = build(_encoder()[0].ir)
    executable.save(tmp_path / "model.byoc")
    again = byoc_core.load(tmp_path / "model.byoc")
    assert again.to_bytes() == (tmp_path / "model.byoc").read_bytes()
    (module,) = again.modules
    payload = byoc_save_module(module)
    byoc_check_payload(payload)
    plans = split_payload(payload).plans
    assert plans.decode() == plans_of(executable)
    assert set(cited_digests(plans)) <= set(module.constants)


def test_equal_modules_have_equal_plans() -> None:
    assert plans_of(build(_convolutions()[0].ir)) == plans_of(build(_convolutions()[0].ir))


def test_derived_constants_are_stored_beside_the_constants(c_runtime: NativeLibrary, tmp_path: Path) -> None:
    region = Region()
    x = region.builder.param("x", tensor((1, 3, 32, 32)))
    weights = region.builder.const(region.draw(8, 3, 7, 7))
    region.finish(emit(region, "nn.conv2d", x, weights, strides=(2, 2), padding=(3,) * 4))
    executable = build(region.ir)
    array = region.draw(1, 3, 32, 32)
    function = load(executable, c_runtime, tmp_path)["f"]
    assert_same_bits(function(array), results_of(byoc_core.VirtualMachine(executable), "f", [array]))


def test_sizes_that_do_not_fit_are_refused() -> None:
    region = Region()
    x, y = (region.builder.param(name, tensor((dim, 4))) for name, dim in (("x", "n"), ("y", "2*n-3")))
    region.finish(emit(region, "nn.softmax", x, axis=1), emit(region, "nn.softmax", y, axis=1))
    with pytest.raises(PluginError, match="option `stored_plans`: has sizes that do not fit graph function"):
        byoc_core.build(region.ir, ["dnnl"], strict=True, options={"dnnl": {"stored_plans": [{"n": 1}]}})


def test_a_region_without_primitives_for_a_size_is_refused_with_the_reason() -> None:
    region = Region()
    x = region.builder.param("x", tensor(("n", 4)))
    shorter = emit(region, "strided_slice", x, begin=(2,), end=(2**63 - 1,), axes=(0,), strides=(1,))
    region.finish(emit(region, "nn.softmax", shorter, axis=1))
    assert build(region.ir, [{"n": 3}]).report_data["offloaded_share"] == 1
    executable = build(region.ir, [{"n": 3}, {"n": 2}])
    assert "oneDNN has no primitives for inputs [2, 4], sizes of the option `stored_plans`" in str(executable.report())


@pytest.mark.parametrize("sizes", [[{"n": 0}], [{"n": "many"}], ["n=3"], 3])
def test_malformed_sizes_are_refused(sizes: object) -> None:
    with pytest.raises(OptionsError, match="stored_plans"):
        byoc_core.build(_symbolic().ir, backends=["dnnl"], options={"dnnl": {"stored_plans": sizes}})
