"""GET /tools: what it says of a tool is what a request finds."""
import pytest

from brigtest import check_error

# How each api is asked with an entry of `tools`, and where what comes back has its types.
FORMATS = {
    "openai-responses": ("/v1", "/responses", lambda entry: {"input": "```\necho hi\n```", "tools": [entry]},
                         lambda body: [i["type"] for i in body["output"]]),
    "anthropic-messages": ("/v1", "/messages",
                           lambda entry: {"max_tokens": 100, "messages": [{"role": "user", "content": "```\necho hi\n```"}],
                                          "tools": [entry]}, lambda body: [b["type"] for b in body["content"]]),
    "google-generate-content": ("/v1beta", "/models/brig/script:generateContent",
                                lambda entry: {"contents": [{"role": "user", "parts": [{"text": "```\necho hi\n```"}]}],
                                               "tools": [{entry["type"]: {}}]},
                                lambda body: [k for p in body["candidates"][0]["content"]["parts"] for k in p]),
}


CLIENT = ("tool_use", "local_shell_call")  # the script calls no tool of the client


def entry_of(alias):
    if alias == "bash_20250124":
        return {"type": alias, "name": "bash"}
    if alias in ("openrouter:bash", "brig:bash"):  # else it is the client's
        return {"type": alias, "parameters": {"engine": "openrouter"}}
    if alias == "shell":
        return {"type": alias, "environment": {"type": "container_auto"}}
    return {"type": alias}


def tools_of(server):
    answer = server.client().get("/tools")
    assert answer.status == 200, answer
    return answer.json["data"]


def test_the_list(server):
    for base in ("/v1", "/api/v1"):
        client = server.client(base=base)
        body = client.get("/tools").json
        assert body["total_count"] == len(body["data"]) >= 1
        assert client.get("/tools?offset=1").json["data"] == body["data"][1:]
        assert client.get("/tools?limit=0").json["data"] == []
        assert client.get("/tools?offset=0&limit=1").json["data"] == body["data"][:1]
        for query in ("limit=x", "offset=-1", "limit=100000"):
            answer = client.get("/tools?" + query)
            assert answer.status == 400
            check_error(answer, base)


def test_each_tool_by_each_of_its_names(server):
    client = server.client()
    for tool in tools_of(server):
        for name in [tool["name"]] + [a["type"] for a in tool["aliases"]]:
            assert client.get("/tools/" + name).json == {"data": tool}
            assert client.get("/tools/" + name.replace(":", "%3A")).json == {"data": tool}


@pytest.mark.parametrize("name", ["nothing", "openrouter:web_search", "shell/x", "%00", "sh", "x" * 500])
def test_a_name_that_is_none(server, name):
    answer = server.client().get("/tools/" + name)
    assert answer.status == 404
    check_error(answer, "/api/v1")


def test_the_shell(server):
    tool = server.client().get("/tools/shell").json["data"]
    assert tool["status"] == "active" and tool["supported_api_formats"]
    assert tool["input_schema"]["required"] == ["commands"]
    environments = tool["parameters_schema"]["properties"]["environment"]["oneOf"]
    assert [e["properties"]["type"]["const"] for e in environments] == ["container_auto", "container_reference"]
    engine, = [e for e in tool["engines"] if e["id"] == "openrouter"]
    assert engine["pricing"] == [{"mode": "second", "price": "0.0001", "unit": "second", "max_units_per_call": None}]


def test_what_it_offers_is_taken(server):
    """Every alias, in every api that the catalogue names: the request is good, and what comes back has the type."""
    tried = 0
    for tool in tools_of(server):
        for alias in tool["aliases"]:
            for output in alias["output_names"]:
                base, path, body_of, types_of = FORMATS[output["api_format"]]
                body = body_of(entry_of(alias["type"]))
                if base != "/v1beta":
                    body["model"] = "brig/script"
                answer = server.client(base=base).post(path, body)
                assert answer.status == 200, (alias["type"], output, answer)
                if output["type"] not in CLIENT:
                    assert output["type"] in types_of(answer.json), (alias["type"], answer.json)
                if output["type"].startswith("openrouter_"):
                    block, = [b for b in answer.json["content"] if b["type"] == output["type"]]
                    assert set(tool["output_schema"]["required"]) <= set(block["content"]), block
                tried += 1
    assert tried >= 3


def test_what_it_does_not_offer_is_refused(server):
    """An api that a type of ours does not name answers 400."""
    for tool in tools_of(server):
        for alias in tool["aliases"]:
            for name, (base, path, body_of, _) in FORMATS.items():
                if name in alias["api_formats"] or ":" not in alias["type"] or name.startswith("google"):
                    continue
                answer = server.client(base=base).post(path, dict(body_of({"type": alias["type"]}), model="brig/script"))
                assert answer.status == 400, (alias["type"], name, answer)


def test_without_sandboxes_it_is_disabled(make_server):
    server = make_server(config={"sandbox": False}).start()
    tool = server.client().get("/tools/shell").json["data"]
    assert tool["status"] == "disabled" and [e["executed_by"] for e in tool["engines"]] == ["client"]
