"""Low-rank adapters: the numbers of merged weights, by a swap and at load, and refusals."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import MappingProxyType
from typing import Any

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core.artifact import Adapter, load_adapter, merge_adapters, read_tensors
from byoc_core.dtypes import to_numpy
from byoc_core.errors import OptionsError, WeightsError
from byoc_core.ir import FixedWeight, IRModule, declare_weights, digest_of, tensor
from byoc_core.ops import FunctionBuilder
from byoc_core.vm import VirtualMachine
from hypothesis import given
from hypothesis import strategies as st

from core.tests.artifact.safetensors_file import encode_safetensors
from core.tests.weighted_modules import emit

Q, K = (4, 3), (3, 5)  # the weight `q.weight` has shape (outputs, inputs), `onnx::MatMul_7` (inputs, outputs)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def network(q: np.ndarray, k: np.ndarray) -> IRModule:
    """Return ``dense(x, q)`` and ``matmul(x, k)``."""
    fb = FunctionBuilder("main")
    x, qw, kw, bias = (fb.param(n, tensor(s)) for n, s in (("x", (2, 3)), ("qw", Q), ("kw", K), ("bias", (5,))))
    product = emit(fb, "add", emit(fb, "matmul", x, kw), bias)
    main = fb.finish(emit(fb, "nn.dense", x, qw), product, input_names=("x", "q.weight", "onnx::MatMul_7", "bias"))
    module = IRModule({"main": main}, fb.constants)
    fixed = FixedWeight("v.weight", "float32", Q, "was read", digest_of(np.zeros(Q, np.float32)))
    values = {"q.weight": q, "onnx::MatMul_7": k, "bias": np.zeros(5, np.float32)}
    return declare_weights(module, values, fixed=[fixed])


def build(q: np.ndarray, k: np.ndarray) -> byoc_core.Executable:
    return byoc_core.build(network(q, k), backends=[])


def factors(seed: int = 1, rank: int = 2, prefix: str = "base_model.model.") -> dict[str, np.ndarray]:
    return {
        f"{prefix}q.lora_A.weight": random(rank, 3, seed=seed),
        f"{prefix}q.lora_B.weight": random(4, rank, seed=seed + 1),
        f"{prefix}k.lora_A.default.weight": random(rank, 3, seed=seed + 2),
        f"{prefix}k.lora_B.default.weight": random(5, rank, seed=seed + 3),
    }


def merged(weight: np.ndarray, b: np.ndarray, a: np.ndarray, scale: float) -> np.ndarray:
    change = scale * (b.astype(np.float64) @ a.astype(np.float64))
    return (weight.astype(np.float64) + (change if change.shape == weight.shape else change.T)).astype(np.float32)


NAMES = {"base_model.model.k": "onnx::MatMul_7"}
Q0, K0 = random(*Q, seed=7), random(*K, seed=8)


@given(seed=st.integers(0, 1000), rank=st.integers(1, 3), scale=st.sampled_from((0.5, 2.0, -1.25)))
def test_adapters_equal_a_build_of_merged_weights(seed: int, rank: int, scale: float) -> None:
    made = factors(seed, rank)
    qa, qb, ka, kb = made.values()
    wanted = build(merged(Q0, qb, qa, scale), merged(K0, kb, ka, scale))
    found = build(Q0, K0).with_adapters([Adapter(made, scale, NAMES)])
    assert found.to_bytes() == wanted.to_bytes()


def test_untouched_weights_and_code_are_shared() -> None:
    base = build(Q0, K0)
    only_q = dict(list(factors().items())[:2])
    changed = base.with_adapters([Adapter(only_q, 1.0)])
    assert changed.modules == base.modules
    digests = {weight.name: weight.digest for weight in base.weights.weights}
    assert changed.constants[digests["onnx::MatMul_7"]] is base.constants[digests["onnx::MatMul_7"]]
    x = random(2, 3)
    q, k = VirtualMachine(changed)["main"](x)
    plain_q, plain_k = VirtualMachine(base)["main"](x)
    assert not np.array_equal(q, plain_q)
    np.testing.assert_array_equal(k, plain_k)


def test_changes_of_several_adapters_are_added() -> None:
    first, second = (Adapter(dict(list(factors(seed).items())[:2]), 1.0) for seed in (1, 11))
    found = build(Q0, K0).with_adapters([first, second])
    wide = Q0.astype(np.float64)
    for adapter in (first, second):
        a, b = adapter.tensors.values()
        wide = wide + b.astype(np.float64) @ a.astype(np.float64)
    assert found.to_bytes() == build(wide.astype(np.float32), K0).to_bytes()


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Return an artifact, and the file of an adapter for one of its weights, with a configuration."""
    build(Q0, K0).save(tmp_path / "model.byoc")
    (tmp_path / "adapter_model.safetensors").write_bytes(encode_safetensors(dict(list(factors().items())[:2])))
    (tmp_path / "adapter_config.json").write_text(json.dumps({"lora_alpha": 8, "r": 2, "fan_in_fan_out": False}))
    return tmp_path / "model.byoc", tmp_path / "adapter_model.safetensors"


def test_files_are_merged_and_sessions_adapted(files: tuple[Path, Path], tmp_path: Path) -> None:
    artifact, adapter = files
    before = artifact.read_bytes()
    merge_adapters(artifact, [adapter], tmp_path / "adapted.byoc")
    qa, qb, *_ = factors().values()
    wanted = build(merged(Q0, qb, qa, 4.0), K0)
    assert (tmp_path / "adapted.byoc").read_bytes() == wanted.to_bytes()
    x = random(2, 3)
    expected = VirtualMachine(wanted)["main"](x)
    session = byoc_core.Session(artifact, adapters=[adapter])
    in_memory = byoc_core.Session(build(Q0, K0), adapters=[load_adapter(adapter)])
    for opened in (session, in_memory, *(pickle.loads(pickle.dumps(item)) for item in (session, in_memory))):
        for have, want in zip(opened.run(None, {"x": x}), expected, strict=True):
            np.testing.assert_array_equal(have, want)
    assert artifact.read_bytes() == before


@pytest.mark.parametrize(
    ("config", "scale"),
    [({"lora_alpha": 16, "r": 4}, 4.0), ({"lora_alpha": 16, "r": 4, "use_rslora": True}, 8.0)],
)
def test_scales_of_configurations(files: tuple[Path, Path], config: dict[str, Any], scale: float) -> None:
    (files[1].parent / "adapter_config.json").write_text(json.dumps(config))
    assert load_adapter(files[1]).scale == scale
    assert load_adapter(files[1], scale=3.0).scale == 3.0


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "is not JSON text"),
        ("[]", "is not an object"),
        ("{}", "states no numbers `lora_alpha` and `r`"),
        ('{"lora_alpha": 1, "r": 0}', "states no numbers `lora_alpha` and `r`"),
        ('{"lora_alpha": 1e999, "r": 1}', "states a `lora_alpha` that is not finite"),
        ('{"lora_alpha": ' + "9" * 400 + ', "r": 1}', "states a `lora_alpha` that is not finite"),
        ('{"lora_alpha": 1, "use_rslora": true, "r": ' + "9" * 400 + "}", "states no numbers `lora_alpha` and `r`"),
        ('{"lora_alpha": 1, "r": 1, "use_rslora": 1}', "states a `use_rslora` that is neither true nor false"),
        ('{"lora_alpha": 1, "r": 1, "use_dora": true}', "states `use_dora`, which is not supported"),
        ('{"lora_alpha": 1, "r": 1, "rank_pattern": {"q": 3}}', "states `rank_pattern`, which is not supported"),
    ],
)
def test_unsupported_configurations_are_refused(files: tuple[Path, Path], config: str, message: str) -> None:
    (files[1].parent / "adapter_config.json").write_text(config)
    with pytest.raises(WeightsError) as caught:
        load_adapter(files[1])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('{"use_dora": true}', "states `use_dora`, which is not supported"),
        ('{"rank_pattern": {"q": 3}}', "states `rank_pattern`, which is not supported"),
        ('{"alora_invocation_tokens": [1]}', "states `alora_invocation_tokens`, which is not supported"),
        ('{"peft_type": "LOHA"}', "is of another kind of adapter; got LOHA, expected LORA"),
        ('{"peft_type": ["LORA"]}', "is of another kind of adapter"),
        ('{"fan_in_fan_out": "false"}', "states a `fan_in_fan_out` that is neither true nor false"),
    ],
)
def test_configurations_are_read_for_stated_scales_too(files: tuple[Path, Path], config: str, message: str) -> None:
    (files[1].parent / "adapter_config.json").write_text(config)
    with pytest.raises(WeightsError) as caught:
        load_adapter(files[1], scale=1.0)
    assert message in str(caught.value)


def test_a_stated_scale_keeps_the_orientation_of_the_configuration(files: tuple[Path, Path]) -> None:
    config = {"peft_type": "LORA", "lora_alpha": 2, "r": 2, "fan_in_fan_out": True}
    (files[1].parent / "adapter_config.json").write_text(json.dumps(config))
    stated, read = load_adapter(files[1], scale=1.0), load_adapter(files[1])
    assert (stated.scale, stated.transposed) == (read.scale, read.transposed) == (1.0, True)
    assert load_adapter(files[1], scale=1.0, transposed=False).transposed is False
    (files[1].parent / "adapter_config.json").write_text("{}")
    assert load_adapter(files[1], scale=3.0).scale == 3.0


@pytest.mark.parametrize("scale", [float("inf"), float("nan"), 10**400])
def test_scales_are_finite(files: tuple[Path, Path], scale: float) -> None:
    with pytest.raises(WeightsError, match="has a scale that is not finite"):
        load_adapter(files[1], scale=scale)


def test_an_adapter_names_each_module_once() -> None:
    with pytest.raises(WeightsError, match="names two weights for module `q`"):
        Adapter({}, 1.0, {"q": "a", "base_model.model.q": "b"})


def test_a_missing_scale_is_an_error(files: tuple[Path, Path]) -> None:
    (files[1].parent / "adapter_config.json").unlink()
    with pytest.raises(WeightsError, match="has no scale"):
        load_adapter(files[1])


A, B = random(2, 3), random(4, 2)
NO_FACTOR = (
    "adapter: tensor `q.bias` is no factor of a low-rank adapter; expected matrices of floats named "
    "<module>.lora_A.weight and <module>.lora_B.weight"
)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another tensor": (
        {"tensors": {"q.bias": B}},
        NO_FACTOR,
    ),
    "a missing factor": ({"tensors": {"q.lora_A.weight": A}}, "adapter: module `q` has no factor lora_B"),
    "several adapters of one module": (
        {"tensors": {f"q.lora_{f}.{name}.weight": v for name in ("one", "two") for f, v in (("A", A), ("B", B))}},
        "adapter: holds several adapters: 'one', 'two'. Make one `Adapter` of the tensors of each.",
    ),
    "factors of several adapters": (
        {"tensors": {"q.lora_A.one.weight": A, "q.lora_B.two.weight": B}},
        "adapter: holds several adapters: 'one', 'two'. Make one `Adapter` of the tensors of each.",
    ),
    "a module with and without prefix": (
        {"tensors": {"q.lora_A.weight": A, "q.lora_B.weight": B, "base_model.model.q.lora_B.weight": B}},
        (
            "adapter: holds several adapters: tensor `base_model.model.q.lora_B.weight` is another factor lora_B of "
            "module `q`. Make one `Adapter` of the tensors of each."
        ),
    ),
    "factors of no dtype of byoc": ({"tensors": {"q.bias": np.array([["x"]])}}, NO_FACTOR),
    "different ranks": (
        {"tensors": {"q.lora_A.weight": A, "q.lora_B.weight": B[:, :1]}},
        "adapter: the factors of module `q` have different ranks; got 2 and 1",
    ),
    "another shape": (
        {"tensors": {"q.lora_A.weight": A[:, :2], "q.lora_B.weight": B}},
        "adapter: module `q` does not fit weight `q.weight`; got a change of shape [4, 2], expected [4, 3]",
    ),
    "an unknown weight": (
        {"tensors": {"qq.lora_A.weight": A, "qq.lora_B.weight": B}},
        "executable: has no weight `qq.weight` for adapter. Did you mean 'q.weight'?",
    ),
    "an unknown module": (
        {"tensors": {"q.lora_A.weight": A, "q.lora_B.weight": B}, "names": {"p": "q.weight"}},
        "adapter: has no module `p`",
    ),
    "a fixed weight": (
        {"tensors": {"v.lora_A.weight": A, "v.lora_B.weight": B}},
        "executable: weight `v.weight` of adapter cannot be changed: the weight was read",
    ),
    "one weight twice": (
        {
            "tensors": {f"{m}.lora_{f}.weight": v for m in ("q", "p") for f, v in (("A", A), ("B", B))},
            "names": {"p": "q.weight"},
        },
        "adapter: two modules change weight `q.weight`",
    ),
    "a transposed weight": (
        {"tensors": {"q.lora_A.weight": A, "q.lora_B.weight": B}, "transposed": True},
        "adapter: module `q` does not fit weight `q.weight`; got a change of shape [3, 4], expected [4, 3]",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_adapters_that_do_not_fit_are_refused(case: str) -> None:
    fields, message = WRONG[case]
    with pytest.raises(WeightsError) as caught:
        build(Q0, K0).with_adapters([Adapter(**{"scale": 1.0, **fields})])
    assert str(caught.value) == message


def test_sessions_of_models_are_adapted_and_cached(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 3] x) => (float[1, 2] y) { y = MatMul(x, w) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((3, 2), np.float32), "w"))
    onnx.save_model(model, tmp_path / "m.onnx")
    tensors = {"p.lora_A.weight": random(1, 3), "p.lora_B.weight": random(2, 1)}
    adapter = Adapter(tensors, 2.0, {"p": "w"})
    x = random(1, 3)
    a, b = tensors.values()
    wanted = x @ merged(np.zeros((3, 2), np.float32), b, a, 2.0)
    options: dict[str, Any] = {"cache": tmp_path / "cache", "swappable_weights": ["w"]}
    for _ in range(2):  # compiled, then from the cache
        adapted = byoc_core.Session(tmp_path / "m.onnx", [], adapters=[adapter], **options)
        np.testing.assert_allclose(adapted.run(None, {"x": x})[0], wanted, rtol=1e-6)
        assert not byoc_core.Session(tmp_path / "m.onnx", [], **options).run(None, {"x": x})[0].any()
    with pytest.raises(WeightsError, match="without swappable weights"):
        byoc_core.Session(tmp_path / "m.onnx", [], adapters=[adapter], cache=tmp_path / "cache")
    with pytest.raises(OptionsError, match="swappable_weights: an executable is compiled already"):
        byoc_core.Session(build(Q0, K0), swappable_weights=True)
    with pytest.raises(OptionsError, match="is a single text"):
        byoc_core.Session(tmp_path / "m.onnx", [], swappable_weights="w")


def test_executables_without_swappable_weights_say_so() -> None:
    fb = FunctionBuilder("main")
    x = fb.param("x", tensor((2, 3)))
    plain = byoc_core.build(IRModule({"main": fb.finish(emit(fb, "exp", x))}, fb.constants), backends=[])
    message = (
        "executable: was compiled without swappable weights. "
        "Compile the model with `byoc compile --swappable-weights all`."
    )
    with pytest.raises(WeightsError) as caught:
        plain.with_adapters([Adapter(factors(), 1.0)])
    assert str(caught.value) == message
    with pytest.raises(WeightsError) as caught:
        plain.with_weights({"w": A})
    assert str(caught.value) == message


def test_a_square_weight_of_another_name_needs_a_statement() -> None:
    fb = FunctionBuilder("main")
    x, w = fb.param("x", tensor((2, 3))), fb.param("w", tensor((3, 3)))
    module = IRModule({"main": fb.finish(emit(fb, "matmul", x, w))}, fb.constants)
    base = byoc_core.build(declare_weights(module, {"w": np.eye(3, dtype=np.float32)}), backends=[])
    tensors = {"p.lora_A.weight": random(1, 3), "p.lora_B.weight": random(3, 1, seed=3)}
    with pytest.raises(WeightsError, match="the square weight `w` of module `p` may be transposed"):
        base.with_adapters([Adapter(tensors, 1.0, {"p": "w"})])
    a, b = tensors.values()
    for is_transposed in (False, True):
        found = base.with_adapters([Adapter(tensors, 1.0, {"p": "w"}, transposed=is_transposed)])
        change = (b @ a).T if is_transposed else b @ a
        np.testing.assert_allclose(
            VirtualMachine(found)["main"](np.eye(3, dtype=np.float32)[:2]), (np.eye(3) + change)[:2], rtol=1e-6
        )


def of_one_weight(value: np.ndarray) -> byoc_core.Executable:
    """Return an executable that returns its swappable weight `m.weight`."""
    fb = FunctionBuilder("main")
    w = fb.param("w", tensor(value.shape, str(value.dtype)))
    module = IRModule({"main": fb.finish(w, input_names=("m.weight",))}, fb.constants)
    return byoc_core.build(declare_weights(module, {"m.weight": value}), backends=[])


def weight_of(executable: byoc_core.Executable) -> np.ndarray:
    return executable.constants[executable.weights.weights[0].digest]


@pytest.mark.parametrize("dtype", ["int8", "int32", "bool", "complex64"])
def test_weights_of_no_floats_are_refused(dtype: str) -> None:
    base = of_one_weight(np.zeros((2, 2), dtype))
    tensors = {"m.lora_A.weight": np.full((1, 2), 300.7), "m.lora_B.weight": np.ones((2, 1))}
    with pytest.raises(WeightsError) as caught:
        base.with_adapters([Adapter(tensors, 1.0)])
    assert (
        str(caught.value) == f"adapter: cannot change weight `m.weight` of dtype {dtype}; expected a weight of floats"
    )


def test_changes_of_bfloat16_weights_are_rounded_once() -> None:
    base = of_one_weight(np.ones((1, 2), to_numpy("bfloat16")))
    change = np.array([[2.0**-8 + 2.0**-40, 2.0**-8]])  # just above the midpoint of 1 and its successor, and on it
    adapter = Adapter({"m.lora_A.weight": change, "m.lora_B.weight": np.ones((1, 1))}, 1.0)
    assert weight_of(base.with_adapters([adapter])).astype(np.float64).tolist() == [[1 + 2.0**-7, 1.0]]


@pytest.mark.parametrize("number", [1e300, np.inf, np.nan])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_overflow_is_no_warning(dtype: str, number: float) -> None:
    base = of_one_weight(np.zeros((2, 2), to_numpy(dtype)))
    tensors = {"m.lora_A.weight": np.array([[number, 1]]), "m.lora_B.weight": np.array([[1e300], [0]])}
    found = weight_of(base.with_adapters([Adapter(tensors, 1e10)])).astype(np.float64)
    assert not np.isfinite(found[0, 0])
    assert found[1, 1] == 0


def test_sessions_with_adapters_of_read_tensors_are_pickled(files: tuple[Path, Path]) -> None:
    read = read_tensors(files[1])
    assert pickle.loads(pickle.dumps(read)).tensors.keys() == read.tensors.keys()
    x = random(2, 3)
    for tensors in (read.tensors, MappingProxyType(dict(read.tensors))):
        session = byoc_core.Session(build(Q0, K0), adapters=[Adapter(tensors, 1.0)])
        copied = pickle.loads(pickle.dumps(session))
        for have, want in zip(copied.run(None, {"x": x}), session.run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(have, want)
