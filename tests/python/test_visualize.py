"""`gtctl visualize`: pictures of an instruction log, and what is wrong with a file."""

from __future__ import annotations

import io
import json
import re
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from support import environment, gtd, output_of, wait_for_exit

GTCTL = gtd().with_name("gtctl")
PROGRAM = """
import gt
print(gt._gt.session_info()["daemon_pid"])
a = gt.ones(200, 200)
for _ in range(40): a = (a @ a) * 1e-3
x = gt.ones(300_000)
for _ in range(20): x = x.exp() * 1e-3
a.sum().item(), x.sum().item()
"""
MATMUL, ELEMENTWISE = (0, 114, 178), (0, 158, 115)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The instruction log of a program."""
    path = tmp_path_factory.mktemp("log") / "tape.log"
    wait_for_exit(
        int(output_of(PROGRAM, GT_INSTRUCTION_LOG=str(path), GT_WORKERS="cpu:1", GT_DAEMON=str(gtd())).split()[0])
    )
    return path


def visualize(*words: object, program: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*(program or (str(GTCTL), "visualize")), *map(str, words)],
        env=environment(GT_DAEMON=str(gtd())),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def pixels(path: Path) -> np.ndarray:
    """The pixels of a PNG of 8 bits and three channels, by row, column and channel."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    width = height = 0
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack(">IIBB", body[:10])
            assert (depth, color) == (8, 2)
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    rows = io.BytesIO(zlib.decompress(packed))
    out = np.zeros((height, width * 3), np.uint8)
    before = np.zeros(width * 3, np.int64)
    for row in range(height):
        (filtering,) = rows.read(1)
        line = np.frombuffer(rows.read(width * 3), np.uint8).astype(np.int64)
        if filtering == 2:
            line = (line + before) & 255
        elif filtering != 0:
            left = np.zeros(3, np.int64)
            corner = np.zeros(3, np.int64)
            for x in range(0, width * 3, 3):
                up = before[x : x + 3]
                if filtering == 1:
                    guess = left
                elif filtering == 3:
                    guess = (left + up) // 2
                else:
                    p = left + up - corner
                    pa, pb, pc = abs(p - left), abs(p - up), abs(p - corner)
                    guess = np.where((pa <= pb) & (pa <= pc), left, np.where(pb <= pc, up, corner))
                line[x : x + 3] = (line[x : x + 3] + guess) & 255
                left, corner = line[x : x + 3], up
        out[row] = before = line
    return out.reshape(height, width, 3)


def test_a_png_has_the_lanes_and_colours(log: Path, tmp_path: Path) -> None:
    done = visualize(log, "-o", tmp_path / "timeline.png", "--dpi", 50)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert re.match(rf"{tmp_path}/timeline.png: \d+ events in \d+\.\d+ s, 1 sessions, 1 workers\n$", done.stdout)
    picture = pixels(tmp_path / "timeline.png")
    assert picture.shape[1] == 800
    lanes = picture[40:, 90:]  # Below the legend, right of the names.
    for color in (MATMUL, ELEMENTWISE):
        assert (lanes == color).all(axis=2).sum() > 20, color
    # The lane of the worker is below the others, and has more of the products' colour than any.
    rows = (lanes == MATMUL).all(axis=2).sum(axis=1)
    assert rows.argmax() > np.flatnonzero((lanes == (238, 238, 238)).all(axis=2).sum(axis=1))[0]
    large = visualize(log, "--output", tmp_path / "large.png", "--dpi", 200)
    assert large.returncode == 0
    assert struct.unpack(">II", (tmp_path / "large.png").read_bytes()[16:24])[0] == 3200


def test_an_svg_names_its_lanes_and_slices(log: Path, tmp_path: Path) -> None:
    program = (sys.executable, "-m", "gt.scripts.visualize")
    assert visualize(log, "--output", tmp_path / "timeline.svg", program=program).returncode == 0
    root = ElementTree.parse(tmp_path / "timeline.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    labels = [text.text for text in root.iter(f"{space}text")]
    assert labels[0].startswith("tape.log: ")
    assert {"matmul", "elementwise", "reduction", "dispatcher", "worker 0"} <= set(labels)
    assert any(label.startswith("session ") for label in labels)
    assert any(re.fullmatch(r"\d+ % busy", label) for label in labels)
    titles = [title.text for title in root.iter(f"{space}title")]
    assert any(re.fullmatch(r"matmul #\d+ of session \d+: (about )?[\d.]+ us", title) for title in titles)
    assert all(float(rect.get("width").rstrip("%")) > 0 for rect in root.iter(f"{space}rect"))


def test_a_page_has_everything_in_it(log: Path, tmp_path: Path) -> None:
    assert visualize(log, "-o", tmp_path / "timeline.html").returncode == 0
    page = (tmp_path / "timeline.html").read_text()
    assert not re.search(r"(?:src|href)=|https?://|@import", page)
    data = json.loads(re.search(r"^const data = (.*);$", page, flags=re.MULTILINE)[1])
    (worker,) = data["workers"]
    names = [data["operations"][operation] for _, _, operation, *_ in worker["slices"]]
    assert (names.count("matmul"), names.count("exp"), data["lost"], data["left_out"]) == (40, 20, 0, 0)
    begins = [begin for begin, *_ in worker["slices"]]
    assert begins == sorted(begins)
    assert 0 < worker["busy"] <= 1


# A document with just the elements that the page uses; it prints what was drawn at first, and after zooming in.
STUB = """
const listeners = {}, drawn = [];
const methods = { fillText: (text) => drawn.push(text), fillRect: () => drawn.push(pen.fillStyle) };
const pen = new Proxy({}, { get: (o, name) => o[name] ?? methods[name] ?? (() => {}) });
const element = () => ({ style: {}, append() {}, clientWidth: 1000, getContext: () => pen,
  addEventListener: (name, act) => (listeners[name] = act) });
const elements = {};
globalThis.document = { getElementById: (id) => (elements[id] ??= element()), createElement: element };
globalThis.window = { addEventListener: (name, act) => (listeners["window " + name] = act), devicePixelRatio: 1 };
"""
ACT = """
const before = drawn.length;
listeners.wheel({ preventDefault() {}, offsetX: 600, deltaY: -2000 });
listeners.mousedown({ offsetX: 600 });
listeners.mousemove({ offsetX: 500, offsetY: 40 });
listeners["window mouseup"]();
for (let x = 200; x < 1000; x += 5) listeners.mousemove({ offsetX: x, offsetY: 45 });
listeners.dblclick();
console.log(JSON.stringify({ first: drawn.slice(0, before), last: drawn.slice(-before), title: elements.title }));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js to run the page's script")
def test_the_page_draws_zooms_and_moves(log: Path, tmp_path: Path) -> None:
    visualize(log, "-o", tmp_path / "timeline.html")
    script = re.search(r"<script>(.*)</script>", (tmp_path / "timeline.html").read_text(), flags=re.DOTALL)[1]
    (tmp_path / "page.js").write_text(STUB + script + ACT)
    done = subprocess.run(["node", tmp_path / "page.js"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["title"]["textContent"].startswith("tape.log: ")
    assert told["first"] == told["last"]
    assert {"#0072b2", "#009e73"} <= set(told["first"])
    assert any(text.startswith("worker 0 ") for text in told["first"])


def test_many_events_make_a_picture_of_the_same_size(log: Path, tmp_path: Path) -> None:
    lines = log.read_text().splitlines()
    sizes = {}
    for times in (1, 200):
        with (tmp_path / "many.log").open("w") as file:
            for copy in range(times):
                for line in lines:
                    at = int(line.rpartition(" at=")[2]) + copy * 1_000_000_000
                    file.write(f"{line.rpartition(' at=')[0]} at={at}\n")
        assert visualize(tmp_path / "many.log", "-o", tmp_path / "many.svg").returncode == 0
        sizes[times] = (tmp_path / "many.svg").stat().st_size
    assert sizes[200] < 8 * sizes[1] + 200_000


@pytest.mark.parametrize("kind", ["png", "svg", "html"])
def test_a_log_that_is_cut_off_is_drawn_as_far_as_it_goes(log: Path, tmp_path: Path, kind: str) -> None:
    text = log.read_text()
    (tmp_path / "cut.log").write_text(text[: len(text) // 2] + "\nthis is no line\n... 7 events lost\n  0.1s | #00")
    done = visualize(tmp_path / "cut.log", "-o", tmp_path / f"cut.{kind}")
    assert done.returncode == 0
    assert "the last line is cut off, and was left out\n" in done.stdout
    assert re.search(r"^[12] lines are none of a log's, and were left out$", done.stdout, flags=re.MULTILINE)
    assert "7 events are missing in the log\n" in done.stdout


def test_a_log_of_one_line_is_drawn(log: Path, tmp_path: Path) -> None:
    (tmp_path / "one.log").write_text(log.read_text().splitlines()[0] + "\n")
    for kind in ("png", "svg", "html"):
        assert visualize(tmp_path / "one.log", "-o", tmp_path / f"one.{kind}").returncode == 0


def test_other_files_are_refused(log: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    for file, why in (
        (tmp_path / "none", "No such file"),
        (tmp_path / "empty", "it is empty"),
        (Path(sys.executable), "it is no instruction log: its first line is"),
        (tmp_path, "Is a directory"),
    ):
        done = visualize(file, "-o", tmp_path / "timeline.svg")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"gtctl: {file} cannot be drawn: ")
        assert why in done.stderr
    done = visualize(log, "-o", tmp_path / "timeline.gif")
    assert (done.returncode, "it must end in .png, .svg or .html" in done.stderr) == (2, True)
    done = visualize(log, "-o", tmp_path / "none" / "timeline.svg")
    assert (done.returncode, "timeline.svg cannot be written: No such file" in done.stderr) == (1, True)
