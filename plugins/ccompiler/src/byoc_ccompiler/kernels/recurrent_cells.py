"""What recurrent layers do elementwise behind the products of a step: from gates and states to the next states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byoc_core.authoring import c
from byoc_core.dims import Dim

__all__ = ["Cell", "gru_closing", "gru_opening", "gru_update", "lstm_update", "rnn_update"]

_Place = tuple[c.Buffer, c.Expression]


@dataclass(frozen=True, slots=True)
class Cell:
    """The memory of one line at one step: places of first elements.

    Attributes:
        size: the number of hidden units.
        gates: for each gate the sums of the products.
        biases: for each gate the bias of the input, and that of the state.
        states: the states, which a step changes.
        inner: of a gated recurrent unit: what comes from the state through the last gate's matrix, or goes into it.
        copies: other places that the hidden state goes to.
    """

    size: Dim
    gates: Sequence[_Place]
    biases: Sequence[tuple[_Place, _Place]]
    states: Sequence[_Place]
    inner: _Place
    copies: Sequence[_Place]

    def update(self) -> _Update:
        """Return the statements of one hidden unit, none so far."""
        return _Update(self)


class _Update:
    """The statements of one hidden unit, under construction."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._type = c.CType(cell.states[0][0].dtype)
        self._k = c.Variable("k")
        self._body: c.Block = ()

    def let(self, name: str, value: c.Expression) -> c.Variable:
        """Return a variable with a value."""
        variable = c.Variable(name, self._type)
        self._body += (c.Let(variable, value),)
        return variable

    def element(self, op: str, name: str, value: c.Expression, *others: c.Expression) -> c.Variable:
        """Return a variable with the value of an elementwise op."""
        return self.let(name, c.Element(op, (self.let(f"{name}_sum", value), *others), self._type))

    def number(self, value: float) -> c.Expression:
        """Return a number."""
        return c.Literal(value, self._type)

    def load(self, place: _Place) -> c.Expression:
        """Return the unit's element."""
        return place[0][place[1] + self._k]

    def store(self, place: _Place, value: c.Expression) -> None:
        """Write the unit's element."""
        self._body += (c.Store(place[0], place[1] + self._k, value),)

    def total(self, gate: int) -> c.Expression:
        """Return the sum of a gate, with both biases."""
        ours, theirs = self._cell.biases[gate]
        return self.load(self._cell.gates[gate]) + self.load(ours) + self.load(theirs)

    def loop(self, hidden: c.Expression | None = None) -> c.Block:
        """Return the loop over all units.

        Args:
            hidden: the new hidden state, which is stored last.
        """
        if hidden is not None:
            for place in (self._cell.states[0], *self._cell.copies):
                self.store(place, hidden)
        return (c.For(self._k, c.Size(0), c.Size(self._cell.size), self._body, kind=c.LoopKind.VECTOR),)


def rnn_update(cell: Cell, activation: str) -> c.Block:
    """Return the loop of a plain layer."""
    unit = cell.update()
    if activation == "tanh":
        return unit.loop(unit.element("tanh", "hidden", unit.total(0)))
    return unit.loop(unit.element("maximum", "hidden", unit.total(0), unit.number(0)))


def lstm_update(cell: Cell) -> c.Block:
    """Return the loop of a long short-term memory, whose second state is the cell's."""
    unit = cell.update()
    enter, leave, keep = (
        unit.element("sigmoid", name, unit.total(gate)) for gate, name in enumerate(("enter", "leave", "keep"))
    )
    new = unit.element("tanh", "new", unit.total(3))
    kept = unit.let("cell", keep * unit.load(cell.states[1]) + enter * new)
    unit.store(cell.states[1], kept)
    return unit.loop(unit.let("hidden", leave * unit.let("reached", c.Element("tanh", (kept,), kept.type))))


def gru_update(cell: Cell) -> c.Block:
    """Return the loop of a gated recurrent unit whose reset gate is behind the matrix; ``inner`` has its bias."""
    unit = cell.update()
    update, reset = (unit.element("sigmoid", name, unit.total(gate)) for gate, name in enumerate(("update", "reset")))
    entered = unit.load(cell.gates[2]) + unit.load(cell.biases[2][0])
    new = unit.element("tanh", "new", entered + reset * unit.load(cell.inner))
    return unit.loop(unit.let("hidden", (unit.number(1) - update) * new + update * unit.load(cell.states[0])))


def gru_opening(cell: Cell) -> c.Block:
    """Return the loop that opens the gates of a gated recurrent unit whose reset gate is before the matrix.

    The sum of the first gate becomes the opened gate; ``inner`` gets the state times the reset gate.
    """
    unit = cell.update()
    update, reset = (unit.element("sigmoid", name, unit.total(gate)) for gate, name in enumerate(("update", "reset")))
    unit.store(cell.gates[0], update)
    unit.store(cell.inner, reset * unit.load(cell.states[0]))
    return unit.loop()


def gru_closing(cell: Cell) -> c.Block:
    """Return the loop that follows :func:`gru_opening` and the product of the last gate."""
    unit = cell.update()
    update, new = unit.let("update", unit.load(cell.gates[0])), unit.element("tanh", "new", unit.total(2))
    return unit.loop(unit.let("hidden", (unit.number(1) - update) * new + update * unit.load(cell.states[0])))
