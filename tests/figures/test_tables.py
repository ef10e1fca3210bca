"""The table beside the figure: order, marks and numbers."""

import csv
import io
import json
import re
from typing import Any

import numpy as np
import pytest

from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures.tables import rows, to_csv, to_json, to_latex, to_markdown
from tape_arith.arith.scoring.grid import Grid


def panel(encoding: str, outside: int, inside: int = 100, seeds: int = 2) -> list[Grid]:
    evaluation: dict[str, Any] = {"task": "addition", "version": 1, "seed": 0, "max_digits": 4}
    evaluation |= {"problems_per_cell": 100, "sha256": "00"}
    made = []
    for seed in range(seeds):
        grid = Grid.empty(
            encoding, preset="mini", seed=seed, trained_digits=2, budget={}, evaluation=evaluation
        )
        grid.total[:] = 100
        grid.exact[:] = np.where(grid.mask("in_distribution"), inside, outside + seed)
        made.append(grid)
    return made


def test_best_first_and_what_did_not_converge_last_by_name() -> None:
    gappy = panel("gappy", 90)
    gappy[1].total[3, 3] = gappy[1].exact[3, 3] = 0
    made = [panel("wild", 99, inside=50), gappy, panel("rope", 1), panel("fire", 20)]
    made += [panel("early", 98, inside=60), panel("tape", 10)]
    found = rows(made)
    assert [row.encoding for row in found] == ["fire", "tape", "rope", "early", "gappy", "wild"]
    assert [row.mark for row in found] == [None] * 3 + ["not converged", None, "not converged"]
    assert found[4].means["out_of_distribution"] is None  # missing is not 0


def test_markdown() -> None:
    text = to_markdown(rows([panel("tape", 10), panel("fire", 20, seeds=1), panel("wild", 0, 50)]))
    lines = text.splitlines()
    assert len({line.count("|") for line in lines}) == 1 and len(lines) == 5
    assert lines[0].startswith("| encoding | seeds | in distribution, % | out of distribution, %")
    assert lines[2].startswith("| fire | 1 (± over problems) | 100.0 ± ")
    assert lines[3].startswith("| tape | 2 | 100.0 ± 0.0 | 10.5 ± 6.4 | 10.5 ± 6.4 |")
    assert lines[3].endswith("| yes |")
    assert lines[4].startswith("| wild |") and lines[4].endswith("| not converged |")


def test_csv() -> None:
    gappy = panel("gappy", 90)
    gappy[1].total[3, 3] = gappy[1].exact[3, 3] = 0
    text = to_csv(rows([panel("tape", 10), panel("fire", 20, seeds=1), gappy]))
    fire, tape, last = csv.DictReader(io.StringIO(text))
    assert (fire["encoding"], fire["seeds"], fire["interval"]) == ("fire", "0", "this run only")
    assert (tape["seeds"], tape["interval"], tape["converged"]) == ("0 1", "seeds", "yes")
    assert float(tape["out_of_distribution"]) == pytest.approx(0.105)
    assert float(tape["out_of_distribution_half_width"]) == pytest.approx(0.063531)
    assert float(tape["in_distribution_high"]) == 1.0
    assert last["all_cells"] == last["both_longer_low"] == "" and last["one_longer"] != ""


def test_what_must_not_be_compared() -> None:
    other = panel("fire", 1)
    for grid in other:
        grid.budget = {"steps": 3}
    with pytest.raises(UsageError, match="steps 3, not None"):
        rows([panel("tape", 1), other])


def test_latex() -> None:
    text = to_latex(rows([panel("fox:b_f=5", 10), panel("50%&more", 20, seeds=1)]))
    lines = text.splitlines()
    assert lines[0] == r"\begin{tabular}{lrrrrrrl}" and lines[-1] == r"\end{tabular}"
    assert [line for line in lines if line.endswith("rule")] == [
        *(r"\toprule", r"\midrule", r"\bottomrule")
    ]
    assert lines[4].startswith(r"50\%\&more & 1 ($\pm$ over problems) & 100.0 $\pm$ ")
    assert lines[5].startswith(r"fox:b\_f=5 & 2 & 100.0 $\pm$ 0.0 & 10.5 $\pm$ 6.4 &")
    cells = [line for line in lines if line.endswith(r"\\")]
    assert len(cells) == 3 and all(len(re.findall(r"(?<!\\)&", line)) == 7 for line in cells)


def test_json() -> None:
    made = [panel("tape", 10), panel("wild", 0, 50)]
    content = json.loads(to_json(rows(made)))
    tape, wild = content["rows"]
    assert content["schema"] == 2 and (tape["encoding"], tape["seeds"]) == ("tape", [0, 1])
    assert tape["values"]["out_of_distribution"] == pytest.approx([0.10, 0.11])
    assert (tape["mark"], wild["mark"], wild["converged"]) == (None, "not converged", False)


def test_a_name_cannot_break_a_table() -> None:
    line = to_markdown(rows([panel("a|b", 10)])).splitlines()[2]
    assert line.startswith(r"| a\|b | 2 |")
