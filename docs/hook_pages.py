"""The pages of the hooks, generated from the hook specifications."""

from __future__ import annotations

from byoc_core.backend import hook_specs
from byoc_core.plugin.specification import QUESTIONS, HookSpec

from docs.markdown import to_markdown

__all__ = ["hook_pages"]

_MODULES = {
    "byoc.backends": "byoc_core.backend.hooks",
    "byoc.runtimes": "byoc_core.runtime.hooks",
    "byoc.importers": "byoc_core.frontend.hooks",
}
_SIDES = {
    "byoc.backends": "The compile half",
    "byoc.runtimes": "The run half",
    "byoc.importers": "Importers of ONNX operators",
}
_NOTICE = (
    "<!-- Made by `python -m docs.generate` from the hook's specification: change the specification, not this page. -->"
)

_INDEX = """\
# Hooks

{notice}

This page is for authors of plugins: all hooks, with a page each for calls, arguments and results.

A plugin is a module (or object) with functions marked by `hookimpl`; its entry point stands in one of three groups. A
function may leave out unneeded arguments. "Not supported" is an answer, never an exception.

An error of `byoc_core.errors` reaches the caller unchanged, with a note naming the hook; any other exception becomes a
`HookError` with plugin, distribution, version and hook. Results of hooks are checked. For `build` and `explain` an
error of a backend's hook is a refusal: see [record 51](../adr/0051-failing-hooks-are-refusals.md).
[How hooks change](../api-stability.md#hooks) states the guarantees. `byoc_core.backend.hook_specs()` returns the same
facts as data.
"""

_PAGE = """\
# {name}

{notice}

{summary}

```text
{signature}
```

| | |
|---|---|
| entry-point group | `{group}` |
| implemented by | {implemented_by} |
| since | byoc-core {since} |
| `hookimpl` from | `{module}` |

{arguments}

{answers}

## Example

```python
{example}```

[All hooks](README.md)
"""


def hook_pages() -> dict[str, str]:
    """Return the text of each page by file name: a page for each hook, and the index."""
    hooks = hook_specs()
    return {f"{hook.name}.md": _page(hook) for hook in hooks} | {"README.md": _index(hooks)}


def _page(hook: HookSpec) -> str:
    rows = [f"| `{argument.name}` | `{argument.type}` | {argument.since} |" for argument in hook.arguments]
    table = ["| argument | type | since |", "|---|---|---|", *rows] if rows else ["The hook takes no argument."]
    answers = [f"**{question}:** {to_markdown(hook.answers[question])}" for question in QUESTIONS]
    return _PAGE.format(
        name=hook.name,
        notice=_NOTICE,
        summary=to_markdown(hook.summary),
        signature=hook.signature,
        group=hook.group,
        implemented_by=_implemented_by(hook),
        since=hook.since,
        module=_MODULES[hook.group],
        arguments="\n".join(table),
        answers="\n\n".join(answers),
        example=hook.example,
    )


def _implemented_by(hook: HookSpec) -> str:
    if not hook.required:
        return "any plugin of the group"
    without = f" without [`{hook.alternative}`]({hook.alternative}.md)" if hook.alternative else ""
    return f"every plugin of the group{without}"


def _index(hooks: tuple[HookSpec, ...]) -> str:
    lines = [_INDEX.format(notice=_NOTICE)]
    for group, side in _SIDES.items():
        lines += [f"## {side}: `{group}`", "", "| hook | purpose | since |", "|---|---|---|"]
        for hook in hooks:
            if hook.group == group:
                lines.append(f"| [`{hook.name}`]({hook.name}.md) | {to_markdown(hook.summary)} | {hook.since} |")
        lines.append("")
    return "\n".join(lines)
