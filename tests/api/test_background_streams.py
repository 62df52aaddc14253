"""
Responses that are streamed in the background: they go on without their client, and their events are read from any number
on, while they come and when they are over; for one gateway and for three, where any of them may be asked.
"""
import contextlib
import functools
import json
import re
import sqlite3
import threading

import pytest

import brigtest
from brigtest import SHELL, Stream, parse_sse, text_of, wait_for
from fake_provider import Hold, Reply, Wait, call, calls, chunk, error, shell, text


Story = functools.partial(brigtest.Story, background=True)


@pytest.fixture(scope="module")
def server(servers_1_and_3):
    return servers_1_and_3


def begin(client, model, **fields):
    return client.begin(model, background=True, **fields)


def id_in(stream):
    """The response's id, from its first event."""
    return re.search(r"resp_[0-9a-z]{24}", stream.until("response.in_progress").decode()).group()


def again(client, id, after=None, **options):
    """The events of a response from the one after that number on."""
    path = "%s/responses/%s?stream=true%s" % (client.base, id, "" if after is None else "&starting_after=%d" % after)
    return Stream(client, "GET", path, None, **options)


def events_of(stream):
    """All of them, to the end."""
    with contextlib.closing(stream):
        assert stream.status == 200, stream.body()
        assert stream.response_headers["content-type"] == "text/event-stream; charset=utf-8"
        return parse_sse(stream.body())[0]


def refusal(client, id, after=None):
    stream = again(client, id, after)
    with contextlib.closing(stream):
        status, body = stream.status, stream.body()
        return status, json.loads(body)["error"]


def ended(client, id):
    def look():
        response = client.get("/responses/" + id).json
        return response if response["status"] != "in_progress" else None
    return wait_for(look, every=0.05)


def test_read_again(client, provider):
    """The same events, whichever gateway is asked, from any of them on."""
    model = provider.model(calls(shell("echo hi")), text("done", pieces=2))
    stream = begin(client, model, tools=[SHELL])
    story = Story(stream.rest())
    stream.close()
    assert story.response["background"] is True and story.response["status"] == "completed"
    assert story.response["store"] is True and text_of(story.response) == "done"
    id, events = story.response["id"], story.events
    assert client.get("/responses/" + id).json == story.response
    for _ in range(4):
        assert events_of(again(client, id)) == events
    for after in (0, 1, 7, len(events) - 3, len(events) - 2):
        assert events_of(again(client, id, after)) == events[after + 1:]
    assert events_of(again(client, id, len(events) + 5)) == []
    assert len(model.requests) == 2


def test_its_client_goes_and_reads_on(client, provider):
    go = threading.Event()
    model = provider.model(Reply([chunk({"content": "so "}), Wait(go)] + text("late").steps))
    stream = begin(client, model)
    id = id_in(stream)
    stream.until('"so "')
    stream.reset()
    seen = parse_sse(stream.text[:stream.text.rindex(b"\n\n") + 2])[0]
    last = seen[-1][1]["sequence_number"]
    whole, readers = again(client, id), [(after, again(client, id, after)) for after in (last - 1, last, last + 1) * 2]
    whole.until('"so "')
    assert all(reader.status == 200 for _, reader in readers)
    assert not model.requests[0].closed.is_set()
    go.set()
    whole = Story(whole.rest())
    assert text_of(whole.response) == "so late" and whole.events[:last + 1] == seen
    for after, reader in readers:
        assert events_of(reader) == whole.events[after + 1:]
    assert events_of(again(client, id, last)) == whole.events[last + 1:]
    assert client.get("/responses/" + id).json == whole.response
    assert len(model.requests) == 1


def long_text(n, size):
    return Reply([chunk({"role": "assistant"})] + [chunk({"content": "%06d" % i + "x" * (size - 6)}) for i in range(n)] +
                 text("").steps)


def test_nobody_waits_for_a_slow_reader(client, provider):
    go = threading.Event()
    reply = long_text(1500, 1000)
    model = provider.model(Reply(reply.steps[:1] + [Wait(go)] + reply.steps[1:]))
    first = client.open_stream("/responses", {"model": model.name, "input": "go", "background": True, "stream": True})
    id = id_in(first)
    slow = again(client, id, receive_buffer=65536)
    assert slow.status == 200
    quick = again(client, id)
    go.set()
    whole = Story(quick.rest())
    assert len(text_of(whole.response)) == 1500000
    assert ended(client, id) == whole.response
    for reader in (first, slow):
        assert events_of(reader) == whole.events


def test_readers_are_bounded(client, provider):
    """Each event is written to all of them at once."""
    go = threading.Event()
    stream = begin(client, provider.model(Reply([chunk({"content": "so "}), Wait(go)] + text("late").steps)))
    id = id_in(stream)
    readers = [again(client, id) for _ in range(63)]  # the first is its own client
    assert {reader.status for reader in readers} == {200}
    for _ in range(4):
        status, said = refusal(client, id)
        assert status == 429 and "64 readers" in said["message"], said
    readers.pop().reset()
    readers.append(wait_for(lambda: (lambda r: r if r.status == 200 else r.close())(again(client, id))))
    go.set()
    events = Story(stream.rest()).events
    for reader in readers:
        assert events_of(reader) == events


def test_only_so_much_is_kept(make_server, provider):
    server = make_server(config={"limits": {"response_events": "512k"}}).start()
    client = server.client()
    go = threading.Event()
    reply = long_text(4000, 20)
    model = provider.model(Reply(reply.steps[:1] + [Wait(go)] + reply.steps[1:]))
    stream = begin(client, model)
    id = id_in(stream)
    go.set()
    whole = Story(stream.rest())
    for after in (None, 0, 100):
        status, said = refusal(client, id, after)
        assert status == 400 and said["param"] == "starting_after", said
    first = int(re.search(r"before number (\d+) ", said["message"]).group(1))
    assert 100 < first < len(whole.events)
    for _ in range(2):
        assert events_of(again(client, id, first - 1)) == whole.events[first:]
        server.stop()
        server.start()
        client = server.client()
    assert refusal(client, id, first - 2)[0] == 400
    assert client.get("/responses/" + id).json == whole.response


def test_what_has_no_events(server, client, v1, provider):
    model = provider.model(text("one"), Reply([chunk({"content": "so"}), Hold()]))
    for _ in range(3):
        assert refusal(client, "resp_none")[0] == 404
    first = client.ask(model, "go")
    hidden = client.post("/responses", {"model": model.name, "input": "go", "background": True}).json
    for id in (first["id"], hidden["id"]):
        for _ in range(2):
            status, said = refusal(v1, id)
            assert status == 400 and said["param"] == "stream" and said["code"] == "invalid_request_error"
            assert "cannot be streamed because it was not created with background=true" in said["message"]
    for bad in ("-1", "x", "1.5", "99999999999999999999"):
        answer = client.get("/responses/%s?stream=true&starting_after=%s" % (first["id"], bad))
        assert answer.status == 400 and answer.error["param"] == "starting_after"
    client.post("/responses/%s/cancel" % hidden["id"])


def test_another_workspace_reads_nothing(server, client, provider):
    model = provider.model(Reply([chunk({"content": "so"}), Hold()]))
    stream = begin(client, model)
    id = id_in(stream)
    for key in ("two", "far"):
        for _ in range(3):
            assert refusal(server.client(key), id)[0] == 404
    client.post("/responses/%s/cancel" % id)
    stream.rest()
    for key in ("two", "far"):
        assert refusal(server.client(key), id)[0] == 404


def test_cancelling(client, provider):
    for _ in range(3):  # whichever gateway is asked
        stream = begin(client, provider.model(calls(shell("echo begun; sleep 60"))), tools=[SHELL])
        id = id_in(stream)
        reader = again(client, id)
        answer = client.post("/responses/%s/cancel" % id)
        assert answer.status == 200 and answer.json["status"] == "cancelled"
        events = events_of(stream)
        # Clients know no event for it; the response in the last one says what it is.
        assert [name for name, _ in events[-2:]] == ["response.incomplete", "[DONE]"]
        # (What the provider had not told of its tokens may be estimated by then.)
        assert dict(events[-2][1]["response"], usage=None) == dict(answer.json, usage=None)
        assert events_of(reader) == events and events_of(again(client, id)) == events


def test_a_failure(client, provider):
    """It has an id before the provider is asked: the error is the stream's."""
    stream = begin(client, provider.model(error(400, {"error": {"message": "no, thanks"}})))
    story = Story(stream.rest())
    assert story.response["status"] == "failed" and "no, thanks" in story.response["error"]["message"]
    assert client.get("/responses/" + story.response["id"]).json == story.response
    assert events_of(again(client, story.response["id"])) == story.events


def test_removing_ends_it(client, provider):
    model = provider.model(Reply([chunk({"content": "a"}), Hold()]))
    stream = begin(client, model)
    id = id_in(stream)
    request = model.wait()
    assert client.delete("/responses/" + id).json["deleted"] is True
    assert request.closed.wait(60), "the upstream still works for it"
    assert events_of(stream)[-1][0] == "[DONE]"
    wait_for(lambda: refusal(client, id)[0] == 404)


def test_with_an_idempotency_key(v1, provider):
    """One that goes on without its client is not run a second time."""
    go = threading.Event()
    model = provider.model(Reply([chunk({"content": "so "}), Wait(go)] + text("late").steps), text("whole"))
    headers = {"Idempotency-Key": "stream %s" % model.name}
    stream = begin(v1, model, headers=headers)
    id = id_in(stream)
    stream.reset()
    body = {"model": model.name, "input": "go", "stream": True, "background": True}
    answer = wait_for(lambda: (lambda a: a if a.error["code"] != "request_in_progress" and a.status == 409 else None)(
        v1.post("/responses", body, headers=headers)))
    assert answer.error["code"] == "request_interrupted"
    go.set()
    assert text_of(ended(v1, id)) == "so late"
    headers = {"Idempotency-Key": "other %s" % model.name}
    first = begin(v1, model, headers=headers)
    second = v1.open_stream("/responses", body, headers) if first.rest() else None
    assert second.response_headers["idempotent-replayed"] == "true" and events_of(second) == parse_sse(first.text)[0]
    assert len(model.requests) == 2


@pytest.mark.parametrize("workers", [1, 3])
def test_over_the_death_of_its_gateway(make_server, provider, workers):
    server = make_server(workers=workers).start()
    client = server.client()
    model = provider.model(text("one"), Reply([chunk({"content": "so"}), Hold()]))
    whole = Story(begin(client, model).rest())
    wait_for(lambda: again(client, whole.response["id"]).status == 200)
    stream = begin(client, model)
    id = id_in(stream)
    model.wait(2)
    wait_for(lambda: stored(server, whole.response["id"]))
    server.kill()
    wait_for(lambda: not server.own())
    (server.data / "url").unlink(missing_ok=True)
    server.start()
    client = server.client()
    assert events_of(again(client, whole.response["id"])) == whole.events
    status, said = refusal(client, id)
    assert status == 400 and said["param"] == "stream"
    assert ended(client, id)["status"] == "failed"


def stored(server, id):
    """Are its events in the store? Until then its gateway has them."""
    with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % next(server.data.rglob("brig.db")), uri=True)) as db:
        return db.execute("SELECT count(*) FROM responses WHERE id = ? AND events IS NOT NULL", (id,)).fetchone()[0] == 1


def test_a_server_that_stops_cuts_its_readers(make_server, provider):
    server = make_server(config={"grace": "1s"}).start()
    stream = begin(server.client(), provider.model(Reply([chunk({"content": "so"}), Hold()])))
    id = id_in(stream)
    reader = again(server.client(), id)
    assert reader.status == 200
    server.stop()
    for cut in (stream, reader):
        with pytest.raises((AssertionError, OSError, EOFError, ValueError)):
            cut.rest()
        assert b"[DONE]" not in cut.text
    server.start()
    assert ended(server.client(), id)["status"] == "failed"
