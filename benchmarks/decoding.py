"""Tokens per second of decoders: 32 steps after a prompt, with states, and with caches passed in and out.

The decoders are the GPT-2-style and the Llama-style decoder of the zoo, in a middle size, with random weights, batch 1
and one thread. Each step feeds the likeliest token. The copies of caches are counted: bytes copied to larger buffers by
a state of enough capacity, and bytes of caches copied by instructions of the program in a step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import byoc_core
import numpy as np
import onnx
from byoc_core.artifact import Executable
from byoc_core.dims import evaluate
from byoc_core.runtime.module import NDArray

from benchmarks.calls import NO_PEER, has_peer, peer_session
from benchmarks.pairing import Samples, measure, paired_ratio
from benchmarks.tables import Table, show, table_to_json
from benchmarks.zoo.gpt2 import Gpt2Config, build_gpt2
from benchmarks.zoo.graph_builder import STYLES
from benchmarks.zoo.llama import LlamaConfig, build_llama

PROMPT_LENGTH = 512
NUM_STEPS = 32
STYLE = "exported17"
BACKENDS = ("ccompiler",)
GPT2 = Gpt2Config(num_layers=6, hidden=384, num_heads=6, vocabulary=8000, positions=1024)
LLAMA = LlamaConfig(num_layers=6, hidden=384, num_heads=6, cache_heads=2, inner=1024, vocabulary=8000, positions=1024)

Step = Callable[[NDArray], NDArray]
"""A run on tokens, after all earlier tokens: returns the logits."""


@dataclass(frozen=True)
class Decoder:
    """A decoder of the benchmark.

    Attributes:
        model: the model.
        has_positions: whether the model takes positions and a mask.
    """

    model: onnx.ModelProto
    has_positions: bool

    @property
    def caches(self) -> list[tuple[str, str]]:
        """The names of the caches before and after a step."""
        names = [value.name for value in self.model.graph.input if value.name.startswith("past_")]
        return [(name, name.replace("past_", "present_", 1)) for name in names]

    def feeds(self, tokens: NDArray, before: int) -> dict[str, NDArray]:
        """Return the inputs other than caches."""
        length = tokens.shape[1]
        if not self.has_positions:
            return {"input_ids": tokens}
        return {
            "input_ids": tokens,
            "attention_mask": np.ones((1, before + length), np.int64),
            "position_ids": np.arange(before, before + length)[None],
        }

    def empty_caches(self) -> dict[str, NDArray]:
        """Return caches without rows."""
        shapes = {
            value.name: [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
            for value in self.model.graph.input
        }
        return {name: np.empty((*shapes[name][:2], 0, shapes[name][3]), np.float32) for name, _ in self.caches}


def run(num_rounds: int) -> dict[str, Any]:
    """Return tokens per second of each decoder in each variant, ratios to the states, and the copies of caches."""
    if not has_peer():
        print(f"  {NO_PEER}")
    decoders = {
        "gpt2": Decoder(build_gpt2(GPT2, STYLES[STYLE]), has_positions=False),
        "llama": Decoder(build_llama(LLAMA, STYLES[STYLE]), has_positions=True),
    }
    contestants: dict[str, Callable[[], float]] = {}
    copies: Table = {}
    for name, decoder in decoders.items():
        stateful = byoc_core.build(byoc_core.from_onnx(decoder.model, states=decoder.caches), BACKENDS)
        plain = byoc_core.build(byoc_core.from_onnx(decoder.model), BACKENDS)
        for title, count in _count_copies(decoder, stateful).items():
            copies.setdefault(title, {})[name] = Samples((float(count),))
        variants = {"byoc, states": _with_states(decoder, stateful), "byoc, caches in and out": _plain(decoder, plain)}
        if has_peer():
            session = peer_session(decoder.model.SerializeToString(), num_threads=1)
            variants["ORT, caches in and out"] = _peer(decoder, session)
            variants["ORT, IO binding"] = _bound_peer(decoder, session)
        _compare(name, variants)
        contestants |= {f"{variant}/{name}": _timed(start) for variant, start in variants.items()}
    samples = measure(contestants, num_rounds=num_rounds)
    table: Table = {}
    for key, found in samples.items():
        variant, _, name = key.partition("/")
        table.setdefault(variant, {})[name] = Samples(tuple(NUM_STEPS / value for value in found.values))
    ours = table["byoc, states"]
    ratios = {
        f"byoc, states / {variant}": {name: paired_ratio(ours[name], found) for name, found in row.items()}
        for variant, row in table.items()
        if row is not ours
    }
    show(f"tokens per second, {NUM_STEPS} steps after {PROMPT_LENGTH} tokens", table)
    show("times faster", ratios)
    show("copies of caches with states", copies, "g")
    return {
        "unit": "tokens/s",
        "tokens per second": table_to_json(table),
        "ratios": table_to_json(ratios),
        "bytes copied": table_to_json(copies),
    }


def _count_copies(decoder: Decoder, executable: Executable) -> dict[str, int]:
    """Return the bytes of caches copied in 32 steps, by kind."""
    machine = byoc_core.VirtualMachine(executable, num_threads=1)
    state = machine.new_state(capacity=PROMPT_LENGTH + NUM_STEPS)
    _decode(lambda tokens: _first(machine.run("main", decoder.feeds(tokens, state.length), state=state)))
    sizes = {"batch": 1, "sequence": 1, "past": PROMPT_LENGTH}
    instructions = [
        int(evaluate(nbytes, sizes))
        for summary in executable.states["main"]
        for nbytes in summary.copied_nbytes.values()
    ]
    return {"bytes moved to larger buffers": state.moved_nbytes, "bytes copied in a step": sum(instructions)}


def _with_states(decoder: Decoder, executable: Executable) -> Callable[[], Step]:
    machine = byoc_core.VirtualMachine(executable, num_threads=1)
    state = machine.new_state(capacity=PROMPT_LENGTH + NUM_STEPS)

    def start() -> Step:
        state.reset()
        return lambda tokens: _first(machine.run("main", decoder.feeds(tokens, state.length), state=state))

    return start


def _plain(decoder: Decoder, executable: Executable) -> Callable[[], Step]:
    machine = byoc_core.VirtualMachine(executable, num_threads=1)
    return lambda: _passing(decoder, lambda feeds: machine.run("main", feeds))  # type: ignore[arg-type,return-value]


def _peer(decoder: Decoder, session: Any) -> Callable[[], Step]:
    return lambda: _passing(decoder, lambda feeds: session.run(None, feeds))


def _passing(decoder: Decoder, run: Callable[[Mapping[str, NDArray]], Sequence[NDArray]]) -> Step:
    """Return a step passing the caches of each step to the next."""
    caches = decoder.empty_caches()

    def step(tokens: NDArray) -> NDArray:
        before = next(iter(caches.values())).shape[2]
        logits, *grown = run({**decoder.feeds(tokens, before), **caches})
        caches.update(zip(caches, grown, strict=True))
        return logits

    return step


def _bound_peer(decoder: Decoder, session: Any) -> Callable[[], Step]:
    """Return steps with the caches bound as values of ONNX Runtime, never converted to numpy."""
    import onnxruntime

    value = onnxruntime.OrtValue.ortvalue_from_numpy

    def start() -> Step:
        caches = {name: value(array) for name, array in decoder.empty_caches().items()}

        def step(tokens: NDArray) -> NDArray:
            before = next(iter(caches.values())).shape()[2]
            binding = session.io_binding()
            for name, array in decoder.feeds(tokens, before).items():
                binding.bind_ortvalue_input(name, value(np.ascontiguousarray(array)))
            for name, cache in caches.items():
                binding.bind_ortvalue_input(name, cache)
            for output in session.get_outputs():
                binding.bind_output(output.name)
            session.run_with_iobinding(binding)
            logits, *grown = binding.get_outputs()
            caches.update(zip(caches, grown, strict=True))
            return logits.numpy()  # type: ignore[no-any-return]

        return step

    return start


def _first(results: NDArray | tuple[NDArray, ...]) -> NDArray:
    return results[0] if isinstance(results, tuple) else results


def _decode(step: Step) -> tuple[list[int], float]:
    """Return the decoded tokens, and the seconds of all steps after the prompt."""
    logits = step(np.arange(1, 1 + PROMPT_LENGTH)[None])
    tokens = []
    start = time.perf_counter()
    for _ in range(NUM_STEPS):
        tokens.append(int(logits[0, -1].argmax()))
        logits = step(np.array([tokens[-1:]]))
    return tokens, time.perf_counter() - start


def _timed(start: Callable[[], Step]) -> Callable[[], float]:
    return lambda: _decode(start())[1]


def _compare(name: str, variants: Mapping[str, Callable[[], Step]]) -> None:
    """Check that all variants decode the same tokens.

    Raises:
        ValueError: the tokens of two variants differ.
    """
    tokens = {variant: _decode(start())[0] for variant, start in variants.items()}
    first = next(iter(tokens.values()))
    for variant, found in tokens.items():
        if found != first:
            raise ValueError(f"{name}: {variant} decodes {found}, expected {first}")
