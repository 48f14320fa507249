"""The packages that `pip` builds: the sdist, the wheel built from it, and an environment with the wheel installed.

The wheel is built from the unpacked sdist, never from the checkout, so that files missing from the sdist are noticed.
It is optimised less than a release, which compiles in a third of the time.

Two functions are declared in the unpacked sources, a composite and a primitive with its gradient, by a change of one
file each: what users find of them in the installed package follows from that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# cargo identifies crates by their paths in the workspace, and would confuse two copies of a workspace that share a
# target folder. The unpacked sdist therefore has a folder of its own.
BUILD = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "packaging"
QUICK_PROFILE = {
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
    "CARGO_PROFILE_RELEASE_DEBUG": "false",
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_OPT_LEVEL": "1",
}
# The time limit of a first build of everything on a busy machine.
pytestmark = pytest.mark.timeout(1200)
PROGRAMS = ("gtd", "gtctl")
ELF_MAGIC = b"\x7fELF"


def _run(*command: object, cwd: Path = ROOT, **env: str) -> str:
    """Runs a command and returns its output; a failure shows its errors."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _version() -> str:
    """Returns the version from the workspace's `Cargo.toml`."""
    text = (ROOT / "Cargo.toml").read_text()
    return text.split("[workspace.package]")[1].split('version = "')[1].split('"')[0]


# Files of declarations, each with the line after which one is added, and the declaration.
COMPOSITE = (
    "functions/src/products.rs",
    "functions! {\n",
    """
    /// The sine of an angle over the angle, 1 at 0.
    ///
    /// Example:
    ///     >>> gt.sine_ratio(gt.tensor([0.0]))
    ///     tensor([1.])
    [method().out().in_place()]
    fn sine_ratio(g, input: Expr<'g>, scale: f64 = 1.0) -> Expr<'g> {
        let angle = input * scale;
        angle.eq(0.0).where_(1.0, angle.sin() / angle)
    }
""",
)
PRIMITIVE = (
    "ops/src/table/trigonometric.rs",
    "[num]\n",
    """
        /// Versine of each element in radians.
        ///
        ///     output = 1 - cos(input)
        Versine = 500, versine(input) {
            real: |a| num(1.0) - cos(a),
            grad: Each(&[|c| c.grad * c.a().sin()]), saves: Saves::inputs(1), cost_flops: 10,
            reference: "1 - np.cos(a)",
            forms: forms::elementwise(),
        }
""",
)


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the sdist of this checkout."""
    out = tmp_path_factory.mktemp("sdist")
    _run(sys.executable, "-m", "build", "--sdist", "--outdir", out)
    (built,) = out.glob("*.tar.gz")
    return built


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the wheel from the unpacked sdist."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked)
    (fresh,) = unpacked.iterdir()
    for name, before, declaration in (COMPOSITE, PRIMITIVE):
        text = (fresh / name).read_text()
        assert text.count(before) == 1
        (fresh / name).write_text(text.replace(before, before + declaration))
    sources = BUILD / "sources"
    _mirror(fresh, sources)
    out = tmp_path_factory.mktemp("wheel")
    env = {**QUICK_PROFILE, "CARGO_TARGET_DIR": str(BUILD / "target")}
    _run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", out, sources, **env)
    (built,) = out.glob("*.whl")
    return built


def _mirror(fresh: Path, kept: Path) -> None:
    """Makes `kept` equal to `fresh`, writing only files that differ.

    cargo detects changes by modification times. Those in an sdist are too old to be noticed, and if all were new,
    everything would be compiled in every run.
    """
    wanted = {path.relative_to(fresh) for path in fresh.rglob("*") if path.is_file()}
    for path in list(kept.rglob("*")):
        if path.is_file() and path.relative_to(kept) not in wanted:
            path.unlink()
    for name in wanted:
        source, copy = fresh / name, kept / name
        if not copy.is_file() or copy.read_bytes() != source.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
            shutil.copymode(source, copy)


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the `bin` folder of an environment with only the wheel and its requirements."""
    venv = tmp_path_factory.mktemp("environment") / "venv"
    _run(sys.executable, "-m", "venv", venv)
    _run(venv / "bin" / "python", "-m", "pip", "install", "--quiet", wheel)
    return venv / "bin"


def test_the_sdist_holds_every_crate_and_no_build_product(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    members = (ROOT / "Cargo.toml").read_text().split("members = [")[1].split("]")[0]
    crates = {crate.strip() for crate in members.replace('"', "").split(",") if crate.strip()}
    # The C library is not part of the package.
    for crate in crates - {"capi"}:
        assert f"{crate}/Cargo.toml" in names
    for needed in ("Cargo.lock", "LICENSE", "README.md", "pyproject.toml", "build_backend/gt_build.py"):
        assert needed in names
    assert "scripts/check-tools" in names
    assert not [name for name in names if name.endswith((".so", ".pyc")) or "pybind/data" in name]


def test_the_wheel_serves_every_python_from_3_10(wheel: Path) -> None:
    assert wheel.name.startswith(f"gt_tensor-{_version()}-cp310-abi3-linux_")


def test_the_wheel_holds_the_extension_the_programs_and_the_types(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [Parser().parsestr(archive.read(n).decode()) for n in names if n.endswith(".dist-info/METADATA")]
        for program in PROGRAMS:
            (path,) = [name for name in names if name.endswith(f".data/scripts/{program}")]
            assert archive.read(path)[:4] == ELF_MAGIC
    assert "gt/_gt.abi3.so" in names
    assert "gt/py.typed" in names
    assert {"gt/_gt.pyi", "gt/_functions/top.pyi", "gt/_functions/methods.pyi"} <= set(names)
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    assert not [name for name in names if name.endswith(".pyc") or name.startswith("tests/")]
    assert metadata["Version"] == _version()
    assert metadata["License-Expression"] == "Apache-2.0"


def test_everything_installed_says_the_same_version(environment: Path) -> None:
    imported = _run(environment / "python", "-c", "import gt; print(gt.__version__)", cwd=environment)
    assert imported.strip() == _version()
    for program in PROGRAMS:
        assert (environment / program).read_bytes()[:4] == ELF_MAGIC
        assert _run(environment / program, "--version").strip() == f"{program} {_version()}"


def test_a_first_program_runs_on_nothing_but_the_wheel(environment: Path) -> None:
    """Runs the README's first program: no daemon has to be started, and none is left when Python ends."""
    program = "import gt; a = gt.tensor([[1.0, 2.0], [3.0, 4.0]]); print((a @ a).sum().item())"
    assert float(_run(environment / "python", "-c", program, cwd=environment)) == 54.0


def test_a_function_needs_nothing_but_its_declaration(environment: Path, wheel: Path) -> None:
    program = """
import inspect, math, gt
x = gt.tensor([0.0, math.pi / 2], requires_grad=True)
print(gt.equal(gt.sine_ratio(x), x.sine_ratio()), gt.allclose(gt.sine_ratio(x), gt.tensor([1.0, 2 / math.pi])))
print(str(inspect.signature(gt.sine_ratio)), "angle over the angle" in gt.sine_ratio.__doc__)
out = gt.empty(2)
print(gt.sine_ratio(x.detach(), 2.0, out=out) is out, x.detach().clone().sine_ratio_().shape)
try:
    gt.sine_ratio(x, "wide")
except TypeError as error:
    print(error)
x.versine().sum().backward()
print(gt.versine(x.detach()).round(decimals=4).tolist(), x.grad.round(decimals=4).tolist())
"""
    told = _run(environment / "python", "-c", program, cwd=environment).splitlines()
    assert told[0] == "True True"
    assert told[1].startswith("(input, scale=1.0")
    assert told[1].endswith("True")
    assert told[2] == "True gt.Size([2])"
    assert told[3] == "sine_ratio(): argument 'scale' (position 2) must be float, not str"
    assert told[4] == "[0.0, 1.0] [0.0, 1.0]"
    with zipfile.ZipFile(wheel) as archive:
        stubs = {name: archive.read(f"gt/_functions/{name}.pyi").decode() for name in ("top", "methods")}
    assert "def sine_ratio(input: Tensor, scale: _float = 1.0, *, out: Any = None) -> Tensor: ..." in stubs["top"]
    assert "def sine_ratio_(self, scale: _float = 1.0) -> Tensor: ..." in stubs["methods"]


def test_what_git_ignores_and_a_build_writes_is_named_for_wheels() -> None:
    """A wheel of a checkout lacks what git ignores, unless maturin's configuration includes it."""
    command = ["git", "ls-files", "--others", "--ignored", "--exclude-standard", "pybind/python"]
    ignored = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    written = [Path(name) for name in ignored if Path(name).suffix in {".py", ".pyi"}]
    assert len(written) > 5
    included = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]["include"]
    patterns = [entry["path"] for entry in included if entry["format"] == "wheel"]
    assert [path for path in written if not any(path.match(pattern) for pattern in patterns)] == []


@pytest.mark.parametrize("minor", [minor for minor in range(10, 15) if minor != sys.version_info.minor])
def test_the_wheel_runs_on(minor: int, wheel: Path, tmp_path: Path) -> None:
    """Imports the one abi3 wheel with every Python version of this machine."""
    python = _interpreter(minor)
    if python is None:
        pytest.skip(f"there is no Python 3.{minor} on this machine")
    _run(python, "-m", "venv", tmp_path)
    _run(tmp_path / "bin" / "python", "-m", "pip", "install", "--quiet", wheel)
    program = "import gt; print(gt.arange(4).sum().item())"
    assert _run(tmp_path / "bin" / "python", "-c", program, cwd=tmp_path).strip() == "6"


def _interpreter(minor: int) -> Path | None:
    """Returns a Python 3.`minor` on PATH or of pyenv."""
    found = [Path(path)] if (path := shutil.which(f"python3.{minor}")) else []
    found += sorted((Path.home() / ".pyenv" / "versions").glob(f"3.{minor}.*/bin/python"))
    for python in found:
        # pyenv's shims are on PATH even for versions that are not selected, and then fail.
        says = subprocess.run([python, "--version"], capture_output=True, text=True, check=False)
        if says.returncode == 0 and says.stdout.startswith(f"Python 3.{minor}."):
            return python
    return None


def test_the_programs_need_no_library_but_the_system_s(environment: Path) -> None:
    """Checks that the programs link neither to Python nor to a GPU's libraries, which a service must not depend on."""
    for program in PROGRAMS:
        linked = _run("ldd", environment / program)
        for library in ("libpython", "libcuda", "libstdc++"):
            assert library not in linked


def test_a_missing_tool_is_named_before_anything_is_built(tmp_path: Path) -> None:
    for tool in ("sh", "sed", "sort", "head", "dirname"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    script = [str(tmp_path / "sh"), str(ROOT / "scripts" / "check-tools"), "build", "venv"]
    env = {"PATH": str(tmp_path), "PYTHON": "python3"}
    done = subprocess.run(script, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    rust, compiler, python = done.stderr.splitlines()
    assert "rustup" in rust
    assert "apt install build-essential" in compiler
    assert "apt install python3 python3-venv" in python
