"""After its introduction models/encodings/README.md lists what the files declare.

`python -m tests.registry.test_encodings_readme` writes it anew.
"""

from tape_arith.arith.registry.declarations import Declaration
from tape_arith.arith.registry.locate import declarations, folder

FILE = folder("encoding") / "README.md"


def row(declared: Declaration) -> str:
    options = ", ".join(
        f"`{key}`" if option.default is None else f"`{key}={option.default}`"
        for key, option in declared.options.items()
    )
    summary = declared.summary.removesuffix(".")
    told = f" (told by `{declared.told_by}`)" if declared.told_by else ""
    return f"| `{declared.name}`{told} | {summary} | {options} | {declared.paper} |"


def readme() -> str:
    text = FILE.read_text("utf-8").partition("\n## ")[0]
    entries = [entry for entry in declarations("encoding") if not entry.package]
    kinds = sorted(
        {entry.kind for entry in entries}, key=lambda kind: (kind == "task-structured", kind)
    )
    sections = {kind: [entry for entry in entries if entry.kind == kind] for kind in kinds}
    sections["in training (before a name: `aug-rope`)"] = declarations("modifier")
    sections["at test time (after a plus)"] = declarations("extrapolation")
    for title, section in sections.items():
        text += f"\n## {title[0].upper()}{title[1:]}\n\n"
        text += "| name | what it is | options | paper |\n|---|---|---|---|\n"
        text += "\n".join(map(row, section)) + "\n"
    return text


def test_the_readme_of_encodings_is_current() -> None:
    assert FILE.read_text("utf-8") == readme()


if __name__ == "__main__":
    FILE.write_text(readme(), "utf-8")
