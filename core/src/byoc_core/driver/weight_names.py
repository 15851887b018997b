"""Names of the weights of a program of several functions: no two weights share a name."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from byoc_core.transform.hoist_weights import HoistedWeights

__all__ = ["WeightNames", "name_weights"]


@dataclass(frozen=True)
class WeightNames:
    """The names of the weights in the table of an executable, for each function in order.

    Attributes:
        swappable: the name of each swappable weight, by the name in the function.
        fixed: the name of each weight that is not swappable, in order.
    """

    swappable: tuple[dict[str, str], ...]
    fixed: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class _Claim:
    """A weight of a function; claims of one name and equal contents are one weight."""

    function: str
    name: str
    content: Hashable
    is_unused: bool = False


def name_weights(hoisted: Sequence[HoistedWeights]) -> WeightNames:
    """Return the name in the table of each weight of each function.

    Weights of several functions with one name are one weight if all agree: swappable with one value, or not swappable
    with one value and reason. Otherwise the names of functions are prefixed, more than once if the result is the name
    of another weight. Unused weights leave the name to the others.
    """
    names = iter(_unique_names([claim for item in hoisted for claim in _claims(item)]))
    swappable, fixed = [], []
    for item in hoisted:
        swappable.append({name: next(names) for name in item.weights})
        fixed.append(tuple(next(names) for _ in item.fixed))
    return WeightNames(tuple(swappable), tuple(fixed))


def _claims(item: HoistedWeights) -> Iterator[_Claim]:
    function = item.function.name
    for name, digest in item.weights.items():
        yield _Claim(function, name, ("swappable", digest))
    for weight in item.fixed:
        yield _Claim(function, weight.name, weight, not weight.digest)


def _unique_names(claims: Sequence[_Claim]) -> list[str]:
    contents: dict[str, dict[Hashable, bool]] = {}
    for claim in claims:
        contents.setdefault(claim.name, {})[claim.content] = claim.is_unused
    owners: dict[str, Hashable] = {}
    for name, found in contents.items():
        used = [content for content, is_unused in found.items() if not is_unused] or list(found)
        if len(used) == 1:
            owners[name] = used[0]
    prefixed: dict[tuple[str, str, Hashable], str] = {}
    reserved_names = set(contents)
    names = []
    for claim in claims:
        if owners.get(claim.name) == claim.content:
            names.append(claim.name)
            continue
        key = (claim.function, claim.name, claim.content)
        if key not in prefixed:
            candidate = f"{claim.function}:{claim.name}"
            while candidate in reserved_names:
                candidate = f"{claim.function}:{candidate}"
            reserved_names.add(candidate)
            prefixed[key] = candidate
        names.append(prefixed[key])
    return names
