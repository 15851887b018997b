"""The package of a new backend, rendered from the ``.tmpl`` files in ``scaffold/templates``.

A template is the final file except for three marks: ``@name@`` is the backend's name, ``@Title@`` the same in
CamelCase, ``@core_range@`` the required versions of byoc-core. In a path, ``NAME`` is the name and ``dot-`` a leading
dot.
"""

from __future__ import annotations

import importlib.util
import keyword
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from packaging.version import Version

from byoc_core.backend.info import is_backend_name
from byoc_core.errors import OptionsError
from byoc_core.plugin import BACKENDS_GROUP, RUNTIMES_GROUP, installed
from byoc_core.scaffold.kind import Kind
from byoc_core.version import __version__

__all__ = ["render_package", "write_package"]

_MAX_LENGTH = 24  # a longer name would push lines of the generated code beyond 120 columns
_OURS = ("core", "conformance")


def render_package(name: str, kind: Kind) -> Mapping[str, str]:
    """Return the files of a new backend: text by path, sorted. Equal arguments give equal text.

    Args:
        name: the name of the backend; the distribution is ``byoc-<name>``, the module ``byoc_<name>``.
        kind: the kind of backend.

    Raises:
        OptionsError: the name is not valid for a backend.
    """
    _check_name(name)
    marks = {"@name@": name, "@Title@": _to_camel_case(name), "@core_range@": core_range(__version__)}
    rendered = {}
    for folder in kind.folders:
        for path, template in _walk(files("byoc_core.scaffold") / "templates" / folder):
            text = template.read_text(encoding="utf-8")
            for mark, value in marks.items():
                text = text.replace(mark, value)
            rendered[path.replace("NAME", name).replace("dot-", ".")] = text
    return dict(sorted(rendered.items()))


def write_package(name: str, kind: Kind, folder: Path) -> tuple[Path, ...]:
    """Write a new backend into a folder, create the folder if missing, and return the files' paths.

    Args:
        name: as for :func:`render_package`.
        kind: likewise.
        folder: must not exist, or be empty: nothing is ever overwritten.

    Raises:
        OptionsError: the name is not valid for a backend or is taken on this machine, or the folder is not empty.
        OSError: a file cannot be written.
    """
    package = render_package(name, kind)
    _check_unused(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        problem = "holds files already" if folder.is_dir() else "is a file"
        raise OptionsError(
            f"folder `{folder}`", problem, hint="Name another folder with --output; nothing is overwritten."
        )
    written = []
    for path, text in package.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        written.append(target)
    return tuple(written)


def _check_name(name: str) -> None:
    where = "name of the backend"
    if name.lower().startswith("byoc"):
        raise OptionsError(where, "begins with `byoc`", got=repr(name), hint="The package will be called byoc-NAME.")
    if not is_backend_name(name) or len(name) > _MAX_LENGTH:
        expected = f"a lower-case word: letters, digits and `_`, a letter first, {_MAX_LENGTH} at most"
        raise OptionsError(where, "is not a valid name", got=repr(name), expected=expected)
    if keyword.iskeyword(name):
        raise OptionsError(where, f"`{name}` is a keyword of Python")
    if name in _OURS:
        raise OptionsError(where, f"byoc-{name} is a package of the byoc project")


def _check_unused(name: str) -> None:
    for group in (BACKENDS_GROUP, RUNTIMES_GROUP):
        record = installed(group).find(name)
        if record is not None:
            kind = "backend" if group == BACKENDS_GROUP else "runtime"
            raise OptionsError("name of the backend", f"{kind} `{name}` is installed already, by {record.label}")
    if importlib.util.find_spec(f"byoc_{name}") is not None:
        raise OptionsError("name of the backend", f"module `byoc_{name}` is installed already")


def _to_camel_case(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def core_range(version: str) -> str:
    """Return the version range required by a package made with this version: all versions with the same promises.

    The lower end for a pre-release is the pre-release itself: pip orders a release after all pre-releases of the
    release.
    """
    running = Version(version)
    lower = running.public if running.is_prerelease else f"{running.major}.{running.minor}"
    return f">={lower},<{running.major + 1}" if running.major else f">={lower},<0.{running.minor + 1}"


def _walk(folder: Traversable, base: str = "") -> Iterator[tuple[str, Traversable]]:
    """Yield the path of every template below a folder, without the suffix, and the template."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{base}{entry.name}/")
        elif entry.name.endswith(".tmpl"):
            yield base + entry.name.removesuffix(".tmpl"), entry
