"""What keys may not: too many requests, containers or dollars, tools that are disabled for them; and workspaces apart."""
import os
import signal
import threading

import pytest

from brigtest import CONFIGURED_KEYS, SHELL, wait_for
from fake_provider import Model, calls, shell, text
from test_keys import change, files_with, make, server  # noqa: F401 (a fixture)
from test_websocket import Socket

TIGHT = "tight-0123456789abcdef"
SETTINGS = {"keys": CONFIGURED_KEYS + [{"key": TIGHT, "account": "acme", "workspace": "one", "requests_per_minute": 1,
                                        "disabled_server_tools": ["bash"]}]}
BASH = {"type": "openrouter:bash"}  # which the client runs: it is refused all the same
BIG = 10 ** 6


@pytest.fixture
def limited(server, admin):
    """Makes a key, and gives a client of it."""
    return lambda **fields: server.client(make(admin, **fields)["key"])


def refusals(client):
    """The same question in each dialect: (its answer, what it says went wrong)."""
    google = client.server.client(client.key, "/v1beta")
    for answer, read in [
            (client.post("/responses", {"model": "brig/script", "input": "x"}), lambda e: e["error"]["message"]),
            (client.post("/chat/completions", {"model": "brig/script", "messages": [{"role": "user", "content": "x"}]}),
             lambda e: e["error"]["message"]),
            (client.post("/messages", {"model": "brig/script", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}),
             lambda e: e["error"]["message"] if e["type"] == "error" else None),
            (google.post("/models/brig/script:generateContent", {"contents": [{"role": "user", "parts": [{"text": "x"}]}]}),
             lambda e: e["error"]["status"] and e["error"]["message"])]:
        yield answer, read


# ---- requests ----

def test_requests_per_minute_in_every_dialect(limited, server):
    client = limited(requests_per_minute=4)
    for answer, _ in refusals(client):
        assert answer.status == 200, answer
    for answer, read in refusals(client):
        assert answer.status == 429 and "4 requests a minute" in read(answer.json), answer
        assert 1 <= int(answer.headers["retry-after"]) <= 15
    assert {client.get("/key").status, client.get("/generations").status, client.get("/models").status} == {200}
    other = limited(requests_per_minute=1)
    assert other.post("/responses", {"model": "brig/script", "input": "x"}).status == 200


def test_a_key_of_the_configuration_has_limits_too(server):
    client = server.client(TIGHT)
    answers = [client.post("/responses", {"model": "brig/script", "input": "x"}).status for _ in range(3)]
    assert answers == [200, 429, 429]
    assert client.get("/key").json["data"]["requests_per_minute"] == 1


def test_a_socket_counts_each_response_and_ends_with_its_key(server, admin):
    made = make(admin, requests_per_minute=1)
    with_socket = Socket(server, key=made["key"])
    assert with_socket.turn("brig/script")["type"] == "response.completed"
    with_socket.create("brig/script")
    assert with_socket.message()["status"] == 429
    change(admin, made, requests_per_minute=None)
    assert with_socket.turn("brig/script")["type"] == "response.completed"
    made = make(admin)
    with_socket = Socket(server, key=made["key"])
    assert with_socket.turn("brig/script")["type"] == "response.completed"
    admin.delete("/keys/" + made["hash"])
    with_socket.create("brig/script")
    assert with_socket.message()["status"] == 401


# ---- containers ----

def detached(client, name, status=202):
    answer = client.post("/containers/%s/exec" % name, {"commands": ["echo up; sleep 600"], "exec_id": "x", "detach": True})
    assert answer.status == status, answer
    if status == 202:  # one that is ended before it ran costs nothing
        assert client.get("/containers/%s/exec/x?wait=60" % name).json["stdout"] == "up\n"
    return answer


def kill(client, name):
    assert client.delete("/containers/%s/exec/x" % name).status == 200


def test_containers_at_once(limited, provider, server):
    client = limited(containers_at_once=1)
    name = "atonce%d" % server.config["workers"]
    detached(client, name)
    model = provider.model(calls(shell("true")), text("done"))
    answer = client.post("/responses", {"model": model.name, "input": "go", "tools": [SHELL]})
    assert answer.status == 429 and answer.headers["retry-after"] == "1" and "1 containers" in answer.error["message"]
    assert model.requests == []
    assert client.post("/responses", {"model": "brig/script", "input": "no tool"}).status == 200
    assert client.post("/containers/other/exec", {"commands": ["true"]}).status == 429
    detached(client, name + "b", 429)
    kill(client, name)
    # What was refused may be asked again under its name.
    wait_for(lambda: client.post("/containers/%sb/exec" % name, {"commands": ["true"], "exec_id": "x"}).status == 200)
    answer = client.post("/responses", {"model": model.name, "input": "go", "tools": [SHELL]})
    assert answer.status == 200 and len(model.requests) == 2


def test_a_dead_gateways_share_is_given_back(limited, server):
    client = limited(containers_at_once=1, limit=BIG)
    name = "dies%d" % server.config["workers"]
    detached(client, name)
    detached(client, name + "b", 429)
    gateways = server.gateways()
    for pid in gateways:
        os.kill(pid, signal.SIGKILL)

    def runs():
        try:
            return client.post("/containers/%sc/exec" % name, {"commands": ["true"]}, timeout=30).status == 200
        except OSError:
            return False  # no gateway listens yet

    wait_for(runs)


# ---- dollars ----

NEW = 0.003  # a container that is started


def run(client, name):
    return client.post("/containers/%s/exec" % name, {"commands": ["true"]})


def test_dollars_are_what_the_ledger_has_settled(limited, server):
    client = limited(limit="0.0045", limit_reset="daily")
    name = "money%d" % server.config["workers"]
    assert [run(client, name + c).status for c in "ab"] == [200, 200]
    answer = run(client, name + "c")
    assert answer.status == 402 and "0.0045 dollars, daily, is spent" in answer.error["message"]
    assert 1 <= int(answer.headers["retry-after"]) <= 86400
    own = client.get("/key").json["data"]
    assert (own["usage"], own["usage_daily"], own["limit_remaining"]) == (2 * NEW, 2 * NEW, 0)
    for answer, read in refusals(client):
        assert answer.status == 402 and "is spent" in read(answer.json), answer


def test_a_limit_for_all_time_does_not_say_when_to_come_again(limited):
    answer = run(limited(limit=0), "never")
    assert answer.status == 402 and "retry-after" not in answer.headers


def test_dollars_in_flight_count(limited, server):
    client = limited(limit=0.005)
    name = "flight%d" % server.config["workers"]
    detached(client, name + "a")
    detached(client, name + "b")
    assert detached(client, name + "c", 429).headers["retry-after"] == "1"
    kill(client, name + "a")
    kill(client, name + "b")
    wait_for(lambda: run(client, name + "d").status == 402)
    assert client.get("/key").json["data"]["usage"] == 2 * NEW


def test_many_at_once_overshoot_by_one_at_most(limited, server):
    client = limited(limit="0.0061")
    name = "many%d" % server.config["workers"]
    statuses = []
    threads = [threading.Thread(target=lambda i=i: statuses.append(run(client, "%s-%d" % (name, i)).status)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert set(statuses) <= {200, 402, 429}
    while run(client, name + "-more").status != 402:
        pass
    assert 0.0061 <= client.get("/key").json["data"]["usage"] < 0.0061 + 0.0061


def test_tokens_count_and_a_model_without_a_price_is_refused(limited, provider):
    client = limited(limit=1)
    provider.models["priced"] = Model(provider, "priced", [text("hello", usage=(1000000, 1))])
    free = provider.model(text("hello"))
    answer = client.post("/responses", {"model": free.name, "input": "go"})
    assert answer.status == 403 and answer.error["param"] == "model" and free.requests == []
    assert client.post("/responses", {"model": "fake/priced", "input": "go"}).status == 200
    assert client.get("/key").json["data"]["usage"] == 2.50001
    assert client.post("/responses", {"model": "fake/priced", "input": "go"}).status == 402
    assert len(provider.models["priced"].requests) == 1


# ---- tools ----

@pytest.mark.parametrize("path, body", [
    ("/responses", {"input": "x", "tools": [{"type": "openrouter:shell"}]}),
    ("/responses", {"input": "x", "tools": [{"type": "brig:shell"}]}),
    ("/responses", {"input": "x", "tools": [{"type": "shell", "environment": {"type": "container_auto"}}]}),
    ("/responses", {"input": "x", "tools": [{"type": "openrouter:shell", "parameters": {"engine": "native"}}]}),
    ("/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9, "tools": [{"type": "openrouter:shell"}]}),
    ("/v1beta", {"contents": [{"parts": [{"text": "x"}]}], "tools": [{"brigShell": {}}]}),
])
def test_a_disabled_shell_is_refused_whatever_it_is_called(limited, server, provider, path, body):
    client = limited(disabled_server_tools=["shell"])
    model = provider.model(text("no"))
    if path == "/v1beta":
        answer = server.client(client.key, path).post("/models/%s:generateContent" % model.name, body)
    else:
        answer = client.post(path, dict(body, model=model.name))
    assert answer.status == 403 and "'shell' is disabled" in answer.error["message"], answer
    assert model.requests == []


def test_the_other_tools_stay(limited, provider):
    client = limited(disabled_server_tools=["openrouter:bash", "code_execution"])
    asked = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9, "model": provider.model(text("hello"), text("hello")).name}
    answer = client.post("/messages", dict(asked, tools=[BASH]))
    assert answer.status == 403 and "'bash' is disabled" in answer.error["message"]
    answer = client.post("/messages", dict(asked, tools=[{"type": "brig:bash", "parameters": {"engine": "openrouter"}}]))
    assert answer.status == 403 and "'bash' is disabled" in answer.error["message"]
    assert client.post("/messages", dict(asked, tools=[{"type": "bash_20250124", "name": "bash"}])).status == 200
    assert client.post("/messages", dict(asked, tools=[SHELL])).status == 200
    answer = client.post("/responses", {"model": "brig/script", "input": "x", "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]})
    assert answer.status == 403 and "'code_execution' is disabled" in answer.error["message"]
    assert run(client, "stays").status == 200


def test_direct_use_is_a_tool_too(limited):
    client = limited(disabled_server_tools=["exec"])
    for path, body in [("/containers", {"name": "direct"}), ("/containers/direct/exec", {"commands": ["true"]}),
                       ("/containers/direct/files", {"file_id": "or_file_x"})]:
        answer = client.post(path, body)
        assert answer.status == 403 and "'exec' is disabled" in answer.error["message"], answer
    assert client.get("/containers/direct").status == 404


# ---- workspaces ----

def test_two_workspaces_never_see_one_another(server, provider):
    one, two, far = server.client("one"), server.client("two"), server.client("far admin")
    name = "apart%d" % server.config["workers"]
    assert one.post("/containers", {"name": name}).status in (200, 201)
    one.execute(name, "echo mine > file")
    turn = one.post("/responses", {"model": provider.model(text("hello")).name, "input": "go"})
    generation = turn.headers["x-generation-id"]
    kept = one.post("/containers/%s/files/%s/promote" % (name, one.get("/containers/%s/files" % name).json["data"][0]["id"]))
    assert kept.status == 200, kept
    paths = ["/containers/" + name, "/containers/%s/files" % name, "/responses/" + turn.json["id"], "/generation?id=" + generation,
             "/generations/%s/tool_runs" % generation, "/files/" + kept.json["id"]]
    for path in paths:
        assert one.get(path).status == 200, path
        for other in (two, far):
            assert other.get(path).status == 404, path
    for other in (two, far):
        for path in ("/containers", "/files", "/generations"):
            assert name not in other.get(path).text and generation not in other.get(path).text and kept.json["id"] not in other.get(path).text
        assert other.delete("/containers/" + name).status == 404 or one.get("/containers/" + name).status == 200
    # The same name is another container there.
    assert two.run(name, "cat file")["outcome"]["exit_code"] != 0


def test_workspaces_are_listed_and_made(server, admin):
    name = "made%d" % server.config["workers"]
    answer = admin.post("/workspaces", {"name": name, "store_content": False})
    assert answer.status == 201 and answer.json["data"]["store_content"] is False
    assert admin.post("/workspaces", {"name": name}).status == 409
    listed = {w["name"]: w for w in admin.get("/workspaces").json["data"]}
    assert {"one", "two", name} <= set(listed) and listed["two"]["store_content"] and not listed[name]["store_content"]
    assert admin.get("/workspaces/" + name).json["data"] == listed[name]
    assert admin.get("/workspaces/nowhere").status == 404
    assert admin.request("PATCH", "/api/v1/workspaces/nowhere", {"store_content": True}).status == 404
    assert admin.request("PATCH", "/api/v1/workspaces/" + name, {"store_content": 1}).status == 400
    answer = admin.request("PATCH", "/api/v1/workspaces/" + name, {"store_content": True})
    assert answer.status == 200 and answer.json["data"]["store_content"] is True
    assert name not in server.client("far admin").get("/workspaces").text


def test_a_workspace_without_content_leaves_nothing_on_disk(make_server, provider):
    server = make_server(config=SETTINGS)
    server.start()
    admin, client = server.client("admin"), server.client("two")
    assert admin.request("PATCH", "/api/v1/workspaces/two", {"store_content": False}).status == 200
    model = provider.model(calls(shell("echo out-$((40+2))-secret # command-secret")), text("answer-secret"))
    asked = {"model": model.name, "input": "question-secret", "tools": [SHELL]}
    answer = client.post("/responses", asked, headers={"Idempotency-Key": "quiet"})
    assert answer.status == 200 and "answer-secret" in answer.text
    assert client.get("/responses/" + answer.json["id"]).status == 404
    assert client.get("/generation/content?id=" + answer.headers["x-generation-id"]).status == 404
    assert client.post("/containers/quiet/exec", {"commands": ["echo $((40+2))-exec-secret"]},
                       headers={"Idempotency-Key": "exec"}).status == 200
    other = server.client("one").post("/responses", {"model": provider.model(text("hello")).name, "input": "loud-words"})
    assert server.client("one").get("/responses/" + other.json["id"]).status == 200
    server.stop()
    assert not files_with(server, b"question-secret", b"answer-secret", b"command-secret", b"out-42-secret", b"exec-secret")
    assert files_with(server, b"loud-words")
