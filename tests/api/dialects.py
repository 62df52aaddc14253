"""Four dialects from both sides, in one neutral form, so that a case is written once and tried on all of them.

A Say is what a model says in one reply; `SERVED[name].reply(say)` makes the bytes that an upstream of that dialect would
send, streamed or whole, as it was asked. `SERVED[name].seen(request)` reads back what the model was shown:

    ("system", text)  ("user", text)  ("image", mime, data)  ("thinking", text, signature)  ("text", text)
    ("call", name, arguments, signature)  ("result", text)

`SPOKEN[name]` is a client of that dialect, as an SDK would be: it writes requests, reads answers (a stream is put
together from its events) and replays what it got.
"""
import json
import re

import fake_provider

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="


class Say:
    def __init__(self, text=None, thinking=None, signature=None, calls=(), usage=(10, 5), cut=False):
        self.text, self.thinking, self.signature = text, thinking, signature
        self.calls = list(calls)  # (name, arguments)
        self.usage, self.cut = usage, cut


class Fail:
    def __init__(self, status, message):
        self.status, self.message = status, message


def data(value):
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def event(name, value):
    return b"event: " + name.encode() + b"\n" + data(dict(value, type=name))


def halves(text):
    middle = len(text) // 2
    return [t for t in (text[:middle], text[middle:]) if t]


def streamed(steps, say):
    return fake_provider.Reply(steps + [fake_provider.Cut()] if say.cut else steps)


def whole(body, say):
    text = json.dumps(body).encode()
    if say.cut:
        return fake_provider.Reply([b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" %
                                    len(text) + text[:len(text) // 2], fake_provider.Cut()], framing="raw")
    return fake_provider.Reply([text], framing="length", content_type="application/json")


def failed(status, body):
    return fake_provider.error(status, body)


def url_parts(url):
    """data: URL → mime, base64"""
    found = re.fullmatch(r"data:([^;,]+);base64,(.*)", url)
    return ("image",) + found.groups() if found else ("image", None, url)


# ---- upstreams ----

class ServedChat:
    name, config = "chat", "openai-chat"

    def reply(self, say):
        if isinstance(say, Fail):
            return failed(say.status, {"error": {"message": say.message, "type": "invalid_request_error", "code": None}})
        return lambda request: self.stream(say) if request.json.get("stream") else self.object(say)

    def parts(self, say):
        details = [{"type": "reasoning.text", "text": say.thinking, "signature": say.signature, "index": 0}] \
            if say.thinking else None
        calls = [fake_provider.call(name, args, "call_%d" % (i + 1), i) for i, (name, args) in enumerate(say.calls)]
        return details, calls, "tool_calls" if calls else "stop"

    def stream(self, say):
        details, calls, finish = self.parts(say)
        steps = [fake_provider.chunk({"role": "assistant", "content": ""})]
        if details:
            steps.append(fake_provider.chunk({"reasoning": say.thinking, "reasoning_details": details}))
        for piece in halves(say.text or ""):
            steps.append(fake_provider.chunk({"content": piece}))
        if say.cut:
            return streamed(steps, say)
        for c in calls:
            steps.append(fake_provider.chunk({"tool_calls": [c]}))
        return streamed(steps + fake_provider.ending(finish, say.usage), say)

    def object(self, say):
        details, calls, finish = self.parts(say)
        message = {"role": "assistant", "content": say.text}
        if details:
            message.update(reasoning=say.thinking, reasoning_details=details)
        if calls:
            message["tool_calls"] = [{k: v for k, v in c.items() if k != "index"} for c in calls]
        return whole({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "up",
                      "system_fingerprint": None, "choices": [{"index": 0, "message": message, "finish_reason": finish}],
                      "usage": fake_provider.usage_of(say.usage)}, say)

    def seen(self, request):
        out = []
        for m in request.json["messages"]:
            content = m.get("content")
            if m["role"] in ("system", "developer"):
                out.append(("system", self.text(content)))
            elif m["role"] == "user":
                for p in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                    out.append(("user", p["text"]) if p["type"] == "text" else url_parts(p["image_url"]["url"]))
            elif m["role"] == "assistant":
                for d in m.get("reasoning_details") or ():
                    out.append(("thinking", d.get("text"), d.get("signature")))
                if content:
                    out.append(("text", self.text(content)))
                for c in m.get("tool_calls") or ():
                    out.append(("call", c["function"]["name"], json.loads(c["function"]["arguments"]), None))
            else:
                out.append(("result", self.text(content)))
        return out

    @staticmethod
    def text(content):
        return content if isinstance(content, str) else "".join(p["text"] for p in content)


class ServedResponses:
    name, config = "responses", "openai-responses"

    def reply(self, say):
        if isinstance(say, Fail):
            return failed(say.status, {"error": {"message": say.message, "type": "invalid_request_error", "code": None,
                                                 "param": None}})
        return lambda request: self.stream(say) if request.json.get("stream") else self.object(say)

    def items(self, say):
        items = []
        if say.thinking:
            items.append({"type": "reasoning", "id": "rs_1", "status": "completed", "encrypted_content": say.signature,
                          "summary": [{"type": "summary_text", "text": say.thinking}]})
        if say.text:
            items.append({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                          "content": [{"type": "output_text", "text": say.text, "annotations": [], "logprobs": []}]})
        for i, (name, args) in enumerate(say.calls):
            items.append({"type": "function_call", "id": "fc_%d" % (i + 1), "call_id": "call_%d" % (i + 1),
                          "name": name, "arguments": json.dumps(args), "status": "completed"})
        return items

    def response(self, say, status, items):
        usage = {"input_tokens": say.usage[0], "input_tokens_details": {"cached_tokens": 0},
                 "output_tokens": say.usage[1], "output_tokens_details": {"reasoning_tokens": 0},
                 "total_tokens": sum(say.usage)}
        return {"id": "resp_up", "object": "response", "created_at": 1, "status": status, "model": "up", "error": None,
                "incomplete_details": None, "instructions": None, "metadata": {}, "output": items, "tools": [],
                "parallel_tool_calls": True, "temperature": 1, "tool_choice": "auto", "top_p": 1,
                "usage": usage if status == "completed" else None}

    def stream(self, say):
        steps, number = [], 0

        def add(name, /, **fields):
            nonlocal number
            steps.append(event(name, dict(fields, sequence_number=number)))
            number += 1

        add("response.created", response=self.response(say, "in_progress", []))
        for i, item in enumerate(self.items(say)):
            begun = dict(item, status="in_progress")
            at = {"output_index": i, "item_id": item["id"]}
            if item["type"] == "message":
                add("response.output_item.added", output_index=i, item=dict(begun, content=[]))
                part = dict(at, content_index=0)
                add("response.content_part.added", part=dict(item["content"][0], text=""), **part)
                for piece in halves(say.text):
                    add("response.output_text.delta", delta=piece, logprobs=[], **part)
                if say.cut:
                    return streamed(steps, say)
                add("response.output_text.done", text=say.text, logprobs=[], **part)
                add("response.content_part.done", part=item["content"][0], **part)
            elif item["type"] == "reasoning":
                add("response.output_item.added", output_index=i, item=dict(begun, summary=[], encrypted_content=""))
                part = dict(at, summary_index=0)
                add("response.reasoning_summary_part.added", part={"type": "summary_text", "text": ""}, **part)
                add("response.reasoning_summary_text.delta", delta=say.thinking, **part)
                add("response.reasoning_summary_text.done", text=say.thinking, **part)
                add("response.reasoning_summary_part.done", part=item["summary"][0], **part)
            else:
                add("response.output_item.added", output_index=i, item=dict(begun, arguments=""))
                for piece in halves(item["arguments"]):
                    add("response.function_call_arguments.delta", delta=piece, **at)
                add("response.function_call_arguments.done", arguments=item["arguments"], name=item["name"], **at)
            add("response.output_item.done", output_index=i, item=item)
        add("response.completed", response=self.response(say, "completed", self.items(say)))
        return streamed(steps, say)

    def object(self, say):
        return whole(self.response(say, "completed", self.items(say)), say)

    def seen(self, request):
        out = []
        body = request.json
        if body.get("instructions"):
            out.append(("system", body["instructions"]))
        items = body["input"]
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
        for item in items:
            kind = item.get("type", "message")
            if kind == "message":
                content = item["content"]
                parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
                for p in parts:
                    if p["type"] == "input_image":
                        out.append(url_parts(p["image_url"]))
                    else:
                        out.append(({"assistant": "text", "user": "user"}.get(item["role"], "system"), p["text"]))
            elif kind == "reasoning":
                out.append(("thinking", "".join(s["text"] for s in item["summary"]), item.get("encrypted_content")))
            elif kind == "function_call":
                out.append(("call", item["name"], json.loads(item["arguments"]), None))
            elif kind == "function_call_output":
                output = item["output"]
                out.append(("result", output if isinstance(output, str) else "".join(p["text"] for p in output)))
            else:
                raise AssertionError("an unexpected item reached the upstream: %r" % item)
        return out


class ServedMessages:
    name, config = "messages", "anthropic"

    def reply(self, say):
        if isinstance(say, Fail):
            return failed(say.status, {"type": "error", "error": {"type": "invalid_request_error",
                                                                   "message": say.message}})
        return lambda request: self.stream(say) if request.json.get("stream") else self.object(say)

    def blocks(self, say):
        blocks = []
        if say.thinking:
            blocks.append({"type": "thinking", "thinking": say.thinking, "signature": say.signature})
        if say.text:
            blocks.append({"type": "text", "text": say.text})
        for i, (name, args) in enumerate(say.calls):
            blocks.append({"type": "tool_use", "id": "toolu_%d" % (i + 1), "name": name, "input": args})
        return blocks

    def message(self, say, blocks, stop):
        return {"id": "msg_up", "type": "message", "role": "assistant", "model": "up", "content": blocks,
                "stop_reason": stop, "stop_sequence": None,
                "usage": {"input_tokens": say.usage[0], "output_tokens": say.usage[1] if stop else 1,
                          "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}}

    def stream(self, say):
        steps = [event("message_start", {"message": self.message(say, [], None)}), event("ping", {})]
        for i, block in enumerate(self.blocks(say)):
            empty, deltas = dict(block), []
            if block["type"] == "thinking":
                empty.update(thinking="", signature="")
                deltas = [{"type": "thinking_delta", "thinking": t} for t in halves(block["thinking"])]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            elif block["type"] == "text":
                empty.update(text="")
                deltas = [{"type": "text_delta", "text": t} for t in halves(block["text"])]
            else:
                empty.update(input={})
                deltas = [{"type": "input_json_delta", "partial_json": t} for t in halves(json.dumps(block["input"]))]
            steps.append(event("content_block_start", {"index": i, "content_block": empty}))
            steps += [event("content_block_delta", {"index": i, "delta": d}) for d in deltas]
            if say.cut:
                return streamed(steps, say)
            steps.append(event("content_block_stop", {"index": i}))
        steps.append(event("message_delta", {"delta": {"stop_reason": self.stop(say), "stop_sequence": None},
                                             "usage": {"output_tokens": say.usage[1]}}))
        return streamed(steps + [event("message_stop", {})], say)

    def object(self, say):
        return whole(self.message(say, self.blocks(say), self.stop(say)), say)

    @staticmethod
    def stop(say):
        return "tool_use" if say.calls else "end_turn"

    def seen(self, request):
        out = []
        body = request.json
        system = body.get("system")
        for block in [{"text": system}] if isinstance(system, str) else system or ():
            out.append(("system", block["text"]))
        for m in body["messages"]:
            content = m["content"]
            for b in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                if b["type"] == "text":
                    out.append(({"assistant": "text", "user": "user"}.get(m["role"], "system"), b["text"]))
                elif b["type"] == "image":
                    out.append(("image", b["source"]["media_type"], b["source"]["data"]))
                elif b["type"] == "thinking":
                    out.append(("thinking", b["thinking"], b["signature"]))
                elif b["type"] == "tool_use":
                    out.append(("call", b["name"], b["input"], None))
                elif b["type"] == "tool_result":
                    c = b["content"]
                    out.append(("result", c if isinstance(c, str) else "".join(p["text"] for p in c)))
                else:
                    raise AssertionError("an unexpected block reached the upstream: %r" % b)
        return out


class ServedGemini:
    name, config = "gemini", "gemini"

    def reply(self, say):
        if isinstance(say, Fail):
            return failed(say.status, {"error": {"code": say.status, "message": say.message,
                                                 "status": "INVALID_ARGUMENT"}})
        return lambda request: self.stream(say) if ":streamGenerateContent" in request.path else self.object(say)

    def parts(self, say):
        parts = []
        if say.thinking:
            parts.append({"text": say.thinking, "thought": True})
        if say.text:
            parts += [{"text": t} for t in halves(say.text)]
        for i, (name, args) in enumerate(say.calls):
            parts.append({"functionCall": {"id": "fc%d" % (i + 1), "name": name, "args": args}})
            if i == 0 and say.signature:
                parts[-1]["thoughtSignature"] = say.signature
        return parts

    def body(self, say, parts, finish):
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        return {"candidates": [candidate], "modelVersion": "up", "responseId": "r1",
                "usageMetadata": {"promptTokenCount": say.usage[0], "candidatesTokenCount": say.usage[1],
                                  "totalTokenCount": sum(say.usage)}}

    def stream(self, say):
        parts = self.parts(say)
        steps = [data(self.body(say, [p], None)) for p in parts]
        if say.cut:
            return streamed(steps, say)
        steps[-1] = data(self.body(say, [parts[-1]], "STOP"))
        return streamed([s.replace(b"\n\n", b"\r\n\r\n") for s in steps], say)

    def object(self, say):
        return whole(self.body(say, self.parts(say), "STOP"), say)

    def seen(self, request):
        out = []
        body = request.json
        for p in (body.get("systemInstruction") or {}).get("parts", ()):
            out.append(("system", p["text"]))
        for content in body["contents"]:
            for p in content["parts"]:
                if "functionCall" in p:
                    out.append(("call", p["functionCall"]["name"], p["functionCall"].get("args", {}),
                                p.get("thoughtSignature")))
                elif "functionResponse" in p:
                    response = p["functionResponse"]["response"]
                    inner = response.get("output", response.get("result", response.get("error", response)))
                    out.append(("result", inner if isinstance(inner, str) else json.dumps(inner)))
                elif "inlineData" in p:
                    out.append(("image", p["inlineData"]["mimeType"], p["inlineData"]["data"]))
                elif p.get("thought"):
                    out.append(("thinking", p["text"], p.get("thoughtSignature")))
                else:
                    kind = "text" if content.get("role") == "model" else "user"
                    if kind == "text" and out and out[-1][0] == "text":  # a client that is relayed replays pieces
                        out[-1] = (kind, out[-1][1] + p["text"])
                    else:
                        out.append((kind, p["text"]))
        return out


SERVED = {s.name: s for s in (ServedResponses(), ServedMessages(), ServedGemini(), ServedChat())}


class Upstream(fake_provider.FakeProvider):
    """Finds its models in the path too, as Gemini has them."""

    def find(self, request):
        found = re.search(r"/models/([^/:]+):", request.path)
        if not found:
            return super().find(request)
        return self.models.get(found.group(1))

    def config(self):
        root = "http://127.0.0.1:%d" % self.port
        return [{"name": "up-" + s.name, "dialect": s.config, "api_key": "sk-upstream-matrix",
                 "base_url": root + ("/v1beta" if s.name == "gemini" else "/v1")} for s in SERVED.values()]

    def says(self, served, *says):
        """A model that says these things in order; how clients call it is in .asked."""
        model = self.model(*[SERVED[served].reply(s) for s in says])
        model.asked = "up-%s/%s" % (served, model.upstream_name)
        return model


def tool_names(served, request):
    """The functions that a model is offered, in order."""
    tools = request.json.get("tools") or ()
    if served == "gemini":
        return [f["name"] for t in tools for f in t.get("functionDeclarations", ())]
    return [t["function"]["name"] if served == "chat" else t["name"] for t in tools]


def agent(served, arguments):
    """A model that calls each tool it is offered once, in order, and then says what the last one gave."""
    def reply(request):
        seen = SERVED[served].seen(request)
        last = max(i for i, s in enumerate(seen) if s[0] == "user")
        results = [s[1] for s in seen[last:] if s[0] == "result"]
        names = tool_names(served, request)
        if len(results) < len(names):
            name = names[len(results)]
            said = Say(calls=[(name, arguments[name])])
        else:
            said = Say("The tool gave: " + (results[-1] if results else "nothing"))
        made = SERVED[served].reply(said)
        return made(request) if callable(made) else made
    return reply


# ---- clients ----

class Answer:
    def __init__(self):
        self.status, self.error, self.body = 200, None, None
        self.text, self.thinking, self.calls = "", "", []  # calls: (id, name, arguments)
        self.shell = []  # (commands, output text)
        self.usage = None  # input, output
        self.finish = None
        self.replay = None  # what goes into the next request


FUNCTION = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def sse(body, named):
    """[(event or None, data text)] of a stream."""
    events = []
    for block in re.split(rb"\r?\n\r?\n", body):
        lines = [l for l in block.splitlines() if l and not l.startswith(b":")]
        if not lines:
            continue
        name = None
        if named and lines[0].startswith(b"event: "):
            name = lines.pop(0)[7:].decode()
        assert len(lines) == 1 and lines[0].startswith(b"data: "), lines
        events.append((name, lines[0][6:].decode()))
    return events


class SpokenResponses:
    name = "responses"

    def path(self, model, stream):
        return "/v1/responses"

    def headers(self):
        return {}

    def start(self, text, image=False):
        content = [{"type": "input_text", "text": text}]
        if image:
            content.append({"type": "input_image", "image_url": "data:image/png;base64," + PNG})
        return [{"type": "message", "role": "user", "content": content}]

    def body(self, model, history, functions=(), shell=False, stream=False):
        tools = [{"type": "function", "name": f, "parameters": FUNCTION} for f in functions]
        if shell:
            tools.append({"type": "openrouter:shell"})
        return {"model": model, "instructions": "Be brief.", "input": history, "tools": tools, "stream": stream,
                "store": False, "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}}

    def results(self, answer, outputs):
        return answer.replay + [{"type": "function_call_output", "call_id": id, "output": outputs[name]}
                                for id, name, _ in answer.calls]

    def read(self, response):
        a = Answer()
        a.status, a.body = response.status, response.json
        if a.status != 200:
            a.error = a.body["error"]["message"]
            return a
        return self.take(a, a.body)

    def take(self, a, body):
        if body.get("error"):
            a.error = body["error"]["message"]
        a.replay = body["output"]
        for item in body["output"]:
            if item["type"] == "message":
                a.text += "".join(p["text"] for p in item["content"])
            elif item["type"] == "reasoning":
                a.thinking += "".join(p["text"] for p in item["summary"] + (item.get("content") or []))
            elif item["type"] == "function_call":
                a.calls.append((item["call_id"], item["name"], json.loads(item["arguments"])))
            elif item["type"] == "openrouter:shell":
                a.shell.append((item["action"]["commands"], "".join(o["stdout"] for o in item["output"])))
        if body.get("usage"):
            a.usage = body["usage"]["input_tokens"], body["usage"]["output_tokens"]
        a.finish = body["status"]
        return a

    def read_stream(self, raw):
        a, text, last = Answer(), "", None
        for name, payload in sse(raw, True):
            if payload == "[DONE]":
                continue
            value = json.loads(payload)
            assert value["type"] == name
            if name == "response.output_text.delta":
                text += value["delta"]
            elif name in ("response.completed", "response.failed", "response.incomplete"):
                last = value["response"]
            elif name == "error":
                a.error = value.get("message") or value["error"]["message"]
        if last:
            self.take(a, last)
            if last["status"] == "completed":
                assert text == a.text, (text, a.text)
        a.text = text
        return a


class SpokenMessages:
    name = "messages"

    def path(self, model, stream):
        return "/v1/messages"

    def headers(self):
        return {"anthropic-version": "2023-06-01"}

    def start(self, text, image=False):
        content = [{"type": "text", "text": text}]
        if image:
            content.append({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}})
        return [{"role": "user", "content": content}]

    def body(self, model, history, functions=(), shell=False, stream=False):
        tools = [{"name": f, "input_schema": FUNCTION} for f in functions]
        if shell:
            tools.append({"type": "openrouter:shell"})
        return {"model": model, "system": "Be brief.", "messages": history, "tools": tools, "stream": stream,
                "max_tokens": 4096, "thinking": {"type": "enabled", "budget_tokens": 1024}}

    def results(self, answer, outputs):
        return [{"role": "assistant", "content": answer.replay},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": outputs[name]}
                                             for id, name, _ in answer.calls]}]

    def read(self, response):
        a = Answer()
        a.status, a.body = response.status, response.json
        if a.status != 200:
            assert a.body["type"] == "error"
            a.error = a.body["error"]["message"]
            return a
        return self.take(a, a.body)

    def take(self, a, body):
        a.replay = body["content"]
        commands = []
        for b in body["content"]:
            if b["type"] == "text":
                a.text += b["text"]
            elif b["type"] == "thinking":
                a.thinking += b["thinking"]
            elif b["type"] == "tool_use":
                a.calls.append((b["id"], b["name"], b["input"]))
            elif b["type"] == "server_tool_use":
                commands = b["input"].get("commands")
            elif b["type"] == "openrouter_shell_tool_result":
                a.shell.append((commands, json.dumps(b["content"])))
        usage = body["usage"]
        a.usage = (usage["input_tokens"] + (usage.get("cache_read_input_tokens") or 0) +
                   (usage.get("cache_creation_input_tokens") or 0), usage["output_tokens"])
        a.finish = body["stop_reason"]
        return a

    def read_stream(self, raw):
        a, message, open_block = Answer(), None, None
        for name, payload in sse(raw, True):
            value = json.loads(payload)
            assert value["type"] == name
            if name == "message_start":
                message = value["message"]
            elif name == "content_block_start":
                assert value["index"] == len(message["content"]) and open_block is None
                open_block = dict(value["content_block"], partial="")
                message["content"].append(open_block)
            elif name == "content_block_delta":
                d = value["delta"]
                for kind, member, into in (("text_delta", "text", "text"), ("thinking_delta", "thinking", "thinking"),
                                           ("signature_delta", "signature", "signature"),
                                           ("input_json_delta", "partial_json", "partial")):
                    if d["type"] == kind:
                        open_block[into] = open_block.get(into, "") + d[member]
            elif name == "content_block_stop":
                partial = open_block.pop("partial")
                if partial:
                    open_block["input"] = json.loads(partial)
                open_block = None
            elif name == "message_delta":
                message.update(value["delta"])
                message["usage"].update(value["usage"])
            elif name == "error":
                a.error = value["error"]["message"]
        return self.take(a, message) if message else a


class SpokenGemini:
    name = "gemini"

    def path(self, model, stream):
        return "/v1beta/models/%s:%s" % (model, "streamGenerateContent?alt=sse" if stream else "generateContent")

    def headers(self):
        return {}

    def start(self, text, image=False):
        parts = [{"text": text}]
        if image:
            parts.append({"inlineData": {"mimeType": "image/png", "data": PNG}})
        return [{"role": "user", "parts": parts}]

    def body(self, model, history, functions=(), shell=False, stream=False):
        tools = []
        if functions:
            tools.append({"functionDeclarations": [{"name": f, "parametersJsonSchema": FUNCTION} for f in functions]})
        if shell:
            tools.append({"brigShell": {}})
        return {"systemInstruction": {"parts": [{"text": "Be brief."}]}, "contents": history, "tools": tools,
                "generationConfig": {"thinkingConfig": {"includeThoughts": True}}}

    def results(self, answer, outputs):
        responses = []
        for id, name, _ in answer.calls:
            response = {"name": name, "response": {"output": outputs[name]}}
            if id:
                response["id"] = id
            responses.append({"functionResponse": response})
        return [{"role": "model", "parts": answer.replay}, {"role": "user", "parts": responses}]

    def read(self, response):
        a = Answer()
        a.status, a.body = response.status, response.json
        if a.status != 200:
            assert a.body["error"]["code"] == a.status and a.body["error"]["status"]
            a.error = a.body["error"]["message"]
            return a
        a.replay = []
        return self.take(a, a.body)

    def take(self, a, body):
        if "error" in body:
            a.error = body["error"]["message"]
            return a
        for candidate in body.get("candidates", ()):
            for p in candidate.get("content", {}).get("parts", ()):
                a.replay.append(p)
                if "functionCall" in p:
                    a.calls.append((p["functionCall"].get("id"), p["functionCall"]["name"],
                                    p["functionCall"].get("args", {})))
                elif "executableCode" in p:
                    a.shell.append((p["executableCode"]["code"], ""))
                elif "codeExecutionResult" in p:
                    a.shell[-1] = (a.shell[-1][0], p["codeExecutionResult"].get("output", ""))
                elif p.get("thought"):
                    a.thinking += p["text"]
                else:
                    a.text += p.get("text", "")
            a.finish = candidate.get("finishReason", a.finish)
        usage = body.get("usageMetadata")
        if usage:
            a.usage = usage["promptTokenCount"], usage.get("candidatesTokenCount", 0) + usage.get(
                "thoughtsTokenCount", 0)
        return a

    def read_stream(self, raw):
        a = Answer()
        a.replay = []
        for _, payload in sse(raw, False):
            self.take(a, json.loads(payload))
        return a


class SpokenChat:
    name = "chat"

    def path(self, model, stream):
        return "/v1/chat/completions"

    def headers(self):
        return {}

    def start(self, text, image=False):
        content = [{"type": "text", "text": text}]
        if image:
            content.append({"type": "image_url", "image_url": {"url": "data:image/png;base64," + PNG}})
        return [{"role": "user", "content": content}]

    def body(self, model, history, functions=(), shell=False, stream=False):
        tools = [{"type": "function", "function": {"name": f, "parameters": FUNCTION}} for f in functions]
        if shell:
            tools.append({"type": "openrouter:shell"})
        body = {"model": model, "messages": [{"role": "system", "content": "Be brief."}] + history, "stream": stream}
        if tools:
            body["tools"] = tools
        if stream:
            body["stream_options"] = {"include_usage": True}
        return body

    def results(self, answer, outputs):
        return [answer.replay] + [{"role": "tool", "tool_call_id": id, "content": outputs[name]}
                                  for id, name, _ in answer.calls]

    def read(self, response):
        a = Answer()
        a.status, a.body = response.status, response.json
        if a.status != 200:
            a.error = a.body["error"]["message"]
            return a
        choice = a.body["choices"][0]
        a.finish = choice["finish_reason"]
        usage = a.body["usage"]
        a.usage = usage["prompt_tokens"], usage["completion_tokens"]
        return self.take(a, choice["message"])

    def take(self, a, message):
        a.replay = message
        a.text = message.get("content") or ""
        a.thinking = message.get("reasoning") or message.get("reasoning_content") or ""
        for c in message.get("tool_calls") or ():
            a.calls.append((c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])))
        return a

    def read_stream(self, raw):
        a, message, calls, details = Answer(), {"role": "assistant"}, {}, []
        for _, payload in sse(raw, False):
            if payload == "[DONE]":
                continue
            value = json.loads(payload)
            if "error" in value:
                a.error = value["error"]["message"]
                continue
            if value.get("usage"):
                a.usage = value["usage"]["prompt_tokens"], value["usage"]["completion_tokens"]
            for choice in value["choices"]:
                delta = choice["delta"]
                a.finish = choice.get("finish_reason") or a.finish
                for member in ("content", "reasoning", "reasoning_content"):
                    if delta.get(member):
                        message[member] = message.get(member, "") + delta[member]
                for d in delta.get("reasoning_details") or ():
                    self.join(details, d)
                for c in delta.get("tool_calls") or ():
                    call = calls.setdefault(c["index"], {"type": "function", "function": {"name": "", "arguments": ""}})
                    call["id"] = c.get("id") or call.get("id")
                    for member in ("name", "arguments"):
                        call["function"][member] += c.get("function", {}).get(member) or ""
        if calls:
            message["tool_calls"] = [calls[i] for i in sorted(calls)]
        if details:
            message["reasoning_details"] = details
        return self.take(a, message)

    @staticmethod
    def join(details, piece):
        """As SDKs do: pieces of one index and type are one entry."""
        for d in details:
            if d.get("index") == piece.get("index") and d["type"] == piece["type"]:
                for member in ("text", "summary", "data"):
                    if piece.get(member):
                        d[member] = (d.get(member) or "") + piece[member]
                if piece.get("signature"):
                    d["signature"] = piece["signature"]
                return
        details.append(dict(piece))


SPOKEN = {s.name: s for s in (SpokenResponses(), SpokenMessages(), SpokenGemini(), SpokenChat())}


class Talker:
    """Asks a server in one dialect."""

    def __init__(self, client, spoken, stream):
        self.client, self.spoken, self.stream = client, SPOKEN[spoken], stream

    def ask(self, model, history, **options):
        body = self.spoken.body(model.asked, history, stream=self.stream, **options)
        response = self.client.request("POST", self.spoken.path(model.asked, self.stream), body,
                                       headers=self.spoken.headers())
        if not self.stream or response.status != 200:
            return self.spoken.read(response)
        answer = self.spoken.read_stream(response.body)
        answer.body = response.body
        return answer
