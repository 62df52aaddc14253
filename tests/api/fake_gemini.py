"""What a server of the Gemini API says, for the scripted upstream of fake_provider.py."""
import json
import re

from fake_provider import Cut, FakeProvider, Reply, error


class GeminiProvider(FakeProvider):
    """The same listener; here the model's name stands in the path."""

    def find(self, request):
        match = re.fullmatch(r"/v1beta/models/([^/:]+):(streamGenerateContent\?alt=sse|generateContent|countTokens)", request.path)
        model = self.models.get(match.group(1)) if match else None
        if model is None:
            self.strangers.append(request)
        return model

    def base_url(self, prefix=""):
        return "http://127.0.0.1:%d%s/v1beta" % (self.port, prefix)

    def model(self, *replies, prefix=""):
        model = super().model(*replies)
        if prefix:  # a name of which our side reads what the model can do
            model.upstream_name = prefix + model.upstream_name
            self.models[model.upstream_name] = model
        return model


def response(parts=None, finish=None, usage=None, **more):
    """One GenerateContentResponse."""
    candidate = {"index": 0}
    if parts is not None:
        candidate["content"] = {"role": "model", "parts": parts}
    if finish:
        candidate["finishReason"] = finish
    body = {"candidates": [candidate], "modelVersion": "up-1", "responseId": "resp-up"}
    if usage:
        body["usageMetadata"] = usage_of(usage)
    body.update(more)
    return body


def usage_of(usage):
    """(prompt, candidates[, cached[, thoughts]])"""
    if isinstance(usage, dict):
        return usage
    prompt, candidates, cached, thoughts = (tuple(usage) + (0, 0))[:4]
    body = {"promptTokenCount": prompt, "candidatesTokenCount": candidates,
            "totalTokenCount": prompt + candidates + thoughts}
    if cached:
        body["cachedContentTokenCount"] = cached
    if thoughts:
        body["thoughtsTokenCount"] = thoughts
    return body


def frame(body):
    """As Google frames it: CRLF, and no event line."""
    return b"data: " + json.dumps(body).encode() + b"\r\n\r\n"


def call(name, args, id=None, signature=None):
    part = {"functionCall": {"name": name, "args": args}}
    if id:
        part["functionCall"]["id"] = id
    if signature:
        part["thoughtSignature"] = signature
    return part


def shell(*commands, id=None, signature=None, name="shell", **args):
    return call(name, dict(commands=list(commands), **args), id, signature)


def thought(text, **more):
    return dict({"text": text, "thought": True}, **more)


def stream(*chunks, usage=(10, 5), finish="STOP", **reply):
    """Each chunk is a list of parts; the last one carries the end."""
    frames = [frame(response(parts, usage=(usage[0], 1))) for parts in chunks[:-1]]
    return Reply(frames + [frame(response(chunks[-1], finish, usage))], **reply)


def text(content, pieces=1, **more):
    size = max(1, -(-len(content) // pieces))
    return stream(*[[{"text": content[i:i + size]}] for i in range(0, len(content), size)], **more)


def calls(*parts, **more):
    return stream(list(parts), **more)


def array(*chunks, usage=(10, 5), finish="STOP"):
    """A server that does not know alt=sse."""
    bodies = [response(parts, usage=(usage[0], 1)) for parts in chunks[:-1]] + [response(chunks[-1], finish, usage)]
    return Reply([json.dumps(bodies, indent=2)], content_type="application/json", framing="length")


def blocked(reason="SAFETY"):
    return Reply([frame({"promptFeedback": {"blockReason": reason}, "usageMetadata": {"promptTokenCount": 7},
                         "modelVersion": "up-1"})])


def counted(n):
    return Reply([json.dumps({"totalTokens": n})], content_type="application/json", framing="length")


def refused(code, status, message, details=None):
    body = {"error": {"code": code, "message": message, "status": status}}
    if details:
        body["error"]["details"] = details
    return error(code, body)


def cut(*chunks):
    return Reply([frame(response(parts)) for parts in chunks] + [Cut()])
