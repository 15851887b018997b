"""The importers of this process: registered by ``register_op``, or of installed plugins, opened on first need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from byoc_core.errors import ByocError, HookError, PluginError, type_name
from byoc_core.frontend import hooks
from byoc_core.frontend.hooks import OnnxImporters
from byoc_core.frontend.onnx_names import OnnxName, dotted_name, standardised
from byoc_core.opset.opdef import OpDef
from byoc_core.plugin import IMPORTERS_GROUP, Catalog, PluginRecord, PluginState
from byoc_core.plugin.handle import PluginHandle
from byoc_core.plugin.installation import installation
from byoc_core.plugin.metadata import normalise
from byoc_core.runtime.registry import Runtimes
from byoc_core.runtime.status import Status
from byoc_core.runtime.threads import ForkLock

if TYPE_CHECKING:
    from byoc_core.frontend.onnx.node_context import NodeImporter

__all__ = ["ImporterPlugin", "Importers", "RegisteredOperator", "importers"]

_HOOK = "byoc_onnx_importers"


@dataclass(frozen=True, slots=True)
class RegisteredOperator:
    """An operator registered by the process; see :func:`byoc_core.register_op`.

    Attributes:
        importer: the function importing a node; ``None`` if the node becomes the op directly.
        op: the op brought by the registration, if any.
    """

    importer: Callable[..., Any] | None
    op: OpDef | None


class ImporterPlugin:
    """An importer plugin with a checked result of the hook.

    Args:
        plugin: the plugin.

    Raises:
        HookError: the hook raised, returned anything but importers and ops, or imports an operator of the core.
    """

    def __init__(self, plugin: PluginHandle) -> None:
        self._plugin = plugin
        found = plugin.check(_HOOK, plugin.call(_HOOK), OnnxImporters)
        self._ops = tuple(self._checked_ops(found.ops))
        self._importers = dict(self._checked_importers(found.importers))
        self._spelled = {(standardised(op.onnx.domain), op.onnx.op_type): op for op in self._ops if op.onnx is not None}
        self._check_operators()

    @property
    def record(self) -> PluginRecord:
        """The distribution and version of the plugin."""
        return self._plugin.record

    @property
    def ops(self) -> Sequence[OpDef]:
        """The package's own ops."""
        return self._ops

    @property
    def operators(self) -> frozenset[OnnxName]:
        """The operators imported by the plugin."""
        return frozenset((*self._importers, *self._spelled))

    def importer(self, name: OnnxName) -> NodeImporter | None:
        """Return the importer of an operator; ``None`` for an operator spelled by an op."""
        return self._importers.get(name)

    def spelled_op(self, name: OnnxName) -> OpDef | None:
        """Return the op with this ONNX spelling, if any."""
        return self._spelled.get(name)

    def where(self) -> str:
        """Return the location text for messages: plugin, distribution, version and hook."""
        return self._plugin.where(_HOOK)

    def status(self) -> Status:
        """Return yes, with the number of operators of each domain."""
        counts = Counter(domain or "the standard domain" for domain, _ in self.operators)
        texts = (f"{count} operator{'' if count == 1 else 's'} of {domain}" for domain, count in sorted(counts.items()))
        return Status(True, ", ".join(texts) or "no operators")

    def _checked_ops(self, found: object) -> Iterator[OpDef]:
        from byoc_core.frontend.core_operators import find_core_op

        names: set[str] = set()
        for op in self._plugin.check(_HOOK, found, Sequence):  # type: ignore[type-abstract]
            if not isinstance(op, OpDef):
                raise HookError(self.where(), "returned an item other than an op", got=type_name(op), expected="OpDef")
            if op.name in names:
                raise HookError(self.where(), "returned two ops of the same name", got=op.name)
            if find_core_op(op.name) not in (None, op):
                raise HookError(self.where(), "returned another op under the name of a core op", got=op.name)
            names.add(op.name)
            yield op

    def _checked_importers(self, found: object) -> Iterator[tuple[OnnxName, NodeImporter]]:
        for name, importer in self._plugin.check(_HOOK, found, Mapping).items():  # type: ignore[type-abstract]
            is_name = isinstance(name, tuple) and len(name) == 2 and all(isinstance(part, str) for part in name)
            if not is_name or not callable(importer):
                raise HookError(
                    self.where(),
                    "returned an item other than a function by domain and operator",
                    got=f"{name!r}: {type_name(importer)}",
                    expected="('com.example', 'Scale'): function",
                )
            yield (standardised(name[0]), name[1]), importer

    def _check_operators(self) -> None:
        from byoc_core.frontend.core_operators import has_core_importer

        for name in filter(has_core_importer, sorted(self.operators)):
            raise HookError(self.where(), "imports an operator with an importer in byoc-core", got=dotted_name(name))

    def __repr__(self) -> str:
        return f"<importer plugin {self.record.name}>"


class Importers:
    """All importer plugins of a catalogue, each opened on first need, and the operators registered by the process.

    Args:
        catalog: the plugins of the group ``byoc.importers``.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._plugins: dict[str, ImporterPlugin] = {}
        self._registered: dict[OnnxName, RegisteredOperator] = {}
        self._registration = ForkLock()

    def list(self) -> tuple[PluginRecord, ...]:
        """Return the records of all importer plugins, including unusable plugins. Imports no plugin."""
        return self.catalog.records

    def names(self) -> tuple[str, ...]:
        """Return the names of all usable importer plugins. Imports no plugin."""
        return self.catalog.names()

    def unusable(self) -> tuple[PluginRecord, ...]:
        """Return the records of all unusable importer plugins, with reasons and remedies. Imports no plugin."""
        return tuple(record for record in self.catalog.records if record.state is not PluginState.AVAILABLE)

    def get(self, name: str) -> ImporterPlugin:
        """Return the importer plugin of this name.

        Raises:
            PluginError: the plugin is not installed, or cannot be used; gives the reason and a remedy.
        """
        opened = self._plugins.get(name)
        if opened is not None:
            return opened
        plugin = self.catalog.open(name, hooks)
        try:
            opened = ImporterPlugin(plugin)
        except ByocError as error:
            raise self.catalog.quarantine_faulty(plugin.record, error) from error
        return self._plugins.setdefault(name, opened)

    def find_plugin(self, name: OnnxName) -> ImporterPlugin | None:
        """Return the plugin importing an operator, or ``None`` if no usable plugin imports the operator.

        Cost: opens all importer plugins on first use. Faulty plugins are quarantined and passed over.

        Raises:
            PluginError: several plugins import the operator, and the user has not chosen.
        """
        claimants = [plugin for plugin in self._open_all() if name in plugin.operators]
        return self._preferred(name, claimants) if len(claimants) > 1 else next(iter(claimants), None)

    @property
    def has_registered(self) -> bool:
        """Whether the process registered any operator."""
        return bool(self._registered)

    def find_registered(self, name: OnnxName) -> RegisteredOperator | None:
        """Return the operator registered by the process, if any."""
        return self._registered.get(name)

    def register(self, name: OnnxName, registered: RegisteredOperator, runtimes: Runtimes) -> None:
        """Register an operator, and the kernel of the operator's own op; an earlier registration is replaced.

        Args:
            name: domain and operator.
            registered: the importer and the op.
            runtimes: the registry for the kernel.
        """
        from byoc_core.frontend.core_operators import find_core_op

        op = registered.op
        with self._registration.lock:
            if op is not None and op.kernel is not None and find_core_op(op.name) is None:
                runtimes.register_kernel(op.name, op.kernel)
            self._registered[name] = registered

    def _open_all(self) -> Iterator[ImporterPlugin]:
        for name in self.names():
            try:
                yield self.get(name)
            except PluginError:
                continue  # quarantined; `unusable` has the reason

    def _preferred(self, name: OnnxName, claimants: Sequence[ImporterPlugin]) -> ImporterPlugin:
        """Return the plugin of the distribution preferred by the user for the operator, or else for the domain."""
        operator, domain = dotted_name(name), name[0] or "ai.onnx"
        preferred = installation().settings().preferred
        for key in (operator, domain):
            distribution = normalise(preferred.get(key, ""))
            plugins = [plugin for plugin in claimants if normalise(plugin.record.distribution) == distribution]
            if len(plugins) == 1:
                return plugins[0]
        first = claimants[0].record.distribution
        if all(plugin.record.distribution == first for plugin in claimants):
            hint = f"Report this to the authors of {first}."
        else:
            hint = (
                f"Choose a distribution with BYOC_PREFER={operator}={first}, or for all operators of the domain with "
                f"BYOC_PREFER={domain}={first}; or uninstall a distribution."
            )
        raise PluginError(
            f"operator `{operator}`",
            "is imported by several plugins",
            got=", ".join(plugin.record.label for plugin in claimants),
            hint=hint,
        )


def importers() -> Importers:
    """Return the importers of this process.

    Metadata and the environment are read in the first call, plugin code on the first need of a model.
    """
    return installation().registry(Importers, IMPORTERS_GROUP)
