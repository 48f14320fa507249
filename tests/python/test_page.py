"""The page for browsers: details are for their users, it loads nothing from elsewhere, and Chromium shows it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browser import CHROMIUM, DRIVER, MISSING, browser
from support import daemon, eventually, line_of, started
from test_metrics import Site, gtctl, serving

ANA, BEN = 61002, 61003
# A name that is markup, if the page takes it for that.
NAME = "<img src=x onerror=alert(1)> & 'run' 7"


def client(uid: int, name: str) -> str:
    """A program of a user, who may not be able to read this Python: it imports what it needs before."""
    return f"""
import os, sys, numpy, gt
gt.tensor
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
gt.session(name={name!r})
a = gt.ones(64, 64)
for i in range(50): a = (a @ a) * 1e-2 + 1
print(a.sum().item() > 0, flush=True)
sys.stdin.readline()
"""


@contextmanager
def shared(folder: Path) -> Iterator[tuple[Site, dict[int, int]]]:
    """A daemon with a session of each of two users, and the sessions' numbers by user."""
    # Every user may connect to an abstract name.
    name = f"@gt-test-page-{os.getpid()}"
    with (
        daemon(name, "--metrics", "0", "--workers", "cpu:2", "--state", str(folder)) as process,
        started(client(ANA, NAME), GT_SOCKET=name) as one,
        started(client(BEN, "other"), GT_SOCKET=name) as other,
    ):
        status = gtctl(Path(name), "status")
        site = Site(Path(name), int(status["metrics"].rpartition(":")[2]), process)
        assert (line_of(one), line_of(other)) == ("True", "True")
        sessions = gtctl(Path(name), "status")["sessions"]
        yield site, {session["uid"]: session["id"] for session in sessions}


def token(site: Site, uid: int, *words: str) -> str:
    return gtctl(site.socket, "token", "create", "--user", str(uid), *words)["text"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")
def test_details_are_for_their_user_and_for_administrators(tmp_path: Path) -> None:
    with shared(tmp_path) as (site, sessions):

        def sees(uid: int, **headers: str) -> int:
            return site.get(f"/api/sessions/{sessions[uid]}", **headers)[0]

        bearer = {uid: {"Authorization": f"Bearer {token(site, uid)}"} for uid in (ANA, BEN)}
        admin = {"Authorization": f"Bearer {token(site, 0, '--admin')}"}
        assert [[sees(of, **bearer[by]) for of in (ANA, BEN)] for by in (ANA, BEN)] == [[200, 404], [404, 200]]
        assert [sees(of, **admin) for of in (ANA, BEN)] == [200, 200]
        assert [sees(of) for of in (ANA, BEN)] == [401, 401]
        assert [sees(of, Authorization="Bearer gt-1-0000") for of in (ANA, BEN)] == [401, 401]
        # A session of another user is as unknown as one that there is not.
        unknown = site.get("/api/sessions/999999", **bearer[ANA])
        others = site.get(f"/api/sessions/{sessions[BEN]}", **bearer[ANA])
        assert unknown[2].replace("999999", str(sessions[BEN])) == others[2]
        detail = json.loads(site.get(f"/api/sessions/{sessions[ANA]}", **bearer[ANA])[2])
        (matmul,) = (done for done in detail["operations"] if done["operation"] == "matmul")
        assert (matmul["count"], matmul["kind"], matmul["errors"]) == (50, "matmul", 0)
        assert matmul["time_s"] >= sum(s["took_ns"] for s in detail["steps"] if s["operation"] == "matmul") / 1e9 - 1e-6
        assert detail["session"]["name"] == NAME
        # Everybody sees what gtctl status shows, and no more.
        everybody = json.loads(site.get("/api/daemon")[2])
        assert {session["id"] for session in everybody["sessions"]} == set(sessions.values())
        assert "operations" not in json.dumps(everybody)
        assert json.loads(site.get("/api/you")[2]) is None
        assert json.loads(site.get("/api/you", **bearer[ANA])[2]) == {"user": str(ANA), "administrator": False}
        # Revoked means revoked.
        for known in gtctl(site.socket, "token", "list"):
            gtctl(site.socket, "token", "revoke", str(known["id"]))
        assert [sees(ANA, **bearer[ANA]), sees(ANA, **admin)] == [401, 401]


def test_the_page_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    with serving(tmp_path) as site:
        for path, kind in [("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")]:
            status, headers, body = site.get(path)
            assert (status, headers["content-type"]) == (200, f"{kind}; charset=utf-8")
            assert "default-src 'none'" in headers["content-security-policy"]
            assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", body), path
        status, headers, _ = site.get("/api/daemon")
        assert (status, headers["content-type"], headers["cache-control"]) == (200, "application/json", "no-store")
        assert "access-control-allow-origin" not in headers


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")
@pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING)
def test_a_browser_shows_who_uses_what(tmp_path: Path) -> None:
    with shared(tmp_path) as (site, sessions), browser(tmp_path) as window:
        home = f"http://localhost:{site.port}/"
        window.looks(1280, 900, "light")
        window.opens(home)
        eventually(lambda: NAME in window.text(), "the sessions")
        text = window.text()
        assert all(word in text for word in ("cpu:0", "cpu:1", str(ANA), str(BEN), "fair share", "by kind of work"))
        assert window.runs("return document.querySelectorAll('main img').length") == 0
        ground = "return getComputedStyle(document.body).backgroundColor"
        light = window.runs(ground)
        # Every width is without a scroll bar, and the colours are those that the user prefers.
        for width, scheme in [(1280, "dark"), (390, "dark"), (390, "light")]:
            window.looks(width, 800, scheme)
            assert window.runs("return document.documentElement.scrollWidth") <= width
            assert (window.runs(ground) == light) == (scheme == "light")
        # The history has samples soon, and the charts areas by user.
        eventually(lambda: window.runs("return page.samples.length") > 1, "samples")
        window.runs("document.querySelector('[data-key=user]').click()")
        assert window.runs("return page.by") == "user"
        # A session's details take a token.
        window.runs(f"document.querySelector('[data-key=session-{sessions[ANA]}]').click()")
        eventually(lambda: "are for its user and for administrators" in window.text(), "a hint")
        window.runs("document.getElementById('token').value = arguments[0]", "gt-9-wrong")
        window.runs("document.getElementById('token-form').requestSubmit()")
        eventually(
            lambda: "this is no token" in window.runs("return document.getElementById('token-error').textContent"), "no"
        )
        for uid, shown in [(BEN, "are for its user and for administrators"), (ANA, "Operations since it began")]:
            window.runs("document.getElementById('token').value = arguments[0]", token(site, uid))
            window.runs("document.getElementById('token-form').requestSubmit()")
            you = "return document.getElementById('you').textContent"
            eventually(lambda uid=uid, you=you: str(uid) == window.runs(you), "the user")
            eventually(lambda shown=shown: shown in window.text(), shown)
        assert re.search(r"matmul\s+50\s", window.text())
        assert window.runs("return document.documentElement.scrollWidth") <= 390
        loaded = window.runs("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        assert all(url.startswith((home, "data:")) for url in loaded)
        # The two refusals are the browser's only complaints: its policy blocked nothing, and no script failed.
        assert all(re.search(r"status of 40[14]", error) for error in window.errors())
        # The daemon's end is told, and its last state stays.
        site.process.kill()
        eventually(lambda: "The daemon does not answer" in window.text(), "the end")
        assert NAME in window.text()
