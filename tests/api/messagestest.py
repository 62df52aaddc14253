"""What the tests of the Messages API drive brig with: a client of its own, and the rules of its stream."""
import contextlib
import json

from brigtest import Stream

SHELL = {"type": "openrouter:shell"}
BRIG_SHELL = {"type": "brig:shell"}
RESULTS = {"openrouter_shell_tool_result", "openrouter_bash_tool_result", "bash_code_execution_tool_result"}
OURS = {"openrouter:shell", "openrouter:bash", "bash_code_execution"}
IDS = ("toolu_", "call_")  # what ids of a client's tools begin with
STOPS_WITH_TOOLS = {"tool_use"}
STOP_REASONS = {"end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal"}
USAGE = {"input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"}


def tool(name, **more):
    return dict({"name": name, "description": "a test's own", "input_schema": {"type": "object", "properties": {}}},
                **more)


def check_block(block):
    kind = block["type"]
    if kind == "text":
        assert isinstance(block["text"], str) and block.get("citations", []) is not None
    elif kind == "thinking":
        assert isinstance(block["thinking"], str) and isinstance(block["signature"], str)
    elif kind == "redacted_thinking":
        assert block["data"]
    elif kind in ("tool_use", "server_tool_use"):
        assert isinstance(block["input"], dict) and block["name"]
        assert block["id"].startswith("srvtoolu_" if kind == "server_tool_use" else IDS)
        assert len(block["id"]) <= 64
    elif kind in RESULTS:
        assert block["tool_use_id"].startswith("srvtoolu_") and isinstance(block["content"], dict)
    elif kind.endswith("_tool_result"):  # a provider's own
        assert block["tool_use_id"].startswith("srvtoolu_") and block["content"] is not None
    else:
        raise AssertionError("a block of type %s" % kind)


def check_message(message):
    assert set(message) >= {"id", "type", "role", "container", "content", "model", "stop_reason", "stop_details",
                            "stop_sequence", "usage"}
    assert message["type"] == "message" and message["role"] == "assistant"
    assert message["id"].startswith("msg_")
    assert message["stop_reason"] in STOP_REASONS
    assert (message["stop_sequence"] is not None) == (message["stop_reason"] == "stop_sequence")
    assert set(message["usage"]) >= USAGE
    for block in message["content"]:
        check_block(block)
    made = [b["id"] for b in message["content"] if b["type"] == "server_tool_use"]
    brought = [b["tool_use_id"] for b in message["content"] if b["type"].endswith("_tool_result")]
    assert made == brought
    asks = any(b["type"] == "tool_use" for b in message["content"])
    assert message["stop_reason"] in STOPS_WITH_TOOLS if asks else message["stop_reason"] != "tool_use"


def parse_events(data):
    """[(event, data)]: every frame is `event: NAME`, `data: JSON` of that type, and an empty line."""
    events = []
    frames = data.decode().split("\n\n")
    assert frames.pop() == ""
    for frame in frames:
        lines = frame.split("\n")
        assert len(lines) == 2 and lines[0].startswith("event: ") and lines[1].startswith("data: "), frame
        event = json.loads(lines[1][6:])
        assert event["type"] == lines[0][7:]
        events.append(event)
    return events


read_input = json.loads  # a model may write what is none


class Story:
    """A whole stream: checked against the order of events, and put together as the SDKs do."""

    def __init__(self, data):
        self.events = parse_events(data)
        self.pings = sum(e["type"] == "ping" for e in self.events)
        self.types = [e["type"] for e in self.events if e["type"] != "ping"]
        self.message, self.error = None, None
        self.open, self.partial = None, None
        self.inputs = []  # (block, JSON): what is cut by an error is in pieces
        for event in self.events:
            assert self.error is None, "events after an error"
            getattr(self, "on_" + event["type"])(event)
        if self.error is None:
            for block, text in self.inputs:
                block["input"] = read_input(text)
            assert self.types[-1] == "message_stop"
            check_message(self.message)

    def on_message_start(self, event):
        assert self.message is None
        self.message = event["message"]
        assert self.message["content"] == [] and self.message["stop_reason"] is None
        assert set(self.message["usage"]) >= USAGE
        self.started_usage = dict(self.message["usage"])

    def on_ping(self, event):
        assert event == {"type": "ping"}

    def on_content_block_start(self, event):
        assert self.open is None and event["index"] == len(self.message["content"])
        block = event["content_block"]
        if block["type"] == "tool_use" or block.get("name") in OURS:
            assert block["input"] == {}
        elif block["type"] == "text":
            assert block["text"] == ""
        elif block["type"] == "thinking":
            assert block["thinking"] == "" and block["signature"] == ""
        self.open, self.partial = block, ""
        self.message["content"].append(block)

    def on_content_block_delta(self, event):
        assert self.open is not None and event["index"] == len(self.message["content"]) - 1
        delta = event["delta"]
        if delta["type"] == "text_delta":
            assert self.open["type"] == "text" and delta["text"]
            self.open["text"] += delta["text"]
        elif delta["type"] == "thinking_delta":
            self.open["thinking"] += delta["thinking"]
        elif delta["type"] == "signature_delta":
            self.open["signature"] = delta["signature"]
        elif delta["type"] == "citations_delta":
            self.open.setdefault("citations", []).append(delta["citation"])
        else:
            assert delta["type"] == "input_json_delta"
            self.partial += delta["partial_json"]

    def on_content_block_stop(self, event):
        assert self.open is not None and event["index"] == len(self.message["content"]) - 1
        if self.open["type"] in ("tool_use", "server_tool_use") and self.partial:
            self.inputs.append((self.open, self.partial))
        self.open = None

    def on_message_delta(self, event):
        assert self.open is None
        self.message.update(event["delta"])
        self.message["usage"].update({k: v for k, v in event["usage"].items() if v is not None})

    def on_message_stop(self, event):
        assert self.open is None and event == {"type": "message_stop"}

    def on_error(self, event):
        assert self.open is None
        self.error = event["error"]
        assert self.error["type"] and self.error["message"]


class Messages:
    """A client of /messages. `header`: how it says its key."""

    def __init__(self, client, header="x-api-key", version="2023-06-01"):
        self.client = client
        self.headers = {"anthropic-version": version}
        if header == "x-api-key":
            self.headers.update({"x-api-key": client.key, "Authorization": ""})

    def body(self, model, messages="go", **fields):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return dict({"model": getattr(model, "name", model), "max_tokens": 1000, "messages": messages}, **fields)

    def post(self, path, body, timeout=60, **headers):
        given = {k: v for k, v in dict(self.headers, **headers).items() if v}
        return self.client.post(path, body, headers=given, timeout=timeout)

    def create(self, model, messages="go", expect=200, timeout=60, headers=None, **fields):
        answer = self.post("/messages", self.body(model, messages, **fields), timeout, **(headers or {}))
        assert answer.status == expect, answer
        if expect == 200:
            check_message(answer.json)
            return answer.json
        body = answer.json
        assert body["type"] == "error" and body["error"]["type"] and body["error"]["message"]
        return body["error"]

    def begin(self, model, messages="go", timeout=60, **fields):
        body = self.body(model, messages, stream=True, **fields)
        given = {k: v for k, v in self.headers.items() if v}
        return Stream(self.client, "POST", self.client.base + "/messages", body, given, timeout)

    def stream(self, model, messages="go", **fields):
        with contextlib.closing(self.begin(model, messages, **fields)) as stream:
            assert stream.status == 200, stream.body()
            return Story(stream.rest())

    def both(self, model_of, messages="go", **fields):
        """The message of an answer and of a stream, each from a model of its own."""
        return self.create(model_of(), messages, **fields), self.stream(model_of(), messages, **fields).message


def shape(message):
    """What must be the same whether it was streamed or not: all but ids, times and costs."""
    def rid(value):
        if isinstance(value, dict):
            return {k: rid(v) for k, v in value.items() if k not in ("container_id", "id", "tool_use_id", "signature",
                                                                   "usage", "model", "container", "provider")}
        return [rid(v) for v in value] if isinstance(value, list) else value
    return rid(message)


def texts(message):
    return "".join(b["text"] for b in message["content"] if b["type"] == "text")


def blocks(message, kind):
    return [b for b in message["content"] if b["type"] == kind]


def outputs(message):
    return [o for b in blocks(message, "openrouter_shell_tool_result") for o in b["content"]["output"]]
