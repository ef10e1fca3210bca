"""The README's table of encodings says what the encodings themselves say and cost."""

from pathlib import Path
from typing import Any

from arith.suite.listing import everything

README = Path(__file__).parents[2] / "README.md"
ORDER = ["none", "absolute", "relative bias", "rotary", "rotary, contextual", "randomized"]
ORDER += ["content", "task-structured"]


def as_markdown(content: dict[str, Any]) -> str:
    lines = [
        "| name | kind | parameters | FLOPs a token | what it is |",
        "|---|---|---:|---:|---|",
    ]
    alone = sorted(content["encodings"], key=lambda e: (ORDER.index(e["kind"]), e["name"]))
    for entry in [*alone, *content["combinations"]]:
        aliases = "".join(f" (`{alias}`)" for alias in entry["aliases"])
        what = f"{entry['summary'].removesuffix('.')}; {entry['paper']}"
        lines.append(
            f"| `{entry['name']}`{aliases} | {entry['kind']} | {entry['parameters']:,} "
            f"| {entry['flops_a_token']:,.0f} | {what} |"
        )
    for entry in content["extrapolations"]:
        what = f"{entry['summary'].removesuffix('.')}; {entry['paper']}"
        lines.append(f"| `+{entry['name']}` | {entry['kind']} | 0 | 0 | {what} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_encodings() -> None:
    """To mend it, put what is printed here in its place."""
    expected = as_markdown(everything(Path("nowhere"), costs=True))
    print(expected)
    assert expected in README.read_text(encoding="utf-8")
