"""The labels of placement problems: backends on numbered devices, then the host.

The user gives numbers of devices to ops (:class:`~byoc_core.partitioning.PartitionOptions`). Each number in use is a
slot of its own for each backend, so a value passed between two devices of one memory has a cost. Without numbers, a
slot is the label of a backend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.partitioning.op_sites import OpKey

__all__ = ["DeviceSlots"]


class DeviceSlots:
    """The slots of ops: for each backend a slot for each number of a device in use; the host's slot is the last.

    Args:
        num_backends: the number of backends without the host.
        numbers: the number of the device of each op; ops left out have the number 0.

    Attributes:
        host: the slot of the host.
    """

    def __init__(self, num_backends: int, numbers: Mapping[OpKey, int]) -> None:
        self._numbers = numbers
        self._used = sorted({0, *numbers.values()})
        self._ranks = {number: rank for rank, number in enumerate(self._used)}
        self._num_backends = num_backends
        self.host = num_backends * len(self._used)

    def __len__(self) -> int:
        """Return the number of slots."""
        return self.host + 1

    def slot(self, label: int, source: str, op: str) -> int:
        """Return the slot of an op on a backend: on the device of the op's number.

        Args:
            label: the label of the backend, or of the host.
            source: the op's original function.
            op: the name of the op's first result; for several ops together, of the last op.
        """
        if label == self._num_backends:
            return self.host
        return label * len(self._used) + self._ranks[self._numbers.get((source, op), 0)]

    def label(self, slot: int) -> int:
        """Return the label of the backend of a slot, or of the host."""
        return slot // len(self._used)

    def number(self, slot: int) -> int:
        """Return the number of the device of a slot; 0 for the host."""
        return 0 if slot == self.host else self._used[slot % len(self._used)]

    @property
    def has_numbers(self) -> bool:
        """Whether ops have other numbers than 0."""
        return len(self._used) > 1

    def expand(self, moves: Sequence[Sequence[int]], peer_moves: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return costs of moves between slots.

        Args:
            moves: the costs between labels.
            peer_moves: by label, the costs between two devices of one backend.
        """
        if not self.has_numbers:
            return moves
        labels = [self.label(slot) for slot in range(len(self))]
        return [
            [
                0 if source == target else peer_moves[leaving] if leaving == entering else moves[leaving][entering]
                for target, entering in enumerate(labels)
            ]
            for source, leaving in enumerate(labels)
        ]
