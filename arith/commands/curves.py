"""`tape-arith curves`: draw the learning curves of runs."""

from tape_arith.arith.commands import option

EXAMPLE = "tape-arith curves --pe rope,tape --preset mini"


def command(
    pe: option.Encodings,
    preset: option.Preset = None,
    runs: option.ComparedRuns = option.OWN_RUNS,
    figure: option.MadeFigure = None,
    label: option.Labels = None,
    width: option.Width = None,
    columns: option.Columns = None,
    no_caption: option.NoCaption = False,
    as_json: option.AsJson = False,
) -> None:
    """Draw loss, exact match and measures of the state over the steps of training.

    `--pe all` draws every run of the preset that was trained like the others, and names the rest.
    Without --figure, the file is written next to the runs; with --json, only --figure draws.
    """
    from tape_arith.arith.api.comparisons import select
    from tape_arith.arith.compare import curves
    from tape_arith.arith.compare.labels import read_labels
    from tape_arith.arith.figures.curves import compose
    from tape_arith.arith.figures.style import save

    content = curves.study(select(runs, pe, preset))
    path = figure or (None if as_json else curves.figure_path(runs[0], content))
    if path is not None:
        names = read_labels(label)
        drawn = compose(content, labels=names, width=width, columns=columns, caption=not no_caption)
        save(drawn, path)
    if as_json:
        print(curves.to_json(content), end="")
    else:
        print(path)
