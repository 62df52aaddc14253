"""What a server of the Messages API says, for the scripted upstream of fake_provider.py."""
import json

from fake_provider import Cut, FakeProvider, Reply

MODEL = "claude-haiku-4-5-"  # a prefix of which our side reads what the model can do


class AnthropicProvider(FakeProvider):
    """The same listener: the model's name stands in the body here too."""

    def model(self, *replies, prefix=""):
        model = super().model(*replies)
        if prefix:
            self.models[prefix + model.upstream_name] = model
            model.upstream_name = prefix + model.upstream_name
        return model


def event(type, **body):
    return b"event: %s\ndata: %s\n\n" % (type.encode(), json.dumps(dict({"type": type}, **body)).encode())


def start(usage=None, **more):
    message = {"id": "msg_up", "type": "message", "role": "assistant", "model": "up", "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": dict({"input_tokens": 10, "output_tokens": 1}, **(usage or {}))}
    return event("message_start", message=dict(message, **more))


def ending(reason="end_turn", output=5, sequence=None):
    return [event("message_delta", delta={"stop_reason": reason, "stop_sequence": sequence},
                  usage={"output_tokens": output}), event("message_stop")]


def block(index, first, *deltas):
    steps = [event("content_block_start", index=index, content_block=first)]
    steps += [event("content_block_delta", index=index, delta=d) for d in deltas]
    return steps + [event("content_block_stop", index=index)]


def pieces(text, n=2):
    size = max(1, -(-len(text) // n))
    return [text[i:i + size] for i in range(0, len(text), size)]


def text_block(text):
    return lambda i: block(i, {"type": "text", "text": ""}, *[{"type": "text_delta", "text": t} for t in pieces(text)])


def thinking_block(thinking, signature):
    return lambda i: block(i, {"type": "thinking", "thinking": "", "signature": ""},
                           *[{"type": "thinking_delta", "thinking": t} for t in pieces(thinking)],
                           {"type": "signature_delta", "signature": signature})


def redacted_block(data):
    return lambda i: block(i, {"type": "redacted_thinking", "data": data})


def call_block(name, input, id="toolu_1"):
    raw = input if isinstance(input, str) else json.dumps(input)
    return lambda i: block(i, {"type": "tool_use", "id": id, "name": name, "input": {}},
                           {"type": "input_json_delta", "partial_json": ""},
                           *[{"type": "input_json_delta", "partial_json": t} for t in pieces(raw)])


def shell_block(*commands, id="toolu_1", name="shell", **more):
    return call_block(name, dict({"commands": list(commands)}, **more), id)


def stream(*blocks, reason=None, usage=None, output=5, cut=False, **reply):
    steps = [start(usage), event("ping")]
    for i, make in enumerate(blocks):
        steps += make(i)
    if cut:
        return Reply([b"".join(steps[:-1]), Cut()], **reply)
    calls = any(b'"tool_use"' in s for s in steps)
    return Reply(steps + ending(reason or ("tool_use" if calls else "end_turn"), output), **reply)


def text(what, **more):
    return stream(text_block(what), **more)


def whole(content, reason="end_turn", **usage):
    body = {"id": "msg_up", "type": "message", "role": "assistant", "model": "up", "content": content,
            "stop_reason": reason, "stop_sequence": None, "usage": dict({"input_tokens": 10, "output_tokens": 5}, **usage)}
    return Reply([json.dumps(body).encode()], framing="length", content_type="application/json")


def refused(status, type, message, **headers):
    body = {"type": "error", "error": {"type": type, "message": message}, "request_id": "req_1"}
    return Reply([json.dumps(body).encode()], status=status, headers=headers, framing="length",
                 content_type="application/json")
