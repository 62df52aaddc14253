"""What a server of the Responses API says, for the scripted upstream of fake_provider.py."""
import json

from brigtest import UPSTREAM_KEY
from fake_provider import Cut, FakeProvider, Reply, error  # noqa: F401


class ResponsesProvider(FakeProvider):
    """The same listener; here only one path is served."""

    def find(self, request):
        if request.path != "/v1/responses":
            self.strangers.append(request)
            return None
        return super().find(request)


def event(type, **fields):
    return ("event: %s\ndata: %s\n\n" % (type, json.dumps(dict(type=type, **fields)))).encode()


def usage_of(usage):
    """(input, output[, cached[, reasoning]])"""
    if usage is None or isinstance(usage, dict):
        return usage
    taken, made, cached, reasoning = (tuple(usage) + (0, 0))[:4]
    return {"input_tokens": taken, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": reasoning}, "total_tokens": taken + made}


def response(status="in_progress", output=(), usage=None, **more):
    return dict({"id": "resp_upstream", "object": "response", "created_at": 1, "status": status, "model": "up-1",
                 "output": list(output), "usage": usage_of(usage), "error": None, "incomplete_details": None}, **more)


# ---- items ----

def message(text, id="msg_up1", **more):
    return dict({"id": id, "type": "message", "status": "completed", "role": "assistant",
                 "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]}, **more)


def call(name, arguments, call_id="call_1", id="fc_up1", **more):
    return dict({"id": id, "type": "function_call", "status": "completed", "call_id": call_id, "name": name,
                 "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments)}, **more)


def shell(*commands, call_id="call_1", id="fc_up1", name="shell", **arguments):
    return call(name, dict(commands=list(commands), **arguments), call_id, id)


def reasoning(*summary, encrypted="gAAAA-secret==", id="rs_up1", **more):
    item = dict({"id": id, "type": "reasoning", "summary": [{"type": "summary_text", "text": t} for t in summary]},
                **more)
    if encrypted:
        item["encrypted_content"] = encrypted
    return item


# ---- streams ----

def pieces_of(text, n=2):
    size = max(1, -(-len(text) // n))
    return [text[i:i + size] for i in range(0, len(text), size)]


def events_of(item, index):
    """How OpenAI streams one item."""
    at = {"output_index": index, "item_id": item["id"]}
    kind = item["type"]
    out = []
    if kind == "message":
        out.append(event("response.output_item.added", output_index=index,
                         item=dict(item, status="in_progress", content=[])))
        for i, part in enumerate(item["content"]):
            of = dict(at, content_index=i)
            text = part.get("text", part.get("refusal"))
            name = "output_text" if part["type"] == "output_text" else "refusal"
            out.append(event("response.content_part.added", part=dict(part, **{"text" if name == "output_text" else
                                                                                "refusal": ""}), **of))
            out += [event("response.%s.delta" % name, delta=p, obfuscation="xY", **of) for p in pieces_of(text)]
            for n, note in enumerate(part.get("annotations", ())):
                out.append(event("response.output_text.annotation.added", annotation_index=n, annotation=note, **of))
            out.append(event("response.%s.done" % name, **{"text" if name == "output_text" else "refusal": text}, **of))
            out.append(event("response.content_part.done", part=part, **of))
    elif kind == "reasoning":
        out.append(event("response.output_item.added", output_index=index, item=dict(item, summary=[])))
        for i, part in enumerate(item["summary"]):
            of = dict(at, summary_index=i)
            out.append(event("response.reasoning_summary_part.added", part=dict(part, text=""), **of))
            out += [event("response.reasoning_summary_text.delta", delta=p, **of) for p in pieces_of(part["text"])]
            out.append(event("response.reasoning_summary_text.done", text=part["text"], **of))
            out.append(event("response.reasoning_summary_part.done", part=part, **of))
    elif kind == "function_call":
        out.append(event("response.output_item.added", output_index=index,
                         item=dict(item, status="in_progress", arguments="")))
        out += [event("response.function_call_arguments.delta", delta=p, **at) for p in pieces_of(item["arguments"])]
        out.append(event("response.function_call_arguments.done", arguments=item["arguments"], **at))
    else:
        out.append(event("response.output_item.added", output_index=index, item=dict(item, status="in_progress")))
        out.append(event("response.%s.in_progress" % kind, **at))
    out.append(event("response.output_item.done", output_index=index, item=item))
    return out


def begin():
    return [event("response.created", response=response()), event("response.in_progress", response=response())]


def stream(*items, usage=(10, 5), status="completed", **more):
    steps = begin()
    for index, item in enumerate(items):
        steps += events_of(item, index)
    steps.append(event("response." + status, response=response(status, items, usage, **more)))
    return Reply(steps)


def text(content, usage=(10, 5)):
    return stream(message(content), usage=usage)


def whole(*items, usage=(10, 5), status="completed", **more):
    return Reply([json.dumps(response(status, items, usage, **more)).encode()], framing="length",
                 content_type="application/json")


def cut(reply, keep):
    """The first `keep` events, and then the connection is gone."""
    return Reply(reply.steps[:keep] + [Cut()])


def refused(status, message, code=None, type="invalid_request_error", param=None, headers=()):
    return error(status, {"error": {"message": message, "type": type, "param": param, "code": code}}, headers)


# ---- OpenAI's own shell ----

def shell_items(*commands, call_id="call_native1", container="cntr_" + "0a" * 24):
    action = {"commands": list(commands), "timeout_ms": None, "max_output_length": None}
    return [{"id": "sh_native1", "type": "shell_call", "status": "completed", "call_id": call_id, "action": action,
             "environment": {"type": "container_reference", "container_id": container}},
            {"id": "sho_native1", "type": "shell_call_output", "status": "completed", "call_id": call_id,
             "max_output_length": None,
             "output": [{"stdout": "ran %s\n" % c, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
                        for c in commands]}]


def native_shell(items, answer, usage=(10, 5)):
    """The stream of a turn in which OpenAI's shell ran, with all of its events."""
    made, out = items
    steps = begin()
    steps.append(event("response.output_item.added", output_index=0,
                       item=dict(made, status="in_progress", action=dict(made["action"], commands=[]))))
    for i, command in enumerate(made["action"]["commands"]):
        of = dict(output_index=0, command_index=i)
        steps += [event("response.shell_call_command.added", command="", **of),
                  event("response.shell_call_command.delta", delta=command, **of),
                  event("response.shell_call_command.done", command=command, **of)]
    steps.append(event("response.output_item.done", output_index=0, item=made))
    steps.append(event("response.output_item.added", output_index=1, item=dict(out, output=[])))
    for i, output in enumerate(out["output"]):
        of = dict(item_id=out["id"], output_index=1, command_index=i)
        steps += [event("response.shell_call_output_content.delta", delta={"stdout": output["stdout"]}, **of),
                  event("response.shell_call_output_content.done", output=[output], **of)]
    steps.append(event("response.output_item.done", output_index=1, item=out))
    said = message(answer)
    steps += events_of(said, 2)
    steps.append(event("response.completed", response=response("completed", [made, out, said], usage)))
    return Reply(steps)


def with_native_shell(upstream, chat):
    """For a configuration: "fake" and "native", which runs shells itself, of one upstream; and "chat"."""
    def at(name, dialect, provider, **more):
        return dict({"name": name, "dialect": dialect, "base_url": provider.base_url(), "api_key": UPSTREAM_KEY}, **more)

    return [at("fake", "openai-responses", upstream), at("native", "openai-responses", upstream, native_tools=["shell"]),
            at("chat", "openai-chat", chat)]
