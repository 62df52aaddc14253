"""A server that keeps to a region: nothing executes there but on the client's machine, and no content is stored."""
import pytest

import brigtest
from conftest import run
from dialects import SERVED, SPOKEN, Say

SETTINGS = {"region": "europe"}


@pytest.fixture(scope="module")
def server(upstream):
    providers = upstream.config()
    for p in providers:
        if p["dialect"] == "openai-responses":
            p["native_tools"] = ["shell"]
    yield from run(brigtest.Server(None, config=dict(SETTINGS, providers=providers)))


def ask(client, spoken, model, tools, change=None, stream=False, text="What now?", headers=None, path=None):
    s = SPOKEN[spoken]
    body = s.body(model, s.start(text), stream=stream)
    if tools:
        body["tools"] = tools
    body.update(change or {})
    return client.request("POST", path or s.path(model, stream), body, headers=dict(s.headers(), **(headers or {})))


def refusal(spoken, answer):
    """The text of a 403 in the shape of who asked."""
    assert answer.status == 403, answer
    error = answer.json["error"]
    if spoken == "gemini":
        assert (error["code"], error["status"]) == (403, "PERMISSION_DENIED")
    elif spoken == "messages":
        assert (answer.json["type"], error["type"]) == ("error", "permission_error")
    else:
        assert (error["type"], error["code"]) == ("permission_error", "permission_denied")
    assert "region 'europe'" in error["message"]
    return error["message"]


@pytest.mark.parametrize("spoken, tool", [
    ("responses", {"type": "shell", "environment": {"type": "container_auto"}}),
    ("responses", {"type": "openrouter:shell"}),
    ("responses", {"type": "brig:shell"}),
    ("responses", {"type": "openrouter:shell", "parameters": {"engine": "native"}}),
    ("responses", {"type": "code_interpreter", "container": {"type": "auto"}}),
    ("responses", {"type": "programmatic_tool_calling"}),
    ("messages", {"type": "openrouter:shell"}),
    ("messages", {"type": "openrouter:shell", "parameters": {"engine": "native"}}),
    ("messages", {"type": "openrouter:bash", "parameters": {"engine": "openrouter"}}),
    ("messages", {"type": "brig:bash", "parameters": {"engine": "openrouter"}}),
    ("messages", {"type": "code_execution_20250825", "name": "code_execution"}),
    ("gemini", {"brigShell": {}}),
    ("gemini", {"codeExecution": {}}),
    ("gemini", {"code_execution": {}}),
    ("chat", {"type": "code_interpreter"}),
], ids=lambda v: v if isinstance(v, str) else v.get("type") or next(iter(v)))
def test_tools_that_execute_are_refused(client, upstream, spoken, tool):
    """Before a provider is asked, whoever would execute it."""
    for served in SERVED:
        model = upstream.says(served, Say("hello"))
        refusal(spoken, ask(client, spoken, model.asked, [tool]))
        assert not model.requests
    if spoken in ("responses", "messages"):
        count = {"responses": "/v1/responses/input_tokens", "messages": "/v1/messages/count_tokens"}[spoken]
        refusal(spoken, ask(client, spoken, model.asked, [tool], path=count))


@pytest.mark.parametrize("spoken, tool, name", [
    ("messages", {"type": "bash_20250124", "name": "bash"}, "bash"),
    ("messages", {"type": "openrouter:bash"}, "bash"),
    ("messages", {"type": "brig:bash", "parameters": {"engine": "native"}}, "bash"),
    ("responses", {"type": "local_shell"}, "local_shell"),
    ("responses", {"type": "shell", "environment": {"type": "local"}}, "shell"),
], ids=lambda v: v if isinstance(v, str) else v["type"])
def test_the_clients_own_shell_works(client, upstream, spoken, tool, name):
    arguments = {"command": "ls"} if name == "bash" else {"command": ["ls"]} if name == "local_shell" else {"commands": ["ls"]}
    model = upstream.says("chat", Say(calls=[(name, arguments)]))
    answer = ask(client, spoken, model.asked, [tool])
    assert answer.status == 200, answer
    if spoken == "messages":
        block, = [b for b in answer.json["content"] if b["type"] == "tool_use"]
        assert (block["name"], block["input"]) == (name, arguments) and answer.json["stop_reason"] == "tool_use"
    else:
        item, = [i for i in answer.json["output"] if i["type"].endswith("_call")]
        assert item["type"] == name + "_call" and "ls" in str(item["action"])
    assert len(model.requests) == 1


def test_a_provider_tool_that_executes_nothing_goes_on(client, upstream):
    model = upstream.says("responses", Say("found"))
    assert ask(client, "responses", model.asked, [{"type": "web_search"}]).status == 200
    assert model.requests[0].json["tools"] == [{"type": "web_search"}]


def test_no_container_is_made_or_used(server, client):
    form = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nhi\r\n--x--\r\n'
    for base in ("/v1", "/api/v1"):
        c = server.client(base=base)
        for path, body in (("/containers", {"name": "here"}), ("/containers/here/exec", {"commands": ["true"]}),
                           ("/containers/here/files", {"file_id": "file-1"})):
            answer = c.post(path, body)
            assert answer.status == 403 and "region 'europe'" in answer.json["error"]["message"], (path, answer)
            assert answer.json["error"]["code"] == ("permission_denied" if base == "/v1" else 403)
        answer = c.request("POST", base + "/containers/here/files", form,
                           headers={"Content-Type": "multipart/form-data; boundary=x"})
        assert answer.status == 403, answer
        assert c.get("/containers").json["data"] == []
        assert c.get("/containers/here").status == 404


def test_what_it_says_of_its_tools(client):
    for name, by in (("shell", ["client"]), ("bash", ["client"])):
        tool = client.get("/tools/" + name).json["data"]
        assert tool["status"] == "disabled" and tool["fallback_engine"] is None
        assert [e["executed_by"] for e in tool["engines"]] == by
        assert [e["data_regions"] for e in tool["engines"]] == [["europe"]]
        assert tool["native_support"] == {"endpoint_count": 0, "model_count": 0}


def test_no_content_is_stored(server, upstream):
    """Last: it stops the server, and looks into all that it left."""
    client = server.client()
    for spoken in SPOKEN:
        for stream in (False, True):
            model = upstream.says("chat", Say("answer-secret", thinking="thought-secret"))
            answer = ask(client, spoken, model.asked, None, text="question-secret", stream=stream,
                         headers={"Idempotency-Key": "%s-%s" % (spoken, stream)})
            assert answer.status == 200 and b"-secret" in answer.body, answer  # a stream comes in halves
            generation = answer.headers["x-generation-id"]
            assert client.get("/generation?id=" + generation).json["data"]["content_stored"] is False
            assert client.get("/generation/content?id=" + generation).status == 404
    model = upstream.says("responses", Say("answer-secret"))
    answer = ask(client, "responses", model.asked, None, {"store": True}, text="question-secret")
    assert answer.status == 200 and answer.json["store"] is False
    assert client.get("/responses/" + answer.json["id"]).status == 404
    again = ask(client, "responses", model.asked, None, {"previous_response_id": answer.json["id"]})
    assert again.status == 400 and again.json["error"]["param"] == "previous_response_id"
    assert ask(client, "responses", model.asked, None, {"background": True}).status == 400
    call = upstream.says("chat", Say(calls=[("bash", {"command": "command-secret"})]))
    assert ask(client, "messages", call.asked, [{"type": "bash_20250124", "name": "bash"}]).status == 200
    server.stop()
    searched = 0
    for path in server.data.rglob("*"):
        if path.is_file() and "images" not in path.parts:
            data = path.read_bytes()
            searched += 1
            for secret in (b"question-secret", b"answer-secret", b"thought-secret", b"command-secret"):
                assert secret not in data, "%s in %s" % (secret, path)
    assert searched > 1
