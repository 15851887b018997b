"""A plugin behind pluggy: the hooks are checked once, and errors of calls name the plugin."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, TypeVar

import pluggy

from byoc_core.errors import ByocError, HookError, PluginError, near_names
from byoc_core.plugin.markers import PROJECT_NAME
from byoc_core.plugin.record import PluginRecord
from byoc_core.plugin.specification import HookSpec, read_hook_specs

__all__ = ["PluginHandle"]

_T = TypeVar("_T")


class PluginHandle:
    """A plugin registered alone in a separate ``PluginManager``, to keep calls from reaching another plugin.

    Args:
        record: the plugin's record.
        plugin: a module or an object with ``hookimpl``-marked functions.
        specs: the module of hook specifications.

    Raises:
        PluginError: a hook is misspelt, takes an argument missing in the specification, is not marked, or is missing;
            or there is no hook at all.
    """

    def __init__(self, record: PluginRecord, plugin: object, specs: ModuleType) -> None:
        self.record = record
        self.plugin = plugin
        self._manager = pluggy.PluginManager(PROJECT_NAME)
        self._manager.register(plugin, name=record.name)
        hooks = read_hook_specs(specs, record.group)
        self._check_arguments(hooks)  # before pluggy, because its message names no hook
        try:
            self._manager.add_hookspecs(specs)
        except pluggy.PluginValidationError as error:
            raise self._invalid(_last_line(error), "Compare the hook with its specification.") from error
        self._check(hooks)

    def has(self, hook: str) -> bool:
        """Return whether the plugin implements a hook."""
        return bool(getattr(self._manager.hook, hook).get_hookimpls())

    def call(self, hook: str, **arguments: object) -> Any:
        """Call a hook and return the result; ``None`` if the plugin does not implement the hook.

        Raises:
            HookError: the hook raised an exception outside byoc's own errors, or tried to end the process; the cause is
                chained.
            ByocError: the hook reported an error in byoc's terms; a note names the plugin and the hook.
            KeyboardInterrupt, MemoryError: passed through: neither is the plugin's fault.
        """
        try:
            return getattr(self._manager.hook, hook)(**arguments)
        except ByocError as error:
            error.add_note(f"raised by {self.record.label}, hook `{hook}`")
            raise
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException as error:
            raise HookError(
                self.where(hook),
                f"raised {type(error).__name__}: {error}",
                hint=f"This is a fault of {self.record.distribution or 'the plugin'}, not of byoc-core.",
            ) from error

    def check(self, hook: str, value: object, expected: type[_T], *, action: str = "returned") -> _T:
        """Return ``value`` if of the type required from a hook.

        Raises:
            HookError: ``value`` is of another type.
        """
        if not isinstance(value, expected):
            raise HookError(
                self.where(hook),
                f"{action} a value of the wrong type",
                got=type(value).__qualname__,
                expected=expected.__qualname__,
            )
        return value

    def introduce(self, hook: str, expected: type[_T], key: str) -> _T:
        """Return the plugin's info about itself.

        Args:
            hook: the hook returning the info.
            expected: the required type of the info.
            key: the field of the info to compare with the entry point's name.

        Raises:
            HookError: the hook raised, returned a value of another type, or names another plugin.
        """
        info = self.check(hook, self.call(hook), expected)
        name = getattr(info, key)
        if name != self.record.name:
            raise HookError(
                self.where(hook),
                f"returned a {key.replace('_', ' ')} different from the entry point's name",
                got=repr(name),
                expected=repr(self.record.name),
            )
        return info

    def where(self, hook: str) -> str:
        """Return the location text for messages: plugin, distribution, version and hook."""
        return f"{self.record.label}, hook `{hook}`"

    def _check_arguments(self, hooks: Sequence[HookSpec]) -> None:
        specified = {hook.name: [argument.name for argument in hook.arguments] for hook in hooks}
        for caller in self._manager.get_hookcallers(self.plugin) or ():
            allowed = specified.get(caller.name)
            for argument in (name for implementation in caller.get_hookimpls() for name in implementation.argnames):
                if allowed is not None and argument not in allowed:
                    takes = (
                        f"The possible arguments are {', '.join(allowed)}."
                        if allowed
                        else "The hook takes no arguments."
                    )
                    hint = near_names(argument, allowed) or takes
                    raise self._invalid(f"the hook `{caller.name}` cannot have an argument `{argument}`", hint)

    def _check(self, hooks: Sequence[HookSpec]) -> None:
        hook_names = {hook.name for hook in hooks}
        marked = {caller.name for caller in self._manager.get_hookcallers(self.plugin) or ()}
        try:
            self._manager.check_pending()  # accepts hooks marked `optionalhook`: hooks of a newer core
        except pluggy.PluginValidationError as error:
            name = min(marked - hook_names)
            hint = near_names(name, hook_names) or f"The hooks are {', '.join(sorted(hook_names))}."
            raise self._invalid(f"there is no hook `{name}`", hint) from error
        for name in sorted(hook_names - marked):
            if callable(getattr(self.plugin, name, None)):
                raise self._invalid(f"the function `{name}` is not marked as a hook", "Decorate it with `@hookimpl`.")
        if not marked:
            raise self._invalid("the plugin implements no hook", "The entry point may refer to the wrong object.")
        for hook in hooks:
            if hook.required and hook.name not in marked and hook.alternative not in marked:
                alternative = f", or `{hook.alternative}` in place of it" if hook.alternative else ""
                raise self._invalid(
                    f"the plugin does not implement the hook `{hook.name}`",
                    f"The hook is required in this group{alternative}.",
                )

    def _invalid(self, problem: str, hint: str) -> PluginError:
        return PluginError(self.record.label, problem, hint=hint)


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1]
