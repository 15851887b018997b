"""Builds the C extensions and the C runtime with gcc's sanitizers, and runs their tests.

Code compiled by the tests is instrumented too:

    python -m core.tests.sanitizers.run                  # ThreadSanitizer, then AddressSanitizer with UBSan
    python -m core.tests.sanitizers.run thread
    python -m core.tests.sanitizers.run address --python "-m pytest -q plugins/ccompiler/tests"

Python itself is not instrumented: the sanitizer's library is loaded before Python. The library sees the reads and
writes of the extensions and of generated code, and all locks taken by Python, the interpreter's own included. First
each sanitizer must report deliberate faults (:mod:`core.tests.sanitizers.faults`): only then is a passing test
meaningful. Leaks are not searched here, because Python leaves memory at its end: the soak searches for leaks
(``core/tests/vm/test_soak.py``).
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).parents[3]
PACKAGES = MappingProxyType({"core": "byoc_core", "plugins/dnnl": "byoc_dnnl", "rt": "byoc_rt"})
"""Packages with an extension or a library, by folder."""
TESTS = (
    "core/tests/vm",
    "core/tests/runtime/csource/test_csource.py",
    "core/tests/runtime/test_vector_functions.py",
    *(f"plugins/dnnl/tests/test_dnnl_{name}.py" for name in ("creation", "extension", "stored_payloads")),
    "rt/tests",
    "--ignore=core/tests/vm/test_soak.py",
    *(
        f"--ignore=rt/tests/test_{name}.py"
        for name in ("examples", "library", "machine_leaks", "packaging", "sessions_memory")
    ),
)
"""Tests calling the extensions and the library.

Resident memory, bounded by the soak, is meaningless under a sanitizer, as is the size of the library. Example programs
are compiled by compilers without sanitizers, and the search for leaks has a sanitizer of its own.
"""
# What C writes, a report say, is not captured: pytest throws away the output of tests that pass.
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--capture=sys")
TIMEOUT_S = 3 * 3600
SUPPRESSIONS = Path(__file__).with_name("thread.supp")
# Tests ask for more memory than there is, and look at what becomes of that.
_MAY_FAIL = "allocator_may_return_null=1"


class MissingToolError(Exception):
    """A required tool is missing on this machine."""


@dataclass(frozen=True)
class Sanitizer:
    """A sanitizer of gcc.

    Attributes:
        checks: the value of ``-fsanitize``.
        libraries: the libraries to load before Python.
        environment: the settings.
        faults: part of the report on each fault to find.
    """

    checks: str
    libraries: tuple[str, ...]
    environment: Mapping[str, str]
    faults: Mapping[str, str]


SANITIZERS: Mapping[str, Sanitizer] = MappingProxyType(
    {
        "thread": Sanitizer(
            "thread",
            ("libtsan.so",),
            # Tests fork while other threads run, and their children make threads.
            # The threads of numpy's BLAS are not instrumented.
            {
                "TSAN_OPTIONS": f"exitcode=66:die_after_fork=0:{_MAY_FAIL}:suppressions={SUPPRESSIONS}",
                "OPENBLAS_NUM_THREADS": "1",
            },
            {
                "race_in_the_extension": "ThreadSanitizer: data race",
                "race_in_called_code": "ThreadSanitizer: data race",
            },
        ),
        "address": Sanitizer(
            "address,undefined",
            ("libasan.so", "libubsan.so"),
            # Python takes each object's memory from malloc then, where AddressSanitizer fences it.
            {
                "ASAN_OPTIONS": f"detect_leaks=0:{_MAY_FAIL}",
                "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
                "PYTHONMALLOC": "malloc",
            },
            {
                "write_past_the_end": "AddressSanitizer: heap-buffer-overflow",
                "misaligned_write": "runtime error: store to misaligned address",
            },
        ),
    }
)


def find_libraries(names: tuple[str, ...]) -> list[str]:
    """Return the paths of gcc's sanitizer libraries.

    Raises:
        MissingToolError: gcc or a library is missing.
    """
    if shutil.which("gcc") is None:
        raise MissingToolError("gcc is not installed: the sanitizers are gcc's (apt-get install gcc)")
    found = []
    for name in names:
        command = ["gcc", f"-print-file-name={name}"]
        path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        if not Path(path).is_absolute():
            raise MissingToolError(f"gcc has no {name} (apt-get install libgcc-12-dev, or of its version)")
        found.append(path)
    return found


def build_packages(sanitizer: Sanitizer, folder: Path) -> None:
    """Copy the packages into a folder, with instrumented extensions.

    Raises:
        MissingToolError: an extension or a library was not built.
    """
    flags = f"-fsanitize={sanitizer.checks}"
    environment = os.environ | {"CC": "gcc", "CFLAGS": f"{flags} -g -fno-omit-frame-pointer", "LDFLAGS": flags}
    for source, name in PACKAGES.items():
        package = folder / name
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(ROOT / source / "src" / name, package, ignore=ignored)
        command = [
            sys.executable,
            "setup.py",
            "-q",
            "build_ext",
            f"--build-lib={folder}",
            f"--build-temp={folder / 'temp'}",
        ]
        done = subprocess.run(command, cwd=ROOT / source, env=environment, capture_output=True, text=True, check=False)
        if not list(package.rglob("*.so")):
            raise MissingToolError(f"the C code of {name} was not built:\n{done.stdout}{done.stderr}")


def make_environment(sanitizer: Sanitizer, folder: Path) -> dict[str, str]:
    """Return the environment for Python with the instrumented packages; code compiled there is instrumented too."""
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)]
    return {
        **os.environ,
        **sanitizer.environment,
        "PYTHONPATH": os.pathsep.join(paths),
        "LD_PRELOAD": " ".join(find_libraries(sanitizer.libraries)),
        "BYOC_CC": f"env -u LD_PRELOAD gcc -fsanitize={sanitizer.checks} -g",
        "BYOC_CACHE_DIR": str(folder / "cache"),
    }


@cache
def fixed_addresses() -> tuple[str, ...]:
    """Return the command against random addresses, because libtsan of gcc 12 sometimes fails with these.

    The command is empty on a system without this command or in a container forbidding its use.
    """
    command = ("setarch", "-R")
    permitted = (
        shutil.which(command[0]) is not None
        and subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    )
    return command if permitted else ()


def run_python(environment: Mapping[str, str], *arguments: str, captured: bool = True) -> tuple[int, str]:
    """Run Python and return the status and output."""
    done = subprocess.run(
        [*fixed_addresses(), sys.executable, *arguments],
        cwd=ROOT,
        env=dict(environment),
        stdout=subprocess.PIPE if captured else None,
        stderr=subprocess.STDOUT if captured else None,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    return done.returncode, done.stdout or ""


def check(sanitizer: Sanitizer, commands: Sequence[Sequence[str]]) -> list[str]:
    """Run the faults, then commands of Python; return the failures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build_packages(sanitizer, folder)
        environment = make_environment(sanitizer, folder)
        blind = []
        for fault, expected in sanitizer.faults.items():
            status, output = run_python(environment, "-m", "core.tests.sanitizers.faults", fault)
            found = status != 0 and expected in output
            print(f"  {fault}: {'reported' if found else 'NOT REPORTED'}", flush=True)
            if not found:
                blind.append(f"the fault {fault} is not reported; status {status}:\n{output}")
        if blind:
            return blind
        problems = []
        for command in commands:
            status, _ = run_python(environment, *command, captured=False)
            if status:
                problems.append(f"`python {shlex.join(command)}` ended with {status}")
        return problems


def main() -> int:
    """Run the chosen sanitizers; return 1 after a finding, 2 if something is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sanitizers", nargs="*", metavar="sanitizer", help=f"which; of {', '.join(SANITIZERS)}")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="ARGUMENTS",
        help="what to run in place of the extension's tests, as python's arguments; may stand several times",
    )
    arguments = parser.parse_args()
    names = arguments.sanitizers or list(SANITIZERS)
    commands = [shlex.split(text) for text in arguments.python] or [[*PYTEST, *TESTS]]
    for name in names:
        if name not in SANITIZERS:
            parser.error(f"no sanitizer {name!r}; expected one of {', '.join(SANITIZERS)}")
    failed = False
    for name in names:
        print(f"{name}:", flush=True)
        try:
            problems = check(SANITIZERS[name], commands)
        except MissingToolError as error:
            print(f"  {error}")
            return 2
        for problem in problems:
            print(f"  {problem}")
        failed |= bool(problems)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
