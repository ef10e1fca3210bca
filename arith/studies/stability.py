"""Stability under positional shifts: how attention changes if indices start elsewhere or [BOS]
tokens come first.

After Table 8 of the TAPE paper (arXiv 2501.00712), whose text leaves the formula open. For each
layer, D = mean |A - A'| / mean |A|, where A are the attention weights before the change and A'
those after it. Means are over problems, heads and the causal triangle (keys up to each query), with
equal weight for every entry, so that long problems count more. D is also measured for
P(t, i) = sum_f tr(e_t e_i^T), the inner products of the positional state that attention uses.

Rows of the study: D as `value` for each precision, change, measure and layer. If an encoding lacks
a measure, one row without a value has the reason in `why`.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from tape_arith.arith.data.rows import Rows
from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures.style import GREY, LETTERS, finish, page, styled
from tape_arith.arith.scoring.score import sequences
from tape_arith.arith.studies.inputs import Sample, StudiedRuns, watched
from tape_arith.arith.studies.study import SPREAD, Study, draw_runs, markdown, mean_cell
from tape_arith.arith.tasks.families.tokens import BOS
from tape_arith.models.decoder import Decoder
from tape_arith.models.runner import Runner

SHIFTS = {"start 3": (3, 0), "start 1000": (1000, 0), "BOS": (0, 3)}
"""For each change, the index of the first token and the number of [BOS] in front. "start 1000" lies
beyond every trained index; the other two are the paper's."""
_CHANGES = {
    "start 3": "indices start at 3",
    "start 1000": "indices start at 1000",
    "BOS": "three [BOS] in front",
}
_ATTENTION, _RENORMALISED, _PRODUCTS = "attention", "attention, renormalised", "inner products"
_MEASURES = {
    _ATTENTION: "attention weights",
    _RENORMALISED: "attention weights, renormalised",
    _PRODUCTS: "inner products of positions",
}
"""Quantities compared before and after a change. Renormalised: without the columns of the leading
tokens, rows are scaled to sum to 1 again (a row whose whole weight lay there stays zero)."""
_ROUNDING = {"float32": 3e-5, "float64": 1e-12}
"""Changes up to this level may be rounding alone. It is some hundred units of rounding in float32,
some thousand in float64, where the angle of an index near 1000 is itself rounded by 1e-13."""
_BAND = "#e9e9e9"
_DOTTED: dict[str, Any] = {"linestyle": (0, (1, 1.5))}
_DEFINITION = (
    "Change: mean |difference| over mean |value|, over keys up to the query, heads and problems; "
    "behind [BOS] of the original tokens, raw and with rows that sum to 1 again. Inner products "
    "are those of the state that a layer's attention uses."
)
_UNTRAINED = "[BOS] is an untrained token of runs without it in training."


def measure(runs: StudiedRuns, count: int, *, double: bool = False) -> Study:
    """Measure `runs` on the first `count` problems, in float32 and, with `double`, in float64.

    Raises UsageError for too many problems; Failure for a corrupt file or weights that are not
    finite.
    """
    runs.look_inside("stability")
    regions, sample = runs.regions(count), runs.sample(np.arange(count))

    def measured(runner: Runner) -> pd.DataFrame:
        frames = []
        for precision in ("float32", "float64") if double else ("float32",):
            decoder = runner.decoder.to(getattr(torch, precision))
            rows = deviations(decoder, sample, runner.hardware.device)
            rows.insert(0, "precision", precision)
            small = (rows["value"] <= _ROUNDING[precision]).astype("boolean")
            frames.append(rows.assign(at_rounding_level=small.mask(rows["value"].isna())))
        return pd.concat(frames)

    return runs.measure("stability", regions, measured)


def deviations(decoder: Decoder, sample: Sample, device: str) -> pd.DataFrame:
    """Measure `decoder`, in the precision of its parameters, for each of SHIFTS.

    Its inputs are those of scoring: whole problems without the end token. Raises what `watched`
    does, except that an index which the encoding does not have gives rows without values.
    """
    rows: list[tuple[str, str, str | None, int | None, float | None]] = []
    for change, (start, leading) in SHIFTS.items():
        missing, values = "no positional state", {}
        try:
            values = _deviations(decoder, sample, device, start, leading)
        except UsageError as error:
            missing = str(error)
        for measure in _MEASURES:
            if measure in values:
                numbers = enumerate(values[measure].tolist(), start=1)
                rows += [(change, measure, None, layer, value) for layer, value in numbers]
            elif leading or measure != _RENORMALISED:
                rows.append((change, measure, missing, None, None))
    frame = pd.DataFrame(rows, columns=["change", "measure", "why", "layer", "value"])
    return frame.astype({"layer": "Int64", "value": "float64"})


def _deviations(
    decoder: Decoder, sample: Sample, device: str, start: int, leading: int
) -> dict[str, Tensor]:
    """Return D of each layer, float64 [N], by measure."""
    original = slice(leading, None)

    def measured(rows: Rows) -> dict[str, Tensor]:
        """Return, for each measure and layer, the sums of |x - x'| and |x|: float64 [N, 2]."""
        seqs = sequences(rows, device)
        bos = seqs.tokens.new_full((len(seqs.tokens), leading), BOS)
        # The bound on the length grows with the tokens: random positions may depend on it.
        length = seqs.final_length + leading
        shifted = replace(
            seqs,
            tokens=torch.cat((bos, seqs.tokens), 1),
            final_length=length,
            bound=seqs.bound and seqs.bound + leading,  # 0: unknown
            offset=start,
        )
        sums: dict[str, Tensor] = {}
        layers = zip(*watched(decoder, seqs), *watched(decoder, shifted), strict=True)
        for layer, (weights, products, all_weights, moved) in enumerate(layers):
            changed = all_weights[..., original, original]
            pairs = {_ATTENTION: (weights, changed)}
            if leading:  # 0 / 0 is 0
                renormalised = (changed / changed.sum(-1, keepdim=True)).nan_to_num(nan=0.0)
                pairs[_RENORMALISED] = (weights, renormalised)
            if products is not None and moved is not None:
                # A state that depends on indices alone has one row, used for the whole batch.
                shape = (len(weights), -1, -1, -1)
                moved = moved[..., original, original]
                pairs[_PRODUCTS] = (products.expand(shape), moved.expand(shape))
            for measure, (x, y) in pairs.items():
                zeros = torch.zeros(decoder.config.applied_layers, 2, dtype=torch.float64)
                both = [z.abs().tril().sum(dtype=torch.float64) for z in (x - y, x)]
                sums.setdefault(measure, zeros)[layer] += torch.stack(both).cpu()
        return sums

    totals: dict[str, Tensor] = {}
    for _, sums in sample.batches(decoder, measured):
        for measure, part in sums.items():
            totals[measure] = totals.get(measure, torch.zeros_like(part)) + part
    return {measure: total[:, 0] / total[:, 1] for measure, total in totals.items()}


# ---- table and figure --------------------------------------------------------------------------


def to_markdown(study: Study) -> str:
    """Format a row for each encoding, precision, change and measure; each layer is a column."""
    rows, body = study.labelled, []
    for key, group in rows.groupby(["label", "precision", "change", "measure"], sort=False):
        label, precision, change, measure = map(str, key)
        cells = {"encoding": label, "seeds": ", ".join(map(str, group.seed.unique()))}
        cells |= {"numbers": precision, "change": _CHANGES[change], "of": _MEASURES[measure]}
        for layer, values in group.groupby("layer").value:
            small = values.between(0, _ROUNDING[precision], inclusive="right").all()
            cells[f"layer {layer}"] = mean_cell(values, ".3g") + " r" * bool(small)
        body.append(cells)
    levels = ", ".join(f"{level:g} in {precision}" for precision, level in _ROUNDING.items())
    notes = [f"{_DEFINITION} r: not told from rounding (at most {levels}). {SPREAD}"]
    for reason, group in rows.groupby("why", sort=False):
        notes.append(f"none ({reason}): {', '.join(group.label.unique())}.")
    notes.append(f"{study.source} {_UNTRAINED}")
    return "\n\n".join([markdown(pd.DataFrame(body).fillna("none"), 5).rstrip(), *notes]) + "\n"


@styled()
def figures(study: Study) -> dict[str, Figure]:
    """Draw a row of panels for attention weights and one for inner products, if there are any.

    Each change is a column. Of two precisions, the finer one is drawn.
    """
    rows = study.labelled
    precision = str(rows.precision.max())
    level, rows = _ROUNDING[precision], rows[(rows.precision == precision) & rows.value.notna()]
    panels = [_ATTENTION, *[_PRODUCTS] * (_PRODUCTS in set(rows.measure))]
    styles = study.points
    handles: list[Artist] = [Line2D([], [], label=label, **look) for label, look in styles.items()]
    handles.append(Patch(facecolor=_BAND, label="not told from rounding"))
    handles.append(Line2D([], [], color=GREY, label="raw, behind [BOS]", **_DOTTED))
    note = (
        f"Mean over runs, each run a thin line; in {precision}. {_DEFINITION} Band: at most "
        f"{level:g}, not told from rounding. {study.source} {_UNTRAINED}"
    )
    look: dict[str, Any] = {"linewidth": 0.9, "markersize": 3.2, "clip_on": False}
    figure = page(6.7, 2.1 * len(panels), note, handles, 3)
    grid = figure.subplots(len(panels), len(SHIFTS), squeeze=False)
    for axes, measure in zip(grid, panels, strict=True):
        for ax, (change, title) in zip(axes, _CHANGES.items(), strict=True):
            drawn = rows[(rows.change == change) & (rows.measure == measure)]
            if drawn.empty:
                ax.text(0.5, 0.5, "none", transform=ax.transAxes, ha="center", fontsize=LETTERS)
            if change == "BOS" and measure == _ATTENTION:
                # Draw raw weights as means alone: their thin lines would hide the others.
                raw = drawn.groupby(["label", "layer"], sort=False).value.mean().reset_index()
                draw_runs(ax, raw.assign(run=""), "layer", "value", styles, **look, **_DOTTED)
                drawn = rows[rows.measure == _RENORMALISED]
            draw_runs(ax, drawn, "layer", "value", styles, **look)
            if change == "BOS":  # values are far above rounding, close together
                ax.set_ylim(bottom=0)
            else:
                ax.axhspan(0, level, color=_BAND, linewidth=0, zorder=0)
                ax.set_yscale("symlog", linthresh=level, linscale=0.4)
                ax.set_ylim(0, 3)
                ax.set_yticks([0, *10.0 ** np.arange(0, np.log10(level), -2)])
                ax.yaxis.set_major_formatter("{x:g}")
            ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
            ax.set_xlabel("layer")
            finish(ax, title, grid="both")
        axes[0].set_ylabel(f"relative change,\n{_MEASURES[measure]}")
    return {"": figure}
