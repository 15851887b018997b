"""The search for placements behind the first race: by measured ops, then a beam of moves from the best placements."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Protocol

from byoc_core.backend.registry import HOST_NAME
from byoc_core.partitioning import Policy
from byoc_core.partitioning.policies import ByCost, MachineModel, PlacedOps
from byoc_core.profiling import Profile
from byoc_core.tuning.borders import Border, count_crossings, learn_border, summed_seconds
from byoc_core.tuning.candidates import Candidate, PlacementKey, placement_tuple
from byoc_core.tuning.proposals import FIRST_BORDERS, Move, moved_borders, moved_ops, moved_regions

__all__ = ["PlacementBench", "PlacementSearch"]

_MAX_BORDERS = 8
_BEAM_WIDTH = 3
"""The number of fastest placements whose neighbours are tried."""
_BEAM_RATIO = 1.1
"""The ratio of times above which a placement is no origin of moves."""
_SLOW_HOST = MachineModel(flops_per_second=1e9, bytes_per_second=1e9, op_seconds=1e-5)
"""The host in searches by measured ops: ops not measured on the host shall not go there."""


class PlacementBench(Protocol):
    """The means of a search: builds, profiles and races."""

    @property
    def best(self) -> Candidate:
        """The best placement."""

    @property
    def measured_placements(self) -> Mapping[PlacementKey, tuple[Mapping[str, str], float]]:
        """The backend of each op and the seconds of a call, for each measured placement."""

    @property
    def num_moves_at_once(self) -> int:
        """The number of placements to be tried at once."""

    def build_policy(self, name: str, policy: Policy) -> Candidate | None:
        """Build a placement; ``None`` if the placement does not work or the results differ."""

    def profile_calls(self, candidate: Candidate) -> Profile:
        """Profile calls of a placement."""

    def try_policies(self, policies: Mapping[str, Policy]) -> bool:
        """Race placements against the best; return whether one of these is the new best."""

    def has_time_to_place(self) -> bool:
        """Return whether time for placements is left."""


class PlacementSearch:
    """A search among the placements of a model.

    Args:
        bench: builds, profiles and races.
        measured: by backend, the seconds of ops in a profile of the backend alone, by placement key.
        uncertain: by backend, the seconds of ops known from whole regions only.
        able: the placement of each backend alone: only ops taken there may move to the backend.
        sizes: the sizes of symbols.
    """

    def __init__(
        self,
        bench: PlacementBench,
        measured: Mapping[str, Mapping[str, float]],
        uncertain: Mapping[str, Mapping[str, float]],
        able: Mapping[str, Mapping[str, str]],
        sizes: Mapping[str, int],
    ) -> None:
        self._bench = bench
        self._measured = measured
        self._uncertain = uncertain
        self._able = able
        self._sizes = sizes
        self._tried: set[PlacementKey] = set()

    def run(self) -> bool:
        """Search until nothing is left to try or the time is over; return whether all was tried."""
        return self._place_by_measured_ops() and self._move()

    def _place_by_measured_ops(self) -> bool:
        """Try placements of least time by measured ops, learning the cost of borders; return whether time is left."""
        for number in range(_MAX_BORDERS):
            if not self._bench.has_time_to_place():
                return False
            border = FIRST_BORDERS[number] if number < len(FIRST_BORDERS) else self._learned_border()
            if border is None:
                return True
            before = len(self._bench.measured_placements)
            text = f"measured ops, borders of {border[0] * 1e6:.3g} us and {border[1] * 1e9:.3g} ns/B"
            machines = {HOST_NAME: _SLOW_HOST}
            policy = ByCost(measured=self._measured, border_seconds=border, machines=machines, margin=0)
            self._bench.try_policies({text: policy})
            if number >= len(FIRST_BORDERS) and len(self._bench.measured_placements) == before:
                return True  # the same placement again: nothing more to learn
        return True

    def _learned_border(self) -> Border | None:
        report = self._bench.best.executable.report_data
        excesses = []
        for ops, seconds in self._bench.measured_placements.values():
            excess = seconds - summed_seconds(ops, self._measured)
            excesses.append((count_crossings(report, ops, self._sizes), excess))
        return learn_border(excesses)

    def _move(self) -> bool:
        """Try the neighbours of the best placement, then of the next best; return whether all were tried.

        A new best placement is the next origin. Two moves may gain together what either loses alone, such as two
        regions joined by a third: so placements a little slower than the best are origins too.
        """
        origins: set[PlacementKey] = set()
        while (origin := self._next_origin(origins)) is not None:
            moves = filter(self._is_new, self._moves(origin))
            while batch := list(itertools.islice(moves, self._bench.num_moves_at_once)):
                if not self._bench.has_time_to_place():
                    return False
                if self._bench.try_policies({move.name: PlacedOps(move.ops) for move in batch}):
                    break
        return True

    def _next_origin(self, origins: set[PlacementKey]) -> Candidate | None:
        """Return the fastest placement that was no origin yet, ``None`` if the beam has no other; add its key."""
        best, measured = self._bench.best, self._bench.measured_placements
        fastest = sorted(measured, key=lambda key: measured[key][1])[:_BEAM_WIDTH]
        limit = _BEAM_RATIO * min((seconds for _, seconds in measured.values()), default=0.0)
        for key in (best.key, *fastest):
            if key in origins or (key != best.key and measured[key][1] > limit):
                continue
            origins.add(key)
            if key == best.key:
                return best
            if not self._bench.has_time_to_place():
                return None
            found = self._bench.build_policy("an earlier placement", PlacedOps(measured[key][0]))
            if found is not None:
                return found
        return None

    def _is_new(self, move: Move) -> bool:
        """Return whether a move leads to a placement not tried before, and note the placement."""
        key = placement_tuple(move.ops, {})
        is_new = key not in self._tried and key not in self._bench.measured_placements
        self._tried.add(key)
        return is_new

    def _moves(self, origin: Candidate) -> Iterator[Move]:
        """Yield the neighbours of a placement: a region, an op at a border, or an op of uncertain time elsewhere."""
        found = self._bench.profile_calls(origin)
        times = {region.name: region.seconds for region in found.regions}
        report = origin.executable.report_data
        yield from moved_regions(report, origin.ops, times, self._able)
        yield from moved_borders(report, origin.ops, self._able, self._sizes)
        yield from moved_ops(report, origin.ops, self._uncertain, self._able)
