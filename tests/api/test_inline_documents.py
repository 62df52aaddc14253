"""
Documents that a message names by their ids: every provider is asked as if their content had been sent inline, and what
is kept has the ids.
"""
import base64
import contextlib
import threading

import pytest

import brigtest
import fake_provider
from dialects import PNG, SERVED, Say
from test_documents import MISSING, upload
from test_websocket import Socket

PDF = b"%PDF-1.7\nnot much of one\n"
NOTES = "# Notes\n\u00e4 \"quoted\" \\ line\n".encode()
IMAGE = base64.b64decode(PNG)
GUARDRAILS = [{"name": "strict", "workspace": "two", "content_filters": [
    {"pattern": "SECRET[0-9]", "label": "secret", "action": "redact", "placeholder": "[GONE]"},
    {"pattern": "POISON", "label": "poison", "action": "block"}]}]
SPEAK = {"responses": "/responses", "chat": "/chat/completions", "messages": "/messages"}
HEADERS = {"messages": {"anthropic-version": "2023-06-01"}}
# Where the error of a file in the first message is.
PLACE = {"responses": "input[0].content[0].file_id", "chat": "messages[0].content[0].file.file_id",
         "messages": "messages.0.content.0.source.file_id"}


@pytest.fixture(scope="module", params=[1, 3], ids=["workers1", "workers3"])
def server(request, upstream):
    server = brigtest.Server(None, workers=request.param, config={
        "sandbox": False, "providers": upstream.config(), "guardrails": GUARDRAILS, "limits": {"body": "256k", "file": "4m"}})
    try:
        yield server.start()
        server.stop()
    finally:
        if server.process is not None:
            server.kill()
        server.remove()


@pytest.fixture
def client(server):
    return server.client("one", "/v1")


def data_url(mime, data):
    return "data:%s;base64,%s" % (mime, base64.b64encode(data).decode())


def named(spoken, id, image=False):
    if spoken == "responses":
        return {"type": "input_image" if image else "input_file", "file_id": id}
    if spoken == "chat":
        return {"type": "file", "file": {"file_id": id}}
    return {"type": "image" if image else "document", "source": {"type": "file", "file_id": id}}


def inline(spoken, mime, data, filename):
    """The same by its content, as a client would write it."""
    image = mime.startswith("image/")
    if spoken == "responses":
        return {"type": "input_image", "image_url": data_url(mime, data)} if image else \
            {"type": "input_file", "file_data": data_url(mime, data), "filename": filename}
    if spoken == "chat":
        return {"type": "file", "file": {"file_data": data_url(mime, data), "filename": filename}}
    if mime.startswith("text/"):
        return {"type": "document", "title": filename,
                "source": {"type": "text", "media_type": "text/plain", "data": data.decode()}}
    source = {"type": "base64", "media_type": mime, "data": base64.b64encode(data).decode()}
    return {"type": "image", "source": source} if image else {"type": "document", "title": filename, "source": source}


def message(spoken, *parts):
    text = {"type": "input_text" if spoken == "responses" else "text", "text": "What is it?"}
    return {"role": "user", "content": [*parts, text]}


def ask(client, spoken, model, messages, path="", headers=None, **more):
    body = dict({"model": model.asked, "input" if spoken == "responses" else "messages": messages}, **more)
    if spoken == "messages" and not path:
        body["max_tokens"] = 100
    return client.post(SPEAK[spoken] + path, body, headers=dict(HEADERS.get(spoken, {}), **(headers or {})))


def good(answer):
    assert answer.status == 200, answer
    return answer.json


def refused(answer, spoken, place, status=400):
    """An error in the client's own dialect that says where in the request it is."""
    assert answer.status == status, answer
    error = answer.json["error"]
    assert error["message"].startswith(place + ": "), error
    if spoken == "messages":
        assert answer.json["type"] == "error"
    else:
        assert error["param"] == place
    return error["message"]


def parts(spoken, request):
    """What a provider of this dialect was asked in the first message."""
    return request.json["input" if spoken == "responses" else "messages"][0]["content"]


FILES = {"pdf": ("application/pdf", PDF, "report.pdf"), "text": ("text/plain", NOTES, "notes.txt"),
         "image": ("image/png", IMAGE, "dot.png")}


@pytest.mark.parametrize("kind", list(FILES))
@pytest.mark.parametrize("served", list(SERVED))
@pytest.mark.parametrize("spoken", list(SPEAK))
def test_as_if_sent_inline(client, upstream, spoken, served, kind):
    mime, data, filename = FILES[kind]
    id = upload(client, data, "a folder/" + filename)["id"]
    model = upstream.says(served, Say("ok"), Say("ok"))
    want = ask(client, spoken, model, [message(spoken, inline(spoken, mime, data, filename))])
    got = ask(client, spoken, model, [message(spoken, named(spoken, id, kind == "image"))])
    if (spoken, served, kind) == ("chat", "messages", "image"):  # a picture that is sent as a file, which it cannot read
        assert (got.status, got.json["error"]) == (400, want.json["error"]) and not model.requests
        return
    good(want), good(got)
    first, second = model.requests
    assert first.json == second.json
    assert b"or_file_" not in second.body


@pytest.mark.parametrize("spoken", list(SPEAK))
def test_each_as_often_as_it_is_named(client, upstream, spoken):
    pdf, text = upload(client, PDF, "one.pdf")["id"], upload(client, NOTES, "two.txt")["id"]
    model = upstream.says(spoken, Say("ok"))
    good(ask(client, spoken, model, [message(spoken, *[named(spoken, id) for id in (pdf, text, pdf)])]))
    one, two = inline(spoken, "application/pdf", PDF, "one.pdf"), inline(spoken, "text/plain", NOTES, "two.txt")
    assert parts(spoken, model.requests[0])[:3] == [one, two, one]


def test_what_stands_beside_the_id_stays(client, upstream):
    pdf, image = upload(client, PDF, "one.pdf")["id"], upload(client, IMAGE, "dot.png")["id"]
    model = upstream.says("responses", Say("ok"))
    good(ask(client, "responses", model, [message(
        "responses", {"file_id": pdf, "filename": "mine.pdf", "type": "input_file", "file_data": None, "new": 1},
        {"type": "input_image", "image_url": None, "detail": "low", "file_id": image})], store=False))
    assert parts("responses", model.requests[0])[:2] == [
        {"type": "input_file", "file_data": data_url("application/pdf", PDF), "filename": "mine.pdf", "new": 1},
        {"type": "input_image", "image_url": data_url("image/png", IMAGE), "detail": "low"}]
    model = upstream.says("messages", Say("ok"))
    more = {"title": "Mine", "context": "c", "citations": {"enabled": True}, "cache_control": {"type": "ephemeral"}}
    good(ask(client, "messages", model, [message("messages", dict(named("messages", pdf), **more))]))
    assert parts("messages", model.requests[0])[0] == dict(inline("messages", "application/pdf", PDF, "x"), **more)


def test_all_other_bytes_stay(client, upstream):
    """A request that is passed on as it is differs in the objects that name a file only."""
    id = upload(client, PDF, "one.pdf")["id"]
    model = upstream.says("chat", Say("ok"))
    body = ('{ "model":"%s" , "seed":12345678901234567890, "messages":[{"content": [ {"type":"file","file":@ }, '
            '{"text":"\\u0041 or_file_x", "type":"text"}],"role":"user"}], "x":[1.0, {"file_id":"%s"}] }' % (model.asked, id))
    good(client.post("/chat/completions", body.replace("@", '{ "file_id" : "%s" , "y" : 1.50 }' % id).encode()))
    assert model.requests[0].body.decode() == body.replace(model.asked, model.upstream_name).replace(
        "@", '{"y":1.50,"file_data":"%s","filename":"one.pdf"}' % data_url("application/pdf", PDF))


def test_in_results_of_tools(client, upstream):
    pdf, image = upload(client, PDF, "one.pdf")["id"], upload(client, IMAGE, "dot.png")["id"]
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    model = upstream.says("responses", Say("ok"))
    output = {"type": "function_call_output", "call_id": "c1", "output": [
        named("responses", pdf), named("responses", image, True)]}
    good(ask(client, "responses", model, [message("responses"), call, output], store=False))
    assert model.requests[0].json["input"][2]["output"] == [
        inline("responses", "application/pdf", PDF, "one.pdf"), inline("responses", "image/png", IMAGE, "")]
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [
        named("messages", pdf), named("messages", image, True)]}
    model = upstream.says("messages", Say("ok"))
    talk = [message("messages"), {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]}]
    good(ask(client, "messages", model, [*talk, {"role": "user", "content": [result]}]))
    assert model.requests[0].json["messages"][2]["content"][0]["content"] == [
        inline("messages", "application/pdf", PDF, "one.pdf"), inline("messages", "image/png", IMAGE, "")]
    result["content"][1]["source"]["file_id"] = MISSING
    refused(ask(client, "messages", model, [*talk, {"role": "user", "content": [result]}]), "messages",
            "messages.2.content.0.content.1.source.file_id")


@pytest.mark.parametrize("within", ["message", "result"])
def test_in_a_document_of_blocks(client, upstream, within):
    image = upload(client, IMAGE, "dot.png")["id"]

    def talk(*blocks):
        document = {"source": {"type": "content", "content": [{"type": "text", "text": "See:"}, *blocks]}, "type": "document"}
        if within == "message":
            return [message("messages", document)]
        result = {"type": "tool_result", "tool_use_id": "c1", "content": [document]}
        return [message("messages"), {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
                {"role": "user", "content": [result]}]
    model = upstream.says("messages", Say("ok"), Say("ok"))
    good(ask(client, "messages", model, talk(named("messages", image, True))))
    good(ask(client, "messages", model, talk(inline("messages", "image/png", IMAGE, ""))))
    first, second = model.requests
    assert first.json == second.json and b"or_file_" not in first.body
    place = {"message": "messages.0.content.0.source.content.1.source.file_id",
             "result": "messages.2.content.0.content.0.source.content.1.source.file_id"}[within]
    refused(ask(client, "messages", model, talk(named("messages", MISSING, True))), "messages", place)


def test_in_any_order_of_members(client, upstream):
    id = upload(client, PDF, "one.pdf")["id"]
    model = upstream.says("responses", Say("ok"))
    file, want = named("responses", id), inline("responses", "application/pdf", PDF, "one.pdf")
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    odd = {"output": [file], "type": "function_call_output", "content": [file], "call_id": "c1"}
    good(ask(client, "responses", model, [message("responses"), call, odd, message("responses", file)], store=False))
    assert model.requests[0].json["input"][2:] == [dict(odd, output=[want], content=[want]), message("responses", want)]


# ---- what is refused ----

@pytest.mark.parametrize("spoken", list(SPEAK))
@pytest.mark.parametrize("bad", ["missing", "deleted", "another workspace's", "another account's", "too long", "with a NUL"])
def test_no_such_file(server, client, upstream, spoken, bad):
    other = server.client("far" if "account" in bad else "two" if "another" in bad else "one", "/v1")
    id = upload(other, PDF, "one.pdf")["id"]
    if bad == "deleted":
        assert client.delete("/files/" + id).status == 200
    id = {"missing": MISSING, "too long": "or_file_" + "x" * 3000, "with a NUL": id + "\0"}.get(bad, id)
    model = upstream.says(spoken, Say("never said"))
    told = refused(ask(client, spoken, model, [message(spoken, named(spoken, id))]), spoken, PLACE[spoken])
    assert id[:30] in told and not model.requests


@pytest.mark.parametrize("spoken", list(SPEAK))
@pytest.mark.parametrize("served", list(SERVED))
def test_files_of_others(client, upstream, spoken, served):
    """An id that is not ours goes to a provider of the client's own dialect, but on the Responses API, and to no other."""
    model = upstream.says(served, Say("ok"))
    answer = ask(client, spoken, model, [message(spoken, named(spoken, "file-abc"))])
    if spoken == served and spoken != "responses":
        good(answer)
        assert parts(spoken, model.requests[0])[0] == named(spoken, "file-abc")
    else:
        assert answer.status == 400 and not model.requests
        assert "POST /files" in answer.json["error"]["message"]


@pytest.mark.parametrize("key, value", [("file_data", "data:text/plain;base64,eA=="), ("file_url", "https://x/y")])
def test_one_way_only(client, upstream, key, value):
    id = upload(client, PDF, "one.pdf")["id"]
    model = upstream.says("responses", Say("never said"))
    refused(ask(client, "responses", model, [message("responses", dict(named("responses", id), **{key: value}))]),
            "responses", PLACE["responses"])
    assert not model.requests


@pytest.mark.parametrize("spoken", ["responses", "messages"])
def test_no_image(client, upstream, spoken):
    id = upload(client, NOTES, "notes.txt")["id"]
    model = upstream.says(spoken, Say("never said"))
    told = refused(ask(client, spoken, model, [message(spoken, named(spoken, id, True))]), spoken, PLACE[spoken])
    assert "text/plain" in told and not model.requests


@pytest.mark.parametrize("spoken", list(SPEAK))
def test_as_large_as_a_body(client, upstream, spoken):
    """The bound of bodies (256 KiB here) holds for a body with the files in it."""
    small, large = upload(client, PDF + bytes(90000), "small.pdf")["id"], upload(client, PDF + bytes(200000), "large.pdf")["id"]
    huge = upload(client, b"x" * 3000000, "huge.txt")["id"]
    model = upstream.says("chat", Say("ok"))
    for ids, place in (([large], 0), ([huge], 0), ([small, small, small], 2)):
        place = PLACE[spoken].replace("content[0]", "content[%d]" % place).replace("content.0", "content.%d" % place)
        refused(ask(client, spoken, model, [message(spoken, *[named(spoken, id) for id in ids])]), spoken, place, 413)
    assert not model.requests
    good(ask(client, spoken, model, [message(spoken, named(spoken, small), named(spoken, small))]))


def test_a_hundred_files(client, upstream):
    ids = [upload(client, b"%d" % i, "%d.txt" % i)["id"] for i in range(101)]
    model = upstream.says("chat", Say("ok"))
    refused(ask(client, "chat", model, [message("chat", *[named("chat", id) for id in ids])]), "chat",
            "messages[0].content[100].file.file_id")
    good(ask(client, "chat", model, [message("chat", *[named("chat", id) for id in ids[:100] + ids[:10]])]))
    sent = parts("chat", model.requests[0])
    assert [base64.b64decode(p["file"]["file_data"].split(",")[1]) for p in sent[:110]] == [
        b"%d" % (i % 100) for i in range(110)]


def test_all_together_are_bounded(make_server, provider):
    """As bodies are: with a small body each, too many requests at once are told to come again."""
    server = make_server(config={"sandbox": False, "limits": {"in_flight": "64m", "body": "48m", "file": "40m"}})
    server.start()
    client = server.client("one", "/v1")
    id = upload(client, PDF + bytes(28 << 20), "large.pdf")["id"]
    go, ask_it = threading.Event(), [message("responses", named("responses", id))]
    slow = provider.model(fake_provider.Reply([fake_provider.Wait(go)] + fake_provider.text("ok").steps))
    quick = provider.model()
    told = []
    waiting = threading.Thread(target=lambda: told.append(client.ask(slow, ask_it)))
    waiting.start()
    brigtest.wait_for(lambda: slow.requests)
    assert client.ask(quick, ask_it, expect=503).headers["retry-after"] == "1"
    assert client.post("/responses/input_tokens", {"model": quick.name, "input": ask_it}).status == 503
    assert not quick.requests
    go.set()
    waiting.join(60)
    assert told[0]["status"] == "completed"
    brigtest.wait_for(lambda: client.post("/responses/input_tokens", {"model": quick.name, "input": ask_it}).status == 200)


@pytest.mark.parametrize("spoken, status", [("responses", 503), ("chat", 200)])
def test_a_body_that_stays_counts_beside_the_new_one(make_server, provider, spoken, status):
    """It does on the Responses API, whose input is kept as it came."""
    server = make_server(config={"sandbox": False, "limits": {"in_flight": "64m", "body": "48m", "file": "40m"}})
    server.start()
    client = server.client("one", "/v1")
    small, large = upload(client, PDF, "small.pdf")["id"], upload(client, PDF + bytes(28 << 20), "large.pdf")["id"]
    go = threading.Event()
    slow = provider.model(fake_provider.Reply([fake_provider.Wait(go)] + fake_provider.text("ok").steps))
    quick = provider.model(fake_provider.text("ok"))
    wide = message(spoken, named(spoken, small))
    wide["content"][1]["text"] = "x" * (33 << 20)

    def say(model, message):
        return client.post(SPEAK[spoken], {"model": model.name, "input" if spoken == "responses" else "messages": [message]})
    told = []
    waiting = threading.Thread(target=lambda: told.append(say(slow, wide).status))
    waiting.start()
    brigtest.wait_for(lambda: slow.requests, 60)
    assert say(quick, message(spoken, named(spoken, large))).status == status
    go.set()
    waiting.join(60)
    assert told == [200]


# ---- what is kept ----

@pytest.mark.parametrize("background", [False, True])
def test_what_is_stored_has_the_id(client, upstream, background):
    id = upload(client, PDF, "one.pdf")["id"]
    model = upstream.says("chat", Say("ok"), Say("ok"))
    first = good(ask(client, "responses", model, [message("responses", named("responses", id))], background=background))
    brigtest.wait_for(lambda: client.get("/responses/" + first["id"]).json["status"] == "completed")
    kept = client.get("/responses/%s/input_items" % first["id"])
    assert kept.json["data"][0]["content"][0]["file_id"] == id and b"file_data" not in kept.body
    request = client.get("/generation/content?id=gen-" + first["id"][5:])
    assert id.encode() in request.body and b"file_data" not in request.body
    # The model reads it again on the next turn.
    second = good(ask(client, "responses", model, "and?", previous_response_id=first["id"]))
    want = inline("chat", "application/pdf", PDF, "one.pdf")
    assert [parts("chat", r)[0] for r in model.requests] == [want, want]
    # Until it is deleted.
    assert client.delete("/files/" + id).status == 200
    told = refused(ask(client, "responses", model, "and?", previous_response_id=second["id"]), "responses",
                   "input.content[0].file_id")
    assert id in told and "no longer" in told and len(model.requests) == 2


def test_nothing_stored(client, upstream):
    id = upload(client, PDF, "one.pdf")["id"]
    model = upstream.says("chat", Say("ok"))
    answer = good(ask(client, "responses", model, [message("responses", named("responses", id))],
                      headers={"x-brig-store-content": "false"}))
    assert answer["store"] is False
    assert parts("chat", model.requests[0])[0] == inline("chat", "application/pdf", PDF, "one.pdf")
    assert client.get("/generation/content?id=gen-" + answer["id"][5:]).status == 404


@pytest.mark.parametrize("key", ["one", "two"])
def test_over_a_websocket(server, upstream, key):
    """What the next turn goes on from, though it is not stored, has the id and what guardrails left of the text."""
    id = upload(server.client(key, "/v1"), b"SECRET1 note", "note.txt")["id"]
    model = upstream.says("chat", Say("ok"), Say("ok"))
    wanted = b"SECRET1 note" if key == "one" else b"[GONE] note"
    with contextlib.closing(Socket(server, key=key)) as socket:
        said = {"role": "user", "content": [named("responses", id), {"type": "input_text", "text": "SECRET2 " + "x" * 100000}]}
        socket.create(model.asked, [said], store=False)
        first = socket.events()[-1]["response"]
        socket.create(model.asked, "and?", store=False, previous_response_id=first["id"])
        assert socket.events()[-1]["type"] == "response.completed"
    for request in model.requests:
        file, text = parts("chat", request)
        assert file["file"] == {"file_data": data_url("text/plain", wanted), "filename": "note.txt"}
        assert text["text"] == ("SECRET2 " if key == "one" else "[GONE] ") + "x" * 100000


def test_compact(client, upstream):
    id = upload(client, PDF, "one.pdf")["id"]
    model = upstream.says("chat", Say("They spoke of a report."))
    good(ask(client, "responses", model, [message("responses", named("responses", id))], path="/compact"))
    assert data_url("application/pdf", PDF).encode() in model.requests[0].body


# ---- who else looks at it ----

@pytest.mark.parametrize("spoken", list(SPEAK))
def test_guardrails_read_texts(server, upstream, spoken):
    client = server.client("two", "/v1")
    model = upstream.says(spoken, Say("ok"))
    id = upload(client, b"one SECRET1 two", "note.txt")["id"]
    answer = ask(client, spoken, model, [message(spoken, named(spoken, id))])
    good(answer)
    assert parts(spoken, model.requests[0])[0] == inline(spoken, "text/plain", b"one [GONE] two", "note.txt")
    hit, = client.get("/generation?id=" + answer.headers["x-generation-id"]).json["data"]["guardrail_hits"]
    assert (hit["rule"], hit["action"], hit["matched"]) == ("secret", "redact", "SECRET1")
    id = upload(client, b"a POISON", "note.txt")["id"]
    answer = ask(client, spoken, model, [message(spoken, named(spoken, id))])
    assert answer.status == 403 and "blocked by the content filter 'poison'" in answer.json["error"]["message"]
    assert len(model.requests) == 1


@pytest.mark.parametrize("spoken, path", [("responses", "/input_tokens"), ("messages", "/count_tokens")])
@pytest.mark.parametrize("served", ["chat", "messages"])
def test_tokens_are_counted(client, upstream, spoken, path, served):
    id = upload(client, NOTES * 100, "notes.txt")["id"]
    replies = [fake_provider.Reply([b'{"input_tokens":7}'], framing="length", content_type="application/json")] * 2
    model = upstream.says("messages")
    model.replies[:] = replies
    model.asked = "up-%s/%s" % (served, model.upstream_name)
    answers = [good(ask(client, spoken, model, [message(spoken, part)], path=path)) for part in (
        inline(spoken, "text/plain", NOTES * 100, "notes.txt"), named(spoken, id))]
    assert answers[0] == answers[1] and answers[1].get("estimated", False) == (served == "chat")
    if served == "messages":
        first, second = model.requests
        assert first.json == second.json
    refused(ask(client, spoken, model, [message(spoken, named(spoken, MISSING))], path=path), spoken, PLACE[spoken])
