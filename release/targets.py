"""The platforms with wheels with native files, and the native file of each package, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["NATIVE_FILES", "TARGETS", "NativeFile", "Target", "list_wheel_tags"]


@dataclass(frozen=True, slots=True)
class NativeFile:
    """The native file in the wheels of a package.

    Attributes:
        tags: the tags of Python and of Python's ABI in the names of these wheels.
        name: a glob of the file's name.
        is_extension: whether the file is an extension module of Python; else the file is a library for programs.
        is_optional: whether a wheel without the file serves all other platforms.
    """

    tags: str
    name: str
    is_extension: bool
    is_optional: bool


_EXTENSION = NativeFile("cp311-abi3", "_native.abi3.so", is_extension=True, is_optional=True)

NATIVE_FILES: Mapping[str, NativeFile] = MappingProxyType(
    {
        "core": _EXTENSION,
        "plugins/dnnl": _EXTENSION,
        "rt": NativeFile("py3-none", "libbyoc_rt.*", is_extension=False, is_optional=False),
    }
)
"""The native files by the folder of the package; all other packages are pure Python."""


@dataclass(frozen=True, slots=True)
class Target:
    """A platform of wheels.

    Attributes:
        tag: the platform tag of the wheels.
        zig: the target's name for ``zig cc``, with the version of glibc or macOS to link for.
        host_platform: the result of ``sysconfig.get_platform()`` on the target.
        numpy_platforms: platform tags of a numpy wheel with the target's headers.
        packages: folders of the packages with native files for the target.
        link_arguments: linker arguments for a native file.
    """

    tag: str
    zig: str
    host_platform: str
    numpy_platforms: tuple[str, ...]
    packages: tuple[str, ...] = tuple(NATIVE_FILES)
    link_arguments: tuple[str, ...] = ("-shared",)

    @property
    def is_musl(self) -> bool:
        """Whether the target's C library is musl."""
        return self.tag.startswith("musllinux")

    @property
    def is_macos(self) -> bool:
        """Whether the target is macOS."""
        return self.tag.startswith("macosx")

    @property
    def machine(self) -> str:
        """The target's processor family, as named by the platform tag."""
        return self.host_platform.rpartition("-")[2]


def _linux(machine: str) -> tuple[Target, Target]:
    glibc = Target(
        f"manylinux_2_17_{machine}",
        f"{machine}-linux-gnu.2.17",
        f"linux-{machine}",
        (f"manylinux_2_28_{machine}", f"manylinux_2_27_{machine}", f"manylinux_2_17_{machine}"),
    )
    musl = Target(
        f"musllinux_1_2_{machine}", f"{machine}-linux-musl", f"linux-{machine}", (f"musllinux_1_2_{machine}",)
    )
    return glibc, musl


def _macos(tag_machine: str, zig_machine: str, version: str, numpy_version: str) -> Target:
    # Python opens a library as it opens a bundle, which zig does not link.
    return Target(
        f"macosx_{version.replace('.', '_')}_{tag_machine}",
        f"{zig_machine}-macos.{version}",
        f"macosx-{version}-{tag_machine}",
        (f"macosx_{numpy_version}_{tag_machine}",),
        packages=("core", "rt"),
        link_arguments=("-shared", "-undefined", "dynamic_lookup"),
    )


TARGETS = (
    *_linux("x86_64"),
    *_linux("aarch64"),
    _macos("x86_64", "x86_64", "11.0", "14_0"),
    _macos("arm64", "aarch64", "11.0", "14_0"),
)
"""All platforms with native files. Every other platform takes the wheels without extensions."""


def list_wheel_tags(folder: str) -> list[str]:
    """Return the tags of the wheels of a package: of any platform first, unless the package needs its native file."""
    native = NATIVE_FILES.get(folder)
    if native is None:
        return ["py3-none-any"]
    tags = [f"{native.tags}-{target.tag}" for target in TARGETS if folder in target.packages]
    return ["py3-none-any", *tags] if native.is_optional else tags
