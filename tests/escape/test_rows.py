"""README.md's table and the suite say the same."""
import re

from escapetest import HERE, output_of


def test_every_row_has_a_case_and_every_case_a_row(client, box):
    rows = re.findall(r"^\| ([XKL]\d+) \| [^|]+ \| ([^|]+) \|$", (HERE / "README.md").read_text(), re.M)
    assert {row for row, _ in rows} >= {"%s%d" % (letter, n) for letter, last in (("X", 15), ("K", 12), ("L", 18))
                                        for n in range(1, last + 1)}
    named = {name for _, text in rows for name in re.findall(r"`((?:test_|[XKL]\d)[\w-]*)`", text)}
    tests = {name for path in HERE.glob("test_*.py") for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.M)}
    cases = set(output_of(client, box(), "/tmp/escape list").split())
    assert named <= tests | cases, named - tests - cases
    assert cases <= named, cases - named
    for row, text in rows:
        assert "`" in text or "no case here" in text, row
