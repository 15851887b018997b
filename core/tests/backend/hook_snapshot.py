"""A snapshot of the hooks, against unnoticed changes.

``hook_snapshot.json`` holds the signature of every hook, and the first version with each part. After a lawful change,
``python -m core.tests.backend.hook_snapshot`` writes the file anew; an unlawful change is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from byoc_core.backend import hook_specs
from byoc_core.version import __version__

__all__ = ["FILE", "RULE", "current", "faults", "minor_version", "stored"]

FILE = Path(__file__).with_suffix(".json")

RULE = """\
Plugins out there implement these hooks. A hook may get a new argument, which bears the version that brings it
(`@hookspec(since=..., arguments_since={"argument": "X.Y"})`), and a group may get a new optional hook
(`@hookspec(since="X.Y")`). Nothing else may change without the deprecation that docs/api-stability.md describes.
Then run `python -m core.tests.backend.hook_snapshot`, and `python -m docs.generate` for the pages."""


def minor_version(version: str = __version__) -> str:
    """Return the first two numbers of a version."""
    return ".".join(version.split(".")[:2])


def current() -> dict[str, Any]:
    """Return the hooks of this core as plain data."""
    return {
        f"{hook.group}/{hook.name}": {
            "since": hook.since,
            "required": hook.required,
            "returns": hook.returns,
            "arguments": {a.name: {"type": a.type, "since": a.since} for a in hook.arguments},
        }
        for hook in hook_specs()
    }


def stored() -> dict[str, Any]:
    """Return the hooks of the stored file."""
    hooks: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    return hooks


def faults(before: Mapping[str, Any], after: Mapping[str, Any], version: str) -> Iterator[str]:
    """Yield the violations of the rule.

    Args:
        before: the stored hooks.
        after: the present hooks.
        version: the minor version introducing new parts.
    """
    for name in before.keys() - after.keys():
        yield f"{name} is gone"
    for name, hook in after.items():
        old = before.get(name)
        if old is None:
            if hook["since"] != version:
                yield f"{name} is new, and says since {hook['since']} instead of {version}"
            if hook["required"] and any(known.partition("/")[0] == name.partition("/")[0] for known in before):
                yield f"{name} is new, and required"
            continue
        for field in ("since", "required", "returns"):
            if hook[field] != old[field]:
                yield f"{name}: `{field}` was {old[field]!r}, and is {hook[field]!r}"
        yield from _argument_faults(name, old["arguments"], hook["arguments"], version)


def _argument_faults(hook: str, before: Mapping[str, Any], after: Mapping[str, Any], version: str) -> Iterator[str]:
    for name in before.keys() - after.keys():
        yield f"{hook}: argument `{name}` is gone"
    for name, argument in after.items():
        if name not in before:
            if argument["since"] != version:
                yield f"{hook}: argument `{name}` is new, and says since {argument['since']} instead of {version}"
        elif argument != before[name]:
            yield f"{hook}: argument `{name}` was {before[name]}, and is {argument}"


def main() -> None:
    """Write the file anew.

    Raises:
        SystemExit: the change is unlawful.
    """
    found = sorted(faults(stored() if FILE.exists() else {}, current(), minor_version()))
    if found:
        raise SystemExit("\n".join([*found, RULE]))
    FILE.write_text(json.dumps(current(), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
