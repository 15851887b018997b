"""Artifacts with constants in a file of weights, and with swapped weights, in the C runtime and in Python alike."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.artifact import Executable, share_weights, swap_weights
from byoc_core.artifact.archive import Buffer, write_archive
from byoc_core.artifact.weights_file import WEIGHTS_NAME
from byoc_core.errors import ArtifactError
from byoc_core.native.toolchain import Toolchain
from byoc_core.vm import VirtualMachine
from hypothesis import HealthCheck, given, settings

from core.tests.artifact.fuzzing.members import Members, taken_apart
from core.tests.artifact.test_swapped_weights import B0, B1, W0, W1, affine
from core.tests.weighted_modules import WeightedModule, inputs, weighted_modules
from rt.tests.runner import NativeError, NativeLibrary, Status
from rt.tests.saved import assert_same_bits, results_of

NDArray = npt.NDArray[Any]
X = np.array([[1, 2, 3], [-1, 0.5, 8]], np.float32)
LARGE = 1 << 19
"""Elements of a constant of two mebibytes: not checked at loading."""


def model(scale: float, size: int = 300) -> Executable:
    """Return an executable adding and multiplying constants of a size."""
    first, second = (np.linspace(-1, scale * n, size, dtype=np.float32) for n in (1, 2))
    builder = byoc_core.FunctionBuilder("main")
    x = builder.param("x", byoc_core.ir.tensor((2, size)))
    (product,) = builder.bind("multiply", [x, builder.const(first)], {}).results
    (total,) = builder.bind("add", [product, builder.const(second)], {}).results
    return byoc_core.build(byoc_core.ir.IRModule({"main": builder.finish(total)}, builder.constants), [])


def ones_for(size: int = 300) -> NDArray:
    return np.linspace(-3, 3, 2 * size, dtype=np.float32).reshape(2, size)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Return a folder with two artifacts of equal constants, one of others, and the file of weights."""
    paths = [tmp_path / name for name in ("first.byoc", "second.byoc", "third.byoc")]
    for path, scale in zip(paths, (2, 2, 5), strict=True):
        model(scale).save(path)
    share_weights(paths, tmp_path / "shared")
    return tmp_path / "shared"


def test_artifacts_find_the_file_beside_them(native: NativeLibrary, shared: Path, tmp_path: Path) -> None:
    for name, scale in (("first", 2), ("second", 2), ("third", 5)):
        path = shared / f"{name}.byoc"
        expected = results_of(VirtualMachine(model(scale)), "main", [ones_for()])
        assert_same_bits(native.load(path)["main"](ones_for()), expected)
        assert_same_bits(results_of(VirtualMachine(byoc_core.load(path)), "main", [ones_for()]), expected)
    # Without a folder in the path, the file is looked for in the working directory.
    before = Path.cwd()
    os.chdir(shared)
    try:
        assert_same_bits(native.load("third.byoc")["main"](ones_for()), expected)
    finally:
        os.chdir(before)


def test_a_file_elsewhere_is_named_by_the_options(native: NativeLibrary, shared: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.weights"
    (shared / WEIGHTS_NAME).rename(elsewhere)
    expected = results_of(VirtualMachine(model(5)), "main", [ones_for()])
    path = shared / "third.byoc"
    with pytest.raises(NativeError, match=r"put `weights\.byocw` beside the artifact"):
        native.load(path)
    loaded = native.load(path, weights=elsewhere), native.load_bytes(path.read_bytes(), weights=elsewhere)
    path.unlink()
    elsewhere.unlink()  # the mappings outlive the files
    for program in loaded:
        assert_same_bits(program["main"](ones_for()), expected)


def test_a_whole_artifact_reads_no_file_beside_it(native: NativeLibrary, tmp_path: Path) -> None:
    model(2).save(tmp_path / "whole.byoc")
    (tmp_path / WEIGHTS_NAME).write_bytes(b"no archive")
    expected = results_of(VirtualMachine(model(2)), "main", [ones_for()])
    assert_same_bits(native.load(tmp_path / "whole.byoc")["main"](ones_for()), expected)
    with pytest.raises(NativeError, match=r"^weights `.*`"):  # a file named by the caller is read
        native.load(tmp_path / "whole.byoc", weights=tmp_path / WEIGHTS_NAME)


def test_options_without_the_field_are_the_options_of_earlier_programs(native: NativeLibrary, shared: Path) -> None:
    expected = results_of(VirtualMachine(model(2)), "main", [ones_for()])
    program = native.load(shared / "first.byoc", weights=shared / "absent", struct_size=16)
    assert_same_bits(program["main"](ones_for()), expected)
    with pytest.raises(NativeError, match=r"`struct_size` is not the size of byoc_rt_options; got 20, expected 24"):
        native.load(shared / "first.byoc", struct_size=20)


def archive_of(members: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO()
    made: dict[str, Buffer] = dict(members)
    write_archive(file, made)
    return file.getvalue()


def changed(data: bytes, change: Callable[[Members], object]) -> bytes:
    """Return a file of weights with changed members."""
    members = dict(taken_apart(data))
    change(members)
    return archive_of(members)


def with_index(change: Callable[[Any], object]) -> Callable[[bytes], bytes]:
    def edit(members: Members) -> None:
        index = json.loads(members["weights.json"])
        change(index)
        members["weights.json"] = json.dumps(index, sort_keys=True, separators=(",", ":")).encode()

    return lambda data: changed(data, edit)


def constants_of(members: Members) -> list[str]:
    return sorted(name for name in members if name.startswith("constants/"))


def flip(members: Members) -> None:
    for name in constants_of(members):
        members[name] = bytes([members[name][0] ^ 1]) + members[name][1:]


def rotate(members: Members) -> None:
    names = constants_of(members)
    contents = [members[name] for name in names]
    members.update(zip(names, [*contents[1:], contents[0]], strict=True))


def shorten(members: Members) -> None:
    for name in constants_of(members):
        members[name] = members[name][:-4]


def drop_member(members: Members) -> None:
    del members[constants_of(members)[0]]


def drop_all(members: Members) -> None:
    for name in constants_of(members):
        del members[name]
    members["weights.json"] = b'{"constants":{},"format":"byoc-weights","format_version":1}'


HOSTILE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", ""),
    "cut short": (lambda data: data[: len(data) // 2], ""),
    "one byte short": (lambda data: data[:-1], ""),
    "a byte more": (lambda data: data + b"\0", ""),
    "text": (lambda data: b"weights " * 100, ""),
    "constants with other bytes": (lambda data: changed(data, flip), "is damaged"),
    "constants under each other's digests": (lambda data: changed(data, rotate), "is damaged"),
    "shorter constants": (
        lambda data: changed(data, shorten),
        "has the wrong number of bytes; got 1196, expected 1200",
    ),
    "a constant missing": (lambda data: changed(data, drop_member), "has other members than named by the index"),
    "no constants": (lambda data: changed(data, drop_all), "Another file holds the constants."),
    "a member more": (
        lambda data: changed(data, lambda members: members.update(more=b"x")),
        "has other members than named by the index",
    ),
    "no index": (lambda data: changed(data, lambda members: members.pop("weights.json")), "is no file of weights"),
    "an index of text": (lambda data: changed(data, lambda members: members.update({"weights.json": b"{"})), ""),
    "an index of a list": (lambda data: changed(data, lambda members: members.update({"weights.json": b"[]"})), ""),
    "a newer format": (
        with_index(lambda index: index.update(format_version=2)),
        "is of format 2, not readable by this",
    ),
    "an older format": (with_index(lambda index: index.update(format_version=0)), "is malformed"),
    "another format": (with_index(lambda index: index.update(format="byoc")), "is malformed"),
    "an unknown field": (with_index(lambda index: index.update(more=1)), "is malformed"),
    "constants of text": (with_index(lambda index: index.update(constants="x")), "is malformed"),
    "a digest of text": (with_index(lambda index: index["constants"].update(x={"dtype": "int8", "shape": [1]})), ""),
    "a huge shape": (
        with_index(lambda index: next(iter(index["constants"].values())).update(shape=[1 << 40, 1 << 40])),
        "is malformed",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("is_named", [False, True], ids=["beside", "named"])
def test_hostile_files_are_errors_as_in_python(name: str, is_named: bool, native: NativeLibrary, shared: Path) -> None:
    make, problem = HOSTILE[name]
    path, weights = shared / "first.byoc", shared / WEIGHTS_NAME
    weights.write_bytes(make(weights.read_bytes()))
    given_weights = weights if is_named else None
    with pytest.raises(ArtifactError) as python:
        byoc_core.load(path, weights=given_weights)
    with pytest.raises(NativeError) as caught:
        native.load(path, weights=given_weights)
    assert caught.value.status is Status.ARTIFACT
    assert problem in str(python.value)
    assert problem in str(caught.value)
    # Both name the same file, weights or artifact.
    assert str(caught.value).split(": ")[0].split(",")[0] == str(python.value).split(": ")[0].split(",")[0]


def test_a_file_of_other_weights_is_named(native: NativeLibrary, shared: Path, tmp_path: Path) -> None:
    model(9).save(tmp_path / "ninth.byoc")
    _, other = share_weights([tmp_path / "ninth.byoc"], tmp_path / "other")
    texts = []
    for load in (byoc_core.load, native.load):
        with pytest.raises((ArtifactError, NativeError)) as caught:
            load(shared / "first.byoc", weights=other)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert f"is not in the artifact, nor in weights `{other}`. Another file holds the constants." in texts[0]


def test_links_folders_and_absent_files(native: NativeLibrary, shared: Path, tmp_path: Path) -> None:
    path, weights = shared / "first.byoc", shared / WEIGHTS_NAME
    expected = results_of(VirtualMachine(model(2)), "main", [ones_for()])
    real = tmp_path / "real.byocw"
    weights.rename(real)
    weights.symlink_to(real)  # a link is followed by both
    for load in (byoc_core.load, native.load):
        load(path)
    assert_same_bits(native.load(path)["main"](ones_for()), expected)
    real.rename(tmp_path / "moved.byocw")  # a link to nothing is no file
    for load in (byoc_core.load, native.load):
        with pytest.raises((ArtifactError, NativeError), match="is not in the artifact"):
            load(path)
    weights.unlink()
    weights.mkdir()  # neither is a folder
    for load in (byoc_core.load, native.load):
        with pytest.raises((ArtifactError, NativeError), match="is not in the artifact"):
            load(path)
    for missing in (weights, tmp_path / "absent"):
        with pytest.raises(OSError, match=str(missing)):
            byoc_core.load(path, weights=missing)
        with pytest.raises(NativeError, match=f"weights `{missing}`: cannot be read") as caught:
            native.load(path, weights=missing)
        assert caught.value.status is Status.ARTIFACT


def test_large_constants_are_shared_pages_unchecked_in_both(native: NativeLibrary, tmp_path: Path) -> None:
    """A changed byte of a large constant is found by `byoc verify` alone: both loaders map the bytes."""
    model(2, LARGE).save(tmp_path / "large.byoc")
    path, weights = share_weights([tmp_path / "large.byoc"], tmp_path / "shared")
    x = ones_for(LARGE)
    assert_same_bits(native.load(path)["main"](x), results_of(VirtualMachine(model(2, LARGE)), "main", [x]))
    weights.write_bytes(changed(weights.read_bytes(), flip))
    found = native.load(path)["main"](x)
    assert_same_bits(found, results_of(VirtualMachine(byoc_core.load(path)), "main", [x]))
    with pytest.raises(ArtifactError, match="is damaged"):
        byoc_core.artifact.verify(path)


def run_native(native: NativeLibrary, path: Path, inputs: list[NDArray]) -> tuple[NDArray, ...]:
    return tuple(native.load(path)["main"](*inputs))


def test_a_swapped_artifact_runs_as_a_fresh_build(native: NativeLibrary, tmp_path: Path) -> None:
    path, fresh = tmp_path / "model.byoc", tmp_path / "fresh.byoc"
    byoc_core.build(affine(W0, B0), backends=[]).save(path)
    swap_weights(path, {"w": W1, "b": B1})
    byoc_core.build(affine(W1, B1), backends=[]).save(fresh)
    found = run_native(native, path, [X])
    assert_same_bits(found, run_native(native, fresh, [X]))
    np.testing.assert_allclose(found[0], X @ W1.T + B1, rtol=1e-6)
    # A swap and shared weights go together.
    (swapped, weights) = share_weights([path], tmp_path / "shared")
    assert_same_bits(run_native(native, swapped, [X]), found)
    swap_weights(path, {"b": B0})
    whole = taken_apart(path.read_bytes())
    without = archive_of({name: data for name, data in whole.items() if not name.startswith("constants/")})
    with pytest.raises(NativeError, match="nor in weights"):
        native.load_bytes(without, weights=weights)


@settings(
    max_examples=max(10, settings().max_examples // 10),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(weighted_modules())
def test_random_swaps_equal_fresh_builds(native: NativeLibrary, tmp_path: Path, drawn: WeightedModule) -> None:
    """After a swap the numbers are those of constants compiled into the model, from a whole file and a shared one."""
    if any(binding.op.name == "nn.batch_norm" for binding in drawn.module["main"].bindings):
        return  # a constant normalisation is folded into weights, exact only in real numbers
    first, second = drawn.values(1), drawn.values(2)
    path, plain = tmp_path / "model.byoc", tmp_path / "plain.byoc"
    byoc_core.build(drawn.swappable(first), backends=[]).save(path)
    swap_weights(path, second)
    executable = byoc_core.build(drawn.plain(second), backends=[])
    executable.save(plain)
    arrays = [inputs()[spec.name] for spec in executable.functions["main"].inputs]
    expected = native.load(plain)["main"](*arrays)
    assert_same_bits(native.load(path)["main"](*arrays), expected)
    with TemporaryDirectory() as folder:
        shared_path, _ = share_weights([path], folder)
        assert_same_bits(native.load(shared_path)["main"](*arrays), expected)


@pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")
def test_regions_of_generated_code_run_with_swapped_and_shared_weights(native: NativeLibrary, tmp_path: Path) -> None:
    pytest.importorskip("byoc_ccompiler")
    path, fresh = tmp_path / "model.byoc", tmp_path / "fresh.byoc"
    byoc_core.build(affine(W0, B0), backends=["ccompiler"], fallback="error").save(path)
    swap_weights(path, {"w": W1, "b": B1})
    byoc_core.build(affine(W1, B1), backends=["ccompiler"], fallback="error").save(fresh)
    assert path.read_bytes() == fresh.read_bytes()
    found = run_native(native, path, [X])
    np.testing.assert_allclose(found[0], X @ W1.T + B1, rtol=1e-6)
    (swapped, _) = share_weights([path], tmp_path / "shared")
    assert_same_bits(run_native(native, swapped, [X]), found)
