"""How speed scales: tokens a second over batch, length and layers, a grid's cost over its side.

Each sweep varies one size and leaves the others; over lengths the batch shrinks as rows grow, so
that a step keeps its tokens. To every sweep a power law is fitted, and --plot draws them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import NamedTuple

from tape_arith.arith.bench.measure import (
    Measurement,
    Options,
    Timing,
    not_measured,
    rounds,
    steps_in_turn,
    threads_of,
)
from tape_arith.arith.bench.sizes import TINY
from tape_arith.arith.bench.train import Contender, compile_all, contender
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.figures.captions import NBSP
from tape_arith.arith.figures.figure_file import figure_format
from tape_arith.arith.figures.scaling import Panel, Series, draw
from tape_arith.arith.runs.build import decoder_for
from tape_arith.arith.runs.environment import environment
from tape_arith.arith.scoring.score import score
from tape_arith.arith.terminal import say
from tape_arith.arith.training.config import Config
from tape_arith.models.build import prepare
from tape_arith.models.compile import raise_graph_limit
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.names.parse import Name

STAGE = "scaling"
TAKES = frozenset({"encodings", "preset", "settings", "lengths", "plot", "attention", "compiled"})

REPEATS, QUICK_REPEATS = 9, 2
TURNS, QUICK_TURNS = 3, 1
#: Sizes of a sweep that are measured whatever the time: fewer have no exponent.
FEWEST = 2


class Sweep(NamedTuple):
    """What one panel shows: a size, its values, and the config of each."""

    what: str
    title: str
    values: tuple[int, ...]
    config: Callable[[Config, int], Config]


class Sizes(NamedTuple):
    """The values of each sweep, and the sides of grids with how many problems in each cell."""

    batches: tuple[int, ...]
    digits: tuple[int, ...]
    layers: tuple[int, ...]
    sides: tuple[int, ...]
    problems_a_cell: int


SIZES = {
    "cpu": Sizes((16, 32, 64, 128, 256), (5, 10, 20, 40, 80), (1, 2, 4, 8), (4, 8, 16, 32), 4),
    # Few: every shape is compiled anew.
    "cuda": Sizes((64, 256, 512), (10, 20, 40, 80), (4, 8, 16), (10, 20, 40, 80), 20),
}
QUICK = Sizes((4, 8, 16), (2, 3, 4), (1, 2, 3), (2, 3, 4), 1)


def measure(options: Options) -> Iterator[Measurement]:
    """Every point, then the exponent of its sweep."""
    if options.plot is not None:
        figure_format(options.plot)  # refused before anything is measured
    hardware = detect(options.compute)
    config, sizes = config_for(options, hardware), sizes_for(options, hardware)
    names = options.names("rope", "tape")
    sweeps = sweeps_over(sizes, config)
    share = options.seconds / (len(sweeps) + 1)
    panels = []
    for sweep in sweeps:
        found: list[Series] = []
        yield from training(sweep, names, config, hardware, options, share, found)
        panels.append(Panel(sweep.title, sweep.what, "training, real tokens/s", tuple(found)))
    found = []
    yield from grids(sizes, names, config, hardware, options, share, found)
    title = f"Cost of a grid, {sizes.problems_a_cell} problems a cell"
    panels.append(Panel(title, "side of the grid, digits", "scoring, s", tuple(found)))
    if options.plot is not None:
        whole = [panel for panel in panels if panel.series]
        draw(whole, options.plot, note_of(config, hardware))
        say(str(options.plot))


def config_for(options: Options, hardware: Hardware) -> Config:
    """What the sweeps vary: what was asked for, else a size that suits the machine."""
    if options.quick:
        return options.config("mini", **TINY)
    if hardware.device == "cuda":
        return options.config("paper-40")
    return options.config("mini", trained_digits=20, tested_digits=40, batch_size=64)


def sizes_for(options: Options, hardware: Hardware) -> Sizes:
    sizes = QUICK if options.quick else SIZES[hardware.device]
    return sizes._replace(digits=options.lengths) if options.lengths else sizes


def sweeps_over(sizes: Sizes, base: Config) -> list[Sweep]:
    """Batch, length, layers."""

    def longer(config: Config, digits: int) -> Config:
        batch = max(1, round(config.batch_size * config.trained_digits / digits))
        return replace(config, trained_digits=digits, tested_digits=digits, batch_size=batch)

    return [
        Sweep(
            "batch, problems",
            f"Batch: {base.num_layers} layers, to {base.trained_digits} digits",
            sizes.batches,
            lambda config, batch: replace(config, batch_size=batch),
        ),
        Sweep(
            "longest operand, digits",
            f"Length: {base.num_layers} layers, equal tokens a batch",
            sizes.digits,
            longer,
        ),
        Sweep(
            "layers",
            f"Layers: batch {base.batch_size}, to {base.trained_digits} digits",
            sizes.layers,
            lambda config, layers: replace(config, num_layers=layers),
        ),
    ]


def training(
    sweep: Sweep,
    names: Sequence[Name],
    base: Config,
    hardware: Hardware,
    options: Options,
    seconds: float,
    found: list[Series],
) -> Iterator[Measurement]:
    """Real tokens a second of training at each value, all points in turn; fills `found`."""
    deadline = monotonic() + 0.5 * seconds
    points: dict[tuple[str, int], Contender] = {}
    for number, value in enumerate(sweep.values):
        if number >= FEWEST and monotonic() >= deadline:
            break
        for name in names:
            points[str(name), value] = contender(name, sweep.config(base, value), hardware)
    compile_all(points.values(), hardware)
    taken = steps_in_turn(
        {point: each.train for point, each in points.items()},
        device=hardware.device,
        turns=QUICK_TURNS if options.quick else TURNS,
        seconds=0.5 * seconds,
    )
    rates = {
        point: Timing.of([each.tokens(i) / s for i, s in enumerate(taken[point])])
        for point, each in points.items()
    }
    yield from lines(sweep.what, sweep.values, names, rates, "tokens/s", found)


def grids(
    sizes: Sizes,
    names: Sequence[Name],
    base: Config,
    hardware: Hardware,
    options: Options,
    seconds: float,
    found: list[Series],
) -> Iterator[Measurement]:
    """Seconds to make and score a grid of each side, with random weights; fills `found`."""
    config = replace(base, tested_digits=max(*sizes.sides, base.trained_digits))
    deadline = monotonic() + 0.5 * seconds
    works: dict[tuple[str, int], Callable[[], object]] = {}
    if hardware.compiles:
        raise_graph_limit(len(names), blocks=config.num_layers)
    decoders = {
        name: prepare(decoder_for(config, Name(name.encoding), 0), hardware).eval()
        for name in names
    }

    def scorer(name: Name, side: int) -> Callable[[], object]:
        bucket = Bucket(config.task, side, config.evaluation_seed, "evaluation")
        count = sizes.problems_a_cell * bucket.num_pairs

        def work() -> None:
            score(decoders[name], bucket.problems(0, count), bucket.keys(0, count), hardware)

        work()
        return work

    for number, side in enumerate(sizes.sides):
        if number >= FEWEST and monotonic() >= deadline:
            break
        for name in names:
            works[str(name), side] = scorer(name, side)
    taken = rounds(
        works,
        device=hardware.device,
        repeats=QUICK_REPEATS if options.quick else REPEATS,
        seconds=0.5 * seconds,
    )
    timings = {point: Timing.of(times) for point, times in taken.items()}
    yield from lines("side of the grid, digits", sizes.sides, names, timings, "s", found)


def lines(
    what: str,
    values: Sequence[int],
    names: Sequence[Name],
    measured: Mapping[tuple[str, int], Timing],
    unit: str,
    found: list[Series],
) -> Iterator[Measurement]:
    """A line a point, then one for the exponent of each encoding; fills `found`."""
    for name in map(str, names):
        there = [value for value in values if (name, value) in measured]
        for value in values:
            label = f"{name}: {what} {value}"
            if value not in there:
                yield not_measured(STAGE, label, unit, "the time was up")
                continue
            median, spread, repeats = measured[name, value]
            yield Measurement(STAGE, label, median, unit, spread=spread, repeats=repeats)
        timings = [measured[name, value] for value in there]
        series = Series(
            name,
            tuple(map(float, there)),
            tuple(timing.median for timing in timings),
            tuple(timing.spread for timing in timings),
        )
        found.append(series)
        label, fit = f"{name}: exponent of {unit} over {what}", series.fit
        if fit is None:
            yield not_measured(STAGE, label, "", "fewer than two sizes were measured")
            continue
        note = "" if fit.half_width is None else f"{fit.text()} (95 % interval of the fit), "
        yield Measurement(STAGE, label, fit.exponent, "", note=f"{note}{len(there)} sizes")


def note_of(config: Config, hardware: Hardware) -> str:
    """What a reader of the figure must know."""
    facts = environment(hardware)
    machine = hardware.name
    if hardware.device == "cpu":
        machine += f", {threads_of(hardware)}"
    return (
        f"Hidden {config.hidden_size}, {config.num_heads} heads of {config.head_dim}, MLP "
        f"{config.mlp_size}; {hardware.dtype_name} on {machine}; torch {facts['torch']}, commit "
        f"{facts['commit'] or 'unknown'}. Points are medians, bars half the distance between "
        "quartiles; dashed: power law fitted to the logarithms, its exponent with the "
        f"95{NBSP}% interval. Padding is not counted; weights are random."
    )
