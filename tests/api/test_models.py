"""GET /models in the shape of who asks, with what the configuration and the providers' own lists say."""
import json
import urllib.parse

import pytest

import brigtest
from fake_provider import Hold, Reply

VERSION = {"anthropic-version": "2026-10-21"}
NAMES = ["m-%02d" % i for i in range(43)]

OPENAI = [{"id": n, "object": "model", "created": 1700000000 + i, "owned_by": "x"} for i, n in enumerate(NAMES)] + [
    {"id": "vendor/big:free", "name": "Big, free", "created": 1750000000, "context_length": 131072,
     "top_provider": {"max_completion_tokens": 8192}},
    {"id": "local", "max_model_len": 4096}, {"id": "priced"}]
ANTHROPIC = [{"type": "model", "id": "claude-x", "display_name": "Claude X", "created_at": "2025-02-19T00:00:00Z",
              "max_input_tokens": 200000, "max_tokens": 64000}]
GOOGLE = [{"name": "models/gemini-x", "displayName": "Gemini X", "inputTokenLimit": 1048576, "outputTokenLimit": 65536}]


def say(body):
    return Reply([json.dumps(body)], framing="length", content_type="application/json")


@pytest.fixture(scope="module")
def server(provider):
    provider.lists.update({
        "/open/v1/models": say({"object": "list", "data": OPENAI}),
        "/claude/v1/models?limit=1000": say({"data": ANTHROPIC, "has_more": False, "first_id": "a", "last_id": "claude-x"}),
        "/gem/v1/models?pageSize=1000": say({"models": GOOGLE[:0], "nextPageToken": "p 2/="}),
        "/gem/v1/models?pageSize=1000&pageToken=p%202%2F%3D": say({"models": GOOGLE})})
    server = brigtest.Server(provider, config={
        "providers": [
            {"name": "open", "dialect": "openai-chat", "base_url": provider.base_url("/open"), "api_key": "k1",
             "prices": {"priced": {"input": "2.5", "output": "10", "cached": "0.25"}}},
            {"name": "claude", "dialect": "anthropic", "base_url": provider.base_url("/claude"), "api_key": "k2"},
            {"name": "gem", "dialect": "gemini", "base_url": provider.base_url("/gem"), "api_key": "k3"},
            {"name": "none", "dialect": "openai-chat", "base_url": provider.base_url("/none")}],
        "models": [{"name": "fast", "route": ["open/local", "claude/claude-x"]}]})
    with server.running():
        yield server


ALL = sorted(["fast", "brig/script", "claude/claude-x", "gem/gemini-x"] + ["open/" + m["id"] for m in OPENAI])


def test_openai_s_shape(server):
    for base in ("/v1", "/api/v1"):
        body = server.client(base=base).get("/models").json
        assert body["object"] == "list" and body["total_count"] == len(ALL)
        rows = {m["id"]: m for m in body["data"]}
        assert sorted(rows) == ALL
        for m in rows.values():
            assert m["object"] == "model" and isinstance(m["created"], int) and m["owned_by"] and m["name"]
            assert isinstance(m["pricing"]["prompt"], str) and isinstance(m["supported_parameters"], list)
        big = rows["open/vendor/big:free"]
        assert (big["name"], big["created"], big["context_length"]) == ("Big, free", 1750000000, 131072)
        assert big["top_provider"] == {"context_length": 131072, "max_completion_tokens": 8192, "is_moderated": False}
        assert rows["open/local"]["context_length"] == 4096 and rows["open/m-00"]["context_length"] is None
        assert rows["open/priced"]["pricing"] == {"prompt": "0.0000025", "completion": "0.00001",
                                                  "input_cache_read": "0.00000025"}
        assert rows["claude/claude-x"]["owned_by"] == "claude" and rows["fast"]["owned_by"] == "alias"
        assert "Not a model" in rows["brig/script"]["description"]


def test_anthropic_s_shape(server):
    body = server.client(base="/v1").get("/models?limit=1000", headers=VERSION).json
    assert set(body) == {"data", "has_more", "first_id", "last_id"} and body["has_more"] is False
    rows = {m["id"]: m for m in body["data"]}
    assert sorted(rows) == ALL
    assert rows["claude/claude-x"] == {
        "type": "model", "id": "claude/claude-x", "display_name": "Claude X", "created_at": "2025-02-19T00:00:00.000Z",
        "capabilities": None, "lifecycle": "active", "line": None, "deprecated_at": None, "retires_at": None,
        "max_input_tokens": 200000, "max_tokens": 64000}
    assert rows["fast"]["created_at"].startswith("1970-01-01T00:00:00") and rows["fast"]["max_tokens"] is None
    assert body["first_id"] == body["data"][0]["id"] and body["last_id"] == body["data"][-1]["id"]


def pages_of(client, size):
    """As Anthropic's SDK goes through them: forward, and backward."""
    forward, after = [], ""
    while True:
        body = client.get("/models?limit=%d%s" % (size, after), headers=VERSION).json
        forward += [m["id"] for m in body["data"]]
        if not body["has_more"]:
            break
        assert len(body["data"]) == size
        after = "&after_id=" + urllib.parse.quote(body["last_id"], safe="")
    backward, before = [], "&before_id=" + urllib.parse.quote(forward[-1], safe="")
    while True:
        body = client.get("/models?limit=%d%s" % (size, before), headers=VERSION).json
        backward = [m["id"] for m in body["data"]] + backward
        if not body["has_more"]:
            break
        before = "&before_id=" + urllib.parse.quote(body["first_id"], safe="")
    assert backward == forward[:-1]
    return forward


@pytest.mark.parametrize("size", [1, 7, 20, 1000])
def test_anthropic_s_pages(server, size):
    client = server.client(base="/v1")
    assert sorted(pages_of(client, size)) == ALL


def test_anthropic_s_default_page(server):
    body = server.client(base="/v1").get("/models", headers=VERSION).json
    assert len(body["data"]) == 20 and body["has_more"] is True
    last = server.client(base="/v1").get("/models?limit=1000", headers=VERSION).json["last_id"]
    body = server.client(base="/v1").get("/models?after_id=" + urllib.parse.quote(last), headers=VERSION).json
    assert body == {"data": [], "has_more": False, "first_id": None, "last_id": None}


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "after_id=nobody", "before_id=no/body"])
def test_anthropic_s_wrong_pages(server, query):
    answer = server.client(base="/v1").get("/models?" + query, headers=VERSION)
    assert answer.status == 400 and answer.json["error"]["type"] == "invalid_request_error", answer


def test_google_s_shape_and_pages(server):
    client = server.client(base="/v1beta")
    body = client.get("/models").json
    assert len(body["models"]) == 50 - max(0, 50 - len(ALL)) and ("nextPageToken" in body) == (len(ALL) > 50)
    names, token = [], ""
    while True:
        body = client.get("/models?pageSize=10" + token).json
        names += [m["name"] for m in body["models"]]
        assert len(body["models"]) <= 10
        if "nextPageToken" not in body:
            break
        token = "&pageToken=" + urllib.parse.quote(body["nextPageToken"], safe="")
    assert sorted(names) == sorted("models/" + n for n in ALL)
    assert len(client.get("/models?pageSize=100000").json["models"]) == len(ALL)
    assert len(client.get("/models?pageSize=0").json["models"]) == min(50, len(ALL))
    for query in ("pageSize=x", "pageSize=-1", "pageToken=nobody"):
        answer = client.get("/models?" + query)
        assert answer.status == 400 and answer.json["error"]["status"] == "INVALID_ARGUMENT"
    one = client.get("/models/gem/gemini-x").json
    assert one == {"name": "models/gem/gemini-x", "baseModelId": "gem/gemini-x", "version": "",
                   "displayName": "Gemini X", "inputTokenLimit": 1048576, "outputTokenLimit": 65536,
                   "supportedGenerationMethods": ["generateContent", "streamGenerateContent", "countTokens"]}


@pytest.mark.parametrize("path, found", [
    ("open/vendor/big:free", "open/vendor/big:free"), ("open%2Fvendor%2Fbig%3Afree", "open/vendor/big:free"),
    ("vendor/big:free", "open/vendor/big:free"), ("claude-x", "claude/claude-x"), ("fast", "fast"),
    ("script", "brig/script"), ("m-07", "open/m-07"), ("open/m-7", None), ("m", None), ("open", None), ("open/", None),
    ("%00", None), ("%zz", None), ("x" * 900, None), ("none/x", None)])
def test_one(server, path, found):
    for base, headers in (("/v1", {}), ("/api/v1", {}), ("/v1", VERSION), ("/v1beta", {})):
        answer = server.client(base=base).get("/models/" + path, headers=headers)
        if found is None:
            assert answer.status == 404, answer
            continue
        assert answer.status == 200, answer
        assert (answer.json.get("id") or answer.json["name"].removeprefix("models/")) == found
        assert ("type" in answer.json) == bool(headers)


def test_keys_are_sent_in_each_dialect_s_way(server, provider):
    server.client().get("/models")
    asked = {r.path.split("/")[1]: r for r in provider.list_requests if r.path.split("/")[1] in ("open", "claude", "gem")}
    assert asked["open"].headers["authorization"] == "Bearer k1"
    assert asked["claude"].headers["x-api-key"] == "k2" and asked["claude"].headers["anthropic-version"]
    assert asked["gem"].headers["x-goog-api-key"] == "k3"
    assert len([r for r in provider.list_requests if r.path.startswith("/open/")]) == 1, "asked for again"


def test_a_provider_that_says_nothing_is_waited_for_once(provider):
    provider.lists["/mute/v1/models"] = Reply([Hold()], framing="raw")
    server = brigtest.Server(provider, config={"providers": [
        {"name": "mute", "dialect": "openai-chat", "base_url": provider.base_url("/mute"),
         "prices": {"m": {"input": "1", "output": "1"}}}]})
    with server.running():
        for _ in range(3):
            ids = [m["id"] for m in server.client().get("/models").json["data"]]
            assert ids == ["mute/m", "brig/script"]
