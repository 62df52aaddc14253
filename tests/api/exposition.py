"""A strict reader of Prometheus' text format 0.0.4, for tests: what it does not know is an error."""
import decimal
import math
import re

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
VALUE = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?|\+?Inf|NaN)\Z")


class Metrics(dict):
    """{family: Family}; get() of a sample by name and labels, 0 where there is none."""

    def value(self, name, **labels):
        return sum((v for have, v in self.samples(name) if all(have.get(k) == w for k, w in labels.items())), decimal.Decimal(0))

    def samples(self, name):
        family = self[name] if name in self else self[re.sub(r"_(bucket|sum|count)\Z", "", name)]
        return [(labels, value) for sample, labels, value in family.samples if sample == name]

    def rows(self):
        return sum(len(f.samples) for f in self.values())


class Family:
    def __init__(self, name, help):
        self.name, self.help, self.type, self.samples = name, help, None, []


def labels_of(text):
    labels, at = {}, 0
    while at < len(text):
        m = LABEL.match(text, at)
        assert m, "labels %r" % text
        assert m.group(1) not in labels and not m.group(1).startswith("__"), text
        labels[m.group(1)] = re.sub(r"\\(.)", lambda e: {"n": "\n"}.get(e.group(1), e.group(1)), m.group(2))
        at = m.end()
        if at < len(text):
            assert text[at] == "," and at + 1 < len(text), text
            at += 1
    return labels


def parse(body):
    """Families in order, each with HELP, TYPE and then its samples, nothing twice."""
    text = body.decode("utf-8")
    assert text.endswith("\n") and "\r" not in text
    found, family, seen = Metrics(), None, set()
    for line in text[:-1].split("\n"):
        assert line and line == line.strip(), repr(line)
        if line.startswith("# HELP "):
            _, _, name, help = line.split(" ", 3)
            assert NAME.match(name) and name not in found and help, line
            family = found[name] = Family(name, help)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == family.name and family.type is None and not family.samples, line
            assert kind in ("counter", "gauge", "histogram"), line
            family.type = kind
        else:
            assert not line.startswith("#"), line
            take_sample(family, line, seen)
    for family in found.values():
        check_family(family)
    return found


def take_sample(family, line, seen):
    m = re.match(r"([^{ ]+)(?:\{(.*)\})? (\S+)\Z", line)
    assert m, line
    name, labels, value = m.group(1), labels_of(m.group(2) or ""), m.group(3)
    assert NAME.match(name) and VALUE.match(value), line
    key = (name, tuple(sorted(labels.items())))
    assert key not in seen, "twice: " + line
    seen.add(key)
    endings = ("_bucket", "_sum", "_count") if family.type == "histogram" else ("",)
    assert family.type and name in [family.name + e for e in endings], line
    family.samples.append((name, labels, decimal.Decimal(value)))


def check_family(family):
    assert family.type, family.name
    assert family.name.startswith("brig_"), family.name
    assert family.name.endswith("_total") == (family.type == "counter"), family.name
    for _, _, value in family.samples:
        assert value >= 0 and not math.isnan(value), family.name
    if family.type == "histogram":
        check_histogram(family)


def check_histogram(family):
    """Each series: bounds rise, counts never fall, the last is +Inf and is the count."""
    series = {}
    for name, labels, value in family.samples:
        rest = tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
        one = series.setdefault(rest, {"buckets": []})
        if name.endswith("_bucket"):
            one["buckets"].append((math.inf if labels["le"] == "+Inf" else float(labels["le"]), value))
        else:
            assert "le" not in labels
            one[name[len(family.name):]] = value
    assert series or not family.samples
    for rest, one in series.items():
        bounds, counts = [b for b, _ in one["buckets"]], [v for _, v in one["buckets"]]
        assert len(bounds) > 2 and bounds == sorted(set(bounds)) and bounds[-1] == math.inf, (family.name, rest)
        assert counts == sorted(counts) and counts[-1] == one["_count"], (family.name, rest)
        assert (one["_sum"] == 0) or one["_count"] > 0
        assert all(v == int(v) for v in counts)
