"""The checker of OTLP's JSON rules: it takes what brig writes (tests/cases/trace), and nothing that breaks a rule."""

import copy
import glob
import json
import os

import otlp
import pytest

CASES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cases", "trace")


def bodies():
    for path in sorted(glob.glob(os.path.join(CASES, "*.out"))):
        with open(path, "rb") as f:
            text = f.read()
        if text != b"nothing\n":
            yield os.path.basename(path), text.split(b"\n\n", 1)[1]


@pytest.mark.parametrize("name,body", bodies(), ids=lambda v: v if type(v) is str else "")
def test_what_brig_writes(name, body):
    found = otlp.spans(otlp.parse(body))
    otlp.check_tree(found)
    assert bool(found) != name.endswith("-test.out")
    if "privacy" in name:
        assert not otlp.content_keys(found)


def whole():
    with open(os.path.join(CASES, "otel-tools.out"), "rb") as f:
        return json.loads(f.read().split(b"\n\n", 1)[1])


def span_of(value):
    return value["resourceSpans"][0]["scopeSpans"][0]["spans"][0]


def rename(value, old, new):
    value[new] = value.pop(old)


BREAKS = {
    "snake case": lambda v: rename(v, "resourceSpans", "resource_spans"),
    "capital hex": lambda v: span_of(v).update(traceId=span_of(v)["traceId"].upper()),
    "base64 id": lambda v: span_of(v).update(spanId="t60/8kQk5rw="),
    "zero id": lambda v: span_of(v).update(spanId="0" * 16),
    "empty parent": lambda v: span_of(v).update(parentSpanId=""),
    "kind by name": lambda v: span_of(v).update(kind="SPAN_KIND_SERVER"),
    "time as a number": lambda v: span_of(v).update(startTimeUnixNano=1796030000000000000),
    "time with a point": lambda v: span_of(v).update(startTimeUnixNano="1796030000.5"),
    "end before start": lambda v: span_of(v).update(endTimeUnixNano="1"),
    "integer as a number": lambda v: span_of(v)["attributes"].append({"key": "x", "value": {"intValue": 1}}),
    "integer too large": lambda v: span_of(v)["attributes"].append({"key": "x", "value": {"intValue": str(1 << 63)}}),
    "two values": lambda v: span_of(v)["attributes"].append({"key": "x", "value": {"intValue": "1", "boolValue": True}}),
    "no value": lambda v: span_of(v)["attributes"].append({"key": "x", "value": {}}),
    "a key twice": lambda v: span_of(v)["attributes"].append(span_of(v)["attributes"][0]),
    "status by name": lambda v: span_of(v).update(status={"code": "STATUS_CODE_ERROR"}),
    "message without error": lambda v: span_of(v).update(status={"message": "x"}),
    "unknown name": lambda v: span_of(v).update(duration="1"),
    "no service": lambda v: v["resourceSpans"][0]["resource"].update(attributes=[]),
    "no name": lambda v: span_of(v).update(name=""),
}


@pytest.mark.parametrize("what", BREAKS)
def test_broken_rules(what):
    value = whole()
    otlp.parse(json.dumps(value))
    BREAKS[what](value)
    with pytest.raises(otlp.Wrong):
        otlp.parse(json.dumps(value))


def test_broken_trees():
    found = otlp.spans(otlp.parse(json.dumps(whole())))
    otlp.check_tree(found)
    lost = copy.deepcopy(found)
    del lost[0]
    twice = found + found[:1]
    circle = copy.deepcopy(found)
    circle[1]["parent"] = circle[-1]["id"]
    for broken in (lost, twice, circle):
        with pytest.raises(otlp.Wrong):
            otlp.check_tree(broken)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"resourceSpans":[],"resourceSpans":[]}', b'{"resourceSpans":NaN}',
                                  b'{"resourceSpans":[\xff]}'])
def test_no_request(body):
    with pytest.raises(otlp.Wrong):
        otlp.parse(body)
