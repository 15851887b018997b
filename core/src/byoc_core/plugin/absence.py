"""Messages for a plugin not installed: near names, and advice for installing the plugin.

``pip install`` of a name runs code of the distribution's publisher. A name typed by the user may be misspelt, so only
distributions released together with byoc-core are advised. A name from an artifact is the text of a stranger. Only this
module puts such a name behind ``pip install``, always together with the doubt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from byoc_core.errors import near_names
from byoc_core.plugin.released import released_distributions

__all__ = ["describe_absence", "describe_claim"]

_DOUBT = "Check the name: `byoc doctor` lists the installed plugins. byoc knows no distribution with this {kind}."
_DISTRIBUTION = re.compile("[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")


def describe_absence(kind: str, name: str, known: Sequence[str], *, is_claim: bool = False) -> tuple[str, str | None]:
    """Return problem and hint for the name of a plugin not installed.

    Args:
        kind: the common noun for plugins of the group: ``"backend"`` or ``"runtime"``.
        name: the name.
        known: the installed names of the group.
        is_claim: whether the name comes from a stranger's file. No distribution is advised for such a name.
    """
    problem = f"{kind} `{name}` is not installed; installed: {', '.join(known) or 'none'}"
    if is_claim:
        return problem, near_names(name, known) or None
    released = released_distributions(f"byoc.{kind}s")
    if name in released:
        return f"{problem}; pip install {released[name]}", None
    parts = [part.strip() for part in name.split(",")]
    if len(parts) > 1:
        return problem, f"Pass each name separately: {', '.join(map(repr, parts))}."
    return problem, near_names(name, {*known, *released}) or _DOUBT.format(kind=kind)


def describe_claim(source: str, distribution: str) -> str:
    """Return the advice for a distribution named in a file as the source of a plugin.

    A name impossible for a distribution (PEP 508, at most 100 letters) is shown, but in no command: the name may hold
    options of pip, or another command.

    Args:
        source: the file's name in errors.
        distribution: the distribution named in the file.
    """
    if not _DISTRIBUTION.fullmatch(distribution):
        return f"Distribution {distribution!r} is named by {source}; no distribution can have this name."
    return (
        f"`pip install {distribution}` provides the plugin, according to {source}. Anybody can write any name into a "
        "file: check the publisher of the distribution first."
    )
