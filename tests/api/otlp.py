"""The JSON form of OTLP traces, strictly: what a receiver that knows the rules would accept, and no more.

    request = otlp.parse(body)                 # bytes; raises otlp.Wrong with the path of what breaks a rule
    spans = otlp.spans(request)                # every span, with attributes as a dict of Python values
    root, = otlp.roots(spans)
    otlp.check_tree(spans)                     # one root a trace-and-record, children within, no cycle

Rules: opentelemetry-proto's trace.proto, common.proto and resource.proto, and docs/specification.md on JSON:
lowerCamelCase names and no other; trace and span ids as 32 and 16 lower-case hex digits, never all zero;
enums as integers; 64-bit integers as decimal strings; no parentSpanId on a root; attribute keys unique.
A receiver must ignore unknown names, so here they are refused: brig has no business sending any.
"""

import json
import math
import re

HEX32 = re.compile(r"[0-9a-f]{32}")
HEX16 = re.compile(r"[0-9a-f]{16}")
UINT = re.compile(r"0|[1-9][0-9]*")
INT = re.compile(r"0|-?[1-9][0-9]*")
KINDS = {1: "INTERNAL", 2: "SERVER", 3: "CLIENT", 4: "PRODUCER", 5: "CONSUMER"}
MAX_BODY = 64 << 20


class Wrong(AssertionError):
    """A rule is broken; says where."""


def _fail(path, why):
    raise Wrong(f"{path or 'body'}: {why}")


def _unique(pairs):
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise Wrong(f"a name twice in one object: {keys}")
    return dict(pairs)


def _constant(text):
    raise Wrong(f"{text} is no JSON")


def _object(value, path, needed, optional=()):
    if type(value) is not dict:
        _fail(path, f"is no object but {value!r:.80}")
    for name in needed:
        if name not in value:
            _fail(path, f"lacks {name}")
    for name in value:
        if name not in needed and name not in optional:
            _fail(path, f"has {name!r}, which is none of OTLP's names here")
    return value


def _list(value, path):
    if type(value) is not list:
        _fail(path, f"is no list but {value!r:.80}")
    return value


def _text(value, path, pattern=None):
    if type(value) is not str:
        _fail(path, f"is no string but {value!r:.80}")
    if pattern is not None and not pattern.fullmatch(value):
        _fail(path, f"is {value!r:.80}")
    return value


def _integer(value, path, least, most):
    if type(value) is not int or not least <= value <= most:
        _fail(path, f"is no integer of {least} to {most} but {value!r:.80}")
    return value


def _uint64(value, path):
    number = int(_text(value, path, UINT))
    if number >= 1 << 64:
        _fail(path, "is beyond 64 bits")
    return number


def _id(value, path, pattern):
    _text(value, path, pattern)
    if not value.strip("0"):
        _fail(path, "is all zero")
    return value


def _value(value, path):
    _object(value, path, (), ("stringValue", "boolValue", "intValue", "doubleValue", "arrayValue", "kvlistValue",
                              "bytesValue"))
    if len(value) != 1:
        _fail(path, f"holds {len(value)} kinds of value")
    (kind, inner), = value.items()
    path = f"{path}.{kind}"
    if kind == "stringValue":
        return _text(inner, path)
    if kind == "boolValue":
        if type(inner) is not bool:
            _fail(path, f"is {inner!r:.80}")
        return inner
    if kind == "intValue":
        number = int(_text(inner, path, INT))
        if not -(1 << 63) <= number < 1 << 63:
            _fail(path, "is beyond 64 bits")
        return number
    if kind == "doubleValue":
        if type(inner) not in (int, float) or not math.isfinite(inner):
            _fail(path, f"is {inner!r:.80}")
        return float(inner)
    if kind == "arrayValue":
        _object(inner, path, ("values",))
        return [_value(each, f"{path}.values[{i}]") for i, each in enumerate(_list(inner["values"], path))]
    if kind == "kvlistValue":
        _object(inner, path, ("values",))
        return attributes(inner["values"], f"{path}.values")
    _fail(path, "is not used by brig")


def attributes(value, path):
    """A list of attributes as a dict."""
    found = {}
    for i, each in enumerate(_list(value, path)):
        here = f"{path}[{i}]"
        _object(each, here, ("key", "value"))
        key = _text(each["key"], f"{here}.key")
        if not key:
            _fail(here, "has an empty key")
        if key in found:
            _fail(here, f"is {key!r} once more")
        found[key] = _value(each["value"], f"{here}.value")
    return found


def _event(value, path):
    _object(value, path, ("timeUnixNano", "name"), ("attributes",))
    return {
        "time": _uint64(value["timeUnixNano"], f"{path}.timeUnixNano"),
        "name": _text(value["name"], f"{path}.name"),
        "attributes": attributes(value.get("attributes", []), f"{path}.attributes"),
    }


def _link(value, path):
    _object(value, path, ("traceId", "spanId"), ("traceState", "attributes", "flags"))
    _id(value["traceId"], f"{path}.traceId", HEX32)
    _id(value["spanId"], f"{path}.spanId", HEX16)
    if "flags" in value:
        _integer(value["flags"], f"{path}.flags", 0, (1 << 32) - 1)
    return value


def _status(value, path):
    _object(value, path, (), ("message", "code"))
    code = _integer(value.get("code", 0), f"{path}.code", 0, 2)
    message = _text(value.get("message", ""), f"{path}.message")
    if message and code != 2:
        _fail(path, "has a message, but is no error")
    return {"code": code, "message": message}


def _span(value, path):
    _object(value, path, ("traceId", "spanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano"),
            ("parentSpanId", "traceState", "flags", "attributes", "events", "links", "status"))
    span = {
        "trace": _id(value["traceId"], f"{path}.traceId", HEX32),
        "id": _id(value["spanId"], f"{path}.spanId", HEX16),
        "parent": None,
        "name": _text(value["name"], f"{path}.name"),
        "kind": KINDS[_integer(value["kind"], f"{path}.kind", 1, 5)],
        "start": _uint64(value["startTimeUnixNano"], f"{path}.startTimeUnixNano"),
        "end": _uint64(value["endTimeUnixNano"], f"{path}.endTimeUnixNano"),
        "flags": _integer(value.get("flags", 0), f"{path}.flags", 0, (1 << 32) - 1),
        "attributes": attributes(value.get("attributes", []), f"{path}.attributes"),
        "events": [_event(each, f"{path}.events[{i}]") for i, each in enumerate(value.get("events", []))],
        "links": [_link(each, f"{path}.links[{i}]") for i, each in enumerate(value.get("links", []))],
        "status": _status(value.get("status", {}), f"{path}.status"),
    }
    if "parentSpanId" in value:
        span["parent"] = _id(value["parentSpanId"], f"{path}.parentSpanId", HEX16)
        if span["parent"] == span["id"]:
            _fail(path, "is its own parent")
    if not span["name"]:
        _fail(path, "has no name")
    if span["start"] == 0 or span["end"] < span["start"]:
        _fail(path, f"lasts from {span['start']} to {span['end']}")
    return span


def parse(body):
    """One ExportTraceServiceRequest: [{"resource": dict, "scope": (name, version), "spans": [...]}]."""
    if type(body) is str:
        body = body.encode()
    if len(body) > MAX_BODY:
        _fail("", f"has {len(body)} bytes")
    try:
        value = json.loads(body.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_constant)
    except ValueError as e:
        raise Wrong(f"body: {e}") from None
    groups = []
    _object(value, "", ("resourceSpans",))
    for i, rs in enumerate(_list(value["resourceSpans"], "resourceSpans")):
        path = f"resourceSpans[{i}]"
        _object(rs, path, ("resource", "scopeSpans"), ("schemaUrl",))
        _object(rs["resource"], f"{path}.resource", ("attributes",), ("droppedAttributesCount",))
        resource = attributes(rs["resource"]["attributes"], f"{path}.resource.attributes")
        if not resource.get("service.name"):
            _fail(path, "has no service.name")
        for k, ss in enumerate(_list(rs["scopeSpans"], f"{path}.scopeSpans")):
            here = f"{path}.scopeSpans[{k}]"
            _object(ss, here, ("scope", "spans"), ("schemaUrl",))
            _object(ss["scope"], f"{here}.scope", ("name",), ("version", "attributes"))
            groups.append({
                "resource": resource,
                "scope": (_text(ss["scope"]["name"], f"{here}.scope.name"), ss["scope"].get("version")),
                "spans": [_span(s, f"{here}.spans[{n}]") for n, s in enumerate(_list(ss["spans"], f"{here}.spans"))],
            })
    return groups


def spans(groups):
    """Every span of parse()'s result."""
    return [span for group in groups for span in group["spans"]]


def roots(all_spans):
    """The requests themselves: one for each record."""
    return [s for s in all_spans if s["kind"] == "SERVER"]


def check_tree(all_spans):
    """Each span that is no request's has its parent here, in its trace; ids are unique; a request's attributes name it."""
    by_id = {}
    for span in all_spans:
        if (span["trace"], span["id"]) in by_id:
            raise Wrong(f"span {span['id']} is there twice")
        by_id[span["trace"], span["id"]] = span
    for span in all_spans:
        if span["kind"] == "SERVER":
            if not span["attributes"].get("brig.generation.id"):
                raise Wrong(f"request {span['name']!r} does not say which")
            continue
        at, steps = span, 0
        while at["kind"] != "SERVER":
            at = by_id.get((at["trace"], at["parent"]))
            if at is None:
                raise Wrong(f"span {span['name']!r} has no way to a request")
            steps += 1
            if steps > len(all_spans):
                raise Wrong(f"span {span['name']!r} is in a circle")
    check_conventions(all_spans)
    return by_id


def check_conventions(all_spans):
    """What the GenAI conventions require of each kind of span."""
    for span in all_spans:
        has, name = span["attributes"], span["name"]
        operation = has.get("gen_ai.operation.name")
        needed = {"chat": ("gen_ai.provider.name", "gen_ai.request.model"),
                  "generate_content": ("gen_ai.provider.name", "gen_ai.request.model"),
                  "execute_tool": ("gen_ai.tool.name",),
                  "invoke_agent": ()}.get(operation, ())
        if operation in ("chat", "generate_content") and span["kind"] != "CLIENT":
            raise Wrong(f"{name!r} is a {span['kind']} span")
        for key in needed:
            if not has.get(key):
                raise Wrong(f"{name!r} lacks {key}")
        if span["status"]["code"] == 2 and span["kind"] in ("SERVER", "CLIENT") and not has.get("error.type"):
            raise Wrong(f"{name!r} failed and says no error.type")
        for key in ("gen_ai.input.messages", "gen_ai.output.messages"):
            if key in has:
                check_messages(has[key], f"{name!r} {key}")


def check_messages(text, path):
    """gen-ai-input-messages and gen-ai-output-messages: a list of {role, parts, finish_reason?}."""
    for i, message in enumerate(_list(json.loads(text, object_pairs_hook=_unique), path)):
        here = f"{path}[{i}]"
        _object(message, here, ("role", "parts"), ("name", "finish_reason"))
        _text(message["role"], f"{here}.role", re.compile("system|developer|user|assistant|tool"))
        for k, part in enumerate(_list(message["parts"], f"{here}.parts")):
            if type(part) is not dict or type(part.get("type")) is not str:
                _fail(f"{here}.parts[{k}]", "has no type")
            needed = {"text": "content", "reasoning": "content", "tool_call": "name",
                      "tool_call_response": "response"}.get(part["type"])
            if needed is not None and needed not in part:
                _fail(f"{here}.parts[{k}]", f"lacks {needed}")


CONTENT = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "input.value",
           "output.value", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "process.command_line",
           "brig.guardrail.matched")


def content_keys(all_spans):
    """Which attributes with content are in them: none in privacy mode."""
    found = set()
    for span in all_spans:
        found.update(set(CONTENT) & set(span["attributes"]))
        for event in span["events"]:
            found.update(set(CONTENT) & set(event["attributes"]))
    return found
