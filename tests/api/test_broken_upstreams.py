"""What other gateways got wrong between dialects, one test for each, with what is right.

The number in a test's name is its row in the project's list of such failures; rows that a test elsewhere states are in
ELSEWHERE, by the name of that test.
"""
import contextlib
import json
import re

import pytest

import brigtest
import fake_provider
from dialects import FUNCTION, SERVED, SPOKEN, Say, Talker, event, sse
from fake_provider import Reply, chunk, ending
from test_matrix import SIGNATURE, server  # noqa: F401 (fixtures)

ELSEWHERE = {
    "row 30": "test_matrix thinking: Gemini's signature through every client",
    "row 32": "test_matrix thinking: encrypted_content comes back",
    "row 46": "test_cancel (Responses); here for the other dialects",
    "row 52": "test_upstream: an upstream that falls silent",
    "row 53": "test_routing: Retry-After",
    "row 59": "test_http: keep-alive comments; test_messages: ping events",
    "row 61": "tests/unit/tool: the collector; test_shell: cut output",
    "row 67": "test_error_shapes: 413 in each shape; test_bad_input: chunked bodies",
    "row 71": "test_bad_input, test_loop: max_tool_calls",
    "row 72": "tests/cases/turn/cap*.txt",
    "row 74": "test_matrix shell: on every provider",
    "row 75": "no request of another dialect can ask Anthropic for its own code execution: it is a 400",
}

CALL = ("weather", {"city": "Rome"})


@pytest.fixture
def say(upstream):
    """A model of one dialect that answers with these replies; how it is called is in .asked."""
    def make(served, *replies):
        model = upstream.model(*[SERVED[served].reply(r) if isinstance(r, Say) else r for r in replies])
        model.asked = "up-%s/%s" % (served, model.upstream_name)
        return model
    return make


@pytest.fixture
def ask(server):
    """Asks in a dialect; extra fields go into the body as they are."""
    def run(spoken, model, stream=False, history=None, raw=False, tools=(), shell=False, **fields):
        talker = Talker(server.client(), spoken, stream)
        body = talker.spoken.body(model.asked, history or talker.spoken.start("What now?"), functions=tools,
                                  shell=shell, stream=stream)
        body.update(fields)
        response = server.client().request("POST", talker.spoken.path(model.asked, stream), body,
                                           headers=talker.spoken.headers())
        if raw:
            return response
        if stream and response.status == 200:
            return talker.spoken.read_stream(response.body)
        return talker.spoken.read(response)
    return run


def piece(index, **fields):
    """One piece of a call in a chat stream."""
    call = {"index": index}
    if "id" in fields:
        call.update(id=fields["id"], type="function")
    function = {k: fields[k] for k in ("name", "arguments") if k in fields}
    return chunk({"tool_calls": [dict(call, function=function)]})


def start(spoken, text="What now?"):
    return SPOKEN[spoken].start(text)


def blocks(body):
    """The blocks of a Messages stream; each is opened once, in order, and closed before the next."""
    out, state = [], "closed"
    for name, payload in sse(body, True):
        value = json.loads(payload)
        if name == "content_block_start":
            assert state == "closed" and value["index"] == len(out), value
            out.append(dict(value["content_block"], deltas=[]))
            state = "open"
        elif name == "content_block_delta":
            assert state == "open" and value["index"] == len(out) - 1, value
            out[-1]["deltas"].append(value["delta"])
        elif name == "content_block_stop":
            assert state == "open" and value["index"] == len(out) - 1, value
            state = "closed"
        elif name in ("message_delta", "message_stop"):
            assert state == "closed"
    return out


# ---- translating streams ----

def test_row_1_arguments_of_later_pieces(say, ask):
    whole = '{"city": "Rome, Italy"}'
    model = say("chat", Reply([piece(0, id="call_1", name="weather", arguments="")] +
                              [piece(0, arguments=whole[i:i + 8]) for i in range(0, len(whole), 8)] +
                              ending("tool_calls")))
    response = ask("responses", model, stream=True, raw=True, tools=["weather"])
    deltas = "".join(json.loads(p)["delta"] for n, p in sse(response.body, True)
                     if n == "response.function_call_arguments.delta")
    done = [json.loads(p) for n, p in sse(response.body, True) if n == "response.function_call_arguments.done"]
    assert deltas == whole and [d["arguments"] for d in done] == [whole]


def test_row_3_name_from_the_item(say, ask):
    model = say("responses", Say(calls=[CALL]))
    response = ask("chat", model, stream=True, raw=True, tools=["weather"])
    deltas = [c["delta"] for _, p in sse(response.body, False) if p != "[DONE]"
              for c in json.loads(p)["choices"]]
    first = next(d["tool_calls"][0] for d in deltas if d.get("tool_calls"))
    assert first["id"] and first["function"]["name"] == "weather"
    assert all(d or c for d, c in [(d, True) for d in deltas])
    assert [d for d in deltas[1:-1] if not d] == []  # no chunk says nothing


@pytest.mark.parametrize("served", list(SERVED))
def test_row_4_whole_lifecycle(say, ask, served):
    model = say(served, Say("Hello.", thinking="Hm.", signature=SIGNATURE, calls=[CALL]))
    response = ask("responses", model, stream=True, raw=True, tools=["weather"], shell=True)
    brigtest.Story(response.body)  # which checks every event


def test_row_6_reasoning_opens_its_own_block(say, ask):
    model = say("chat", Reply([chunk({"role": "assistant", "reasoning_content": "Hm."}), chunk({"content": "Yes."})] +
                              ending("stop")))
    found = blocks(ask("messages", model, stream=True, raw=True).body)
    assert [b["type"] for b in found] == ["thinking", "text"]


def test_row_7_one_message_start(say, ask):
    model = say("messages", Say("Hello."))
    names = [n for n, _ in sse(ask("messages", model, stream=True, raw=True).body, True)]
    assert names.count("message_start") == 1 and names.count("message_stop") == 1


INTERLEAVED = [chunk({"role": "assistant", "content": ""}), piece(0, id="a", name="weather", arguments='{"city"'),
               piece(1, id="b", name="news", arguments='{"ci'), chunk({"content": ""}), piece(0, arguments=':"Rome"}'),
               piece(1, arguments='ty":"Oslo"}')]


@pytest.mark.parametrize("spoken", ["messages", "responses", "gemini"])
def test_rows_8_17_interleaved_calls(say, ask, spoken):
    model = say("chat", Reply(INTERLEAVED + ending("tool_calls")))
    response = ask(spoken, model, stream=True, raw=True, tools=["weather", "news"])
    if spoken == "messages":
        assert [b["type"] for b in blocks(response.body)] == ["tool_use", "tool_use"]
    answer = SPOKEN[spoken].read_stream(response.body)
    assert [c[1:] for c in answer.calls] == [("weather", {"city": "Rome"}), ("news", {"city": "Oslo"})]


def test_row_9_text_after_a_call(say, ask):
    model = say("chat", Reply([piece(0, id="a", name="weather", arguments='{"city":"Rome"}'),
                               chunk({"content": "Looking."})] + ending("tool_calls")))
    assert [b["type"] for b in blocks(ask("messages", model, stream=True, raw=True, tools=["weather"]).body)] == \
        ["tool_use", "text"]


def test_row_11_text_after_thinking(say, ask):
    model = say("responses", Say("Yes.", thinking="Hm.", signature=SIGNATURE))
    found = blocks(ask("messages", model, stream=True, raw=True).body)
    assert [b["type"] for b in found] == ["thinking", "text"]


def test_row_14_first_chunk_has_the_role(say, ask):
    model = say("responses", Say("Yes.", thinking="Hm.", signature=SIGNATURE))
    response = ask("chat", model, stream=True, raw=True)
    first = json.loads(sse(response.body, False)[0][1])
    assert first["choices"][0]["delta"]["role"] == "assistant"
    assert SPOKEN["chat"].read_stream(response.body).thinking == "Hm."


def test_row_16_compressed_though_not_asked(say, ask):
    model = say("chat", lambda request: fake_provider.gzipped(fake_provider.text("Hello.")))
    assert ask("messages", model, stream=True).text == "Hello."
    assert "gzip" not in model.requests[0].headers.get("accept-encoding", "")


# ---- parallel calls and ids ----

@pytest.mark.parametrize("ids", [("a", "b"), (None, None)], ids=["ids", "no-ids"])
def test_row_19_every_call_has_index_0(say, ask, ids):
    steps = []
    for id, (name, city) in zip(ids, (("weather", "Rome"), ("news", "Oslo"))):
        more = {"id": id} if id else {}
        steps.append(piece(0, name=name, arguments='{"city":"%s"}' % city, **more))
    model = say("chat", Reply(steps + ending("tool_calls")))
    answer = ask("responses", model, stream=True, tools=["weather", "news"])
    assert [c[1:] for c in answer.calls] == [("weather", {"city": "Rome"}), ("news", {"city": "Oslo"})]
    assert answer.calls[0][0] != answer.calls[1][0]


def test_row_22_item_id_and_call_id_stay_apart(say, ask):
    model = say("responses", Say(calls=[CALL]), Say("Sunny."))
    first = ask("messages", model, tools=["weather"])
    ask("messages", model, tools=["weather"],
        history=start("messages") + SPOKEN["messages"].results(first, {"weather": "sunny"}))
    items = [i for i in model.requests[1].json["input"] if i.get("type", "message") != "message"]
    assert [i["call_id"] for i in items] == ["call_1", "call_1"]


def test_row_23_results_in_one_content(say, ask):
    calls = [("weather", {"city": c}) for c in ("Rome", "Oslo", "Bonn")]
    model = say("gemini", Say(calls=calls), Say("Done."))
    first = ask("chat", model, tools=["weather"])
    ask("chat", model, tools=["weather"], messages=start("chat") + SPOKEN["chat"].results(first, {"weather": "sunny"}))
    contents = model.requests[1].json["contents"]
    assert [c["role"] for c in contents] == ["user", "model", "user"]
    assert len(contents[1]["parts"]) == 3 and len(contents[2]["parts"]) == 3
    assert all("functionResponse" in p for p in contents[2]["parts"])


def test_row_25_no_tool_may_be_called(say, ask):
    model = say("messages", Say("No."))
    ask("responses", model, tools=["weather"], tool_choice="none")
    assert model.requests[0].json["tool_choice"] == {"type": "none"}
    model = say("gemini", Say("No."))
    ask("responses", model, tools=["weather"], tool_choice="none")
    assert model.requests[0].json["toolConfig"]["functionCallingConfig"]["mode"] == "NONE"


# ---- reasoning and signatures ----

def message_of(content, stop):
    return {"id": "msg_up", "type": "message", "role": "assistant", "model": "up", "content": content,
            "stop_reason": stop, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 5}}


def messages_stream(content, stop):
    """A Messages stream of these blocks."""
    steps = [event("message_start", {"message": dict(message_of([], None))})]
    for i, b in enumerate(content):
        empty, deltas = dict(b), []
        if b["type"] == "thinking":
            empty.update(thinking="", signature="")
            deltas = [{"type": "thinking_delta", "thinking": b["thinking"]},
                      {"type": "signature_delta", "signature": b["signature"]}]
        elif b["type"] == "text":
            empty.update(text="")
            deltas = [{"type": "text_delta", "text": b["text"]}]
        elif b["type"] == "tool_use":
            empty.update(input={})
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(b["input"])}]
        steps.append(event("content_block_start", {"index": i, "content_block": empty}))
        steps += [event("content_block_delta", {"index": i, "delta": d}) for d in deltas]
        steps.append(event("content_block_stop", {"index": i}))
    steps.append(event("message_delta", {"delta": {"stop_reason": stop, "stop_sequence": None},
                                         "usage": {"output_tokens": 5}}))
    return Reply(steps + [event("message_stop", {})])


@pytest.mark.parametrize("spoken", ["messages", "responses"])
def test_row_27_thinking_goes_back_untouched(say, ask, spoken):
    thought = [{"type": "thinking", "thinking": "Let me see …", "signature": SIGNATURE},
               {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="}]
    call = {"type": "tool_use", "id": "toolu_1", "name": "shell", "input": {"commands": ["echo hi"]}}
    model = say("messages", messages_stream(thought + [call], "tool_use"), Say("Done."))
    answer = ask(spoken, model, stream=True, shell=True)
    assert answer.text == "Done.", answer.error
    reply = model.requests[1].json["messages"][1]
    assert reply["role"] == "assistant" and reply["content"][:2] == thought


def test_row_28_interleaved_thinking_stays_interleaved(say, ask):
    content = []
    for i in range(12):
        content.append({"type": "thinking", "thinking": "Step %d." % i, "signature": SIGNATURE})
        content.append({"type": "tool_use", "id": "toolu_%d" % i, "name": "weather", "input": {"city": str(i)}})
    for shell in (False, True):
        model = say("messages", messages_stream(content, "tool_use"), Say("Done."))
        first = ask("messages", model, stream=True, tools=["weather"], shell=shell)
        assert len(first.calls) == 12
        second = ask("messages", model, stream=True, tools=["weather"], shell=shell,
                     history=start("messages") + SPOKEN["messages"].results(first, {"weather": "ok"}))
        assert second.text == "Done.", second.error
        assert model.requests[1].json["messages"][1]["content"] == content


def test_row_31_foreign_reasoning_leaves_no_empty_message(say, ask):
    model = say("chat", Say("Hello."))
    history = [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA-foreign"}] + \
        start("responses")
    assert ask("responses", model, history=history).text == "Hello."
    assert [m["role"] for m in model.requests[0].json["messages"]] == ["system", "user"]
    assert "gAAAA" not in model.requests[0].body.decode()


def test_row_34_state_pins_its_provider(say, ask):
    model = say("responses", Say(thinking="Hm.", signature=SIGNATURE, calls=[CALL]),
                fake_provider.error(503, {"error": {"message": "down"}}), fake_provider.REPEAT)
    other = say("messages", Say("From the other."))
    first = ask("responses", model, tools=["weather"], models=[other.asked])
    assert [c[1:] for c in first.calls] == [CALL]
    history = start("responses") + SPOKEN["responses"].results(first, {"weather": "sunny"})
    # It is asked first although it stands second now; when it is down, the other gets none of its state.
    second = ask("responses", other, tools=["weather"], history=history, models=[model.asked])
    assert second.text == "From the other.", second.error
    assert len(model.requests) > 1
    assert SIGNATURE not in other.requests[0].body.decode()
    assert not [s for s in SERVED["messages"].seen(other.requests[0]) if s[0] == "thinking"]


# ---- state ----

def test_rows_35_36_chains_that_are_not_kept(say, ask):
    model = say("chat", Say("One."), Say("Two."))
    first = ask("responses", model, raw=True, store=False).json
    for id in (first["id"], "resp_unknown"):
        refused = ask("responses", model, raw=True, previous_response_id=id)
        assert refused.status in (400, 404)
        assert refused.error["param"] == "previous_response_id"
        assert refused.error["code"] == "previous_response_not_found"
    assert len(model.requests) == 1


def test_row_38_container_ids_are_short(say, ask):
    model = say("chat", Say(calls=[("shell", {"commands": ["true"]})]), Say("Done."))
    items = ask("responses", model, raw=True, shell=True).json["output"]
    id = next(i["container_id"] for i in items if i["type"] == "openrouter:shell")
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", id)


@pytest.mark.parametrize("served", list(SERVED))
def test_row_39_a_call_without_its_result(say, ask, served):
    """Of ours, from a turn that was cut off; a client's own call without one is a 400, as at OpenAI."""
    model = say(served, Say("Go on."))
    history = start("responses") + [
        {"type": "openrouter:shell", "id": "st_tmp_s0_a", "call_id": "s0_call_1", "status": "incomplete",
         "arguments": '{"commands":["sleep 9"]}', "output": [], "container_id": "gen_0123456789ab",
         "action": {"commands": ["sleep 9"], "timeout_ms": None, "max_output_length": None}}] + \
        start("responses", "Never mind.")
    answer = ask("responses", model, history=history, shell=True)
    assert answer.text == "Go on.", answer.error
    kinds = [s[0] for s in SERVED[served].seen(model.requests[0])]
    assert kinds == ["system", "user", "call", "result", "user"]


# ---- usage ----

@pytest.mark.parametrize("repeats", [False, True], ids=["once", "repeated"])
def test_row_40_usage_is_cumulative(say, ask, repeats):
    steps = [event("message_start", {"message": dict(message_of([], None), usage={"input_tokens": 25,
                                                                                  "output_tokens": 1})}),
             event("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
             event("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "Hi"}}),
             event("content_block_stop", {"index": 0}),
             event("message_delta", {"delta": {"stop_reason": "end_turn", "stop_sequence": None},
                                     "usage": dict({"output_tokens": 15}, **({"input_tokens": 25} if repeats else {}))}),
             event("message_stop", {})]
    for spoken in ("responses", "messages"):
        assert ask(spoken, say("messages", Reply(steps)), stream=True).usage == (25, 15)


def test_row_42_cached_tokens_count_once(say, ask):
    def cached():
        return fake_provider.text("Hi", usage=(869, 5, 11, 0))

    usage = ask("responses", say("chat", cached()), raw=True).json["usage"]
    assert (usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]) == (869, 11)
    usage = ask("messages", say("chat", cached()), raw=True).json["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (858, 11)
    usage = ask("gemini", say("chat", cached()), raw=True).json["usageMetadata"]
    assert (usage["promptTokenCount"], usage["cachedContentTokenCount"]) == (869, 11)


def test_row_43_usage_of_the_whole_loop(say, ask):
    def run(n):
        return Say(calls=[("shell", {"commands": ["true"]})], usage=(10 * n, n))

    model = say("chat", run(1), run(2), Say("Done.", usage=(30, 3)))
    assert ask("responses", model, shell=True).usage == (60, 6)
    model = say("chat", run(1), run(2), fake_provider.error(400, {"error": {"message": "no more"}}))
    failed = ask("responses", model, stream=True, shell=True)
    assert failed.finish == "failed" and failed.usage == (30, 3)


@pytest.mark.parametrize("served", ["chat", "responses"])
def test_row_45_usage_chunk_only_on_request(say, ask, served):
    for wanted in (False, True):
        model = say(served, Reply([chunk({"role": "assistant", "content": "Hi"}), chunk(finish="stop"),
                                   fake_provider.DONE]) if served == "chat" and not wanted else Say("Hi"))
        fields = {"stream_options": {"include_usage": True}} if wanted else {"stream_options": None}
        response = ask("chat", model, stream=True, raw=True, **fields)
        chunks = [json.loads(p) for _, p in sse(response.body, False) if p != "[DONE]"]
        assert any(not c["choices"] for c in chunks) == wanted


# ---- broken streams ----

@pytest.mark.parametrize("served", ["chat", "messages"])
@pytest.mark.parametrize("spoken", ["messages", "chat", "gemini"])
def test_row_46_a_client_that_goes(server, say, spoken, served):
    if served == "chat":
        reply = Reply([chunk({"role": "assistant", "content": "Hello"}), fake_provider.Hold()])
    else:
        reply = Reply([event("message_start", {"message": message_of([], None)}),
                       event("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
                       event("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "Hello"}}),
                       fake_provider.Hold()])
    model = say(served, reply)
    client, dialect = server.client(base=""), SPOKEN[spoken]
    body = dialect.body(model.asked, start(spoken), stream=True)
    with contextlib.closing(client.open_stream(dialect.path(model.asked, True), body, dialect.headers())) as stream:
        stream.until(b"Hello")
    assert model.wait().closed.wait(60), "the upstream was not closed"


@pytest.mark.parametrize("served", ["chat", "messages"])
def test_rows_47_48_50_a_cut_stream_is_an_error(say, ask, served):
    names = [n for n, _ in sse(ask("messages", say(served, Say("Half of it", cut=True)), stream=True, raw=True).body,
                               True)]
    assert names[-1] == "error" and "message_stop" not in names
    events = sse(ask("responses", say(served, Say("Half of it", cut=True)), stream=True, raw=True).body, True)
    assert [n for n, p in events if p != "[DONE]"][-1] == "response.failed"
    last = sse(ask("chat", say(served, Say("Half of it", cut=True)), stream=True, raw=True).body, False)
    assert any("error" in json.loads(p) for _, p in last if p != "[DONE]")


def test_row_51_one_bad_line_is_skipped(say, ask):
    model = say("chat", Reply([chunk({"role": "assistant", "content": "One "}), b"data: {\"choices\": [\n\n",
                               chunk({"content": "two"})] + ending("stop")))
    assert ask("messages", model, stream=True).text == "One two"


# ---- bytes of streams ----

@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize("served", list(SERVED))
def test_rows_55_56_any_cut_and_any_line_end(say, ask, served, end):
    made = SERVED[served].reply(Say("Grüße 😀.", calls=[CALL]))

    def reply(request):
        r = made(request)
        r.steps = [s.replace(b"\r\n", b"\n").replace(b"\n", end) for s in r.steps]
        return r.bytewise()

    for spoken in ("responses", "messages"):
        if spoken == served:
            continue  # relayed as it is; tests of relays judge that
        answer = ask(spoken, say(served, reply), stream=True, tools=["weather"])
        assert answer.text == "Grüße 😀." and [c[1:] for c in answer.calls] == [CALL], answer.error


def test_row_57_comments_of_the_upstream(say, ask):
    model = say("chat", Reply([b": OPENROUTER PROCESSING\n\n", chunk({"role": "assistant", "content": "Hi"}),
                               b": OPENROUTER PROCESSING\n\n"] + ending("stop")))
    body = ask("responses", model, stream=True, raw=True).body
    assert b"OPENROUTER" not in body and SPOKEN["responses"].read_stream(body).text == "Hi"


# ---- JSON ----

@pytest.mark.parametrize("served", list(SERVED))
def test_row_62_half_of_a_surrogate_pair(server, say, served):
    model = say(served, Say("Hi"))
    spoken = "responses" if served != "responses" else "messages"
    dialect = SPOKEN[spoken]
    body = json.dumps(dialect.body(model.asked, start(spoken, "SURROGATE x"))).replace("SURROGATE", "\\ud83d")
    response = server.client().request("POST", dialect.path(model.asked, False), body.encode(),
                                       headers=dialect.headers())
    assert response.status == 200, response
    assert "\ud83d".encode("utf-8", "surrogatepass") not in model.requests[0].body
    assert not re.search(rb"\\ud83d(?!\\ud)", model.requests[0].body)
    assert ("user", "\ufffd x") in SERVED[served].seen(model.requests[0])


@pytest.mark.parametrize("served", list(SERVED))
@pytest.mark.parametrize("spoken", list(SPOKEN))
def test_row_63_order_of_keys(server, say, spoken, served):
    schema = {"type": "object", "properties": {k: {"type": "string"} for k in ("zebra", "apple", "mango")}}
    model = say(served, Say("Hi"), Say("Hi"))
    dialect = SPOKEN[spoken]
    body = dialect.body(model.asked, start(spoken), functions=["weather"])
    text = json.dumps(body).replace(json.dumps(FUNCTION), json.dumps(schema))
    for _ in range(2):
        assert server.client().request("POST", dialect.path(model.asked, False), text.encode(),
                                       headers=dialect.headers()).status == 200
    sent = model.requests[0].body
    assert sent == model.requests[1].body
    assert sent.index(b'"zebra"') < sent.index(b'"apple"') < sent.index(b'"mango"')


@pytest.mark.parametrize("spoken", ["chat", "responses"])
def test_row_64_numbers_keep_their_text(server, say, spoken):
    model = say("chat", Say("Hi"))
    dialect = SPOKEN[spoken]
    body = json.dumps(dialect.body(model.asked, start(spoken)))[:-1] + ', "temperature": 1.0'
    body += ', "seed": 12345678901234567890}' if spoken == "chat" else "}"
    response = server.client().request("POST", dialect.path(model.asked, False), body.encode())
    assert response.status == 200, response
    sent = re.sub(rb"\s", b"", model.requests[0].body)
    assert b'"temperature":1.0' in sent
    assert spoken == "responses" or b'"seed":12345678901234567890' in sent


def test_row_66_empty_texts_are_left_out(say, ask):
    history = [{"role": "user", "content": "What now?"},
               {"role": "assistant", "content": "", "tool_calls": [
                   {"id": "call_1", "type": "function",
                    "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}]},
               {"role": "tool", "tool_call_id": "call_1", "content": ""}]
    model = say("messages", Say("Hi"))
    assert ask("chat", model, messages=history, tools=["weather"]).text == "Hi"
    for m in model.requests[0].json["messages"]:
        assert m["content"], m
        for b in m["content"] if isinstance(m["content"], list) else ():
            assert b["type"] != "text" or b["text"], m


# ---- loops ----

@pytest.mark.parametrize("served", list(SERVED))
def test_row_69_a_clients_call_beside_ours(say, ask, served):
    model = say(served, Say(calls=[("shell", {"commands": ["echo ours"]}), CALL]), Say("Both are done."))
    first = ask("responses", model, tools=["weather"], shell=True)
    assert len(first.shell) == 1 and [c[1:] for c in first.calls] == [CALL]
    assert len(model.requests) == 1
    second = ask("responses", model, tools=["weather"], shell=True,
                 history=start("responses") + SPOKEN["responses"].results(first, {"weather": "sunny"}))
    assert second.text == "Both are done.", second.error
    seen = [s for s in SERVED[served].seen(model.requests[1]) if s[0] in ("call", "result")]
    assert [s[0] for s in seen] == ["call", "call", "result", "result"]
    assert "ours" in seen[2][1] and seen[3][1] == "sunny"


@pytest.mark.parametrize("served", list(SERVED))
def test_row_70_a_forced_call_is_forced_once(say, ask, served):
    model = say(served, Say(calls=[("shell", {"commands": ["true"]})]), Say("Done."))
    assert ask("responses", model, shell=True, tool_choice="required").text == "Done."

    def choice(request):
        body = request.json
        if served == "gemini":
            return body["toolConfig"]["functionCallingConfig"]["mode"].lower() if "toolConfig" in body else "auto"
        chosen = body.get("tool_choice", "auto")
        return chosen["type"] if isinstance(chosen, dict) else chosen

    assert choice(model.requests[0]) in ("required", "any")
    assert choice(model.requests[1]) == "auto"


def test_row_77_each_call_may_fall_back(say, ask):
    run = Say(calls=[("shell", {"commands": ["true"]})])
    model = say("chat", run, run, fake_provider.error(503, {"error": {"message": "busy"}}), fake_provider.REPEAT)
    other = say("messages", Say("Done."))
    answer = ask("responses", model, shell=True, models=[other.asked])
    assert answer.text == "Done.", answer.error
    assert len(answer.shell) == 2
