"""Write the reference: a page of everything that `list NAME` and `--help` print.

python -m tape_arith.arith.reference      writes arith/reference/*.md and llms.txt (make docs)
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest.mock import patch

from tape_arith.arith.catalogue import describe
from tape_arith.arith.registry.locate import known_names
from tape_arith.arith.runs.preset import PRESETS_FOLDER
from tape_arith.arith.sweeps.sweep import BUNDLED
from tape_arith.arith.terminal import hanging

FOLDER = Path(__file__).parent / "reference"
_GENERATED = "<!-- Written by `make docs` from what each file declares: do not edit. -->"
_COLUMNS = 100
_KINDS = {
    "encodings": ("encoding", "Positional encodings: `--pe NAME:option=value`"),
    "modifiers": ("modifier", "Changes of an encoding in training: `--pe aug-rope`"),
    "extrapolations": ("extrapolation", "Changes of an encoding at test time: `rope+yarn`"),
    "models": ("model", "Other models: `--model NAME:option=value`"),
    "tasks": ("task", "Tasks: `--task NAME:option=value`"),
}
_OTHER_PAGES = {
    "../../README.md": "what it is, findings, first commands",
    "../../models/README.md": "an encoding of your own, from the formula to the leaderboard",
    "../../models/encodings/README.md": "all encodings in one table",
    "../../models/others/README.md": "a model of your own in the place of the decoder",
    "../tasks/README.md": "all tasks in one table, and how to add one",
    "../machines.md": "a GPU box and its hours, several nodes, Apple and Windows",
    "../sweeps/README.md": "many runs, on one machine or several",
    "../export/README.md": "trained runs as models of transformers",
    "../studies/README.md": "what is measured inside trained runs",
    "../bench/README.md": "speed, each beside a limit or a peer",
    "../../results/README.md": "results, and what is not measured",
}


def pages() -> dict[str, str]:
    """Return the text of each file of the reference by its name."""
    texts = {
        f"{stem}.md": _page(
            title, ((name, hanging(describe(name)[1], _COLUMNS)) for name in known_names(kind))
        )
        for stem, (kind, title) in _KINDS.items()
    }
    texts["presets.md"] = _page("Presets: `--preset NAME`", _files(PRESETS_FOLDER))
    texts["sweeps.md"] = _page("Bundled sweeps: `tape-arith sweep NAME`", _files(BUNDLED))
    texts["commands.md"] = _page("Commands", _commands())
    return texts | {"llms.txt": _index(texts)}


def _page(title: str, entries: Iterable[tuple[str, str]]) -> str:
    parts = [f"# {title}", _GENERATED]
    for name, text in entries:
        parts.append(f"## {name}\n\n```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.glob("*.toml")):
        yield path.stem, path.read_text("utf-8")


def _commands() -> Iterator[tuple[str, str]]:
    """Yield each command's help, as in a terminal of 100 columns."""
    from tape_arith.cli import all_commands

    group = all_commands()
    options = {"resilient_parsing": True, **group.context_settings}
    with patch.dict(os.environ, COLUMNS=str(_COLUMNS)):
        for name, command in group.commands.items():
            with command.make_context(f"tape-arith {name}", [], **options) as context:
                yield name, command.get_help(context)


def _index(texts: Iterable[str]) -> str:
    """Return the index that language models read first (llmstxt.org)."""
    own = {name: f"{name.removesuffix('.md')}, each in full" for name in texts}
    parts = [
        "# tape-arith",
        "> A benchmark suite for the length generalization of positional encodings: it generates "
        "arithmetic problems, trains decoders that differ in their encoding alone, scores exact "
        "match far beyond the trained lengths, and compares with intervals over seeds.",
    ]
    for title, contents in (("Pages", _OTHER_PAGES), ("Reference", own)):
        links = (f"- [{link}]({link}): {content}" for link, content in contents.items())
        parts += [f"## {title}", "\n".join(links)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    for _name, _text in pages().items():
        (FOLDER / _name).write_text(_text, encoding="utf-8")
