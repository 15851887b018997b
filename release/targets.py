"""The platforms with wheels with C extensions, as data."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TARGETS", "Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """A platform of wheels.

    Attributes:
        tag: the platform tag of the wheels.
        zig: the target's name for ``zig cc``, with the version of glibc or macOS to link for.
        host_platform: the result of ``sysconfig.get_platform()`` on the target.
        numpy_platforms: platform tags of a numpy wheel with the target's headers.
        packages: folders of the packages with extensions for the target.
        link_arguments: linker arguments for an extension of Python.
    """

    tag: str
    zig: str
    host_platform: str
    numpy_platforms: tuple[str, ...]
    packages: tuple[str, ...] = ("core", "plugins/dnnl")
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
        packages=("core",),
        link_arguments=("-shared", "-undefined", "dynamic_lookup"),
    )


TARGETS = (
    *_linux("x86_64"),
    *_linux("aarch64"),
    _macos("x86_64", "x86_64", "11.0", "14_0"),
    _macos("arm64", "aarch64", "11.0", "14_0"),
)
"""All platforms with extensions. Every other platform takes the wheels without extensions."""
