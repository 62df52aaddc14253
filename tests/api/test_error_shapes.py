"""An error has the shape of who asks: Google's under /v1beta, Anthropic's below /messages and for clients that send its
version header, else OpenAI's with OpenRouter's added fields. Whatever finds the fault, and however early."""
import json

import pytest

from brigtest import Reader, connect
from fake_provider import Cut, Hold, Reply, Reset, error, error_in_stream, rate_limited

VERSION = {"anthropic-version": "2026-10-21"}
GOOGLE_STATUS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND", 405: "UNIMPLEMENTED",
                 413: "INVALID_ARGUMENT", 422: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 431: "INVALID_ARGUMENT",
                 502: "UNAVAILABLE", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
ANTHROPIC_TYPE = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error",
                  405: "invalid_request_error", 413: "request_too_large", 422: "invalid_request_error",
                  429: "rate_limit_error", 431: "invalid_request_error", 502: "api_error", 503: "overloaded_error",
                  504: "timeout_error"}
OPENAI_TYPE = {401: "authentication_error", 429: "rate_limit_error", 502: "server_error", 503: "server_error",
               504: "server_error"}
SETTINGS = {"limits": {"body": "1m", "upstream_first_byte": "3s"}}


def openai(answer, base):
    error = answer.json["error"]
    assert set(error) - {"metadata"} == {"message", "type", "param", "code"}
    assert error["message"] and error["type"] == OPENAI_TYPE.get(answer.status, "invalid_request_error")
    if base == "/api/v1":
        assert error["code"] == answer.status
    else:
        assert error["code"] is None or isinstance(error["code"], str)
    assert isinstance(answer.json["error_type"], str)


def chat(answer, base):
    openai(answer, base)
    wanted = {"error_type": answer.json["error_type"]}  # OpenRouter's, so there must it be
    assert answer.error.get("metadata", wanted if base == "/v1" else None) == wanted


def anthropic(answer, base):
    body = answer.json
    assert body["type"] == "error" and body["error"]["message"]
    assert body["error"]["type"] == ANTHROPIC_TYPE[answer.status]
    assert body["request_id"] and body["request_id"] == answer.headers["request-id"]


def google(answer, base):
    error = answer.json["error"]
    assert error["code"] == answer.status and error["message"]
    assert error["status"] == GOOGLE_STATUS[answer.status]
    for detail in error.get("details", []):
        assert detail["@type"].startswith("type.googleapis.com/google.rpc.")


# How one asks: the prefix, the headers, a path of the prefix that takes GET, one that takes POST, and the shape.
ASKING = {
    "openrouter": ("/api/v1", {}, "/models", "/responses", openai),
    "openai": ("/v1", {}, "/models", "/responses", openai),
    "responses with a version header": ("/v1", VERSION, None, "/responses", openai),
    "anthropic by header": ("/v1", VERSION, "/models", "/containers", anthropic),
    "anthropic by header, below api": ("/api/v1", VERSION, "/models", "/containers", anthropic),
    "messages": ("/v1", {}, None, "/messages", anthropic),
    "messages, below api": ("/api/v1", VERSION, None, "/messages", anthropic),
    "count_tokens": ("/v1", {}, None, "/messages/count_tokens", anthropic),
    "chat": ("/v1", {}, None, "/chat/completions", chat),
    "chat, below api": ("/api/v1", {}, None, "/chat/completions", chat),
    "google": ("/v1beta", {}, "/models", None, google),
    "generateContent": ("/v1beta", {}, None, "/models/fake/m:generateContent", google),
    "streamGenerateContent": ("/v1beta", {}, None, "/models/a/b:c:streamGenerateContent", google),
    "countTokens": ("/v1beta", {}, None, "/models/fake/m:countTokens", google),
}


@pytest.fixture(params=ASKING.values(), ids=ASKING.keys())
def asking(request, server):
    return request.param


def raw(server, data):
    sock = connect(server)
    sock.sendall(data)
    answer = Reader(sock).answer()
    sock.close()
    return answer


def check(answer, status, asking):
    assert answer.status == status, answer
    assert answer.headers["content-type"].startswith("application/json"), answer.headers
    asking[4](answer, asking[0])
    return answer


def test_no_key(server, asking):
    base, headers, get, post, _ = asking
    stranger = server.client(key="", base=base)
    for method, path in (("GET", get), ("POST", post)):
        if path:
            answer = check(stranger.request(method, base + path, b"{}", headers=headers), 401, asking)
            assert answer.headers["www-authenticate"] == "Bearer"


def test_unknown_path(server, asking):
    base, headers, _, post, _ = asking
    client = server.client(base=base)
    below = post if post and post.startswith(("/responses", "/messages", "/chat")) else ""
    for path in (below + "/a/b/c/d", below + "/%00"):
        check(client.get(path, headers=headers), 404, asking)


def test_wrong_method(server, asking):
    base, headers, get, post, _ = asking
    client = server.client(base=base)
    for path in (get, post):
        if path:
            answer = check(client.request("PATCH", base + path, headers=headers), 405, asking)
            allowed = answer.headers["allow"].split(", ")
            assert ("GET" in allowed) == ("HEAD" in allowed) and "PATCH" not in allowed
            assert ("GET" if path == get else "POST") in allowed, allowed


def test_a_body_over_the_limit(server, asking):
    base, headers, _, post, _ = asking
    if post:
        body = b" " * (3 << 20)
        check(server.client(base=base).post(post, body, headers=headers), 413, asking)


def test_what_is_no_json(server, asking):
    base, headers, _, post, _ = asking
    if post:
        for body in (b"{", b"\xff", b"[]"):
            check(server.client(base=base).post(post, body, headers=headers), 400, asking)


def test_framing(server, asking):
    base, headers, get, post, _ = asking
    client = server.client(base=base)
    lines = ["%s: %s" % h for h in client.headers(headers).items()]

    def ask(method, path, *more):
        return raw(server, "\r\n".join(["%s %s HTTP/1.1" % (method, base + path)] + lines + list(more)).encode() +
                   b"\r\n\r\n")

    path = get or post
    check(ask("POST", path, "Content-Length: 1", "Content-Length: 2"), 400, asking)
    check(ask("POST", path, "X-Long: " + "x" * 70000), 431, asking)
    check(ask("POST", path, "Content-Length: x"), 400, asking)


def test_a_model_that_is_not_there(server):
    for base, headers, shape in (("/api/v1", {}, openai), ("/v1", {}, openai), ("/v1", VERSION, anthropic),
                                 ("/v1beta", {}, google)):
        answer = server.client(base=base).get("/models/nobody/nothing%2Fat:all", headers=headers)
        check(answer, 404, (base, headers, None, None, shape))


def test_a_method_of_a_model_that_is_not_there(server):
    client = server.client(base="/v1beta")
    for path in ("/models/m:bogus", "/models/a/b:c:generate", "/models/m", "/models/m:"):
        answer = check(client.post(path, {}), 404, ("/v1beta", {}, None, None, google))
        assert ":generateContent" in answer.json["error"]["message"]
    check(client.request("DELETE", "/v1beta/models/m"), 405, ("/v1beta", {}, None, None, google))


@pytest.mark.parametrize("headers, query", [
    ({"Authorization": None, "x-goog-api-key": "KEY"}, ""), ({"Authorization": None}, "?key=KEY"),
    ({"Authorization": None, "x-api-key": "KEY"}, "")], ids=["header", "query", "x-api-key"])
def test_google_s_keys(server, headers, query):
    client = server.client(base="/v1beta", key="")
    for key, status in (("brig-test-key-of-workspace-one", 200), ("nobody", 401)):
        given = {k: v.replace("KEY", key) for k, v in headers.items() if v}
        answer = client.get("/models" + query.replace("KEY", key), headers=given)
        assert answer.status == status, answer
        if status == 401:
            google(answer, "/v1beta")
            assert {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID",
                    "domain": "brig"} in answer.json["error"]["details"]


def test_what_lies_beside_the_prefixes_is_openai_s(server):
    client = server.client(base="")
    for path in ("/v1betas/models", "/v2/models", "/api", "/api/v1", "/v1"):
        answer = client.get(path)
        assert answer.status == 404 and set(json.loads(answer.body)) == {"error", "error_type"}, answer


# ---- what a provider's failure becomes ----

MESSAGE = [{"role": "user", "content": "go"}]
APIS = {
    "responses": ("/v1", "/responses", lambda m: {"model": m, "input": "go"}, openai),
    "responses, below api": ("/api/v1", "/responses", lambda m: {"model": m, "input": "go"}, openai),
    "messages": ("/v1", "/messages", lambda m: {"model": m, "max_tokens": 9, "messages": MESSAGE}, anthropic),
    "chat": ("/v1", "/chat/completions", lambda m: {"model": m, "messages": MESSAGE}, chat),
    "chat, below api": ("/api/v1", "/chat/completions", lambda m: {"model": m, "messages": MESSAGE}, chat),
    "gemini": ("/v1beta", None, lambda m: {"contents": [{"role": "user", "parts": [{"text": "go"}]}]}, google),
}
FAILURES = [
    (error(500, {"error": {"message": "boom"}}), 502), (error(502, b"<html>nginx</html>"), 502),
    (error(503, {"error": {"message": "loading"}}), 503), (error(529, {"error": {"message": "Overloaded"}}), 503),
    (error(401, {"error": {"message": "bad key sk-123"}}), 502), (error(402, {"error": {"message": "pay"}}), 502),
    (error(403, {"error": {"message": "no"}}), 502), (rate_limited(7), 429),
    (error(404, {"error": {"message": "no model", "code": "model_not_found"}}), 404),
    (error(400, {"error": {"message": "bad temperature"}}), 400), (error(413, b""), 413), (error(422, b"{}"), 422),
    (error(408, b""), 504), (error(504, b""), 504), (Reply([Reset()], framing="raw"), 502), (Reply([Cut()]), 502),
    (Reply([Hold()], framing="raw"), 504), (error_in_stream("dead", 500), 502), (error_in_stream("slow", 429), 429),
    (Reply([b"nonsense"], framing="length"), 502),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", APIS.values(), ids=APIS.keys())
@pytest.mark.parametrize("reply, status", FAILURES, ids=["%d-%d" % (i, f[1]) for i, f in enumerate(FAILURES)])
def test_a_provider_s_failure(server, provider, api, reply, status, stream):
    base, path, body_of, shape = api
    model = provider.model(reply).name
    body = body_of(model)
    if path is None:
        path = "/models/%s:%s" % (model, "streamGenerateContent?alt=sse" if stream else "generateContent")
    elif stream:
        body["stream"] = True
    answer = check(server.client(base=base).post(path, body), status, (base, {}, None, None, shape))
    assert "sk-123" not in answer.text and "127.0.0.1" not in answer.text
    assert answer.headers["x-generation-id"].startswith("gen-")
    if reply.status == 429:
        assert answer.headers["retry-after"] == "7"


@pytest.mark.parametrize("api", APIS.values(), ids=APIS.keys())
def test_a_model_that_nobody_serves(server, api):
    base, path, body_of, shape = api
    for name in ("nobody/nothing", "fake/a%20b"):
        body = body_of(name)
        answer = server.client(base=base).post(path or "/models/%s:generateContent" % name, body)
        assert answer.status in (400, 404), answer
        check(answer, answer.status, (base, {}, None, None, shape))
