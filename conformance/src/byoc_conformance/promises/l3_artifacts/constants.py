"""Constants outside a payload, cited in the payload by digest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from byoc_core.errors import ArtifactError, ByocError
from byoc_core.ir import ConstantStore, IRModule, TensorType, Var, digest_of
from byoc_core.ops.cases import function_of
from byoc_core.runtime.module import RuntimeModule

from byoc_conformance.examples import Array
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promises.l3_artifacts.saved import (
    Saved,
    compile_module,
    examples_of,
    payloads_of,
    save_examples,
)
from byoc_conformance.subject import Attempt, Subject

__all__ = ["constants_cited", "constants_in_place", "constants_kept", "missing_constants"]

_WEIGHTED_OPS = ("nn.dense", "matmul")
"""Ops with large constants in models; tried in addition to the examples with small constants."""
_MAX_NBYTES = 1 << 22
"""The largest size of constants tried; kernels of convolutions, say, may exceed this size."""
_MIN_GROWTH = 1 << 16
"""The least growth of constants in bytes to be judged: compiled code is padded to pages."""


def constants_cited(subject: Subject, case: str) -> None:
    """Check that larger constants do not make a larger payload.

    The constants hold random bits, incompressible by any encoding: constants inside a payload show in the payload's
    size. Code specialised for a size may be a little longer for a larger size, so only a growth by a quarter of the
    constants' growth counts.
    """
    is_covered = False
    for op_name in _ops_with_constants(subject):
        first, second = (_large_module(subject, op_name, factor) for factor in (8, 64))
        if first is None or second is None:
            continue
        (small, before), (large, after) = (_sizes(attempt) for attempt in (first, second))
        if large - small < _MIN_GROWTH:
            continue
        is_covered = True
        if after - before > (large - small) // 4:
            raise FailedError(
                f"`{op_name}` with constants of {small} bytes has a payload of {before} bytes, "
                f"and with {large} bytes a payload of {after} bytes: cite constants by digest instead of inlining"
            )
    if not is_covered:
        raise NotCoveredError("no claimed op with large enough constants was found")


def _sizes(attempt: Attempt) -> tuple[int, int]:
    """Return the bytes of all constants, and of the payload."""
    constants = sum(array.nbytes for array in attempt.module.constants.values())
    return constants, sum(len(saved.payload) for saved in payloads_of(attempt))


def _ops_with_constants(subject: Subject) -> tuple[str, ...]:
    """Return the ops of the examples with constants, and some ops with large constants."""
    examples = [example for example in examples_of(subject) if example.kind == "constant"]
    names = (example.module[example.function].bindings[0].op.name for example in examples)
    return tuple(dict.fromkeys((*names, *_WEIGHTED_OPS)))


def _large_module(subject: Subject, op_name: str, factor: int) -> Attempt | None:
    """Return a compiled op with large constants; ``None`` if the subject does not compile the op."""
    module = _with_large_constants(subject, op_name, factor)
    try:
        return None if module is None else compile_module(subject, module)
    except NotCoveredError:
        return None


def _citing_modules(subject: Subject) -> tuple[Saved, ...]:
    """Return modules citing constants: from the examples, and with constants too large for inlining.

    Raises:
        NotCoveredError: no module cites constants.
    """
    saved = list(save_examples(subject))
    for op_name in _ops_with_constants(subject):
        attempt = _large_module(subject, op_name, 8)
        saved += () if attempt is None else payloads_of(attempt)
    citing = tuple(item for item in saved if item.module.constants)
    if not citing:
        raise NotCoveredError("the modules cite no constants")
    return citing


def _with_large_constants(subject: Subject, op_name: str, factor: int) -> IRModule | None:
    """Return the first case of an op with all sizes but 1 scaled by a factor, and constants after the first operand."""
    op = subject.ops[op_name]
    name = f"{op_name.replace('.', '_')}_times_{factor}"
    for case in op.canonical_cases:
        types = [
            TensorType(tuple(size * factor if size > 1 else 1 for size in operand.shape), operand.dtype or case.dtype)
            for operand in case.operands
        ]
        if all(type_.dtype == "float32" and _num_elements(type_) * 4 <= _MAX_NBYTES for type_ in types):
            generator = np.random.default_rng([subject.spec.seed, factor])
            constants = ConstantStore()
            fixed = [constants.add(_noise(type_, generator)) for type_ in types[1:]]
            try:
                function, _ = function_of(op, [Var("x0", types[0]), *fixed], case.attrs, name)
            except ByocError:
                return None
            return IRModule({name: function}, constants)
    return None


def _sizes_of(type_: TensorType) -> tuple[int, ...]:
    return tuple(size for size in type_.shape or () if isinstance(size, int))


def _num_elements(type_: TensorType) -> int:
    return math.prod(_sizes_of(type_))


def _noise(type_: TensorType, generator: np.random.Generator) -> Array:
    """Return float32 numbers between 1 and 2 of 23 random bits each."""
    return (generator.integers(0, 1 << 23, _sizes_of(type_), np.uint32) | np.uint32(0x3F800000)).view(np.float32)


def missing_constants(subject: Subject, case: str) -> None:
    """Check that a payload with a missing constant is refused, with an error naming the digest of the constant."""
    for saved in _citing_modules(subject):
        _, cited = _load_and_watch(saved)
        for digest in cited:
            rest = {key: array for key, array in saved.module.constants.items() if key != digest}
            try:
                saved.load(saved.payload, rest)
            except ArtifactError as error:
                if digest[:12] not in str(error):
                    raise FailedError(
                        f"constant {digest} is missing, but the error does not name the digest: {error}"
                    ) from error
            else:
                raise FailedError(f"the payload loads although the cited constant {digest} is missing")


def constants_kept(subject: Subject, case: str) -> None:
    """Check that ``module.constants`` holds exactly the cited constants, under the right digests, after loading too."""
    for saved in _citing_modules(subject):
        constants = saved.module.constants
        loaded, cited = _load_and_watch(saved)
        for digest, array in constants.items():
            if digest_of(array) != digest:
                raise FailedError(f"`constants` holds under {digest} an array with the digest {digest_of(array)}")
            # A loader may wait with asking; then the digest stands in the payload.
            if digest not in cited and not _is_cited(digest, saved.payload):
                raise FailedError(f"`constants` holds {digest}, but the payload does not cite the digest")
        if set(loaded.constants) != set(constants):
            got, expected = (", ".join(sorted(names)) or "none" for names in (loaded.constants, constants))
            raise FailedError(f"`constants` of the loaded module holds {got}; expected {expected}")


def constants_in_place(subject: Subject, case: str) -> None:
    """Check that a loaded module keeps the given arrays: mapped from a file, perhaps, and larger than memory."""
    for saved in _citing_modules(subject):
        saved.reload()
        arrays = {
            digest: np.require(array, requirements=["C", "A"]) for digest, array in saved.module.constants.items()
        }
        loaded = saved.load(saved.payload, arrays)
        for digest, array in loaded.constants.items():
            if digest in arrays and array.nbytes and not np.shares_memory(array, arrays[digest]):
                raise FailedError(f"constant {digest} of {array.nbytes} bytes is copied during loading")


def _load_and_watch(saved: Saved) -> tuple[RuntimeModule, tuple[str, ...]]:
    """Return the module of a payload, and the digests requested during loading."""
    saved.reload()
    recorder = _RecordingConstants(saved.module.constants)
    loaded = saved.load(saved.payload, recorder)
    return loaded, tuple(recorder.digests)


class _RecordingConstants(Mapping[str, Array]):
    """Constants recording the requested digests, in order."""

    def __init__(self, constants: Mapping[str, Array]) -> None:
        self._constants = dict(constants)
        self.digests: dict[str, None] = {}

    def __getitem__(self, digest: str) -> Array:
        array = self._constants[digest]
        self.digests[digest] = None
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._constants)

    def __len__(self) -> int:
        return len(self._constants)


def _is_cited(digest: str, payload: bytes) -> bool:
    return digest.encode() in payload or bytes.fromhex(digest) in payload
