"""Tokens per second of decoders: 32 steps after a prompt, with states, and with caches passed in and out.

The decoders are those of :mod:`benchmarks.decoders`, batch 1, one and two threads, after prompts of 512 and of 4,096
tokens. Each step feeds the likeliest token. The copies of caches are counted: bytes copied to larger buffers by a state
of enough capacity, and bytes of caches copied by instructions of the program in a step. Steps begin at the caches of a
prompt computed once by each engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import byoc_core
import numpy as np
from byoc_core.artifact import Executable
from byoc_core.dims import evaluate
from byoc_core.runtime.module import NDArray
from byoc_core.vm.state import State

from benchmarks.calls import NO_PEER, has_peer, peer_session
from benchmarks.decoders import BACKENDS, LONG_PAST, NUM_STEPS, SHORT_PAST, Decoder, build_decoders
from benchmarks.pairing import Samples, measure, paired_ratio
from benchmarks.tables import Table, show, table_to_json

PASTS, THREADS = (SHORT_PAST, LONG_PAST), (1, 2)
STATES = "byoc, states"

Step = Callable[[NDArray], NDArray]
"""A run on tokens, after all earlier tokens: returns the logits."""

Start = Callable[[], tuple[Step, int]]
"""Return steps behind the prompt, and the first token behind the prompt."""


def run(num_rounds: int) -> dict[str, Any]:
    """Return tokens per second of each decoder in each variant, ratios to the states, and the copies of caches."""
    if not has_peer():
        print(f"  {NO_PEER}")
    contestants: dict[str, Callable[[], float]] = {}
    copies: Table = {}
    for name, decoder in build_decoders().items():
        model = decoder.model.SerializeToString()
        stateful = byoc_core.build(byoc_core.from_onnx(decoder.model, states=decoder.caches), BACKENDS)
        plain = byoc_core.build(byoc_core.from_onnx(decoder.model), BACKENDS)
        for past in PASTS:
            print(f"  {name}: prompt of {past} tokens", flush=True)
            machine = byoc_core.VirtualMachine(stateful)
            state = machine.new_state(capacity=past + NUM_STEPS)
            first = _likeliest(_first(machine.run("main", decoder.prompt(past), state=state)))
            for title, count in _count_copies(decoder, stateful, (state, first), past).items():
                copies.setdefault(title, {})[f"{name} {past}"] = Samples((float(count),))
            whole_prompt = decoder.prompt(past) | decoder.empty_caches()
            outputs: Any = byoc_core.VirtualMachine(plain).run("main", whole_prompt)
            peer_outputs = peer_session(model, num_threads=2).run(None, whole_prompt) if has_peer() else []
            for threads in THREADS:
                variants = {STATES: _with_states(decoder, stateful, (state, first), threads)}
                variants["byoc, caches in and out"] = _plain(decoder, plain, outputs, threads)
                if has_peer():
                    session = peer_session(model, num_threads=threads)
                    variants["ORT, caches in and out"] = _peer(decoder, session, peer_outputs)
                    variants["ORT, IO binding"] = _bound_peer(decoder, session, peer_outputs)
                _compare(f"{name}, {past} tokens", variants)
                for variant, start in variants.items():
                    contestants[f"{threads} threads, {variant}/{name} {past}"] = _timed(start)
    samples = measure(contestants, num_rounds=num_rounds)
    table: Table = {}
    for key, found in samples.items():
        row, _, column = key.partition("/")
        table.setdefault(row, {})[column] = Samples(tuple(NUM_STEPS / value for value in found.values))
    ratios = _ratios(table)
    growth = _growth(table)
    show(f"tokens per second, {NUM_STEPS} steps", table)
    show("times faster with states", ratios)
    show("microseconds per step and 1,000 tokens of past", growth)
    show("copies of caches with states", copies, "g")
    return {
        "unit": "tokens/s",
        "tokens per second": table_to_json(table),
        "ratios": table_to_json(ratios),
        "growth for 1,000 tokens in microseconds": table_to_json(growth),
        "copied bytes": table_to_json(copies),
    }


def _ratios(table: Table) -> Table:
    """Return tokens per second with states over those of the other variants."""
    ratios: Table = {}
    for row, columns in table.items():
        threads, _, variant = row.partition(", ")
        if variant != STATES:
            ours = table[f"{threads}, {STATES}"]
            ratios[row] = {column: paired_ratio(ours[column], found) for column, found in columns.items()}
    return ratios


def _growth(table: Table) -> Table:
    """Return the growth of the time of a step from the short to the long past, in microseconds per 1,000 tokens."""
    return {
        row: {
            name: Samples(
                tuple(
                    (1 / long - 1 / short) * 1e6 / ((LONG_PAST - SHORT_PAST) / 1000)
                    for short, long in zip(
                        columns[f"{name} {SHORT_PAST}"].values, columns[f"{name} {LONG_PAST}"].values, strict=True
                    )
                )
            )
            for name in dict.fromkeys(column.partition(" ")[0] for column in columns)
        }
        for row, columns in table.items()
    }


def _count_copies(decoder: Decoder, executable: Executable, prompt: tuple[State, int], past: int) -> dict[str, int]:
    """Return the bytes of caches copied in a prompt and 32 steps, by kind."""
    machine, state = byoc_core.VirtualMachine(executable), prompt[0].fork()
    _decode(lambda tokens: _first(machine.run("main", decoder.feeds(tokens, state.length), state=state)), prompt[1])
    sizes = {"batch": 1, "sequence": 1, "past": past}
    instructions = [
        int(evaluate(nbytes, sizes))
        for summary in executable.states["main"]
        for nbytes in summary.copied_nbytes.values()
    ]
    moved = prompt[0].moved_nbytes + state.moved_nbytes
    return {"bytes moved to larger buffers": moved, "bytes copied in a step": sum(instructions)}


def _with_states(decoder: Decoder, executable: Executable, prompt: tuple[State, int], num_threads: int) -> Start:
    """Return steps with states, from the state and the first token behind the prompt."""
    machine = byoc_core.VirtualMachine(executable, num_threads=num_threads)
    state = prompt[0].fork()

    def start() -> tuple[Step, int]:
        state.restart(prompt[0])
        return lambda tokens: _first(machine.run("main", decoder.feeds(tokens, state.length), state=state)), prompt[1]

    return start


def _plain(decoder: Decoder, executable: Executable, outputs: Sequence[NDArray], num_threads: int) -> Start:
    machine = byoc_core.VirtualMachine(executable, num_threads=num_threads)
    return _passing(decoder, lambda feeds: machine.run("main", feeds), outputs)


def _peer(decoder: Decoder, session: Any, outputs: Sequence[NDArray]) -> Start:
    return _passing(decoder, lambda feeds: session.run(None, feeds), outputs)


def _passing(
    decoder: Decoder, run: Callable[[Mapping[str, NDArray]], Sequence[NDArray]], outputs: Sequence[NDArray]
) -> Start:
    """Return steps passing the caches of each step to the next, from the outputs of the prompt on."""

    def start() -> tuple[Step, int]:
        logits, *prompt = outputs
        caches = {name: array for (name, _), array in zip(decoder.caches, prompt, strict=True)}

        def step(tokens: NDArray) -> NDArray:
            before = next(iter(caches.values())).shape[2]
            logits, *grown = run({**decoder.feeds(tokens, before), **caches})
            caches.update(zip(caches, grown, strict=True))
            return logits

        return step, _likeliest(logits)

    return start


def _bound_peer(decoder: Decoder, session: Any, outputs: Sequence[NDArray]) -> Start:
    """Return steps with the caches bound as values of ONNX Runtime, never converted to numpy."""
    import onnxruntime

    value = onnxruntime.OrtValue.ortvalue_from_numpy
    logits, *prompt = outputs

    def start() -> tuple[Step, int]:
        caches = {name: value(array) for (name, _), array in zip(decoder.caches, prompt, strict=True)}

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

        return step, _likeliest(logits)

    return start


def _first(results: NDArray | tuple[NDArray, ...]) -> NDArray:
    return results[0] if isinstance(results, tuple) else results


def _likeliest(logits: NDArray) -> int:
    return int(logits[0, -1].argmax())


def _decode(step: Step, first: int) -> tuple[list[int], float]:
    """Return the decoded tokens, and the seconds of all steps after the prompt."""
    tokens = [first]
    start = time.perf_counter()
    for _ in range(NUM_STEPS):
        tokens.append(_likeliest(step(np.array([tokens[-1:]]))))
    return tokens, time.perf_counter() - start


def _timed(start: Start) -> Callable[[], float]:
    return lambda: _decode(*start())[1]


def _compare(name: str, variants: Mapping[str, Start]) -> None:
    """Check that all variants decode the same tokens.

    Raises:
        ValueError: the tokens of two variants differ.
    """
    tokens = {variant: _decode(*start())[0] for variant, start in variants.items()}
    first = next(iter(tokens.values()))
    for variant, found in tokens.items():
        if found != first:
            raise ValueError(f"{name}: {variant} decodes {found}, expected {first}")
