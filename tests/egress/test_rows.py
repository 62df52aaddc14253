"""README.md's tables name tests that exist, and every test of this folder."""
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent


def test_every_row_has_a_test_and_every_test_a_row():
    text = (HERE / "README.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \|(?: [^|]+ \|)? ([^|]+) \|$", text, re.M)
    named = set(re.findall(r"`(test_\w+|[a-z]+(?:_[a-z]+)*)`", " ".join(tests for _, tests in rows)))
    python = {p: re.findall(r"^def (test_\w+)\(", p.read_text(), re.M)
              for folder in (HERE, HERE / "../api", HERE / "../escape") for p in folder.glob("test_*.py")}
    there = {name for names in python.values() for name in names}
    unit = {name for p in (HERE / "../unit").glob("*/*.c") for name in re.findall(r"cmocka_unit_test\w*\((\w+)", p.read_text())}
    assert named <= there | unit | {"network"}, named - there - unit
    assert {"N%d" % n for n in list(range(1, 13)) + [14, 15, 16]} <= {row for row, _ in rows}
    own = {name for p, names in python.items() if p.parent == HERE and p != pathlib.Path(__file__).resolve() for name in names}
    assert own <= named, own - named
