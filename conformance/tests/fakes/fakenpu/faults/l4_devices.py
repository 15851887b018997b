"""Functions on a device: permitted, and with a device or functions breaking the contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from byoc_core.runtime import GraphModule
from byoc_core.runtime.devices import Device, DeviceTensor
from byoc_core.runtime.hooks import hookimpl
from byoc_core.runtime.memory import Pool
from byoc_core.runtime.module import CallTraits, PackedFunction
from byoc_core.runtime.protected_device import DeviceStream, ProtectedDevice

from fakenpu.faults.fault import Change, Fault

_CAPACITY = 1 << 30
_POOLS = (Pool("sram", 1024), Pool("dram", alignment=128), Pool("rom", 1 << 16, accesses=frozenset({"read"})))


def _runs_on(
    device_class: type[ProtectedDevice] = ProtectedDevice,
    after: Callable[[Sequence[DeviceTensor]], object] | None = None,
    wrap: Callable[[PackedFunction], Callable[..., object]] = lambda function: function.impl,
    *,
    only_first: bool = False,
    peer_copies: bool = False,
    pools: Sequence[Pool] = (),
) -> Change:
    """Run all functions on one of two devices.

    Args:
        device_class: the class of the device.
        after: called with the tensors after each function, by the device.
        wrap: returns the implementation run by the device.
        only_first: whether work on the second device is forgotten.
        peer_copies: whether the devices copy directly to each other.
        pools: the pools of the devices' memory.
    """

    def change(names: dict[str, Any]) -> None:
        devices = [
            device_class("fakenpu", index, capacity=_CAPACITY, is_lazy=True, peer_copies=peer_copies, pools=pools)
            for index in range(2)
        ]
        device = devices[0]
        sound: type[GraphModule] = names["FakeModule"]

        class OnDevice(sound):  # type: ignore[valid-type,misc]  # a class known only after import
            def find_function(self, name: str) -> PackedFunction:
                function: PackedFunction = super().find_function(name)
                if function.returns_results:
                    return function

                def enqueue(stream: DeviceStream, *tensors: DeviceTensor) -> None:
                    if only_first and stream.device.index > 0:
                        return
                    stream.launch(wrap(function), tensors)
                    if after is not None:
                        stream.enqueue(lambda: after(tensors))

                return PackedFunction(name, enqueue, function.signature)

            def call_traits(self, name: str) -> CallTraits:
                traits = super().call_traits(name)
                domain = None if super().find_function(name).returns_results else device.domain
                return CallTraits(in_place=traits.in_place, workspace_nbytes=traits.workspace_nbytes, domain=domain)

        def byoc_devices() -> Sequence[Device]:
            return devices

        names["FakeModule"] = OnDevice
        names["byoc_devices"] = hookimpl(byoc_devices)

    return change


class _WrongCopies(ProtectedDevice):
    """Copies within the device overtake the other work."""

    def copy_within(self, source: DeviceTensor, target: DeviceTensor, stream: object) -> None:
        with self.opened([source, target]) as (read, written):
            written[...] = read


class _WrongPeerCopies(ProtectedDevice):
    """Copies to the other device overtake the work of this device."""

    def copy_to_peer(
        self, source: DeviceTensor, stream: object, peer: Device, target: DeviceTensor, peer_stream: object
    ) -> None:
        assert isinstance(peer, ProtectedDevice)
        with self.opened([source]) as (read,), peer.opened([target]) as (written,):
            written[...] = read


class _ForgetsPeerCopies(ProtectedDevice):
    """Copies nothing to the other device."""

    def copy_to_peer(
        self, source: DeviceTensor, stream: object, peer: Device, target: DeviceTensor, peer_stream: object
    ) -> None:
        self.count(copies_to_peers=1)


class _ForgetsPool(ProtectedDevice):
    """Declares a read-only pool without memory."""

    def allocate_in(self, pool: str, nbytes: int) -> object:
        if pool == "rom":
            return super(ProtectedDevice, self).allocate_in(pool, nbytes)
        return super().allocate_in(pool, nbytes)


class _IgnoresLimits(ProtectedDevice):
    """Returns a small buffer for any size in a pool."""

    def allocate_in(self, pool: str, nbytes: int) -> object:
        return super().allocate_in(pool, min(nbytes, 1 << 20))


class _WrongError(ProtectedDevice):
    """Raises another error than ``MemoryError`` if memory is exhausted."""

    def allocate(self, nbytes: int) -> object:
        try:
            return super().allocate(nbytes)
        except MemoryError as error:
            raise RuntimeError("status -4") from error


class _AdoptsWithoutOwner(ProtectedDevice):
    """Frees memory of another package with the first of two owners."""

    def adopt(self, handle: int, nbytes: int) -> object:
        buffer = super().adopt(handle, nbytes)
        super().free(buffer)
        return buffer


class _AdoptsAnew(ProtectedDevice):
    """Returns a buffer object of its own for each adoption, as many drivers do."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options, distinct_adoptions=True)


class _ForgetsAdoptions(_AdoptsAnew):
    """Takes each buffer object for memory of its own."""

    def memory_of(self, buffer: object) -> tuple[object, int]:
        return id(buffer), 0


class _ChangesAfterReads(ProtectedDevice):
    """Changes memory at the start of a buffer whenever the buffer is read by the host."""

    def copy_out(self, source: DeviceTensor, target: Any, stream: object) -> None:
        super().copy_out(source, target, stream)
        byte = DeviceTensor(source.buffer, source.offset, "uint8", (1,))

        def change() -> None:
            with self.opened([byte]) as (array,):
                array ^= np.uint8(0x55)

        self._stream(stream).enqueue(change)


class _WritesBeyond(ProtectedDevice):
    """Can change the byte behind a tensor."""

    def write_behind(self, tensor: DeviceTensor) -> None:
        """Change the byte behind a tensor, unless the buffer ends there."""
        behind = DeviceTensor(tensor.buffer, tensor.offset + tensor.nbytes, "uint8", (1,))
        try:
            self.check([behind])
        except Exception:
            return
        with self.opened([behind]) as (array,):
            array += np.uint8(1)


def _clears_output_first(function: PackedFunction) -> Callable[..., object]:
    """Return an implementation clearing its first output before reading: wrong if the output is an input in place."""
    signature = function.signature
    assert signature is not None

    def run(*arrays: Any) -> None:
        arrays[len(signature.inputs)][...] = 0
        function.impl(*arrays)

    return run


def _writes_beyond(names: dict[str, Any]) -> None:
    devices: list[_WritesBeyond] = []

    class Remembered(_WritesBeyond):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            devices.append(self)

    _runs_on(Remembered, lambda tensors: devices[0].write_behind(tensors[-1]))(names)


FAULTS = {
    "runs-on-a-device": Fault(frozenset(), run_half=_runs_on()),
    "adopts-memory-anew": Fault(frozenset(), run_half=_runs_on(_AdoptsAnew)),
    "forgets-adoptions": Fault(frozenset({"L4-device-overlaps"}), run_half=_runs_on(_ForgetsAdoptions)),
    "copies-out-of-order": Fault(
        frozenset({"L4-device-copies"}), run_half=_runs_on(_WrongCopies), also=frozenset({"L*"})
    ),
    "reports-memory-by-another-error": Fault(frozenset({"L4-device-memory-error"}), run_half=_runs_on(_WrongError)),
    "frees-adopted-memory": Fault(frozenset({"L4-device-dlpack"}), run_half=_runs_on(_AdoptsWithoutOwner)),
    "changes-memory-after-reads-of-the-host": Fault(
        frozenset({"L4-device-arrays"}), run_half=_runs_on(_ChangesAfterReads), also=frozenset({"L*"})
    ),
    "forgets-work-of-a-second-device": Fault(
        frozenset({"L4-device-several"}), run_half=_runs_on(only_first=True), also=frozenset({"L4-device-overlaps"})
    ),
    "has-pools-on-a-device": Fault(frozenset(), run_half=_runs_on(pools=_POOLS)),
    "forgets-a-pool-of-a-device": Fault(frozenset({"L4-device-pools"}), run_half=_runs_on(_ForgetsPool, pools=_POOLS)),
    "ignores-limits-of-pools": Fault(
        frozenset({"L4-device-pools"}), run_half=_runs_on(_IgnoresLimits, pools=_POOLS), also=frozenset({"L*"})
    ),
    "copies-to-a-second-device": Fault(frozenset(), run_half=_runs_on(peer_copies=True)),
    "copies-to-a-second-device-too-early": Fault(
        frozenset({"L4-device-several"}), run_half=_runs_on(_WrongPeerCopies, peer_copies=True)
    ),
    "forgets-copies-to-a-second-device": Fault(
        frozenset({"L4-device-several"}), run_half=_runs_on(_ForgetsPeerCopies, peer_copies=True)
    ),
    "clears-a-state-on-a-device-before-reading": Fault(
        frozenset({"L4-device-states"}), run_half=_runs_on(wrap=_clears_output_first), also=frozenset({"L*"})
    ),
    "writes-beyond-a-tensor-of-a-device": Fault(
        frozenset({"L4-device-accesses"}), run_half=_writes_beyond, also=frozenset({"L*"})
    ),
}
