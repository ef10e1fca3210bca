"""Score existing language models on the grid of a preset."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tape_arith.arith.api.arguments import Shots, checked
from tape_arith.arith.api.runs import recipe
from tape_arith.arith.files import slug
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.harness import score
from tape_arith.arith.harness.model import LanguageModel
from tape_arith.arith.harness.prompts import TEMPLATE, Prompts, plain
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.stopping import Stopper, stopping


@checked
def score_language_model(
    api: str,
    arguments: str,
    *,
    preset: str = "mini",
    task: str | None = None,
    template: str = TEMPLATE,
    shots: Shots = 0,
    out: str | Path | None = None,
    fresh: bool = False,
    stopper: Stopper | None = None,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> Grid:
    r"""Return the grid of a language model. An interrupted call continues; nothing is asked twice.

    api             the kind of the model, as in `lm_eval --model hf`
    arguments       those of `lm_eval --model_args`, as in "pretrained=gpt2"
    preset          the preset whose grid it is
    task            a task, written as it says; None: the preset's, numbers as people write them
    template        how a problem is written, as in r"Q: {problem}\nA: {answer}"
    shots           number of solved examples before each problem
    out             the folder for grid.json, heatmap.png and every answer
    settings, more  values that replace the preset's, as in problems_per_cell=10
    """
    if task is None and "@" not in preset:
        task = plain(load_preset(preset).task)
    name, config = recipe(preset, task, {**(settings or {}), **more})
    prompts, model = Prompts(config, template, shots), LanguageModel(api, arguments)
    usual = Path("language-models", slug(name), f"{slug(model.name)}-{shots}-shot")
    with stopping(stopper) as stop:
        return score.score_language_model(
            model, prompts, name, config, Path(out or usual), fresh=fresh, should_stop=stop
        )
