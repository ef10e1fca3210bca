"""How answers go wrong, as tables: Markdown for people, JSON for programs."""

import json

from tape_arith.arith.figures.captions import signed
from tape_arith.arith.figures.tabular import pipe_table
from tape_arith.arith.scoring.regions import REGION_WORDS
from tape_arith.arith.studies.errors_figure import KIND_WORDS, Study, sample_line
from tape_arith.arith.studies.mistakes import (
    KINDS,
    OFF_BY_ONE,
    REGIONS,
    WRONG_DIGIT,
    WRONG_LENGTH,
    Region,
)


def to_markdown(study: Study) -> str:
    """Exact match by carry chain; what the first errors are; where they are. With all counts."""
    parts = [_by_chain(study, region) for region in study.regions]
    parts.append(_kinds(study))
    parts += [_by_place(study, region) for region in study.regions]
    return "\n".join([*filter(None, parts), f"{_legend(study)}\n"])


def share(part: int, whole: int) -> str:
    """A share in percent with its counts.

    >>> share(3, 1200), share(0, 0)
    ('0.2 % (3 of 1,200)', '-')
    """
    return f"{100 * part / whole:.1f} % ({part:,} of {whole:,})" if whole else "-"


def _by_chain(study: Study, region: Region) -> str:
    row = REGIONS.index(region)
    counts = study.pooled
    lengths = [n for n in range(study.evaluation["max_digits"] + 1) if _any(study, row, n)]
    body = [
        [
            str(length),
            *(share(m.exact[row, length], m.problems[row, length]) for m in counts.values()),
        ]
        for length in lengths
    ]
    title = f"Exact match by length of the longest carry chain, {REGION_WORDS[region]}"
    return f"{title}\n\n{pipe_table(['chain', *counts], 'r' * (1 + len(counts)), body)}"


def _any(study: Study, row: int, length: int) -> bool:
    return any(counts.problems[row, length] for counts in study.pooled.values())


def _kinds(study: Study) -> str:
    head = ["encoding", "seeds", "problems", "wrong answers", "wrong length", "wrong digit"]
    head += ["off by one, of wrong digits", *KIND_WORDS.values()]
    body = []
    for name, counts in study.pooled.items():
        for region in study.regions:
            wrong, digits = counts.wrong(region), counts.of_kinds(region, *WRONG_DIGIT)
            total = int(counts.problems[REGIONS.index(region)].sum())
            body.append(
                [
                    name,
                    ", ".join(map(str, study.seeds[name])),
                    REGION_WORDS[region],
                    share(wrong, total),
                    share(counts.of_kinds(region, *WRONG_LENGTH), wrong),
                    share(digits, wrong),
                    share(counts.of_kinds(region, *OFF_BY_ONE), digits),
                    *(f"{counts.of_kinds(region, kind):,}" for kind in KINDS),
                ]
            )
    return f"First error of wrong answers\n\n{pipe_table(head, 'lll' + 'r' * 10, body)}"


def _by_place(study: Study, region: Region) -> str:
    """Nothing where no answer is wrong."""
    row = REGIONS.index(region)
    counts = study.pooled
    places = sorted(
        {int(place) for m in counts.values() for place in m.first_wrong[row].nonzero()[0]}
    )
    body = [
        [
            str(place),
            signed(place - study.trained_digits, 0),
            *(share(m.first_wrong[row, place], m.wrong(region)) for m in counts.values()),
        ]
        for place in places
    ]
    if not body:
        return ""
    title = f"Wrong answers by place of their first wrong token, {REGION_WORDS[region]}"
    head = ["place", "less trained digits", *counts]
    return f"{title}\n\n{pipe_table(head, 'r' * len(head), body)}"


def _legend(study: Study) -> str:
    return (
        "The first error is where greedy decoding first leaves the right answer, and what it says "
        "there; place 0 is the least significant digit. Of nine wrong digits two are off by one by "
        f"chance, 22 %; 8 for 9 and 9 for 0 count as one less. {sample_line(study)}"
    )


def to_json(study: Study) -> str:
    """Stable keys, `schema` counts their changes: the counts of each run, and of the runs of each
    encoding together."""
    digits = study.trained_digits
    content = {
        "schema": 1,
        "kind": "errors",
        "preset": study.preset,
        "settings": study.settings,
        "trained_digits": digits,
        "evaluation": study.evaluation,
        "encodings": [
            {"encoding": name, "seeds": study.seeds[name], **counts.content(digits)}
            for name, counts in study.pooled.items()
        ],
        "runs": [
            {
                "run": one.run,
                "encoding": one.encoding,
                "seed": one.seed,
                **one.mistakes.content(digits),
            }
            for one in study.runs
        ],
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"
