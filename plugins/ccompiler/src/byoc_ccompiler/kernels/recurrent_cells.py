"""What recurrent layers do elementwise behind the products of a step: from gates and states to the next states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from byoc_core.authoring import c
from byoc_core.dims import Dim

__all__ = ["Cell", "gru_closing", "gru_opening", "gru_update", "lstm_update", "rnn_update"]


@dataclass(frozen=True, slots=True)
class Cell:
    """The loop over the hidden units of one line at one step, under construction, and the elements of a unit.

    Attributes:
        unit: the number of the unit.
        size: the number of hidden units.
        gates: for each gate the sum of the products.
        biases: for each gate the bias of the input, and that of the state.
        states: the states, which a step changes.
        inner: of a gated recurrent unit: what comes from the state through the last gate's matrix, or goes into it.
        copies: other places that the hidden state goes to.
    """

    unit: c.Variable
    size: Dim
    gates: Sequence[c.Load]
    biases: Sequence[tuple[c.Load, c.Load]]
    states: Sequence[c.Load]
    inner: c.Load
    copies: Sequence[c.Load]
    _body: list[c.Statement] = field(default_factory=list, init=False)

    def let(self, name: str, value: c.Expression) -> c.Variable:
        """Return a variable with a value."""
        variable = c.Variable(name, value.type)
        self._body.append(c.Let(variable, value))
        return variable

    def element(self, op: str, name: str, value: c.Expression, *others: c.Expression) -> c.Variable:
        """Return a variable with the value of an elementwise op."""
        return self.let(name, c.Element(op, (self.let(f"{name}_sum", value), *others), value.type))

    def store(self, place: c.Load, value: c.Expression) -> None:
        """Write an element."""
        self._body.append(c.Store(place.buffer, place.index, value))

    def total(self, gate: int) -> c.Expression:
        """Return the sum of a gate, with both biases."""
        return self.gates[gate] + self.biases[gate][0] + self.biases[gate][1]

    def opened(self, *names: str) -> list[c.Variable]:
        """Return the first gates, opened."""
        return [self.element("sigmoid", name, self.total(gate)) for gate, name in enumerate(names)]

    def loop(self, *hidden: c.Expression) -> c.Block:
        """Return the loop over all units, which stores the new hidden state last, where there is one."""
        for value in hidden:
            for place in (self.states[0], *self.copies):
                self.store(place, value)
        return (c.For(self.unit, c.Size(0), c.Size(self.size), tuple(self._body), kind=c.LoopKind.VECTOR),)


def rnn_update(cell: Cell, activation: str) -> c.Block:
    """Return the loop of a plain layer."""
    zero = c.Literal(0, cell.inner.type)
    op, others = ("tanh", ()) if activation == "tanh" else ("maximum", (zero,))
    return cell.loop(cell.element(op, "hidden", cell.total(0), *others))


def lstm_update(cell: Cell) -> c.Block:
    """Return the loop of a long short-term memory, whose second state is the cell's."""
    enter, leave, keep = cell.opened("enter", "leave", "keep")
    new = cell.element("tanh", "new", cell.total(3))
    kept = cell.let("cell", keep * cell.states[1] + enter * new)
    cell.store(cell.states[1], kept)
    return cell.loop(cell.let("hidden", leave * cell.let("reached", c.Element("tanh", (kept,), kept.type))))


def gru_update(cell: Cell) -> c.Block:
    """Return the loop of a gated recurrent unit whose reset gate is behind the matrix; ``inner`` has its bias."""
    update, reset = cell.opened("update", "reset")
    entered = cell.gates[2] + cell.biases[2][0]
    return _mixed(cell, update, cell.element("tanh", "new", entered + reset * cell.inner))


def gru_opening(cell: Cell) -> c.Block:
    """Return the loop that opens the gates of a gated recurrent unit whose reset gate is before the matrix.

    The sum of the first gate becomes the opened gate; ``inner`` gets the state times the reset gate.
    """
    update, reset = cell.opened("update", "reset")
    cell.store(cell.gates[0], update)
    cell.store(cell.inner, reset * cell.states[0])
    return cell.loop()


def gru_closing(cell: Cell) -> c.Block:
    """Return the loop that follows :func:`gru_opening` and the product of the last gate."""
    update = cell.let("update", cell.gates[0])
    return _mixed(cell, update, cell.element("tanh", "new", cell.total(2)))


def _mixed(cell: Cell, update: c.Expression, new: c.Expression) -> c.Block:
    """Return the loop whose hidden state is as much of the old state as the update gate lets through, else new."""
    one = c.Literal(1, new.type)
    return cell.loop(cell.let("hidden", (one - update) * new + update * cell.states[0]))
