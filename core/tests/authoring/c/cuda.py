"""NVRTC and the CUDA driver by ``ctypes``: compile printed CUDA, and launch kernels on a device, if present."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy.typing as npt
from byoc_core.authoring.c import Buffer, Grid, symbols_in
from byoc_core.dims import evaluate
from byoc_core.dtypes import dtype_info
from byoc_core.native.toolchain import include_directory

__all__ = ["Device", "Nvrtc", "find_device", "find_nvrtc"]

NDArray = npt.NDArray[Any]
_LEAST = 75
"""The oldest compute capability supported by all versions of NVRTC from 12 on, times 10."""
_MAJOR, _MINOR = 75, 76
"""Numbers of the device attributes with the compute capability."""
_THREADS, _MOST_BLOCKS = 32, 3
"""Numbers of a launch, small enough for several rounds per thread."""


def find_nvrtc() -> Nvrtc | None:
    """Return NVRTC of a package from PyPI, else of the system's CUDA toolkit, else ``None``."""
    path = next(_candidates(), None)
    return None if path is None else Nvrtc(path)


def _candidates() -> Iterator[str]:
    spec = find_spec("nvidia")
    folders = [Path(place) for place in (spec.submodule_search_locations if spec else None) or ()]
    # nvidia-cuda-nvrtc has the folder cu13, nvidia-cuda-nvrtc-cu12 the folder cuda_nvrtc.
    packages = [path for folder in folders for path in sorted(folder.glob("*/lib"), reverse=True)]
    toolkits = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    toolkits += sorted(Path("/usr/local").glob("cuda*"))
    for folder in (*packages, *(toolkit / lib for toolkit in toolkits for lib in ("lib64", "lib"))):
        yield from (str(path) for path in sorted(folder.glob("libnvrtc.so*"), reverse=True))
    found = ctypes.util.find_library("nvrtc")
    yield from () if found is None else (found,)


class Nvrtc:
    """A compiler of CUDA C++, without need of a device or of another compiler.

    Args:
        path: of the library.

    Attributes:
        path: of the library.
        version: 13000 for 13.0.
    """

    def __init__(self, path: str) -> None:
        # It asks for this one by its bare name, where the system's loader need not look.
        for builtins in sorted(Path(path).parent.glob("libnvrtc-builtins.so*")) if "/" in path else ():
            ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
        self.path = path
        self._library = ctypes.CDLL(path)
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = major.value * 1000 + minor.value * 10

    def compile(self, source: str, architecture: str = f"compute_{_LEAST}") -> bytes:
        """Return PTX for ``compute_75`` and the like, machine code for ``sm_75`` and the like.

        Raises:
            RuntimeError: the source is wrong; with the messages of NVRTC.
        """
        library, program = self._library, ctypes.c_void_p()
        self._check(library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None))
        options = [f"--gpu-architecture={architecture}", "--fmad=false", f"-I{include_directory()}"]
        array = (ctypes.c_char_p * len(options))(*map(str.encode, options))
        status = library.nvrtcCompileProgram(program, len(options), array)
        try:
            if status != 0:
                raise RuntimeError(self._text(program, "ProgramLog").decode())
            return self._text(program, "PTX" if architecture.startswith("compute_") else "CUBIN")
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        text = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, text))
        return text.raw

    def _check(self, status: int) -> None:
        if status != 0:
            self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
            raise RuntimeError(self._library.nvrtcGetErrorString(status).decode())


def find_device() -> Device | None:
    """Return the first CUDA device, or ``None`` without driver or device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return None
    return Device(driver)


class Device:
    """The first CUDA device.

    Args:
        driver: the library of the driver, initialised.

    Attributes:
        name: of the device.
        capability: 90 for 9.0.
        version: the newest version of CUDA known to the driver, 13000 for 13.0.
    """

    def __init__(self, driver: ctypes.CDLL) -> None:
        self._driver = driver
        device, context, number = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        # The context is that of the process: it stays until the process ends.
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        found = []
        for attribute in (_MAJOR, _MINOR):
            self._call("cuDeviceGetAttribute", ctypes.byref(number), attribute, device)
            found.append(number.value)
        self.capability = found[0] * 10 + found[1]
        self._call("cuDriverGetVersion", ctypes.byref(number))
        self.version = number.value
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, 256, device)
        self.name = name.value.decode()

    def load(self, nvrtc: Nvrtc, source: str) -> ctypes.c_void_p:
        """Return the module of a source: compiled to PTX, or to machine code if the PTX is too new for the driver."""
        kind = "compute" if nvrtc.version <= self.version else "sm"
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), nvrtc.compile(source, f"{kind}_{self.capability}"))
        return module

    def run(
        self, module: ctypes.c_void_p, grid: Grid, arrays: Mapping[Buffer, NDArray], sizes: Mapping[str, int]
    ) -> None:
        """Run the launches of a grid, and copy the results into the arrays.

        Args:
            module: has the kernels.
            grid: the launches.
            arrays: an array for each buffer parameter.
            sizes: the symbolic sizes.
        """
        with ExitStack() as stack:
            places = {buffer: self._allocate(stack, array.nbytes) for buffer, array in arrays.items()}
            for buffer in grid.scratch:
                assert buffer.size is not None
                nbytes = evaluate(buffer.size, sizes) * dtype_info(buffer.dtype).itemsize
                places[buffer] = self._allocate(stack, nbytes)
            for buffer, array in arrays.items():
                self._call("cuMemcpyHtoD_v2", places[buffer], ctypes.c_void_p(array.ctypes.data), _size(array.nbytes))
            for launch in grid.launches:
                arguments: list[Any] = [places[item] for item in launch.kernel.parameters if isinstance(item, Buffer)]
                arguments += [ctypes.c_int64(sizes[name]) for name in sorted(symbols_in(launch.kernel.body))]
                self._launch(module, launch.kernel.name, evaluate(launch.rounds, sizes), arguments)
            self._call("cuCtxSynchronize")
            for buffer, array in arrays.items():
                self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), places[buffer], _size(array.nbytes))

    def _launch(self, module: ctypes.c_void_p, name: str, rounds: int, arguments: Sequence[Any]) -> None:
        if rounds == 0:
            return
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(item) for item in arguments))
        blocks = min(-(-rounds // _THREADS), _MOST_BLOCKS)
        self._call("cuLaunchKernel", function, blocks, 1, 1, _THREADS, 1, 1, 0, None, pointers, None)

    def _allocate(self, stack: ExitStack, nbytes: int) -> ctypes.c_uint64:
        place = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(place), _size(max(nbytes, 1)))
        stack.callback(self._call, "cuMemFree_v2", place)
        return place

    def _call(self, name: str, *arguments: Any) -> None:
        status = self._driver[name](*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(status, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'unknown error').decode()} ({status})")


def _size(nbytes: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(nbytes)
