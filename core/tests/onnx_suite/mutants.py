"""Import of mutants of the suite's models: byoc's own errors only, in bounded time and memory.

::

    python -m core.tests.onnx_suite.mutants --count 20000 --seed 1
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType

import onnx
from byoc_core.errors import ByocError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir.verifier import verify
from google.protobuf.message import Message
from onnx.backend.test.loader import load_model_tests

__all__ = ["main", "mutate"]

_SECONDS = 20
_MEMORY = 8 << 30
_PER_CHUNK = 250
_KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


@cache
def _models() -> list[bytes]:
    """Return the models of the suite, except for models with large weights."""
    found = []
    for kind in _KINDS:
        for case in load_model_tests(kind=kind):
            model = case.model or onnx.load(Path(case.model_dir or "") / "model.onnx")
            if len(data := model.SerializeToString()) <= 40_000:
                found.append(data)
    return found


def mutate(data: bytes, generator: random.Random) -> bytes:
    """Return a model with changed bytes, or with changed fields."""
    if generator.random() < 0.4:
        return _with_other_bytes(data, generator)
    model = onnx.ModelProto.FromString(data)
    for _ in range(generator.randint(1, 3)):
        with suppress(ValueError):  # a number that is no member of an enumeration
            _change_field(model, generator)
    return bytes(model.SerializeToString())


def _with_other_bytes(data: bytes, generator: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(generator.randint(1, 6)):
        position, choice = generator.randrange(len(found)), generator.random()
        if choice < 0.6:
            found[position] = generator.randrange(256)
        elif choice < 0.8 and len(found) > 8:
            del found[position : position + generator.randint(1, 4)]
        else:
            found[position:position] = bytes(generator.randrange(256) for _ in range(generator.randint(1, 4)))
    return bytes(found)


def _change_field(message: Message, generator: random.Random) -> None:
    """Change a field somewhere below a message: another number, text of another field, removed or repeated elements."""
    fields = [(field, value) for field, value in message.ListFields() if field.name not in ("ir_version", "doc_string")]
    if not fields:
        return
    field, value = generator.choice(fields)
    if isinstance(value, Message):
        _change_field(value, generator)
    elif field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED:
        _change_elements(value, generator)
    elif isinstance(value, bool | int):
        setattr(message, field.name, _other_number(value, generator))
    elif isinstance(value, float):
        setattr(message, field.name, generator.choice((0.0, -1.0, 1e30, float("nan"), float("inf"))))
    elif isinstance(value, str):
        setattr(message, field.name, generator.choice(("", "x", "y", value + value)))


def _change_elements(values: object, generator: random.Random) -> None:
    elements = list(values)  # type: ignore[call-overload]  # a repeated field
    index = generator.randrange(len(elements))
    choice = generator.random()
    if choice < 0.2:
        del values[index]  # type: ignore[attr-defined]
    elif choice < 0.35:
        values.extend(elements[index : index + 1])  # type: ignore[attr-defined]
    elif isinstance(elements[index], Message):
        _change_field(elements[index], generator)
    elif isinstance(elements[index], int):
        values[index] = _other_number(elements[index], generator)  # type: ignore[index]
    elif isinstance(elements[index], str):
        values[index] = generator.choice(["", *elements])  # type: ignore[index]


def _other_number(number: int, generator: random.Random) -> int:
    return generator.choice((0, 1, -1, 2, number + 1, number * 3, 1 << 30)) % (1 << 31)


def _stop(_: int, __: FrameType | None) -> None:
    raise TimeoutError(f"more than {_SECONDS} seconds")


def _try_mutants(seed: int, count: int) -> tuple[Counter[str], list[str]]:
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    signal.signal(signal.SIGALRM, _stop)
    generator, models = random.Random(seed), _models()
    outcomes: Counter[str] = Counter()
    faults = []
    for number in range(count):
        data = mutate(generator.choice(models), generator)
        signal.alarm(_SECONDS)
        try:
            verify(from_onnx(data))
            outcomes["imported"] += 1
        except ByocError:
            outcomes["refused"] += 1
        except Exception as error:
            outcomes["faulty"] += 1
            faults.append(f"seed {seed}, mutant {number}: {type(error).__name__}: {error}"[:600])
        finally:
            signal.alarm(0)
    return outcomes, faults


def main() -> int:
    """Return 0 if all mutants are imported, or refused by an error of byoc."""
    parser = argparse.ArgumentParser(prog="python -m core.tests.onnx_suite.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="the number of mutants")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="the number of processes")
    arguments = parser.parse_args()
    chunks = -(-arguments.count // _PER_CHUNK)
    outcomes: Counter[str] = Counter()
    start = time.perf_counter()
    with ProcessPoolExecutor(arguments.jobs) as pool:
        seeds = range(arguments.seed, arguments.seed + chunks)
        for found, faults in pool.map(_try_mutants, seeds, [_PER_CHUNK] * chunks):
            outcomes += found
            print("\n".join(faults), end="\n" if faults else "", flush=True)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    print(f"{outcomes.total()} mutants in {time.perf_counter() - start:.0f} s: {counts}")
    return int(outcomes["faulty"] > 0)


if __name__ == "__main__":
    sys.exit(main())
