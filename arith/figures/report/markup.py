"""HTML that escapes by default: what is text stays text, whatever a file or a folder is called."""

import html
import re
from collections.abc import Iterable

VOID = {"input", "link", "meta", "wbr"}
LONGEST_WHOLE = 24
"""So many letters of a name are kept on one line; a file's path may have more."""


class Markup(str):
    """Text that is HTML already; only the functions of this file make it."""


def element(name: str, *children: object, **attributes: object) -> Markup:
    """`<name attribute="...">children</name>`: everything that is not Markup is escaped.

    An attribute that is None or False is left out, True stands alone; `class_` reads `class`, and
    an underscore within a name is a dash. Children that are None are left out.

    >>> element("p", "a < b", class_="note", hidden=True)
    '<p class="note" hidden>a &lt; b</p>'
    """
    words = [name]
    for key, value in attributes.items():
        attribute = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(attribute)
        elif value is not None and value is not False:
            words.append(f'{attribute}="{escaped(value)}"')
    opened = f"<{' '.join(words)}>"
    return Markup(opened if name in VOID else f"{opened}{joined(children)}</{name}>")


def joined(children: Iterable[object]) -> Markup:
    """Pieces one after the other, each as in `element`."""
    return Markup("".join(map(escaped, (child for child in children if child is not None))))


def escaped(value: object) -> Markup:
    """`value` as text that no HTML reader takes for more than text."""
    return value if isinstance(value, Markup) else Markup(html.escape(str(value), quote=True))


def hidden(text: str) -> Markup:
    """For screen readers alone."""
    return element("span", text, class_="unseen")


def named(name: str) -> Markup:
    """An encoding's name, which breaks before an option or a joint and not within a word.

    >>> named("tape+yarn")
    '<span class="whole">tape</span><wbr><span class="whole">+yarn</span>'
    """
    pieces: list[object] = []
    for part in re.split("(?=[:+@])", name):
        whole = len(part) <= LONGEST_WHOLE
        pieces += [element("wbr"), element("span", part, class_="whole") if whole else part]
    return joined(pieces[1:])


def scrolled(table: Markup, label: str) -> Markup:
    """A wide table scrolls by itself, by keyboard too, and not the page."""
    return element("div", table, class_="scrolled", tabindex=0, role="region", aria_label=label)
