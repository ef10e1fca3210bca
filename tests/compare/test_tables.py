"""Rows of encodings and their tables: order, marks and numbers."""

import csv
import io
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from tape_arith.arith.compare import captions
from tape_arith.arith.compare.board import Section
from tape_arith.arith.compare.columns import Column
from tape_arith.arith.compare.latex import booktabs, escape, floating
from tape_arith.arith.compare.sweep_tables import SweptRow, in_order, sweep_table
from tape_arith.arith.compare.tables import csv_text, frame_to_csv, to_markdown
from tape_arith.arith.compare.terminal import print_markdown
from tape_arith.arith.grids.panel import Panel, panels_of
from tape_arith.arith.grids.statistics import Interval
from tests.helpers.committed_runs import RESULTS
from tests.helpers.made_grids import BITS, LISTS, drawn, filled
from tests.helpers.tiny_runs import done


def panel(encoding: str, outside: int, inside: int = 100, seeds: int = 2) -> Panel:
    made = []
    for seed in range(seeds):
        exact = np.full((4, 4), outside + seed)
        exact[:2, :2] = inside
        made.append(filled(exact, encoding=encoding, seed=seed))
    return Panel.of(made)


def rows(panels: Sequence[Panel]) -> list[SweptRow]:
    return in_order(SweptRow(panel, {}) for panel in panels)


def test_best_first_and_what_did_not_converge_last_by_name() -> None:
    made = [panel("wild", 99, inside=50), panel("rope", 1), panel("fire", 20)]
    made += [panel("early", 98, inside=60), panel("tape", 10)]
    ordered = rows(made)
    assert [row.panel.name for row in ordered] == ["fire", "tape", "rope", "early", "wild"]
    assert [row.panel.convergence for row in ordered] == [None] * 3 + ["not converged"] * 2


@pytest.mark.parametrize(
    ("share", "text"), [(0.98951, "98.95"), (0.98996, "98.996"), (0.99, "99.0"), (0.984, "98.4")]
)
def test_a_mean_that_is_not_converged_never_reads_as_if(share: float, text: str) -> None:
    assert captions.percent(Interval(share, share, share, 0.01, "seeds", 2)).startswith(f"{text} ±")


def test_seeds_that_many_encodings_have_are_counted() -> None:
    seeds = {"a": (0, 1), "b": (0, 1)} | {f"e{seed}": (seed,) for seed in range(5)}
    words = captions.describe_seeds(seeds)
    assert words.startswith("seeds 0, 1") and words.count("1 encoding:") == 5


def test_csv() -> None:
    text = sweep_table(rows([panel("tape", 10), panel("fire", 20, seeds=1)])).to_csv()
    fire, tape = csv.DictReader(io.StringIO(text))
    assert (fire["encoding"], fire["seeds"], fire["interval"]) == ("fire", "0", "problems")
    assert (tape["seeds"], tape["interval"], tape["converged"]) == ("0 1", "seeds", "yes")
    assert float(tape["out_of_distribution"]) == pytest.approx(0.105)
    assert float(tape["out_of_distribution_half_width"]) == pytest.approx(0.063531)
    assert float(tape["out_of_distribution_low"]) == pytest.approx(0.105 - 0.063531)
    assert float(tape["in_distribution_high"]) == 1.0


def test_csv_holds_nothing_that_a_spreadsheet_executes() -> None:
    texts = ["=cmd|' /C calc'!A0", "@SUM(1)", "+1", "-x", "'a", "\t=1", "\uff1d1", "a=1", "-", "="]
    numbers = [-0.5, 1, [-1.0, 2.0], None, True, -1, 0, 0, 0, 0]
    lines = [{"text": a, "n": b} for a, b in zip(texts, numbers, strict=True)]
    for csv_of_it in (csv_text(lines), frame_to_csv(pd.DataFrame({"text": texts, "n": 1.5}))):
        read = [line["text"] for line in csv.DictReader(io.StringIO(csv_of_it))]
        assert [one.removeprefix("'") for one in read] == texts
        assert read[-3:] == texts[-3:]
        assert not any(one[0] in "=+-@\t\uff1d" and one not in ("-", "=") for one in read)
    first, *_ = csv.DictReader(io.StringIO(csv_text(lines)))
    assert first["n"] == "-0.5" and "'" not in csv_text([{"n": value} for value in numbers])
    counts = pd.DataFrame({"n": pd.array([1, None], dtype="Int64"), "run": ["=a", "b"]})
    assert frame_to_csv(counts) == "n,run\n1,'=a\n,b\n"


def test_tasks_of_one_axis_and_of_two_share_a_table() -> None:
    both = [row for axes in (BITS, LISTS) for row in rows(panels_of([drawn("rope", 0, axes)]))]
    heads, _, bits, lists = (
        line.split(" | ") for line in sweep_table(both).to_markdown().splitlines()
    )
    missing = [head for head, text in zip(heads, bits, strict=True) if text == "-"]
    assert [head.split()[0] for head in missing] == ["one", "both"]
    assert "-" not in lists
    bits_line, lists_line = csv.DictReader(io.StringIO(sweep_table(both).to_csv()))
    assert bits_line["one_longer"] == "" and 0 < float(lists_line["one_longer"]) < 1


def test_latex() -> None:
    body = [["fox:b_f=5", "10.5 ± 6.4"], ["50%&more", "-"]]
    table = pd.DataFrame(body, columns=["encoding", "out of distribution, %"])
    lines = booktabs({"a_b": table}, ["encoding"]).splitlines()
    assert lines[0] == r"\begin{tabular}{lr}" and lines[-1] == r"\end{tabular}"
    assert lines[2] == r"encoding & \shortstack[r]{out of \\ distribution,~\%} \\"
    assert lines[4] == r"\multicolumn{2}{l}{\textit{a\_b}} \\"
    assert lines[5:7] == [r"fox:b\_f=5 & 10.5 $\pm$ 6.4 \\", r"50\%\&more & - \\"]
    assert all(len(re.findall(r"(?<!\\)&", line)) == 1 for line in lines[5:7])


@pytest.mark.parametrize(
    ("width", "rows", "environment"),
    [
        (10, 3, ["table"]),
        (60, 3, ["table"]),
        (100, 3, ["table*"]),
        (150, 3, ["sidewaystable*"]),
        (10, 51, ["longtable"]),
        (150, 51, ["landscape", "longtable"]),
    ],
)
def test_latex_is_plain_if_it_fits(width: int, rows: int, environment: list[str]) -> None:
    columns = [
        Column[int]("encoding", "encoding", lambda n: "x" * width, left=True),
        Column[int]("value", "value", str, best=lambda n: n),
    ]
    titles = ("One", "Other", "Alone")
    parts = [Section(t, "", range(k)) for t, k in zip(titles, (rows, 2, 1), strict=True)]
    table = floating(parts, columns, "Of 50 %.", "mini-x")
    assert re.findall(r"\\begin\{(landscape|(?:long|sideways)?table\*?)\}", table) == environment
    assert ("pdflscape" in table) == ("landscape" in environment)
    caption = "\\caption{Of 50 \\%. In bold the best of its section.}\n\\label{tab:mini-x}"
    assert table.count(caption) == 1
    start = table[: table.index("\\textit")]
    assert (caption in start.partition("\\endfirsthead")[0]) == ("longtable" in environment)
    assert table.count(" (continued)}") == ("longtable" in environment)
    stars = [line.endswith(r"\\*") for line in table.splitlines() if "\\textit{" in line]
    assert stars == ["longtable" in environment] * len(titles), "a title is not at a page's foot"
    assert re.findall(r"\\textbf\{(\d+)\}", table) == [str(rows - 1), "1"]
    package = {"table*": "graphicx", "sidewaystable*": "rotating"}.get(environment[0], "longtable")
    assert ("resizebox" in table) == environment[0].endswith("*")
    assert (f"{{{package}" in table.splitlines()[0]) == (environment != ["table"])
    bare = floating(parts, columns, "Of 50 %.", "mini-x", captioned=False)
    assert "% Of 50 %. In bold the best of its section.\n" in bare
    assert not re.search(r"\\caption|\\label|\{(sideways)?table", bare)
    assert re.findall(r"^.* & .*$", bare, re.M) == re.findall(r"^.* & .*$", table, re.M)
    for text in (table, bare):
        assert text.count("\\begin") == text.count("\\end{") and text.count("{") == text.count("}")
    assert "In bold" not in floating(parts[2:], columns, "Of 50 %.", "mini-x")


def test_with_a_scratchpad_exact_match_is_of_the_whole_answer() -> None:
    shares = {0: 0.5, 1: 0.75}
    made = [
        drawn(
            "rope",
            seed,
            BITS,
            evaluation={"task": "parity:scratchpad=true"},
            scoring={
                "final_answers_out_of_distribution": share,
                "final_answers_out_of_distribution_of": 200.0,
            },
        )
        for seed, share in shares.items()
    ]
    panels = panels_of(made)
    (panel,) = panels
    assert panel.final_answers == tuple(shares.values()) and panel.final_answers_of == 200
    (line,) = csv.DictReader(io.StringIO(sweep_table(rows(panels)).to_csv()))
    assert (line["final_answer_seeds"], line["final_answer_problems"]) == ("0.5 0.75", "200")
    assert "scratchpad" in captions.source(panels)
    made[1].scoring = {}  # a run that does not tell gives no mean over others
    assert panel.final_answers == () and not panel.final_answers_of
    plain = panels_of([drawn("rope", 0, BITS)])
    assert plain[0].final_answers == () and "scratchpad" not in captions.source(plain)
    assert (
        "one_longer" not in plain[0].regions
        and "one_longer" not in sweep_table(rows(plain)).to_csv()
    )


@pytest.mark.parametrize(
    ("label", "latex"),
    [
        (r"$\alpha$ 50%", r"\$\textbackslash{}alpha\$ 50\%"),
        ("\u03b1\u03bf\u2013ΔΩ", "$\\alpha$\u03bf--$\\Delta$$\\Omega$"),
        ("a--b", "a-{}-b"),  # not a dash
        ("[x]*", "{}[x]*"),  # not an option of the row's end before it
        ("`x' ''y\"", "\\`{}x' '{}'y\\texttt{\\char34}"),
    ],
)
def test_latex_shows_the_signs_of_a_label(label: str, latex: str) -> None:
    assert escape(label) == latex


def test_latex_says_which_letters_need_another_engine() -> None:
    column = Column[str]("encoding", "encoding", str, left=True)
    table = floating([Section("Mine", "", ["TAPE Ω", "中文 é"])], [column], "Caption.", "mine")
    assert "LuaLaTeX" in table.splitlines()[1] and table.splitlines()[1].endswith("中 文")
    plain = floating([Section("Mine", "", ["TAPE Ω é"])], [column], "1 \u2013 2 …", "mine")
    assert "LuaLaTeX" not in plain


def test_markdown_shows_the_signs_of_a_label() -> None:
    label = "_a_ *b* `c` $d$ <i>e</i> &amp; [f](g) \\* ~h~ | b_f=5, 3*"
    column = Column[str]("encoding", "encoding", str, left=True)
    sections, notes = [Section("Mine", "", [label])], [f"Note: {label}"]
    ranking: Any = SimpleNamespace(
        heading="Of _a_", sections=sections, columns=[column], notes=lambda columns: notes
    )
    text = to_markdown(ranking)
    assert text.startswith("# Of \\_a\\_\n")
    cell = text.splitlines()[6]
    assert cell == (r"| \_a\_ \*b\* \`c` \$d$ \<i>e\</i> \&amp; \[f](g) \\\* \~h~ \| b_f=5, 3* |")
    assert r"Note: \_a\_ \*b\*" in text
    shown = io.StringIO()
    print_markdown(text, Console(width=200, file=shown))
    assert shown.getvalue().count(label) == 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex")
def test_tables_compile_and_fit_a_page(here: Path) -> None:
    mini = ("leaderboard", "--preset", "mini", "--runs")
    tables: dict[str, tuple[object, ...]] = {
        "few": (*mini, RESULTS, "--pe", "rope,tape,fire"),
        "long": (*mini, RESULTS),
        "wide": (*mini, RESULTS / "float32"),
        "tasks": ("tasks", "all", "--runs", RESULTS),
    }
    lines = {"\\usepackage[T1]{fontenc}", "\\usepackage[textwidth=5.5in]{geometry}"}
    for name, words in tables.items():
        done(*words, "--out", f"{name}.tex")
        lines |= set(re.findall(r"\\usepackage\{.*?\}", Path(f"{name}.tex").read_text()))
    inputs = [f"\\input{{{name}}}" for name in tables]
    body = [*sorted(lines), "\\begin{document}", *inputs, "\\end{document}"]
    Path("all.tex").write_text("\n".join(["\\documentclass{article}", *body]))
    latex = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "all.tex"]
    log = subprocess.run(latex, capture_output=True, text=True, check=True).stdout
    assert "Overfull" not in log and Path("all.pdf").exists()
    marks = Path("all.aux").read_text()
    assert re.findall(r"\\newlabel\{tab:(.*?)\}", marks) == list(tables)  # each once
    assert marks.count("\\@writefile{lot}{\\contentsline") == len(tables)
