"""Describe the lengths of a grid, from its axes alone: its task's file may be missing."""

from collections.abc import Iterable

from tape_arith.arith.grids.axes import Axes, ScoredAxis, length_axes

_OPERANDS = {"a": "first operand", "b": "second operand"}


def unit(axis: ScoredAxis) -> str:
    """Return what an axis counts, as in "digits" for "digits of a"; of places in the singular."""
    return axis.name.partition(" of ")[0]


def operand(axis: ScoredAxis) -> str | None:
    """Return "first operand" for "digits of a"; None for an axis that is not of one operand."""
    return _OPERANDS.get(axis.name.partition(" of ")[2])


def axis_label(axis: ScoredAxis, *, brief: bool = False) -> str:
    """Return the words along an axis of a figure."""
    side = operand(axis)
    if side is None:
        return unit(axis) if brief and axis.is_place else axis.name
    return side if brief else f"length of {side}"


def longer_label(axes: Axes) -> str:
    """Return the words along the longest length on the axes that count digits."""
    counted = [axis for axis in axes if axis.counts == "digits"]
    return axis_label(counted[0]) if len(counted) == 1 else longest_words(axes)


def ticks(longest: int, shortest: int = 1) -> list[int]:
    """Return the lengths to label: the shortest, then multiples of a round number.

    >>> ticks(16), ticks(80), ticks(20, 2)
    ([1, 4, 8, 12, 16], [1, 20, 40, 60, 80], [2, 4, 8, 12, 16, 20])
    """
    sizes = [base * 10**power for power in range(6) for base in (1, 2, 4, 5)]
    step = min(size for size in sizes if longest <= 5 * size)
    return [shortest, *(n for n in range(step, longest + 1, step) if n > shortest)]


def cell(axes: Axes) -> str:
    """Return what a cell of the grid is called."""
    return "cell" if len(axes) > 1 else "length"


def measured(axes: Axes, lengths: Iterable[object]) -> str:
    """Return a length on each axis with its unit, as in "5 operands of 6 digits".

    Equal words are written once: "8 digits" holds for each of two numbers. Places are no lengths.
    """
    words = dict.fromkeys(
        f"{length} {unit(axis)}"
        for length, axis in zip(lengths, axes, strict=True)
        if not axis.is_place
    )
    return (" of " if axes[0].counts == "operands" else " and ").join(words)


def trained_and_tested(axes: Axes) -> str:
    """Return "trained to 4 digits and tested to 8", with ", at 8 depths" for an axis of places."""
    trained = measured(axes, [axis.trained for axis in axes])
    tested = measured(axes, [axis.tested for axis in axes])
    lengths = length_axes(axes)
    if len({(unit(axis), axis.tested) for axis in lengths}) == 1:
        tested = str(lengths[0].tested)  # the unit is that of the trained lengths
    places = [f", at {axis.tested} {unit(axis)}s" for axis in axes if axis.is_place]
    return "".join([f"trained to {trained} and tested to {tested}", *places])


def of_length(axes: Axes, length: str) -> str:
    """Return which problems have a length in `solved_to`, as in "of l digits"."""
    units = [unit(axis) for axis in axes if axis.counts == "digits"]
    if len(units) > 1:
        return f"whose longer operand has {length} {units[0]}"
    operands = [axis for axis in axes if axis.counts == "operands"]
    return " and ".join(
        [f"of {length} {units[0]}", *(f"up to {axis.trained} {unit(axis)}" for axis in operands)]
    )


def distributions(axes: Axes) -> str:
    """Describe the cells in and out of distribution."""
    trained, longer = "trained lengths", "longer ones"
    if len(length_axes(axes)) == 2:
        both = "operands" if operand(axes[0]) else "lengths"
        trained = f"both {both} {'of trained length' if operand(axes[0]) else 'trained'}"
        longer = f"the rest, in which one {both[:-1]} is longer or both"
    return f"In distribution: {trained}; out of distribution: {longer}."


def cell_pattern(axes: Axes) -> str:
    """Return the name of a cell with {0} and {1} for its lengths, as in "{0} and {1} digits"."""
    numbers = [f"{{{number}}}" for number in range(len(axes))]
    if len({unit(axis) for axis in axes}) < len(axes):
        return f"{' and '.join(numbers)} {unit(axes[0])}"
    places = [
        f" at {unit(axis)} {number}"
        for axis, number in zip(axes, numbers, strict=True)
        if axis.is_place
    ]
    return "".join([measured(axes, numbers), *places])


def longest_words(axes: Axes) -> str:
    """Return what orders problems by length, as in "digits of the longer operand"."""
    units = [unit(axis) for axis in axes if axis.counts == "digits"]
    return f"{units[0]} of the longer operand" if len(units) > 1 else units[0]
