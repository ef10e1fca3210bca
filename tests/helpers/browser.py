"""A headless Chromium for tests, driven by its DevTools protocol over a pipe: no dependency.

Source: https://chromedevtools.github.io/devtools-protocol; messages are JSON, each ended by a 0.
"""

import json
import os
import select
import shutil
import signal
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


def executable() -> str | None:
    """Return the browser on the PATH, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def browser(folder: Path) -> Iterator["Browser"]:
    """Start a browser with its profile in `folder`; it ends with the block."""
    program = executable()
    assert program, f"none of {', '.join(NAMES)} on the PATH"
    (commands, send), (receive, answers) = os.pipe(), os.pipe()
    options = [
        "--headless",
        "--no-sandbox",  # root, as in CI, gets none; only files of ours are opened
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        f"--user-data-dir={folder}",
        "--remote-debugging-pipe",  # reads from 3, writes to 4
        "about:blank",
    ]
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "bash", program, *options],
        pass_fds=(commands, answers),
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        yield Browser(send, receive)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for end in (commands, send, receive, answers):
            os.close(end)


class Browser:
    """One page, its requests and its errors."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._buffer = b""
        self._count = 0
        self._session: str | None = None
        self.requests: list[str] = []
        """Every address that the page asked for, itself included."""
        self.problems: list[str] = []
        """Errors and warnings of the console, exceptions, refusals by the page's policy."""
        self._loaded = False
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        attached = self.command("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.command(f"{domain}.enable")

    def open(self, path: Path, width: int = 1200, height: int = 900) -> None:
        """Load a file and wait until its script says that it is ready."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **size)
        self.point(0, 0)  # or what lies under it when the page scrolls is pointed at
        self.requests.clear()
        self.problems.clear()
        self._loaded = False
        self.command("Page.navigate", url=path.absolute().as_uri())
        end = time.monotonic() + _PATIENCE
        while not self._loaded:
            self._handle(self._message(end))
        self.wait("document.documentElement.dataset.ready === 'yes'")

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression in the page; a promise is awaited."""
        answer = self.command(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression in the page is true."""
        end = time.monotonic() + _PATIENCE
        while not self.evaluate(f"Boolean({condition})"):
            assert time.monotonic() < end, f"it never came true: {condition}; {self.problems}"
            time.sleep(0.02)

    def point(self, x: float, y: float) -> None:
        """Move the mouse to a place in the window."""
        self.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of the first element of a selector."""
        self.show(selector)
        box = self.box(selector)
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        for kind in ("mousePressed", "mouseReleased"):
            self.command(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
            )

    def show(self, selector: str) -> None:
        """Scroll to the first element of a selector, at once."""
        find = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{find}.scrollIntoView({{ block: 'center', behavior: 'instant' }})")
        # Where the mouse is, is asked of what was drawn last: let it be drawn, twice to be sure.
        frame = "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
        self.evaluate(f"{frame}.then(() => 0)")

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            code = {"key": key, "windowsVirtualKeyCode": _KEYS[key]}
            self.command("Input.dispatchKeyEvent", type="keyDown", **code)
            self.command("Input.dispatchKeyEvent", type="keyUp", **code)

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
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        left = json.dumps(message).encode() + b"\0"
        while left:
            left = left[os.write(self._send, left) :]
        end = time.monotonic() + _PATIENCE
        while True:
            answer = self._message(end)
            if answer.get("id") == self._count:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._handle(answer)

    def _message(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._receive], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            read = os.read(self._receive, 1 << 20)
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
