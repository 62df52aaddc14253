"""
Responses that are kept: previous_response_id, item references, GET, DELETE and the listing of what was asked; for one
gateway and for three, where any of them may be asked.
"""
import json
import re
import threading

import pytest

from brigtest import BRIG_SHELL, SHELL, UPSTREAM_KEY, function, items_of, outputs_of, raw_list, text_of, wait_for
from fake_provider import Hold, Reply, Wait, call, calls, chunk, error, shell, text
from fake_responses import message as upstream_message
from fake_responses import reasoning as upstream_reasoning
from fake_responses import shell as upstream_shell
from fake_responses import stream as upstream_stream
from test_replay import KINDS, messages_bytes


@pytest.fixture(scope="module")
def server(servers_1_and_3):
    return servers_1_and_3


def ask_in(client, way):
    """Asks in one of the ways; the answer's object."""
    return {"whole": client.ask, "streamed": lambda *a, **k: client.stream(*a, **k).response}[way]


def saved(client, id):
    answer = client.get("/responses/" + id)
    assert answer.status == 200, answer
    return answer.json


def listed(client, id, **query):
    answer = client.get("/responses/%s/input_items?%s" % (id, "&".join("%s=%s" % q for q in query.items())))
    assert answer.status == 200, answer
    return answer.json


WAYS = pytest.mark.parametrize("way", ["whole", "streamed"])


@WAYS
def test_a_response_is_kept_as_it_was_sent(client, provider, way):
    first = ask_in(client, way)(provider.model(calls(shell("echo hi")), text("done")), "go", tools=[SHELL],
                                metadata={"a": "b"})
    assert first["store"] is True and first["previous_response_id"] is None
    assert saved(client, first["id"]) == first


@WAYS
@pytest.mark.parametrize("tool", [SHELL, BRIG_SHELL], ids=["openrouter", "brig"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_next_turn_begins_with_the_last(client, provider, kind, tool, way):
    """The same as for a conversation that is sent whole (test_replay)."""
    model = provider.model(*KINDS[kind]())
    first = ask_in(client, way)(model, "go", tools=[tool], instructions="Be good.")
    last = messages_bytes(model.requests[-1])
    model.replies.append(text("the second answer"))
    second = client.ask(model, "and now?", tools=[tool], instructions="Be good.", previous_response_id=first["id"])
    assert messages_bytes(model.requests[-1]).startswith(last + ",")
    assert second["previous_response_id"] == first["id"]


@WAYS
def test_a_chain_is_what_a_replay_is(client, provider, way):
    """Three turns by id say to the model, byte for byte, what three turns sent whole say."""
    def replies():
        return [calls(shell("echo 1", id="a")), text("one"), calls(shell("echo 2", id="b"), content="Hm."), text("two"),
                text("three")]
    ask = ask_in(client, way)
    chain, whole = provider.model(*replies()), provider.model(*replies())
    previous, history = None, []
    for said in ["first", "second", "third"]:
        by_id = ask(chain, said, tools=[SHELL], previous_response_id=previous)
        previous = by_id["id"]
        history.append({"role": "user", "content": said})
        history += ask(whole, history, tools=[SHELL], session_id="replayed")["output"]
    assert len(chain.requests) == len(whole.requests) == 5
    for a, b in zip(chain.requests, whole.requests):
        assert messages_bytes(a) == messages_bytes(b)


def test_instructions_and_tools_are_not_carried_over(client, provider):
    model = provider.model(text("one"), text("two"))
    first = client.ask(model, "go", instructions="Be good.", tools=[function("weather")])
    second = client.ask(model, "on", previous_response_id=first["id"])
    assert [m["role"] for m in model.requests[1].json["messages"]] == ["user", "assistant", "user"]
    assert not model.requests[1].json.get("tools")
    assert second["instructions"] is None and second["tools"] == []


def test_a_function_goes_on_by_id(client, provider):
    model = provider.model(calls(call("weather", {"place": "Rome"}, id="call_w")), text("It is hot."))
    first = client.ask(model, "go", tools=[function("weather")])
    id = items_of(first, "function_call")[0]["call_id"]
    client.ask(model, [{"type": "function_call_output", "call_id": id, "output": "hot"}], tools=[function("weather")],
               previous_response_id=first["id"])
    assert [m["role"] for m in model.requests[1].json["messages"]] == ["user", "assistant", "tool"]
    # Without its output the call stands open, and the path is one of the client's own input.
    refused = client.ask(model, "well?", previous_response_id=first["id"], expect=400)
    assert "No tool output found" in refused.error["message"]
    wrong = client.ask(model, [{"role": "user", "content": "x"}, {"role": "user", "content": 7}],
                       previous_response_id=first["id"], expect=400)
    assert wrong.error["param"] == "input[1].content"


@pytest.mark.parametrize("tool", [SHELL, BRIG_SHELL], ids=["openrouter", "brig"])
def test_a_chain_keeps_its_container(client, provider, tool):
    model = provider.model(calls(shell("echo kept > file")), text("ok"), text("nothing"), calls(shell("cat file")),
                           text("ok"))
    first = client.ask(model, "go", tools=[tool])
    second = client.ask(model, "talk", tools=[tool], previous_response_id=first["id"])
    third = client.ask(model, "read", tools=[tool], previous_response_id=second["id"])
    assert outputs_of(third)[0]["stdout"] == "kept\n"
    model.replies += [calls(shell("cat file")), text("ok")]
    other = client.ask(model, "read", tools=[tool], previous_response_id=third["id"], session_id="another-one")
    assert outputs_of(other)[0]["outcome"]["exit_code"] == 1


def test_a_chain_may_fork(client, provider):
    model = provider.model(text("root"), text("left"), text("right"), text("left on"))
    root = client.ask(model, "go")
    left = client.ask(model, "a", previous_response_id=root["id"])
    client.ask(model, "b", previous_response_id=root["id"])
    client.ask(model, "c", previous_response_id=left["id"])
    assert [m["content"] for m in model.requests[3].json["messages"]] == ["go", "root", "a", "left", "c"]


# ---- what cannot be gone on from ----

@pytest.mark.parametrize("id", ["resp_0123456789abcdefghijklmn", "nonsense", "resp_" + "x" * 500, "", "a\u0000b", "\u00fc"])
def test_an_unknown_previous_response(client, v1, provider, id):
    answer = client.ask(provider.model(), "go", previous_response_id=id, expect=400)
    assert answer.error["param"] == "previous_response_id"
    answer = v1.post("/responses", {"model": provider.model().name, "input": "go", "previous_response_id": id})
    assert (answer.status, answer.error["code"], answer.error["type"], answer.error["param"]) == (
        400, "previous_response_not_found", "invalid_request_error", "previous_response_id")
    assert "not found" in answer.error["message"]


def test_another_workspace_finds_nothing(server, client, provider):
    first = client.ask(provider.model(text("secret")), "go")
    for key in ("two", "far"):
        other = server.client(key)
        assert other.get("/responses/" + first["id"]).status == 404
        assert other.get("/responses/%s/input_items" % first["id"]).status == 404
        assert other.delete("/responses/" + first["id"]).status == 404
        other.ask(provider.model(), "go", previous_response_id=first["id"], expect=400)
        reference = {"type": "item_reference", "id": first["output"][0]["id"]}
        other.ask(provider.model(), [reference, {"role": "user", "content": "x"}], expect=400)
    assert saved(client, first["id"]) == first


@pytest.mark.parametrize("id", [7, ["resp_a"], {"id": "resp_a"}, True])
def test_a_previous_response_of_a_wrong_type(client, provider, id):
    assert client.ask(provider.model(), previous_response_id=id, expect=400).error["param"] == "previous_response_id"


@pytest.mark.parametrize("conversation", ["conv_1", {"id": "conv_1"}])
def test_conversations_are_refused(client, provider, conversation):
    answer = client.ask(provider.model(), conversation=conversation, expect=400)
    assert answer.error["param"] == "conversation" and "previous_response_id" in answer.error["message"]


@WAYS
def test_not_stored_where_the_request_says_so(client, provider, way):
    model = provider.model(text("one"))
    first = ask_in(client, way)(model, "go", store=False)
    assert first["store"] is False
    assert client.get("/responses/" + first["id"]).status == 404
    client.ask(model, "on", previous_response_id=first["id"], expect=400)


@WAYS
@pytest.mark.parametrize("store", [None, True, False])
def test_content_off_by_header(client, provider, way, store):
    off = {"x-brig-store-content": "false"}
    first = ask_in(client, way)(provider.model(text("one")), "go", store=store, headers=off)
    assert first["store"] is False
    assert client.get("/responses/" + first["id"]).status == 404
    kept = client.ask(provider.model(text("kept")), "go")
    for more in ({"input": "on", "previous_response_id": kept["id"]},
                 {"input": [{"type": "item_reference", "id": kept["output"][0]["id"]}]}):
        refused = client.ask(provider.model(), headers=off, expect=400, **more)
        assert "x-brig-store-content" in refused.error["message"]


# ---- how turns end ----

def test_an_incomplete_response_is_kept_and_gone_on_from(client, provider):
    model = provider.model(text("cut of", finish="length"), text("go on"))
    first = client.ask(model, "go", max_output_tokens=16)
    assert first["status"] == "incomplete" and saved(client, first["id"]) == first
    client.ask(model, "more", previous_response_id=first["id"])
    assert [m["content"] for m in model.requests[1].json["messages"]] == ["go", "cut of", "more"]


def test_a_failed_stream_is_kept_and_gone_on_from(client, provider):
    model = provider.model(calls(shell("echo ran")), error(400, {"error": {"message": "no"}}))
    first = client.stream(model, "go", tools=[SHELL]).response
    assert first["status"] == "failed"
    assert saved(client, first["id"]) == first
    model.replies.append(text("again"))
    client.ask(model, "more", tools=[SHELL], previous_response_id=first["id"])
    assert "ran" in model.requests[-1].body.decode()


def test_a_refusal_is_no_response(client, provider):
    answer = client.ask(provider.model(error(400, {"error": {"message": "bad"}})), expect=400)
    assert client.get("/responses/resp_" + answer.headers["x-generation-id"][4:]).status == 404


def test_a_client_that_goes_away_leaves_nothing(client, provider):
    model = provider.model(Reply([chunk({"content": "so"}), Hold()]))
    stream = client.begin(model, "go")
    id = re.search(r"resp_[0-9a-z]{24}", stream.until("output_text.delta").decode()).group()
    stream.close()
    wait_for(lambda: model.requests[0].closed)
    assert client.get("/responses/" + id).status == 404


# ---- reading and removing ----

def test_deleted_is_gone(client, provider):
    model = provider.model(text("one"), text("two"), text("three"))
    first = client.ask(model, "go")
    second = client.ask(model, "on", previous_response_id=first["id"])
    answer = client.delete("/responses/" + first["id"])
    assert (answer.status, answer.json) == (200, {"id": first["id"], "object": "response", "deleted": True})
    assert client.get("/responses/" + first["id"]).status == 404
    assert client.delete("/responses/" + first["id"]).status == 404
    client.ask(model, "x", previous_response_id=first["id"], expect=400)
    # What the second one was told stays its own.
    client.ask(model, "still", previous_response_id=second["id"])
    assert [m["content"] for m in model.requests[-1].json["messages"]] == ["go", "one", "on", "two", "still"]


def test_what_was_asked_is_listed(client, provider):
    model = provider.model(calls(shell("echo hi")), text("one"), text("two"))
    first = client.ask(model, "go", tools=[SHELL], instructions="not an input")
    second = client.ask(model, [{"role": "user", "content": [{"type": "input_text", "text": "what"}]},
                                {"type": "message", "role": "user", "content": "now?", "id": "msg_mine"}],
                        tools=[SHELL], previous_response_id=first["id"])
    data = listed(client, second["id"], order="asc")
    assert data["object"] == "list" and data["has_more"] is False
    items = data["data"]
    assert [i["type"] for i in items] == ["message", "openrouter:shell", "message", "message", "message"]
    assert items[1:3] == first["output"]
    assert items[0]["content"] == [{"type": "input_text", "text": "go"}] and items[0]["role"] == "user"
    assert items[3]["content"] == [{"type": "input_text", "text": "what"}]
    assert items[4] == {"id": "msg_mine", "type": "message", "role": "user", "status": "completed",
                        "content": [{"type": "input_text", "text": "now?"}]}
    ids = [i["id"] for i in items]
    assert len(set(ids)) == len(ids) and all(ids)
    assert (data["first_id"], data["last_id"]) == (ids[0], ids[-1])
    # Newest first, unless it is said; in pages.
    assert [i["id"] for i in listed(client, second["id"])["data"]] == ids[::-1]
    seen, after = [], {}
    while True:
        page = listed(client, second["id"], limit=2, order="asc", **after)
        seen += [i["id"] for i in page["data"]]
        if not page["has_more"]:
            break
        after = {"after": page["last_id"]}
    assert seen == ids
    assert [i["id"] for i in listed(client, first["id"])["data"]] == ids[:1]


@pytest.mark.parametrize("query, param", [("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"),
                                          ("order=up", "order"), ("after=nothing", "after")])
def test_bad_questions_for_a_list(client, provider, query, param):
    first = client.ask(provider.model(text("one")), "go")
    answer = client.get("/responses/%s/input_items?%s" % (first["id"], query))
    assert (answer.status, answer.error["param"]) == (400, param)


def test_unknown_ids(client, v1):
    for c in (client, v1):
        for answer in (c.get("/responses/resp_none"), c.get("/responses/resp_none/input_items"),
                       c.delete("/responses/resp_none")):
            assert answer.status == 404 and "resp_none" in answer.error["message"]
    assert client.get("/responses/" + "x" * 300).status == 404


def test_the_events_of_a_response_that_has_a_client_are_not_kept(client, provider):
    first = client.ask(provider.model(text("one")), "go")
    answer = client.get("/responses/%s?stream=true&starting_after=3" % first["id"])
    assert answer.status == 400 and answer.error["param"] == "stream"
    assert client.get("/responses/%s?stream=false&include=reasoning.encrypted_content" % first["id"]).json == first


# ---- item references ----

@pytest.mark.parametrize("form", [{"type": "item_reference"}, {"type": None}, {}], ids=["typed", "null", "bare"])
@pytest.mark.parametrize("tool", [SHELL, BRIG_SHELL], ids=["openrouter", "brig"])
def test_referenced_items_are_put_in_their_places(client, provider, tool, form):
    model = provider.model(calls(shell("echo hi", id="c")), text("one"), text("two"))
    first = client.ask(model, "go", tools=[tool])
    last = messages_bytes(model.requests[-1])
    references = [dict(form, id=i["id"]) for i in first["output"]]
    second = client.ask(model, [{"role": "user", "content": "go"}] + references + [{"role": "user", "content": "on"}],
                        tools=[tool])
    assert messages_bytes(model.requests[-1]).startswith(last + ",")
    # They are part of what is kept.
    items = listed(client, second["id"], order="asc")["data"]
    assert items[1:-1] == first["output"]


def test_a_reference_beside_the_item_itself(client, provider):
    """As the AI SDK sends it: the call by reference, its output whole and without id."""
    model = provider.model(calls(shell("echo hi", id="c")), text("one"), text("two"))
    first = client.ask(model, "go", tools=[BRIG_SHELL])
    last = messages_bytes(model.requests[-1])
    call_item, output, message = first["output"]
    client.ask(model, [{"role": "user", "content": "go"}, {"type": "item_reference", "id": call_item["id"]},
                       {k: output[k] for k in ("type", "call_id", "output")},
                       {"role": "assistant", "content": message["content"][0]["text"]},
                       {"role": "user", "content": "on"}], tools=[BRIG_SHELL])
    assert messages_bytes(model.requests[-1]).startswith(last + ",")


def test_an_unknown_reference(client, provider):
    answer = client.ask(provider.model(), [{"role": "user", "content": "x"}, {"type": "item_reference", "id": "sh_no"}],
                        expect=400)
    assert answer.error["param"] == "input[1].id" and "sh_no" in answer.error["message"]
    for id in ("", "x" * 5000, "\u0000"):
        client.ask(provider.model(), [{"type": "item_reference", "id": id}], expect=400)
    client.ask(provider.model(), [{"type": "item_reference"}], expect=400)
    client.ask(provider.model(), [{"type": "item_reference", "id": 7}], expect=400)


def test_a_reference_to_what_was_deleted(client, provider):
    first = client.ask(provider.model(text("one")), "go")
    client.delete("/responses/" + first["id"])
    client.ask(provider.model(), [{"type": "item_reference", "id": first["output"][0]["id"]}], expect=400)


# ---- odd bodies ----

@pytest.mark.parametrize("body", [
    '{"input":[ ],"model":"M","previous_response_id":"R"}',
    '{"model":"M","previous_response_id":"R"}',
    '{"model":"M","previous_response_id":"R","input":null}',
    '{ "previous\\u005fresponse_id" : "R" , "input" : "on" , "model":"M"}',
    '{"model":"M","input":[\n\n {"role":"user","content":"on"} ],"previous_response_id":"R"}',
])
def test_bodies_of_odd_form(client, provider, body):
    model = provider.model(text("one"), text("two"))
    first = client.ask(model, "go")
    answer = client.post("/responses", body.replace('"M"', json.dumps(model.name)).replace("R", first["id"]).encode())
    assert answer.status == 200, answer
    said = [m["content"] for m in model.requests[-1].json["messages"]]
    assert said[:2] == ["go", "one"] and said[2:] in ([], ["on"])


@pytest.mark.parametrize("input", ["7", "{}", "true", '[7]', '[[]]', '["on"]'])
def test_an_input_of_a_wrong_type(client, provider, input):
    model = provider.model(text("one"))
    first = client.ask(model, "go")
    body = '{"model":"%s","previous_response_id":"%s","input":%s}' % (model.name, first["id"], input)
    answer = client.post("/responses", body.encode())
    assert answer.status == 400 and answer.error["param"].startswith("input"), answer


def test_a_large_conversation(client, provider):
    model = provider.model(text("one"), text("two"))
    first = client.ask(model, "x" * 3000000)
    client.ask(model, "y" * 3000000, previous_response_id=first["id"])
    assert len(model.requests[-1].body) > 6000000
    assert len(listed(client, first["id"])["data"][0]["content"][0]["text"]) == 3000000


# ---- over a server's life, and its limits ----

def test_kept_over_a_restart_and_a_crash(make_server, provider):
    server = make_server(workers=3).start()
    model = provider.model(text("one"), text("two"), text("three"))
    first = server.client().ask(model, "go")
    server.kill()
    wait_for(lambda: not server.own())
    (server.data / "url").unlink(missing_ok=True)
    server.start()
    second = server.client().ask(model, "on", previous_response_id=first["id"])
    server.stop()
    server.start()
    assert saved(server.client(), first["id"]) == first
    server.client().ask(model, "and", previous_response_id=second["id"])
    assert [m["content"] for m in model.requests[-1].json["messages"]] == ["go", "one", "on", "two", "and"]


def test_kept_for_a_time_only(make_server, provider):
    server = make_server(config={"limits": {"responses_kept": "3s"}}).start()
    client, model = server.client(), provider.model(text("one"), text("two"))
    first = client.ask(model, "go")
    assert client.get("/responses/" + first["id"]).status == 200
    wait_for(lambda: client.get("/responses/" + first["id"]).status == 404, every=0.2)
    client.ask(model, "on", previous_response_id=first["id"], expect=400)


def test_the_oldest_make_room(make_server, provider):
    server = make_server(config={"limits": {"workspace_responses": "1m"}}).start()
    client = server.client()
    ids = [client.ask(provider.model(text("one")), "x" * 100000)["id"] for _ in range(14)]
    there = [client.get("/responses/" + id).status == 200 for id in ids]
    assert there[-1] and not there[0] and there == sorted(there)


def test_too_large_to_be_kept(make_server, provider):
    server = make_server(config={"limits": {"response": "64k"}}).start()
    client = server.client()
    for way in ("whole", "streamed"):
        first = ask_in(client, way)(provider.model(text("one")), "x" * 70000)
        assert first["store"] is False
        assert client.get("/responses/" + first["id"]).status == 404
        assert ask_in(client, way)(provider.model(text("y" * 70000)), "x")["store"] is False
        assert ask_in(client, way)(provider.model(text("y")), "x")["store"] is True


def test_a_server_that_keeps_nothing(make_server, provider):
    server = make_server(config={"logging": {"store_content": False}}).start()
    client = server.client()
    for way in ("whole", "streamed"):
        first = ask_in(client, way)(provider.model(text("one")), "go", store=True)
        assert first["store"] is False
        assert client.get("/responses/" + first["id"]).status == 404
    refused = client.ask(provider.model(), "on", previous_response_id=first["id"], expect=400)
    assert "operator" in refused.error["message"]
    refused = client.ask(provider.model(), [{"type": "item_reference", "id": "msg_1"}], expect=400)
    assert "operator" in refused.error["message"] and refused.error["param"] == "input[0].id"


def test_many_at_once(client, provider):
    """Chains side by side, each of its own."""
    problems = []

    def one(name):
        try:
            model, previous = provider.model(*[text("%s%d" % (name, i)) for i in range(4)]), None
            for i in range(4):
                previous = client.ask(model, "q%d" % i, previous_response_id=previous)["id"]
            assert [m["content"] for m in model.requests[-1].json["messages"]] == [
                w for i in range(3) for w in ("q%d" % i, "%s%d" % (name, i))] + ["q3"]
        except BaseException as e:
            problems.append(e)
    threads = [threading.Thread(target=one, args=("t%d-" % i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems, problems


# ---- a provider of the same dialect, which keeps nothing itself ----

@pytest.mark.parametrize("store", [None, False])
@WAYS
def test_a_chain_on_a_responses_provider(make_server, responses_upstream, way, store):
    server = make_server(config={"providers": [{"name": "fake", "dialect": "openai-responses", "api_key": UPSTREAM_KEY,
                                                "base_url": responses_upstream.base_url()}]}).start()
    client = server.client()
    model = responses_upstream.model(
        upstream_stream(upstream_reasoning("Hm.", encrypted="ENC=="), upstream_shell("echo 42"), usage=(20, 6)),
        upstream_stream(upstream_message("It is 42.")), upstream_stream(upstream_message("Still.")),
        upstream_stream(upstream_message("Still.")))
    first = ask_in(client, way)(model, "go", tools=[SHELL])
    last = raw_list(model.requests[-1], "input")
    second = ask_in(client, way)(model, "sure?", tools=[SHELL], previous_response_id=first["id"], store=store)
    assert raw_list(model.requests[-1], "input").startswith(last + b",")
    sent = model.requests[-1].json
    assert sent["store"] is False and "previous_response_id" not in sent
    assert second["store"] is (store is None)
    # The same without any tool: nothing of it may be relayed as it came.
    ask_in(client, way)(model, "well?", previous_response_id=first["id"], store=store)
    sent = model.requests[-1].json
    assert sent["store"] is False and "previous_response_id" not in sent and "It is 42." in json.dumps(sent)


def test_an_id_with_a_nul_in_it_is_another_id(client, provider):
    first = client.ask(provider.model(text("x")))
    model = provider.model(text("y"))
    answer = client.ask(model, previous_response_id=first["id"] + "\0x", expect=400)
    assert answer.error["param"] == "previous_response_id"
    reference = {"type": "item_reference", "id": first["output"][0]["id"] + "\0x"}
    assert client.ask(model, [reference], expect=400).status == 400
    assert not model.requests


# ---- in the background ----

def begin_background(client, model, **fields):
    answer = client.post("/responses", dict({"model": model.name, "input": "go", "background": True}, **fields))
    assert answer.status == 200, answer
    assert answer.json["background"] is True and answer.json["status"] == "in_progress" and answer.json["store"] is True
    return answer.json


def ended(client, id):
    def look():
        response = saved(client, id)
        return response if response["status"] != "in_progress" else None
    return wait_for(look, every=0.05)


def test_in_the_background(client, provider):
    go = threading.Event()
    model = provider.model(calls(shell("echo hi")), Reply([chunk({"content": "so "}), Wait(go)] + text("late").steps),
                           text("on"))
    first = begin_background(client, model, tools=[SHELL])
    model.wait(2)
    for _ in range(6):  # whichever gateway is asked
        assert saved(client, first["id"]) == first
    refused = client.ask(model, "on", previous_response_id=first["id"], expect=400)
    assert "in progress" in refused.error["message"]
    go.set()
    response = ended(client, first["id"])
    assert response["status"] == "completed" and response["background"] is True
    assert outputs_of(response)[0]["stdout"] == "hi\n" and text_of(response) == "so late"
    client.ask(model, "on", tools=[SHELL], previous_response_id=first["id"])
    assert "so late" in model.requests[-1].body.decode()
    # Too late to be cancelled: the answer is what it became.
    assert client.post("/responses/%s/cancel" % first["id"]).json == response


def test_a_failure_in_the_background(client, provider):
    first = begin_background(client, provider.model(error(400, {"error": {"message": "no, thanks"}})))
    response = ended(client, first["id"])
    assert response["status"] == "failed" and "no, thanks" in response["error"]["message"]


def test_cancelling(client, provider):
    for _ in range(4):  # whichever gateway is asked
        model = provider.model(calls(shell("echo begun; sleep 60")))
        first = begin_background(client, model, tools=[SHELL])
        model.wait()
        answer = client.post("/responses/%s/cancel" % first["id"])
        assert answer.status == 200, answer
        assert answer.json["status"] == "cancelled" and answer.json["error"] is None
        assert saved(client, first["id"]) == answer.json
        assert client.post("/responses/%s/cancel" % first["id"]).json == answer.json


def test_what_cannot_be_cancelled(client, provider):
    assert client.post("/responses/resp_none/cancel").status == 404
    first = client.ask(provider.model(text("one")), "go")
    for _ in range(3):
        answer = client.post("/responses/%s/cancel" % first["id"])
        assert answer.status == 400 and "background" in answer.error["message"]
    model = provider.model(Reply([chunk({"content": "so"}), Hold()]))
    stream = client.begin(model, "go")
    id = re.search(r"resp_[0-9a-z]{24}", stream.until("output_text.delta").decode()).group()
    for _ in range(3):
        answer = client.post("/responses/%s/cancel" % id)
        assert answer.status == 400 and "background" in answer.error["message"]
    stream.close()


def test_removing_a_background_response_ends_it(client, provider):
    """It went on, and neither its client nor anybody else could end it."""
    model = provider.model(Reply([chunk({"content": "a"}), Hold()]))
    first = begin_background(client, model)
    request = model.wait()
    assert client.delete("/responses/" + first["id"]).json["deleted"] is True
    assert request.closed.wait(60), "the upstream still works for it"
    assert client.get("/responses/" + first["id"]).status == 404
    assert client.delete("/responses/" + first["id"]).status == 404


def test_a_background_response_of_another_workspace(server, client, provider):
    model = provider.model(Reply([chunk({"content": "so"}), Hold()]))
    first = begin_background(client, model)
    for key in ("two", "far"):
        for _ in range(3):
            assert server.client(key).get("/responses/" + first["id"]).status == 404
            assert server.client(key).post("/responses/%s/cancel" % first["id"]).status == 404
    assert saved(client, first["id"])["status"] == "in_progress"
    client.post("/responses/%s/cancel" % first["id"])


@pytest.mark.parametrize("more, param", [({"store": False}, "background"), ({"background": "yes"}, "background")])
def test_backgrounds_that_are_refused(client, provider, more, param):
    answer = client.ask(provider.model(), expect=400, **dict({"background": True}, **more))
    assert answer.error["param"] == param


@pytest.mark.parametrize("workers", [1, 3])
def test_a_background_response_dies_with_its_gateway(make_server, provider, workers):
    server = make_server(workers=workers).start()
    model = provider.model(*[Reply([chunk({"content": "so"}), Hold()])] * 4)
    ids = [begin_background(server.client(), model)["id"] for _ in range(4)]
    model.wait(4)
    server.kill()
    wait_for(lambda: not server.own())
    (server.data / "url").unlink(missing_ok=True)
    server.start()
    for id in ids:
        response = ended(server.client(), id)
        assert response["status"] == "failed" and "stopped" in response["error"]["message"]
        assert saved(server.client(), id) == response


def test_a_server_that_stops_ends_what_runs_in_the_background(make_server, provider):
    server = make_server(config={"grace": "1s"}).start()
    first = begin_background(server.client(), provider.model(Reply([chunk({"content": "so"}), Hold()])))
    server.stop()
    server.start()
    response = ended(server.client(), first["id"])
    assert response["status"] == "failed" and "stopped" in response["error"]["message"]


# ---- how much it would be ----

def test_input_tokens(client, v1, provider):
    model = provider.model()
    for c in (client, v1):
        for headers in (None, {"Idempotency-Key": "count %s" % c.base}):
            few, many = [c.post("/responses/input_tokens", {"model": model.name, "input": "word " * n, "tools": [SHELL]},
                                headers=headers and {"Idempotency-Key": headers["Idempotency-Key"] + str(n)})
                         for n in (1, 100000)]
            assert few.status == many.status == 200, few
            assert few.json["object"] == "response.input_tokens" and few.json["estimated"] is True
            assert 0 < few.json["input_tokens"] < 50000 < many.json["input_tokens"]
    assert client.post("/responses/input_tokens", {"input": "x"}).error["param"] == "model"
    assert not model.requests


def counted(client, model, input, expect=200, headers=None, **fields):
    answer = client.post("/responses/input_tokens", dict({"model": model.name, "input": input}, **fields), headers=headers)
    assert answer.status == expect, answer
    return answer.json if expect == 200 else answer.error


@WAYS
def test_input_tokens_of_a_chain(client, provider, way):
    """As many as of all of it sent whole, in whatever gateway."""
    model = provider.model(calls(shell("echo hi")), text("word " * 5000), text("two"))
    ask = ask_in(client, way)
    first = ask(model, "word " * 20000, tools=[SHELL])
    second = ask(model, "more", tools=[SHELL], previous_response_id=first["id"])
    history = [{"role": "user", "content": "word " * 20000}, *first["output"], {"role": "user", "content": "more"},
               *second["output"]]
    whole = counted(client, model, history + [{"role": "user", "content": "on"}], tools=[SHELL])
    assert whole["input_tokens"] > 25000
    for _ in range(3):
        assert counted(client, model, "on", tools=[SHELL], previous_response_id=second["id"]) == whole
    said = first["output"][-1]
    assert counted(client, model, [{"type": "item_reference", "id": said["id"]}]) == counted(client, model, [said])
    assert len(model.requests) == 3


def test_input_tokens_of_chains_that_are_not_there(server, client, provider):
    """The errors are those of the request that is counted."""
    model = provider.model(text("one"), Reply([chunk({"content": "so"}), Hold()]))
    first = client.ask(model, "go")
    running = begin_background(client, model)
    for id, key, headers in [("resp_none", "one", None), (first["id"], "two", None), (first["id"], "far", None),
                             (running["id"], "one", None), (first["id"], "one", {"x-brig-store-content": "false"})]:
        c = server.client(key)
        asked = c.ask(model, "on", previous_response_id=id, expect=400, headers=headers).error
        assert counted(c, model, "on", expect=400, headers=headers, previous_response_id=id) == asked
        assert asked["param"] == "previous_response_id"
    client.post("/responses/%s/cancel" % running["id"])
