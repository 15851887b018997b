"""Artifacts with other values of weights: the bytes of a fresh build, and refusals by name."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.artifact import inspect, is_trusted, list_weights, share_weights, swap_weights, verify
from byoc_core.artifact.archive import map_file, read_archive
from byoc_core.artifact.weight_table import encode_weights
from byoc_core.artifact.weight_values import ReplacedWeights, replace_weights
from byoc_core.errors import ArtifactError, ByocError, WeightsError
from byoc_core.ir import FixedWeight, IRModule, declare_weights, merge_modules, tensor
from byoc_core.ops import FunctionBuilder
from byoc_core.runtime.aligned_arrays import aligned_empty
from byoc_core.runtime.module import PackedFunction, Signature, TensorSpec
from byoc_core.vm import VirtualMachine
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.weighted_modules import WeightedModule, check_swap, emit, run, weighted_modules

ONES = np.ones((2, 3), np.float32)


@settings(max_examples=max(10, settings().max_examples // 10))  # writes five files
@given(weighted_modules())
def test_a_swap_equals_a_fresh_build(drawn: WeightedModule) -> None:
    with TemporaryDirectory() as folder:
        check_swap(drawn, [], Path(folder))


@settings(max_examples=max(10, settings().max_examples // 4))
@given(weighted_modules())
def test_swappable_weights_change_no_number_of_the_host(drawn: WeightedModule) -> None:
    values = drawn.values(5)
    if any(binding.op.name == "nn.batch_norm" for binding in drawn.module["main"].bindings):
        return  # a constant normalisation is folded into weights, exact only in real numbers
    swappable, plain = (
        byoc_core.build(module, backends=[]) for module in (drawn.swappable(values), drawn.plain(values))
    )
    for have, want in zip(run(swappable), run(plain), strict=True):
        np.testing.assert_array_equal(have, want)


def affine(weight: np.ndarray, bias: np.ndarray) -> IRModule:
    """Return ``matmul(x, transposed weight) + bias``, with an unread scalar of the model."""
    fb = FunctionBuilder("main")
    x, w, b = (fb.param(name, tensor(shape)) for name, shape in (("x", (2, 3)), ("w", (4, 3)), ("b", (4,))))
    product = emit(fb, "matmul", x, emit(fb, "permute_dims", w, axes=(1, 0)))
    module = IRModule({"main": fb.finish(emit(fb, "add", product, b))}, fb.constants)
    fixed = FixedWeight("scale", "float32", (), "is a scalar", byoc_core.ir.digest_of(np.array(2, np.float32)))
    return declare_weights(
        module, {"w": weight, "b": bias}, fixed=[fixed, FixedWeight("x2", "int64", (1,), "is unused", "")]
    )


W0, B0 = np.arange(12, dtype=np.float32).reshape(4, 3), np.zeros(4, np.float32)
W1, B1 = W0[::-1].copy(), np.ones(4, np.float32)


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    path = tmp_path / "model.byoc"
    byoc_core.build(affine(W0, B0), backends=[]).save(path)
    return path


def test_weights_are_listed_with_reasons(artifact: Path) -> None:
    table = list_weights(artifact)
    assert [(w.name, w.dtype, w.shape) for w in table.weights] == [("w", "float32", (4, 3)), ("b", "float32", (4,))]
    assert [(w.name, w.reason) for w in table.fixed] == [("scale", "is a scalar"), ("x2", "is unused")]
    (derivation,) = table.derivations
    assert derivation.inputs == (0,)  # a change of `b` computes nothing


def test_a_part_of_the_weights_is_swapped(artifact: Path) -> None:
    swap_weights(artifact, {"w": W1})
    found = VirtualMachine(byoc_core.load(artifact))["main"](ONES)
    np.testing.assert_array_equal(found, ONES @ W1.T + B0)
    swap_weights(artifact, {"b": B1})
    found = VirtualMachine(byoc_core.load(artifact))["main"](ONES)
    np.testing.assert_array_equal(found, ONES @ W1.T + B1)
    swap_weights(artifact, {"w": W0, "b": B0})
    assert artifact.read_bytes() == byoc_core.build(affine(W0, B0), backends=[]).to_bytes()


def test_equal_weights_stay_apart(tmp_path: Path) -> None:
    fb = FunctionBuilder("main")
    x, a, b = (fb.param(name, tensor((3,))) for name in "xab")
    module = IRModule({"main": fb.finish(emit(fb, "add", emit(fb, "multiply", x, a), b))}, fb.constants)
    ones = np.ones(3, np.float32)
    path = tmp_path / "equal.byoc"
    byoc_core.build(declare_weights(module, {"a": ones, "b": ones}), backends=[]).save(path)
    assert inspect(path).num_constants == 1
    swap_weights(path, {"b": 5 * ones})
    np.testing.assert_array_equal(VirtualMachine(byoc_core.load(path))["main"](2 * ones), 7 * ones)
    assert inspect(path).num_constants == 2


def test_a_weight_equal_to_a_constant_of_a_region_is_swapped_alone(tmp_path: Path) -> None:
    fb = FunctionBuilder("main")
    x, w = (fb.param(name, tensor((3,))) for name in "xw")
    region_constant = fb.const(np.arange(3, dtype=np.float32))
    module = IRModule({"main": fb.finish(emit(fb, "multiply", emit(fb, "add", x, region_constant), w))}, fb.constants)
    path = tmp_path / "constant.byoc"
    byoc_core.build(declare_weights(module, {"w": np.arange(3, dtype=np.float32)}), backends=[]).save(path)
    swap_weights(path, {"w": np.full(3, 2, np.float32)})
    verify(path)
    found = VirtualMachine(byoc_core.load(path))["main"](np.ones(3, np.float32))
    np.testing.assert_array_equal(found, [2, 4, 6])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"W": W1},
            "has no weight `W`. Did you mean 'w'?",
        ),
        ({"other": W1}, "has no weight `other`. `byoc weights list` names all weights."),
        (
            {"scale": np.array(3, np.float32)},
            "weight `scale` cannot be swapped: the weight is a scalar. Compile the model again with the new value.",
        ),
        (
            {"w": W1.T},
            "the new value of weight `w` has another type; got float32[3, 4], expected float32[4, 3]",
        ),
        (
            {"b": B1.astype(np.float64)},
            "the new value of weight `b` has another type; got float64[4], expected float32[4]",
        ),
        ({"b": [1, 2, 3, 4]}, "the new value of weight `b` has another type; got int64[4], expected float32[4]"),
        ({"b": [1, [2]]}, "the new value of weight `b` is no array"),
        ({"b": B1.astype(">f4")}, "the new value of weight `b` has a dtype unknown to byoc; got >f4"),
        ({"b": "text"}, "the new value of weight `b` has a dtype unknown to byoc; got <U4"),
        ({"scale": B1.astype(">f4")}, "the new value of weight `scale` has a dtype unknown to byoc; got >f4"),
        ({"x2": ["a"]}, "the new value of weight `x2` has a dtype unknown to byoc; got <U1"),
        ({"x2": np.array([7.0])}, "the new value of weight `x2` has another type; got float64[1], expected int64[1]"),
        ({"x2": np.array([7, 7])}, "the new value of weight `x2` has another type; got int64[2], expected int64[1]"),
    ],
)
def test_refusals_name_the_weight_and_write_nothing(
    artifact: Path, tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    before = artifact.read_bytes()
    for output in (None, tmp_path / "out.byoc"):
        with pytest.raises(WeightsError) as caught:
            swap_weights(artifact, {"b": B1, **values}, output)
        assert str(caught.value) == f"artifact `{artifact}`: {message}"
    assert artifact.read_bytes() == before
    assert not (tmp_path / "out.byoc").exists()
    with pytest.raises(WeightsError) as caught:
        byoc_core.load(artifact).with_weights(values)
    assert str(caught.value) == f"executable: {message}"


def test_values_may_be_lists(tmp_path: Path) -> None:
    fb = FunctionBuilder("main")
    x, w = (fb.param(name, tensor((2,), "int64")) for name in "xw")
    module = IRModule({"main": fb.finish(emit(fb, "add", x, w))}, fb.constants)
    executable = byoc_core.build(declare_weights(module, {"w": [0, 0]}), backends=[])
    executable.save(tmp_path / "model.byoc")
    swap_weights(tmp_path / "model.byoc", {"w": [1, 2]})
    for changed in (byoc_core.load(tmp_path / "model.byoc"), executable.with_weights({"w": [1, 2]})):
        np.testing.assert_array_equal(VirtualMachine(changed)["main"](np.zeros(2, np.int64)), [1, 2])


def test_fixed_weights_may_keep_their_values(artifact: Path) -> None:
    before = artifact.read_bytes()
    swap_weights(artifact, {"scale": np.array(2, np.float32), "x2": np.array([7])})
    assert artifact.read_bytes() == before


def test_artifacts_without_swappable_weights_say_so(tmp_path: Path) -> None:
    fb = FunctionBuilder("main")
    x = fb.param("x", tensor((3,)))
    path = tmp_path / "plain.byoc"
    byoc_core.build(IRModule({"main": fb.finish(emit(fb, "exp", x))}, fb.constants), backends=[]).save(path)
    assert not list_weights(path)
    with pytest.raises(WeightsError) as caught:
        swap_weights(path, {"w": W1})
    assert str(caught.value) == (
        f"artifact `{path}`: was compiled without swappable weights. "
        "Compile the model with `byoc compile --swappable-weights all`."
    )


def test_a_saved_loaded_executable_is_swapped_and_saved(artifact: Path, tmp_path: Path) -> None:
    loaded = byoc_core.load(artifact)
    changed = loaded.with_weights({"w": W1, "b": B1})
    assert changed.to_bytes() == byoc_core.build(affine(W1, B1), backends=[]).to_bytes()
    assert loaded.to_bytes() == artifact.read_bytes()  # the base is unchanged
    w1 = W1.copy()
    changed = loaded.with_weights({"w": w1})
    w1[:] = 0
    np.testing.assert_array_equal(VirtualMachine(changed)["main"](ONES), ONES @ W1.T + B0)


def test_weights_in_a_file_beside_the_artifact_are_joined(artifact: Path, tmp_path: Path) -> None:
    (shared, _) = share_weights([artifact], tmp_path / "shared")
    swap_weights(shared, {"w": W1}, tmp_path / "swapped.byoc")
    swap_weights(artifact, {"w": W1})
    assert (tmp_path / "swapped.byoc").read_bytes() == artifact.read_bytes()


def test_entries_share_a_weight_of_one_name_and_value(tmp_path: Path) -> None:
    both = merge_modules({"prefill": affine(W0, B0), "decode": affine(W0, B1)})
    path = tmp_path / "both.byoc"
    byoc_core.build(both, backends=[]).save(path)
    assert [weight.name for weight in list_weights(path).weights] == ["w", "prefill:b", "decode:b"]
    swap_weights(path, {"w": W1, "decode:b": B0})
    with pytest.raises(WeightsError) as caught:
        swap_weights(path, {"b": B0})
    hint = "The weights of several entries differ: name `prefill:b` or `decode:b`."
    assert str(caught.value) == f"artifact `{path}`: has no weight `b`. {hint}"
    machine = VirtualMachine(byoc_core.load(path))
    for name in ("prefill", "decode"):
        np.testing.assert_array_equal(machine[name](ONES), ONES @ W1.T + B0)


def scaled(name: str, value: float, fixed: FixedWeight | None = None) -> IRModule:
    """Return ``x * weight + 1`` with one swappable weight."""
    fb = FunctionBuilder("main")
    x, w = (fb.param(text, tensor((3,))) for text in "xw")
    sums = emit(fb, "add", emit(fb, "multiply", x, w), fb.const(np.ones(3, np.float32)))
    module = IRModule({"main": fb.finish(sums, input_names=("x", name))}, fb.constants)
    return declare_weights(module, {name: np.full(3, value, np.float32)}, fixed=[fixed] if fixed else [])


NAMED = st.dictionaries(
    st.sampled_from(("p", "q", "r")),
    st.tuples(st.sampled_from(("w", "p:w", "q:w", "p:p:w", "q:p:w")), st.sampled_from((5.0, 6.0))),
    min_size=2,
)


@settings(max_examples=max(10, settings().max_examples // 10))
@given(NAMED)
def test_weights_of_several_entries_keep_their_values(drawn: dict[str, tuple[str, float]]) -> None:
    modules = {entry: scaled(name, value) for entry, (name, value) in drawn.items()}
    executable = byoc_core.build(merge_modules(modules), backends=[])
    weights = executable.weights.weights
    assert len(weights) == len({name for name, _ in drawn.values()}) or any(":" in weight.name for weight in weights)
    assert len({weight.name for weight in weights}) == len(weights)
    machine = VirtualMachine(executable)
    ones = np.ones(3, np.float32)
    for entry, (_, value) in drawn.items():
        np.testing.assert_array_equal(machine[entry](ones), value * ones + 1)
    new = {weight.name: np.full(3, 10 + number, np.float32) for number, weight in enumerate(weights)}
    swapped = VirtualMachine(executable.with_weights(new))
    results = {entry: float(swapped[entry](ones)[0]) for entry in drawn}
    assert set(results.values()) == {11.0 + number for number in range(len(weights))}
    for one, first in drawn.items():
        for other, second in drawn.items():
            assert first == second or results[one] != results[other]  # weights that differ are apart


def fixed_weight(name: str, digest: str, reason: str = "was read") -> FixedWeight:
    return FixedWeight(name, "float32", (), reason, digest)


@pytest.mark.parametrize(
    ("first", "second", "weights", "fixed"),
    [
        (fixed_weight("s", "0" * 64), fixed_weight("s", "0" * 64), ["w"], ["s"]),
        (fixed_weight("s", "0" * 64), fixed_weight("s", "1" * 64), ["w"], ["p:s", "q:s"]),
        (fixed_weight("s", "0" * 64), fixed_weight("s", ""), ["w"], ["s", "q:s"]),
        (fixed_weight("q:s", "0" * 64), fixed_weight("s", "1" * 64), ["w"], ["q:s", "s"]),
        (fixed_weight("s", "0" * 64), fixed_weight("w", "1" * 64), ["p:w", "q:w"], ["s", "q:q:w"]),
        (fixed_weight("s", "0" * 64), fixed_weight("w", ""), ["w"], ["s", "q:w"]),
    ],
    ids=["equal", "other values", "unused in one", "no clash", "swappable in one", "swappable or unused"],
)
def test_names_of_fixed_weights_of_several_entries(
    first: FixedWeight, second: FixedWeight, weights: list[str], fixed: list[str]
) -> None:
    both = merge_modules({"p": scaled("w", 5, first), "q": scaled("w", 5, second)})
    table = byoc_core.build(both, backends=[]).weights
    assert [weight.name for weight in table.weights] == weights
    assert [weight.name for weight in table.fixed] == fixed


def test_native_code_keeps_the_trust_of_the_user(artifact: Path, tmp_path: Path) -> None:
    assert not is_trusted(inspect(artifact).digest)
    byoc_core.artifact.trust(inspect(artifact).digest)
    swap_weights(artifact, {"w": W1}, tmp_path / "trusted.byoc")
    assert is_trusted(inspect(tmp_path / "trusted.byoc").digest)


def test_a_damaged_constant_is_found(artifact: Path, tmp_path: Path) -> None:
    data = bytearray(artifact.read_bytes())
    digest = next(weight.digest for weight in list_weights(artifact).weights if weight.name == "b")
    member = read_archive(map_file(artifact), "")[f"constants/{digest}"]
    struct.pack_into("<f", data, member.offset, 3.0)
    damaged = tmp_path / "damaged.byoc"
    damaged.write_bytes(data)
    with pytest.raises(ArtifactError, match="is damaged"):
        swap_weights(damaged, {"w": W1}, tmp_path / "out.byoc")
    assert not (tmp_path / "out.byoc").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": 7}, "weights: A list is required"),
        ({"derivations": [{"function": "main_weights0", "inputs": [9], "outputs": [[0]]}]}, "reads an unknown weight"),
        ({"derivations": [{"function": "main_weights0", "inputs": [0], "outputs": [[99]]}]}, "is not in the program"),
        ({"derivations": [{"function": "absent", "inputs": [0], "outputs": [[0]]}]}, "a missing derivation `absent`"),
        ({"derivations": [{"function": "main_weights0", "inputs": [1], "outputs": [[0]]}]}, "another signature"),
        ({"module_constants": ["x"]}, "module_constants.0"),
    ],
)
def test_tables_of_strangers_are_checked(
    artifact: Path, tmp_path: Path, change: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = byoc_core.load(artifact)
    encode = encode_weights
    monkeypatch.setattr("byoc_core.artifact.saving.encode_weights", lambda table: {**encode(table), **change})
    loaded.save(tmp_path / "strange.byoc")
    with pytest.raises(ByocError) as caught:
        swap_weights(tmp_path / "strange.byoc", {"w": W1, "b": B1}, tmp_path / "out.byoc")
    assert message in str(caught.value)
    assert not (tmp_path / "out.byoc").exists()


@pytest.mark.parametrize("shape", [(1 << 33, 1 << 33), (1 << 62,), (3, 5)])
@pytest.mark.parametrize("is_cited", [False, True])
def test_results_of_strange_derivations_take_no_memory(
    artifact: Path, shape: tuple[int, ...], is_cited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stranger changes the derivation alone, or the constants too."""
    executable = byoc_core.load(artifact)
    table, constants = executable.weights, list(executable.program.constants)
    (derivation,) = table.derivations
    ((number,),) = derivation.outputs
    if is_cited:
        constants[number] = replace(constants[number], shape=shape)
    signature = Signature(inputs=(TensorSpec("w", "float32", (4, 3)),), outputs=(TensorSpec("r", "float32", shape),))
    function = PackedFunction(derivation.function, lambda _weight, result: result.fill(1), signature)
    asked = []

    def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        asked.append(shape)
        return aligned_empty(shape, dtype)

    monkeypatch.setattr("byoc_core.artifact.weight_values.aligned_empty", allocate)

    def swap() -> ReplacedWeights:
        stored = executable.constants.__getitem__
        return replace_weights(table, constants, {"w": W1}, stored, lambda _name: function, "it")

    if not is_cited:
        expected = f"it, table of weights: gives a constant a value of another type; got float32{list(shape)}, "
        with pytest.raises(ArtifactError) as caught:
            swap()
        assert str(caught.value) == f"{expected}expected float32[3, 4]"
        assert asked == []
    elif shape == (3, 5):
        assert swap().constants[number].shape == shape
        assert asked == [shape]
    else:
        with pytest.raises(WeightsError, match="a constant cannot be computed from `w`: array: cannot be allocated"):
            swap()
