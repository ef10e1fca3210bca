"""Columns of costs: parameters, FLOPs, and the loss, speed and machine of trainings."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

from tape_arith.arith.compare.columns import NOT_MEASURED, UNKNOWN, Column
from tape_arith.arith.compare.selection import TolerantState
from tape_arith.arith.machine import datasheet
from tape_arith.arith.registry.declarations import MODEL

_NOTE = (
    "Parameters are the encoding's own; FLOPs are those of the matrix products that it "
    "adds to a forward, a token, over the longest trained sequence at this size. Loss: "
    "in the last steps of training, nats per scored token; tokens/s: real tokens over "
    "the whole of it; MFU: the FLOPs that it needed (no padding, half of attention) "
    "over its time, of the bfloat16 rate in the datasheet of the part, where there is "
    "one; each the median over seeds."
)


class Training(NamedTuple):
    """Loss, speed and machine of a run's training; None for what is not known."""

    loss: float | None = None
    """Loss in the last steps, in nats per scored token."""
    tokens_per_second: float | None = None
    """Tokens without padding, over the whole training."""
    mfu: float | None = None
    """Useful FLOPs per second over the rate in the hardware's datasheet, 0..1."""
    machine: str | None = None
    """Product name of the GPU or CPU."""


def training_of(run: TolerantState | None) -> Training:
    """Return what the files of a run say about its training."""
    # The last line has the totals of the whole run.
    if run is None or not run.metrics or not run.metrics[-1]["seconds"]:
        return Training()
    last, about = run.metrics[-1], run.record.about
    rate = last["tokens"] / last["seconds"]
    machine = run.record.machine.hardware if run.record.machine else None
    limit = datasheet(machine) if machine else None
    flops = about.training_flops_a_token if about else None
    mfu = rate * flops / limit if limit and flops else None
    return Training(last["loss"], rate, mfu, machine)


def cost_columns(rows: Sequence[Any]) -> list[Column[Any]]:
    """Return the columns of costs.

    A row has its `kind`, its `trainings`, and `parameters` and `flops_a_token` of its encoding.
    """

    def machines(*rows: Any) -> list[str]:
        trainings = [training for row in rows for training in row.trainings]
        return sorted({training.machine for training in trainings if training.machine})

    def count(number: int | float | None) -> str:
        return UNKNOWN if number is None else f"{number:,.0f}"

    def of_training(key: str, head: str, form: str, fact: str, **more: Any) -> Column[Any]:
        def values(row: Any) -> list[Any]:
            return [getattr(training, fact) for training in row.trainings]

        return Column(
            key,
            head,
            lambda row: format_median(values(row), form),
            numbers=lambda row: {fact: values(row)},
            **more,
        )

    several = len(machines(*rows)) > 1
    columns = [
        *[Column("trained_on", "trained on", lambda row: ", ".join(machines(row)) or UNKNOWN)]
        * several,
        Column(
            "parameters",
            "parameters",
            lambda row: count(row.parameters),
            value=lambda row: row.parameters,
            printed=True,
            importance=6,
            legend="parameters: those of the encoding",
        ),
        Column(
            "flops_a_token",
            "FLOPs a token",
            lambda row: count(row.flops_a_token),
            numbers=lambda row: {"flops": row.flops_a_token},
            printed=True,
            importance=7,
            legend="FLOPs: those that the encoding adds to a forward",
        ),
        of_training("loss", "loss", "{:.4f}", "loss", printed=True, importance=8),
        of_training(
            "tokens_s", "tokens/s", "{:,.0f}", "tokens_per_second", printed=True, importance=9
        ),
        of_training("mfu", "MFU, %", "{:.1%}", "mfu", importance=22),
        of_training("machine", "", "", "machine"),
    ]
    note = _NOTE + " Times of different machines do not compare." * several
    if any(row.kind == MODEL for row in rows):
        note += " Of another model, parameters are all that it has; its FLOPs are not counted."
    return [replace(column, note=note) for column in columns]


def format_median(values: Iterable[float | None], form: str) -> str:
    """Format the median of the known values; say if there are none."""
    known = [value for value in values if value is not None]
    return form.format(median(known)).rstrip("%") if known else NOT_MEASURED
