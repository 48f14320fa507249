"""A headless Chromium, by the WebDriver protocol of its driver: no more of it than the tests need."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support import eventually

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MISSING = "chromium and its driver are not there: apt install chromium-driver"


class Browser:
    """A window of the browser."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Sends a command, and returns its value."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def devtools(self, command: str, **params: Any) -> Any:
        """Sends a command of the DevTools protocol."""
        return self.ask("/goog/cdp/execute", {"cmd": command, "params": params})

    def looks(self, width: int, height: int, scheme: str) -> None:
        """Sets the size of the window, and the colour scheme that the user prefers."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setEmulatedMedia", media="screen", features=features)

    def opens(self, url: str) -> None:
        """Opens a page, and waits until it is loaded."""
        self.ask("/url", {"url": url})

    def runs(self, script: str, *arguments: object) -> Any:
        """Runs the body of a function in the page, and returns its value."""
        return self.ask("/execute/sync", {"script": script, "args": list(arguments)})

    def text(self) -> str:
        """Returns the text that the page shows."""
        return self.runs("return document.body.innerText")

    def errors(self) -> list[str]:
        """Returns the errors that the page has logged, such as blocked or failed requests."""
        return [entry["message"] for entry in self.ask("/se/log", {"type": "browser"}) if entry["level"] == "SEVERE"]

    def picture(self, path: Path) -> None:
        """Writes what the page shows as a PNG, all of its height."""
        height = self.runs("return document.documentElement.scrollHeight")
        width = self.runs("return innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Starts a browser whose files lie in `folder`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (folder / "chromedriver.log").open("w") as log:
        driver = subprocess.Popen([DRIVER, f"--port={port}"], stdout=log, stderr=subprocess.STDOUT)
    window = None
    try:
        root = Browser(f"http://127.0.0.1:{port}")

        def is_ready() -> bool:
            assert driver.poll() is None, (folder / "chromedriver.log").read_text()
            try:
                return root.ask("/status")["ready"]
            except OSError:
                return False

        eventually(is_ready, "the browser's driver")
        # Containers have no namespaces for the sandbox; the pages are our own.
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        flags += [f"--user-data-dir={folder}/profile", "--no-first-run", "--disable-background-networking"]
        options = {"binary": CHROMIUM, "args": flags}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = root.ask("/session", {"capabilities": {"alwaysMatch": wanted}})
        window = Browser(f"{root.url}/session/{session['sessionId']}")
        yield window
    finally:
        if window is not None:
            urllib.request.urlopen(urllib.request.Request(window.url, method="DELETE"), timeout=60).close()
        driver.terminate()
        driver.wait()
