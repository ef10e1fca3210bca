"""`tape-arith harness`: score an existing language model."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import jobs, option
from tape_arith.arith.harness.prompts import TEMPLATE
from tape_arith.arith.runs.preset import parse_settings

EXAMPLE = "tape-arith harness --model-api hf --model-args pretrained=gpt2 --shots 4"

_Api = Annotated[
    str,
    typer.Option(metavar="NAME", help="As `lm_eval --model`: hf, vllm, local-completions, ..."),
]
_Arguments = Annotated[
    str,
    typer.Option(
        metavar="KEY=VALUE,...",
        help="As `lm_eval --model_args`: pretrained=DIR, or base_url=URL,model=NAME.",
    ),
]
_Template = Annotated[
    str,
    typer.Option(help=r"How a problem is written; \n is a new line, and {answer} may end it."),
]
_Shots = Annotated[
    int, typer.Option(metavar="N", min=0, max=100, help="Solved examples before each problem.")
]
_PerCell = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Problems a cell (default: the preset's).")
]
_Out = Annotated[
    Path | None, typer.Option(file_okay=False, help="The folder (default: in language-models).")
]


def command(
    model_api: _Api,
    model_args: _Arguments,
    preset: option.Preset = "mini",
    settings: option.Settings = None,
    task: option.TaskName = None,
    template: _Template = TEMPLATE,
    shots: _Shots = 0,
    per_cell: _PerCell = None,
    out: _Out = None,
    time_limit: option.TimeLimit = None,
    fresh: option.Fresh = False,
) -> None:
    """Score an existing language model on the grid of a preset, by lm-evaluation-harness.

    It continues text greedily, and the first line of that is its answer. Without --task, numbers
    of the preset's task are written as people write them, most significant digit first. No
    leaderboard has the grid; tape_arith.heatmap draws those of several models side by side.
    """
    from tape_arith.arith.api.models import score_language_model
    from tape_arith.arith.harness.score import summary

    counted = {} if per_cell is None else {"problems_per_cell": per_cell}
    with jobs.stopping(time_limit) as stopper:
        grid = score_language_model(
            model_api,
            model_args,
            preset=preset or "mini",
            task=task,
            template=template,
            shots=shots,
            out=out,
            fresh=fresh,
            stopper=stopper,
            settings={**parse_settings(settings), **counted},
        )
    print(summary(grid))
    if not grid.complete:
        jobs.leave(stopper)
