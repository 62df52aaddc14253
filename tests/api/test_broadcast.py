"""Traces, delivered: to each kind of destination as it wants them, to receivers that are dead, slow or refuse, from
gateways that are killed. The receivers are real servers on loopback."""
import base64
import contextlib
import os
import re
import signal
import time

import pytest

import exposition
import otlp
from brigtest import SHELL, wait_for
from fake_provider import calls, shell, text
from receivers import Receiver, dead_url, generation

# Receivers are on loopback, which a destination that came over HTTP reaches with allow_private only.
SETTINGS = {"egress": {"allow_private": True}}
PATH = "/observability/destinations"


@pytest.fixture
def receive():
    made = []

    def make(answer=None):
        made.append(Receiver(answer))
        return made[-1]

    yield make
    for receiver in made:
        receiver.close()


@pytest.fixture
def destination(admin):
    """Makes destinations, and removes them at the test's end: the server is the module's."""
    made = []

    def make(type, config, expect=201, client=admin, **fields):
        answer = client.post(PATH, dict({"type": type, "name": "d", "config": config}, **fields))
        assert answer.status == expect, answer
        if expect == 201:
            made.append((client, answer.json["data"]["id"]))
            return answer.json["data"]
        return answer

    yield make
    for client, id in made:
        client.delete("%s/%s" % (PATH, id))


def webhook(url, **more):
    return ("webhook", dict({"url": url}, **more))


def ask(client, model, n=1, **fields):
    """Turns, one after the other; the ids of their records."""
    ids = []
    for _ in range(n):
        answer = client.post("/responses", dict({"model": model.name, "input": "go"}, **fields))
        assert answer.status == 200, answer
        ids.append(answer.headers["x-generation-id"])
    return ids


def chatty(provider):
    """A model that says something as often as it is asked."""
    return provider.model(lambda request: text("hello"))


def figure(server, name, **labels):
    return exposition.parse(server.client("admin").request("GET", "/metrics").body).value(name, **labels)


# ---- what is sent ----

TYPES = {
    "otel-collector": lambda url: {"endpoint": url, "headers": {"X-Mine": "yes"}},
    "webhook": lambda url: {"url": url + "/hook?a=b", "method": "PUT", "headers": {"Authorization": "Bearer t0k3n"}},
    "langfuse": lambda url: {"secretKey": "sk-lf-1", "publicKey": "pk-lf-1", "baseUrl": url},
    "braintrust": lambda url: {"apiKey": "bt-1", "projectId": "p-1", "baseUrl": url},
    "arize": lambda url: {"apiKey": "az-1", "spaceKey": "sp-1", "modelId": "m-1", "baseUrl": url},
    "grafana": lambda url: {"apiKey": "glc-1", "instanceId": "77", "baseUrl": url},
    "s3": lambda url: {"bucketName": "traces", "accessKeyId": "AKIA1", "secretAccessKey": "very-secret", "endpoint": url,
                       "region": "eu-central-1"},
}


def basic(user, password):
    return "Basic " + base64.b64encode(("%s:%s" % (user, password)).encode()).decode()


EXPECTED = {
    "otel-collector": ("POST", r"/v1/traces", {"x-mine": "yes"}),
    "webhook": ("PUT", r"/hook\?a=b", {"authorization": "Bearer t0k3n"}),
    "langfuse": ("POST", r"/api/public/otel/v1/traces",
                 {"authorization": basic("pk-lf-1", "sk-lf-1"), "x-langfuse-ingestion-version": "4"}),
    "braintrust": ("POST", r"/otel/v1/traces", {"authorization": "Bearer bt-1", "x-bt-parent": "project_id:p-1"}),
    "arize": ("POST", r"/v1/traces", {"api_key": "az-1", "space_id": "sp-1"}),
    "grafana": ("POST", r"/otlp/v1/traces", {"authorization": basic("77", "glc-1")}),
    "s3": ("PUT", r"/traces/openrouter-traces/\d{4}-\d\d-\d\d/[0-9a-f]{32}-\d+-[0-9a-f]{16}\.json", {}),
}


def test_each_kind_gets_it_as_it_wants_it(server, provider, receive, destination):
    receivers = {}
    for type, config in TYPES.items():
        receivers[type] = receive()
        destination(type, config(receivers[type].url))
    model = provider.model(calls(shell("echo out; exit 3")), text("done"))
    (id,) = ask(server.client(), model, tools=[SHELL], session_id="each-kind")
    for type, receiver in receivers.items():
        receiver.wait_for([id])
        (got,) = receiver.got
        method, path, headers = EXPECTED[type]
        assert got.method == method and re.fullmatch(path, got.path), got
        assert got.headers["content-type"] == "application/json"
        assert got.headers["content-length"] == str(len(got.body)) and "expect" not in got.headers
        for name, value in headers.items():
            assert got.headers[name] == value, (type, name)
        spans = got.spans()
        otlp.check_tree(spans)
        (root,) = otlp.roots(spans)
        assert generation(root) == id and root["attributes"]["session.id"] == "each-kind"
        assert len([s for s in spans if s["attributes"].get("gen_ai.operation.name") == "chat"]) == 2
        assert len([s for s in spans if s["attributes"].get("gen_ai.operation.name") == "execute_tool"]) == 1
    (got,) = receivers["s3"].got
    assert re.fullmatch(r"AWS4-HMAC-SHA256 Credential=AKIA1/\d{8}/eu-central-1/s3/aws4_request, "
                        r"SignedHeaders=[a-z0-9;-]+, Signature=[0-9a-f]{64}", got.headers["authorization"])
    # The same record has the same ids everywhere.
    assert len({tuple(sorted(r.roots())) for r in receivers.values()}) == 1


def test_private_ones_get_no_content_and_filters_choose(server, provider, receive, destination):
    open_, private, filtered, by_input = receive(), receive(), receive(), receive()
    destination(*webhook(open_.url))
    destination(*webhook(private.url), privacy_mode=True)
    destination(*webhook(filtered.url), filter_rules={"groups": [{"logic": "and", "rules": [
        {"field": "session_id", "operator": "equals", "value": "wanted"}]}]})
    # What is not sent can still be gone by.
    destination(*webhook(by_input.url), privacy_mode=True, filter_rules={"groups": [{"logic": "and", "rules": [
        {"field": "input", "operator": "contains", "value": "needle"}]}]})
    model = chatty(provider)
    ids = ask(server.client(), model, session_id="unwanted") + ask(server.client(), model, session_id="wanted")
    found = ask(server.client(), model, input="a needle in it", session_id="wanted")
    by_input.wait_for(found)
    assert by_input.generations() == set(found) and not otlp.content_keys(by_input.spans())
    ids += found
    for receiver in open_, private:
        receiver.wait_for(ids)
    filtered.wait_for(ids[1:])
    assert otlp.content_keys(open_.spans()) and not otlp.content_keys(private.spans())
    assert filtered.generations() == set(ids[1:])


def test_other_workspaces_are_not_told(server, provider, receive, destination):
    mine, theirs, far = receive(), receive(), receive()
    destination(*webhook(mine.url))
    destination(*webhook(theirs.url), workspace_id="two")
    destination(*webhook(far.url), client=server.client("far admin"))
    model = chatty(provider)
    one, two = ask(server.client(), model), ask(server.client("two"), model)
    mine.wait_for(one)
    theirs.wait_for(two)
    assert mine.generations() == set(one) and theirs.generations() == set(two) and not far.got


def test_what_is_not_stored_is_not_sent(server, provider, receive, destination):
    receiver = receive()
    destination(*webhook(receiver.url))
    answer = server.client().post("/responses", {"model": chatty(provider).name, "input": "not to be kept"},
                                  headers={"x-brig-store-content": "false"})
    receiver.wait_for([answer.headers["x-generation-id"]])
    assert not otlp.content_keys(receiver.spans()) and b"not to be kept" not in receiver.got[-1].body


# ---- receivers that do not do as they should ----

def test_a_dead_one_holds_nobody_else_and_gets_it_later(server, provider, receive, destination):
    live, late = receive(), receive()
    down = [True]
    late.answer = lambda got: (503, {}, b"") if down[0] else (200, {}, b"{}")
    dead = destination(*webhook(dead_url()))
    destination(*webhook(late.url))
    destination(*webhook(live.url))
    before = figure(server, "brig_broadcast_failed_total", type="webhook")
    ids = ask(server.client(), chatty(provider), 3)
    live.wait_for(ids)
    assert not late.taken
    wait_for(lambda: figure(server, "brig_broadcast_failed_total", type="webhook") >= before + 3, every=0.1)
    down[0] = False
    late.wait_for(ids)
    # What waits for the dead one is said, and goes with it.
    wait_for(lambda: figure(server, "brig_broadcast_waiting", type="webhook") == 3, every=0.1)
    server.client("admin").delete("%s/%s" % (PATH, dead["id"]))
    wait_for(lambda: figure(server, "brig_broadcast_waiting", type="webhook") == 0, every=0.1)


def test_one_that_never_answers_holds_nobody_else(server, provider, receive, destination):
    stuck, live = receive(lambda got: None), receive()
    destination(*webhook(stuck.url))
    destination(*webhook(live.url))
    ids = []
    for _ in range(3):
        ids += ask(server.client(), chatty(provider))
        live.wait_for(ids)
    assert len(stuck.got) == 1  # one request at a time


def test_retry_after_is_kept_to(server, provider, receive, destination):
    receiver, when = receive(), []

    def answer(got):
        when.append(time.monotonic())
        return (429, {"Retry-After": "3"}, b"slowly") if len(when) == 1 else (200, {}, b"{}")

    receiver.answer = answer
    destination(*webhook(receiver.url))
    ids = ask(server.client(), chatty(provider))
    receiver.wait_for(ids)
    assert when[1] - when[0] >= 3 and receiver.got[0].spans()[0]["id"] == receiver.got[1].spans()[0]["id"]


@pytest.mark.parametrize("status", [400, 404, 301, 307])
def test_what_is_refused_for_good_is_dropped(server, provider, receive, destination, status):
    elsewhere, receiver, refuse = receive(), receive(), [True]
    receiver.answer = lambda got: (status, {"Location": elsewhere.url}, b"no") if refuse[0] else (200, {}, b"{}")
    destination(*webhook(receiver.url))
    before = figure(server, "brig_broadcast_dropped_total", type="webhook")
    lost = ask(server.client(), chatty(provider))
    wait_for(lambda: figure(server, "brig_broadcast_dropped_total", type="webhook") == before + 1, every=0.1)
    refuse[0] = False
    ids = ask(server.client(), chatty(provider))
    receiver.wait_for(ids)
    assert receiver.generations() == set(ids) and len(receiver.got) == 2
    assert generation(otlp.roots(receiver.got[0].spans())[0]) == lost[0]
    assert not elsewhere.got  # no redirect is followed


def test_too_large_is_sent_in_parts(server, provider, receive, destination):
    receiver, closed = receive(), [True]

    def answer(got):
        if closed[0]:
            return 503, {}, b""
        return (413, {}, b"") if len(otlp.roots(got.spans())) > 1 else (200, {}, b"{}")

    receiver.answer = answer
    destination(*webhook(receiver.url))
    ids = ask(server.client(), chatty(provider), 5)
    wait_for(lambda: receiver.got and figure(server, "brig_broadcast_waiting", type="webhook") == 5, every=0.1)
    closed[0] = False
    receiver.wait_for(ids)
    assert any(len(otlp.roots(got.spans())) == 5 for got in receiver.got)


def test_a_long_answer_is_not_read_for_ever(server, provider, receive, destination):
    receiver = receive(lambda got: (200, {}, b"x" * (1 << 20)))
    destination(*webhook(receiver.url))
    for _ in range(2):
        receiver.wait_for(ask(server.client(), chatty(provider)))
    assert len(receiver.got) == 2


def test_only_so_much_waits(make_server, provider, receive):
    receiver, down = receive(), [True]
    receiver.answer = lambda got: (503, {"Retry-After": "1"}, b"") if down[0] else (200, {}, b"{}")
    server = make_server(config=dict(SETTINGS, sandbox=False, limits={"broadcast_rows": 4}))
    server.start()
    admin = server.client("admin")
    assert admin.post(PATH, {"type": "webhook", "name": "d", "config": {"url": receiver.url}}).status == 201
    ids = ask(server.client(), chatty(provider), 10)
    wait_for(lambda: figure(server, "brig_broadcast_dropped_total", type="webhook") == 6, every=0.1)
    wait_for(lambda: figure(server, "brig_broadcast_waiting", type="webhook") == 4, every=0.1)
    down[0] = False
    receiver.wait_for(ids[6:])
    assert receiver.generations() == set(ids[6:])
    assert server.log().count("broadcast_dropped") == 1


# ---- whom it may reach ----

@pytest.fixture(scope="module")
def strict(provider):
    """Private addresses are not opened; one destination is brig.yaml's."""
    import brigtest
    receiver = Receiver()
    server = brigtest.Server(provider, config={
        "sandbox": False,
        "broadcast": [{"type": "webhook", "name": "ours", "config": {"url": receiver.url, "headers": {"X-Secret": "s3cr3t-s3cr3t"}}},
                      {"type": "webhook", "name": "theirs", "workspace": "two", "config": {"url": receiver.url + "/two"}}]})
    server.receiver = receiver
    with server.running():
        yield server
    receiver.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]",
                                  "169.254.169.254", "10.0.0.1", "0.0.0.0"])
def test_private_addresses_are_refused_to_those_made_over_http(strict, host, receive):
    receiver = receive()
    admin = strict.client("admin")
    made = admin.post(PATH, {"type": "webhook", "name": "d", "config": {"url": "http://%s:%d/" % (host, receiver.port)}})
    if made.status == 400:
        return  # refused as it stands
    assert made.status == 201, made
    id = made.json["data"]["id"]
    answer = admin.post("%s/%s/test" % (PATH, id)).json["data"]
    assert not answer["success"] and answer["status"] is None and "may not be connected to" in answer["error"], answer
    assert not receiver.got
    assert admin.delete("%s/%s" % (PATH, id)).status == 200


def test_a_refused_address_gets_no_traces_and_the_operators_own_does(strict, provider, receive):
    receiver = receive()
    admin = strict.client("admin")
    id = admin.post(PATH, {"type": "webhook", "name": "d", "config": {"url": receiver.url}}).json["data"]["id"]
    before = figure(strict, "brig_broadcast_failed_total", type="webhook")
    ids = ask(strict.client(), chatty(provider))
    strict.receiver.wait_for(ids)
    wait_for(lambda: figure(strict, "brig_broadcast_failed_total", type="webhook") > before, every=0.1)
    assert not receiver.got
    admin.delete("%s/%s" % (PATH, id))
    assert "loopback address" in strict.log()


def test_those_of_brig_yaml_are_read_only(strict, provider):
    admin = strict.client("admin")
    rows = admin.get(PATH).json["data"]
    (ours,) = [row for row in rows if row["read_only"]]
    assert ours["name"] == "ours" and ours["type"] == "webhook" and ours["id"].startswith("cfg_")
    assert "s3cr3t-s3cr3t" not in str(rows)
    assert admin.get("%s/%s" % (PATH, ours["id"])).json["data"] == ours
    assert admin.request("PATCH", "/api/v1%s/%s" % (PATH, ours["id"]), {"enabled": False}).status == 403
    assert admin.delete("%s/%s" % (PATH, ours["id"])).status == 403
    assert admin.post("%s/%s/test" % (PATH, ours["id"])).json["data"] == {"success": True, "status": 200, "error": None}
    names = [row["name"] for row in admin.get(PATH + "?workspace_id=two").json["data"]]
    assert names == ["ours", "theirs"]
    ids = ask(strict.client("two"), chatty(provider))
    strict.receiver.wait_for(ids)
    wait_for(lambda: [g for g in strict.receiver.taken if g.path == "/two" and
                      ids[0] in [generation(r) for r in otlp.roots(g.spans())]])


# ---- over HTTP ----

def test_crud(server, admin, receive):
    receiver = receive()
    secret = "a-very-secret-token-indeed"
    body = {"type": "webhook", "name": "first", "config": {"url": receiver.url, "headers": {"Authorization": secret}},
            "sampling_rate": 0.5, "regions": ["europe"]}
    made = admin.post(PATH, body)
    assert made.status == 201
    row = made.json["data"]
    assert row["name"] == "first" and row["enabled"] is True and row["privacy_mode"] is False
    assert row["sampling_rate"] == 0.5 and row["regions"] == ["europe"] and row["api_key_hashes"] is None
    assert row["workspace_id"] == "one" and row["created_at"] == row["updated_at"] and not row["read_only"]
    assert secret not in made.text
    path = "%s/%s" % (PATH, row["id"])
    assert admin.get(path).json["data"] == row
    listed = admin.get(PATH).json
    assert row in listed["data"] and listed["total_count"] == len(listed["data"])
    time.sleep(0.002)  # or it is changed in the millisecond in which it was made
    changed = admin.request("PATCH", "/api/v1" + path, {"name": "second", "enabled": False, "config": row["config"]})
    assert changed.status == 200 and secret not in changed.text
    assert changed.json["data"]["name"] == "second" and changed.json["data"]["enabled"] is False
    assert changed.json["data"]["updated_at"] > row["updated_at"]
    # The secret is still the one that was given.
    assert admin.post(path + "/test").json["data"]["success"] and receiver.got[-1].headers["authorization"] == secret
    assert receiver.got[-1].headers["x-test-connection"] == "true" and not receiver.got[-1].spans()
    receiver.answer = lambda got: (401, {}, b"who are you?")
    failed = admin.post(path + "/test").json["data"]
    assert failed == {"success": False, "status": 401, "error": "who are you?"}
    assert admin.delete(path).json == {"deleted": True}
    for answer in admin.get(path), admin.delete(path), admin.post(path + "/test"), \
            admin.request("PATCH", "/api/v1" + path, {"name": "x"}):
        assert answer.status == 404, answer
    assert secret not in server.log()


def test_five_of_a_kind(admin, destination):
    for _ in range(5):
        destination("arize", TYPES["arize"]("https://arize.example"))
    answer = destination("arize", TYPES["arize"]("https://arize.example"), expect=409)
    assert answer.error["message"].startswith("there are 5"), answer
    destination("grafana", TYPES["grafana"]("https://grafana.example"))


def test_only_admins_and_only_their_own(server, admin, destination):
    row = destination(*webhook("https://hook.example"))
    path = "%s/%s" % (PATH, row["id"])
    for client, status in (server.client(), 403), (server.client(key="none"), 401), (server.client("far admin"), 404):
        assert client.get(path).status == status
        assert client.delete(path).status == status
    assert server.client("far admin").get(PATH).json["total_count"] == 0
    assert server.client().post(PATH, {}).status == 403


@pytest.mark.parametrize("body, param", [
    ({}, "type"), ({"type": "webhook"}, "name"), ({"type": "nagios", "name": "x", "config": {}}, "type"),
    ({"type": "webhook", "name": "x", "config": {"url": "ftp://x"}}, "config.url"),
    ({"type": "webhook", "name": "x", "config": {"url": "http://x", "headers": {"Host": "y"}}}, "config.headers.Host"),
    ({"type": "webhook", "name": "x", "config": {"url": "http://x"}, "sampling_rate": 2}, "sampling_rate"),
    ({"type": "webhook", "name": "x", "config": {"url": "http://x"}, "filter_rules": {"groups": [{"logic": "and", "rules": [
        {"field": "model", "operator": "regex", "value": "("}]}]}}, "filter_rules.groups[0].rules[0].value"),
    ([], None), ("nonsense", None)])
def test_what_is_wrong_is_named(admin, body, param):
    answer = admin.post(PATH, body if body != "nonsense" else b"{")
    assert answer.status == 400, answer
    if param:
        assert param in answer.text, answer


def test_switched_off_and_on(server, admin, provider, receive, destination):
    receiver, marker = receive(), receive()
    row = destination(*webhook(receiver.url), enabled=False)
    destination(*webhook(marker.url))
    model = chatty(provider)
    off = ask(server.client(), model)
    marker.wait_for(off)
    assert admin.request("PATCH", "/api/v1%s/%s" % (PATH, row["id"]), {"enabled": True}).status == 200
    on = ask(server.client(), model)
    receiver.wait_for(on)
    assert receiver.generations() == set(on)


# ---- gateways ----

@pytest.mark.parametrize("workers", [1, 3])
def test_killed_in_the_middle(make_server, provider, receive, workers):
    """Every record arrives, with the same ids each time, though the gateway that delivers is killed while a request of
    its own is under way, and again before the removal of what was taken; and no two deliver at once."""
    receiver, marker = receive(), receive()
    hold = [True]
    receiver.answer = lambda got: None if hold[0] else (200, {}, b"{}")
    server = make_server(workers=workers, config=dict(SETTINGS, sandbox=False, broadcast=[
        {"type": "otel-collector", "name": "o", "config": {"endpoint": receiver.url}},
        {"type": "webhook", "name": "m", "config": {"url": marker.url}}]))
    server.start()
    model = chatty(provider)
    ids = ask(server.client(), model, 5)
    wait_for(lambda: receiver.got)
    marker.wait_for(ids)
    for pid in server.gateways():
        os.kill(pid, signal.SIGKILL)
    hold[0] = False
    for _ in range(5):
        ids += ask_again(server, model)
    receiver.wait_for(ids, 60)
    marker.wait_for(ids, 60)
    check_once(receiver, marker, ids)
    server.kill()
    server.start()
    ids += ask_again(server, model)
    receiver.wait_for(ids, 60)
    check_once(receiver, marker, ids)
    # One gateway delivers: with nobody killed each record came once.
    settled = ask(server.client(), model, 10)
    receiver.wait_for(settled)
    marker.wait_for(settled)
    for each in receiver, marker:
        came = [generation(s) for s in otlp.roots(each.spans())]
        assert all(came.count(id) == 1 for id in settled)


def ask_again(server, model):
    """As ask(), with patience while gateways are started anew."""
    def once():
        with contextlib.suppress(OSError, ValueError, EOFError, AssertionError):
            return ask(server.client(), model)
        return None

    return wait_for(once, every=0.1)


def check_once(receiver, marker, ids):
    for each in receiver, marker:
        ours = [key for key, root in each.roots().items() if generation(root) in ids]
        assert len(ours) == len(ids), "some record came with two ids"
    assert set(receiver.roots()) & set(marker.roots())


def test_a_stop_waits_for_no_receiver(make_server, provider, receive):
    receiver = receive(lambda got: None)
    server = make_server(config=dict(SETTINGS, sandbox=False, grace="300s", broadcast=[
        {"type": "webhook", "name": "w", "config": {"url": receiver.url}}]))
    server.start()
    ids = ask(server.client(), chatty(provider))
    wait_for(lambda: receiver.got)
    server.stop()
    receiver.answer = lambda got: (200, {}, b"{}")
    server.start()
    receiver.wait_for(ids)
