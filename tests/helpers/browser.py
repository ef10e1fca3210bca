"""A headless Chromium for tests, driven by its DevTools protocol over a pipe: no dependency.

Source: https://chromedevtools.github.io/devtools-protocol; messages are JSON, each ended by a 0.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
_PATIENCE = 60.0
"""Seconds that an answer may take on a busy machine."""
_KEYS = dict(ArrowLeft=37, ArrowRight=39, ArrowDown=40, PageUp=33, Home=36, End=35, Escape=27)
"""The protocol's codes of keys."""
_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update"),
    "--remote-debugging-pipe",  # reads from 3, writes to 4
)


def executable() -> str | None:
    """Return the browser on the PATH, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def browser(folder: Path) -> Iterator["Browser"]:
    """Start a browser with its profile in `folder`; it ends with the block."""
    (commands, send), (receive, answers) = os.pipe(), os.pipe()
    command = [str(executable()), *_OPTIONS, f"--user-data-dir={folder}", "about:blank"]
    with subprocess.Popen(
        ["timeout", "300", "bash", "-c", f'"$@" 3<&{commands} 4>&{answers}', "bash", *command],
        pass_fds=(commands, answers),
        stderr=subprocess.DEVNULL,
    ):
        os.close(commands)
        os.close(answers)
        with os.fdopen(send, "wb", buffering=0) as pipe, os.fdopen(receive, "rb") as reader:
            yield Browser(pipe, reader)  # and the end of its pipes is that of the browser


class Browser:
    """One page, its requests and its errors."""

    def __init__(self, send: Any, receive: Any) -> None:
        self._send, self._receive = send, receive
        self._count, self._loaded, self._buffer = 0, False, b""
        self._session: dict[str, str] = {}
        self.requests: list[str] = []
        """Every address that the page asked for, itself included."""
        self.problems: list[str] = []
        """Errors and warnings of the console, exceptions, refusals by the page's policy."""
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        attached = self.command("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.command(f"{domain}.enable")

    def open(self, path: Path, width: int) -> None:
        """Load a file and wait until its script says that it is ready."""
        self.resize(width)
        self.command("Page.navigate", url=path.absolute().as_uri())
        while not self._loaded:
            self._handle(self._message())
        self.wait("document.documentElement.dataset.ready === 'yes'")

    def resize(self, width: int) -> None:
        """Make the window so many pixels wide."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **size)

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression in the page; a promise is awaited."""
        options = {"returnByValue": True, "awaitPromise": True}
        answer = self.command("Runtime.evaluate", expression=script, **options)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression in the page is true."""
        end = time.monotonic() + _PATIENCE
        while not self.evaluate(f"Boolean({condition})"):
            assert time.monotonic() < end, f"it never came true: {condition}; {self.problems}"
            time.sleep(0.02)

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Move the mouse, or press or release it, at a place in the window."""
        self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of the first element of a selector."""
        self.show(selector)
        box = self.box(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    def show(self, selector: str) -> None:
        """Scroll to the first element of a selector, at once."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{element}.scrollIntoView({{ block: 'center', behavior: 'instant' }})")
        # Where the mouse is, is asked of what was drawn last: let it be drawn, twice to be sure.
        frame = "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
        self.evaluate(f"{frame}.then(() => 0)")

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            for kind in ("keyDown", "keyUp"):
                code = {"key": key, "windowsVirtualKeyCode": _KEYS[key]}
                self.command("Input.dispatchKeyEvent", type=kind, **code)

    def box(self, selector: str) -> dict[str, float]:
        """Return an element's x, y, width and height in the window, in pixels."""
        script = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()"
        rectangle: dict[str, float] = self.evaluate(script)
        return rectangle

    def dark(self, dark: bool) -> None:
        """Prefer dark or light, as the system would."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its answer."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters} | self._session
        self._send.write(json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self._count:
            self._handle(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            read = self._receive.read1()
            assert read, "the browser is gone"
            self._buffer += read
        text, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        return message

    def _handle(self, message: dict[str, Any]) -> None:
        method, event = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(event["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning"):
            self.problems.append(json.dumps(event["args"]))
        elif method == "Log.entryAdded":
            self.problems.append(event["entry"]["text"])
