"""`libgt` for C and C++: the installed files, the exported symbols, and programs compiled with all warnings."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from c_library import for_programs, functions, header, install
from support import ROOT, TOKEN, server
from test_tls import fingerprint

import gt
import gt.llm

# The library is built first if necessary.
pytestmark = pytest.mark.timeout(1200)
EXAMPLES = ROOT / "examples" / "c"
LLM = Path(__file__).parent / "files" / "llm"
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-pedantic")


def run(*command: object, **env: str) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, env=for_programs(**env), capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def compiled(source: Path, program: Path, *flags: str) -> Path:
    prefix = install()
    places = (f"-I{prefix / 'include'}", f"-L{prefix / 'lib'}")
    run("cc", "-std=c99", *WARNINGS, *flags, source, *places, "-lgt", "-lm", "-o", program)
    return program


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Compiles the example, and exports the images that it reads."""
    datasets = pytest.importorskip("sklearn.datasets", reason="the handwritten digits come with scikit-learn")
    folder = tmp_path_factory.mktemp("digits")
    images = folder / "digits.csv"
    loaded = datasets.load_digits()
    rows = zip(loaded.data.astype(int).tolist(), loaded.target.tolist(), strict=True)
    images.write_text("".join(",".join(map(str, [*pixels, digit])) + "\n" for pixels, digit in rows))
    return compiled(EXAMPLES / "digits.c", folder / "digits", "-g"), images


def test_the_smallest_program_runs(tmp_path: Path) -> None:
    assert float(run(compiled(EXAMPLES / "first.c", tmp_path / "first"))) == pytest.approx(0.0, abs=1e6)


def test_a_program_connects_with_tls(tmp_path: Path) -> None:
    program = compiled(EXAMPLES / "first.c", tmp_path / "first")
    with server(tmp_path, "--state", str(tmp_path)) as daemon:
        address = f"tls://localhost:{daemon.port}#{fingerprint(daemon)}"
        assert float(run(program, GT_CONNECT=address, GT_TOKEN=TOKEN)) == pytest.approx(0.0, abs=1e6)
        with pytest.raises(AssertionError, match="has another certificate than the address says"):
            run(program, GT_CONNECT=address.split("#")[0] + "#sha256:" + "0" * 64, GT_TOKEN=TOKEN)


def test_the_digits_are_read(digits: tuple[Path, Path]) -> None:
    told = run(*digits)
    losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", told)]
    assert losses[-1] < 0.1 * losses[0]
    (accuracy,) = re.findall(r"unseen images: (\d+\.\d)%", told)
    assert float(accuracy) >= 96.0


def test_valgrind_finds_no_error_and_no_leak(digits: tuple[Path, Path]) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    run(
        "valgrind", "--quiet", "--leak-check=full", "--errors-for-leak-kinds=definite", "--error-exitcode=9", *digits, 1
    )


def test_a_program_in_c_makes_text_and_trains_as_python_does(tmp_path: Path) -> None:
    program, model = compiled(EXAMPLES / "gpt2.c", tmp_path / "gpt2"), LLM / "model.bin"
    told = run(program, model).splitlines()
    text = gt.tensor([[19, *map(int, told[0].split())]])
    # The context of 8 tokens ends the text; the first token is the last of the vocabulary.
    assert text.shape == (1, 8)
    loss = gt.llm.read_model(model)(text[:, :-1], text[:, 1:])[1].item()
    before, after = map(float, re.findall(r"\d+\.\d+", told[1]))
    assert before == pytest.approx(loss, abs=2e-6)
    assert after < before - 0.01
    gt.llm.write_tokenizer(tmp_path / "letters.bin", gt.llm.Tokenizer([bytes([97 + i]) for i in range(20)], 19))
    assert run(program, model, tmp_path / "letters.bin", 5).splitlines()[0] == "".join(
        chr(97 + token) for token in text[0, 1:6].tolist()
    )
    (tmp_path / "half.bin").write_bytes(model.read_bytes()[:5000])
    for file, why in (("half.bin", "it is cut off"), ("letters.bin", "it holds no model of llm.c")):
        with pytest.raises(AssertionError, match=why):
            run(program, tmp_path / file)


@pytest.mark.parametrize("standard", ["c99", "c11", "c17"])
def test_the_header_is_c_without_a_warning(standard: str, tmp_path: Path) -> None:
    source = tmp_path / "only.c"
    source.write_text("#include <gt.h>\nint main(void) { return gt_version() == 0; }\n")
    run("cc", f"-std={standard}", *WARNINGS, f"-I{install() / 'include'}", "-c", source, "-o", tmp_path / "only.o")


@pytest.mark.parametrize("standard", ["c++11", "c++20"])
def test_the_header_is_c_plus_plus(standard: str, tmp_path: Path) -> None:
    if shutil.which("c++") is None:
        pytest.skip("there is no C++ compiler")
    source, prefix = tmp_path / "only.cc", install()
    source.write_text(
        "#include <gt.h>\n#include <cstdio>\n"
        "int main() {\n"
        "    gt_session *session = nullptr;\n    gt_tensor *one = nullptr, *two = nullptr;\n    double number = 0;\n"
        "    gt_status status = gt_session_open(nullptr, nullptr, &session);\n"
        "    if (status == GT_OK) status = gt_full(session, gt_integer(1), nullptr, 0, GT_FLOAT64, &one);\n"
        "    if (status == GT_OK) status = gt_add(gt_of(one), gt_number(1.5), &two);\n"
        "    if (status == GT_OK) status = gt_tensor_item(two, &number);\n"
        '    std::printf("%g %s\\n", number, gt_last_error());\n'
        "    gt_tensor_free(one);\n    gt_tensor_free(two);\n    gt_session_close(session);\n"
        "    return status;\n}\n"
    )
    places = (f"-I{prefix / 'include'}", source, f"-L{prefix / 'lib'}", "-lgt", "-o", tmp_path / "only")
    run("c++", f"-std={standard}", *WARNINGS, *places)
    assert run(tmp_path / "only").strip() == "2.5"


def test_a_result_without_a_place_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "nowhere.c"
    source.write_text(
        "#include <gt.h>\n#include <stdio.h>\n"
        "int main(void) {\n"
        "    const int64_t shape[] = {2, 3};\n"
        "    gt_session *session;\n    gt_tensor *x, *values = NULL, *indices = NULL;\n"
        "    if (gt_session_open(NULL, NULL, &session) || gt_zeros(session, shape, 2, 0, &x)) return 1;\n"
        '    printf("%d ", gt_topk(x, 1, -1, true, true, &values, NULL));\n'
        '    printf("%d ", values == NULL);\n'
        '    printf("%d ", gt_topk(x, 1, -1, true, true, &values, &indices));\n'
        '    printf("%d\\n", gt_batch_norm(x, NULL, NULL, NULL, NULL, true, gt_number(0.1), 1e-5, NULL, NULL, NULL));\n'
        "    gt_tensor_free(x);\n    gt_tensor_free(values);\n    gt_tensor_free(indices);\n"
        "    gt_session_close(session);\n    return 0;\n}\n"
    )
    # GT_ERROR_ARGUMENT is 1.
    assert run(compiled(source, tmp_path / "nowhere")).split() == ["1", "1", "0", "1"]


def test_the_library_exports_the_header_s_functions_each_with_its_version() -> None:
    listed = run("nm", "-D", "--defined-only", "--with-symbol-versions", install() / "lib" / "libgt.so")
    (major, minor) = re.findall(r"#define GT_VERSION_(?:MAJOR|MINOR) (\d+)", header())
    node = f"GT_{major}.{minor}"
    symbols = {line.split()[-1] for line in listed.splitlines()}
    assert symbols == {node} | {f"{name}@@{node}" for name in functions()}


def test_the_library_has_a_soname_and_needs_the_system_s_libraries_alone() -> None:
    told = run("readelf", "--dynamic", install() / "lib" / "libgt.so")
    (major,) = re.findall(r"#define GT_VERSION_MAJOR (\d+)", header())
    assert f"soname: [libgt.so.{major}]" in told
    assert {name.split(".")[0] for name in re.findall(r"NEEDED.*\[(.*)\]", told)} <= {
        "libgcc_s",
        "libm",
        "libc",
        "ld-linux-x86-64",
        "ld-linux-aarch64",
    }
    assert (install() / "lib" / f"libgt.so.{major}").resolve() == (install() / "lib" / "libgt.so").resolve()


def test_pkg_config_says_how_to_compile() -> None:
    folder = install() / "lib" / "pkgconfig"
    said = (folder / "gt.pc").read_text()
    (version,) = re.findall(r'#define GT_VERSION "(.*)"', header())
    assert f"Version: {version}" in said
    assert f"prefix={install()}" in said
    if shutil.which("pkg-config") is not None:
        flags = run("pkg-config", "--cflags", "--libs", "gt", PKG_CONFIG_PATH=str(folder))
        assert flags.split() == [f"-I{install() / 'include'}", f"-L{install() / 'lib'}", "-lgt"]
