"""`gt.debug` shows the autograd tape."""

from __future__ import annotations

import io

from support import output_of

import gt


def test_the_tape_lists_what_gradients_need() -> None:
    before = {node["id"] for node in gt.debug.get_tape()}
    x = gt.ones(2, 3, requires_grad=True)
    y = (x * 2).sum()
    leaf, mul, total = [node for node in gt.debug.get_tape() if node["id"] not in before]
    assert (leaf["op"], leaf["leaf"], leaf["shape"], leaf["dtype"], leaf["inputs"]) == (
        "leaf",
        True,
        (2, 3),
        "float32",
        [],
    )
    assert (mul["op"], mul["inputs"], mul["leaf"]) == ("mul", [leaf["id"]], False)
    assert (total["op"], total["shape"], total["inputs"]) == ("sum", (), [mul["id"]])
    del y
    assert [node["op"] for node in gt.debug.get_tape() if node["id"] not in before] == ["leaf"]
    del x
    assert not [node for node in gt.debug.get_tape() if node["id"] not in before]


def test_the_tape_is_printed_as_a_table() -> None:
    program = "import gt\nx = gt.ones(2, 3, requires_grad=True)\ny = (x * 2).sum()\ngt.debug.print_tape()\n"
    assert output_of(program) == (
        "id  op    shape   dtype    inputs\n"
        "--  ----  ------  -------  ------\n"
        "#1  leaf  (2, 3)  float32  -\n"
        "#2  mul   (2, 3)  float32  #1\n"
        "#3  sum   ()      float32  #2\n"
    )  # fmt: skip


def test_an_empty_tape_says_so() -> None:
    assert "empty" in output_of("import gt; gt.debug.print_tape()")


def test_the_tape_goes_to_any_file() -> None:
    file = io.StringIO()
    gt.debug.print_tape(file)
    assert file.getvalue().startswith("id")
