"""Tuning: placements of a model race on this machine, and the fastest is locked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from time import monotonic
from typing import Unpack

from byoc_core.driver import Compiler, CompileRequest, RequestFields, gather_request
from byoc_core.errors import OptionsError
from byoc_core.ir import IRModule
from byoc_core.measurements import USER_DATABASE, Measurements
from byoc_core.runtime.threads import num_threads as process_threads
from byoc_core.tuning.result import Tuning
from byoc_core.tuning.search import Search

__all__ = ["tune"]


def tune(
    module: IRModule,
    backends: Sequence[str | object] | None = None,
    inputs: Mapping[str, object] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    function: str = "main",
    num_threads: int | None = None,
    seconds: float = 120.0,
    seed: int = 0,
    request: CompileRequest | None = None,
    compiler: Compiler | None = None,
    executor: Executor | None = None,
    builders: Executor | None = None,
    trial_seconds: float = 300.0,
    progress: Callable[[str], object] | None = None,
    measurements: Measurements | None = USER_DATABASE,
    **fields: Unpack[RequestFields],
) -> Tuning:
    """Find the fastest placement of a model's ops among backends, by measured calls.

    Each backend alone, all orders of backends, the placement by estimated cost and the host alone race first; the host
    only if its first call was not much slower. Then the times of ops in profiles of each backend alone give new
    placements, for several costs of borders, and a beam search moves regions and borders of the fastest placements. A
    placement wins only if faster beyond noise, so the result is never slower than the best backend alone by more than
    noise. ``KeyboardInterrupt`` ends the search and keeps the best.

    Args:
        module: the model.
        backends: names or plugin objects; by default all installed backends able to compile here.
        inputs: the inputs of the measured calls by name; by default drawn at random.
        sizes: the sizes of symbols of drawn inputs; 1 by default.
        function: the function to call.
        num_threads: the number of threads of a call; by default the number of the process.
        seconds: the budget of the search, without the last build; the first placements are measured in any case.
        seed: of drawn inputs.
        request: further choices of the compilation; ``fields`` override its values, the search sets ``policy``.
        compiler: has the backends for names.
        executor: runs the trials behind the first race in other processes, several at once, perhaps on other machines
            of the same kind: :class:`LocalProcesses`, or the executor of a cluster. Backends must be installed there. A
            worker that dies, hangs or answers nonsense costs its trial only, and a second trial confirms each new best
            placement. Without an executor, all trials run in this process.
        builders: compiles the placements of these trials; by default ``executor``. Separate builders leave no memory
            and no threads of compilers beside the trials, and a crash of a backend while compiling costs no runner.
        trial_seconds: the time after which a build or a trial of an executor is given up.
        progress: called with a line for each placement: number, time, best time.
        measurements: the database keeping the times of ops, by default the user's; ``None``: nothing is kept. Later
            placements by cost read the database.
        fields: the fields of :class:`byoc_core.CompileRequest`, explained there.

    Raises:
        OptionsError: no backend is able to compile here, or a number is out of range.
        ByocError: as :func:`byoc_core.build`.
    """
    if seconds < 0:
        raise OptionsError("tune, seconds", "is negative", got=seconds)
    if builders is not None and executor is None:
        raise OptionsError("tune, builders", "is given without an executor for the trials")
    search = Search(
        module,
        gather_request(request, backends, fields),
        compiler or Compiler(),
        function,
        inputs,
        sizes or {},
        process_threads() if num_threads is None else num_threads,
        monotonic() + seconds,
        seed,
        progress or (lambda _line: None),
        measurements,
    )
    if executor is not None:
        search.use_workers(executor, builders or executor, trial_seconds)
    return search.run()
