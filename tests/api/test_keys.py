"""Keys and workspaces: made, shown once, listed, revoked; by whom, and with one or three gateways."""
import contextlib
import hashlib
import os
import pathlib
import sqlite3
import threading

import pytest

from brigtest import Story
from fake_provider import Reply, Wait, chunk, ending, text, text_deltas


@pytest.fixture(scope="module")
def server(servers_1_and_3):
    return servers_1_and_3


def make(client, name="team", expect=201, **fields):
    answer = client.post("/keys", dict({"name": name}, **fields))
    assert answer.status == expect, answer
    return answer.json if expect == 201 else answer


def everywhere(server, key):
    """What this key is answered, by every gateway in all likelihood."""
    return {server.client(key).get("/key").status for _ in range(12)}


def files_with(server, *needles):
    """Files of the data folder that hold one of these."""
    found = []
    for folder, _, names in os.walk(server.data):
        for name in names:
            path = pathlib.Path(folder, name)
            with contextlib.suppress(FileNotFoundError):  # a pool comes and goes
                data = path.read_bytes() if path.is_file() and name != "base.erofs" else b""
                found += [(name, n) for n in needles if n in data]
    return found


# ---- making ----

def test_a_key_is_shown_once_works_everywhere_at_once_and_only_its_hash_is_kept(server, admin):
    made = make(admin, workspace="two")
    key = made["key"]
    assert key.startswith("brig-") and made["hash"] == hashlib.sha256(key.encode()).hexdigest()
    assert everywhere(server, key) == {200}
    own = server.client(key).get("/key").json["data"]
    assert own["hash"] == made["hash"] and own["name"] == "team" and own["workspace"] == "two" and own["account"] == "acme"
    listed = {k["hash"]: k for k in admin.get("/keys").json["data"]}
    assert listed[made["hash"]] == own
    assert admin.get("/keys/" + made["hash"]).json["data"] == own
    assert "key" not in own
    assert files_with(server, key.encode()) == []
    assert key not in server.log()


def test_what_a_key_says_of_itself(admin):
    made = make(admin, name="all of it", admin=True, requests_per_minute=60, containers_at_once=2, limit=12.50, limit_reset="monthly",
                expires_at="2100-01-01T02:00:00+02:00", disabled_server_tools=["openrouter:shell", "exec"])
    data = made["data"]
    assert {k: data[k] for k in ("admin", "requests_per_minute", "containers_at_once", "limit", "limit_remaining", "limit_reset", "usage",
                                 "expires_at", "disabled_server_tools", "revoked", "read_only")} == {
        "admin": True, "requests_per_minute": 60, "containers_at_once": 2, "limit": 12.5, "limit_remaining": 12.5, "limit_reset": "monthly",
        "usage": 0, "expires_at": "2100-01-01T00:00:00.000Z", "disabled_server_tools": ["shell", "exec"], "revoked": False, "read_only": False}
    assert make(admin)["data"]["expires_at"] is None


@pytest.mark.parametrize("fields, param", [
    ({"name": ""}, "name"), ({"name": None}, "name"), ({"name": "x" * 101}, "name"), ({"name": "a\nb"}, "name"), ({"workspace": "a/b"}, "workspace"),
    ({"limit": -1}, "limit"), ({"limit": "1e3"}, "limit"), ({"limit": 1e30}, "limit"), ({"limit": True}, "limit"),
    ({"limit_reset": "daily"}, "limit_reset"), ({"limit": 1, "limit_reset": "hourly"}, "limit_reset"),
    ({"requests_per_minute": 0}, "requests_per_minute"), ({"requests_per_minute": 1.5}, "requests_per_minute"),
    ({"containers_at_once": -1}, "containers_at_once"), ({"expires_at": "tomorrow"}, "expires_at"), ({"expires_at": "2020-01-01"}, "expires_at"),
    ({"disabled_server_tools": ["web_search"]}, "disabled_server_tools"), ({"disabled_server_tools": "shell"}, "disabled_server_tools"),
    ({"account": "other"}, "account"), ({"hash": "0" * 64}, "hash"),
])
def test_what_cannot_be_is_refused(admin, fields, param):
    answer = make(admin, expect=400, **fields)
    assert answer.error["param"] == param


def test_an_answer_with_a_key_is_not_kept_for_an_idempotency_key(server, admin):
    answer = admin.post("/keys", {"name": "again"}, headers={"Idempotency-Key": "abc"})
    assert answer.status == 400 and answer.error["param"] == "Idempotency-Key"


# ---- whose ----

def test_management_is_for_admin_keys(server):
    plain = server.client("one")
    for method, path, body in [("POST", "/keys", {"name": "x"}), ("GET", "/keys", None), ("GET", "/keys/" + "0" * 64, None),
                               ("DELETE", "/keys/" + "0" * 64, None), ("PATCH", "/keys/" + "0" * 64, {"name": "x"}), ("GET", "/workspaces", None), ("POST", "/workspaces", {"name": "x"}),
                               ("GET", "/workspaces/one", None), ("PATCH", "/workspaces/one", {"store_content": False})]:
        answer = plain.request(method, "/api/v1" + path, body)
        assert answer.status == 403, (method, path, answer)
    assert plain.get("/key").json["data"]["workspace"] == "one"


def test_an_account_sees_and_revokes_its_own_keys_only(server, admin):
    far = server.client("far admin")
    mine, theirs = make(admin), make(far)
    assert mine["hash"] not in {k["hash"] for k in far.get("/keys").json["data"]}
    assert far.get("/keys/" + mine["hash"]).status == 404
    assert far.delete("/keys/" + mine["hash"]).status == 404
    assert theirs["data"]["account"] == "other"
    assert everywhere(server, mine["key"]) == {200}


def test_keys_of_the_configuration_are_listed_and_stay(server, admin):
    listed = {k["name"]: k for k in admin.get("/keys").json["data"] if k["read_only"]}
    assert set(listed) == {"boss", None} and listed["boss"]["admin"]
    answer = admin.delete("/keys/" + listed["boss"]["hash"])
    assert answer.status == 403 and "brig.yaml" in answer.error["message"]
    assert admin.get("/key").status == 200


# ---- changing ----

def change(client, made, expect=200, **fields):
    answer = client.request("PATCH", client.base + "/keys/" + made["hash"], fields)
    assert answer.status == expect, answer
    return answer.json["data"] if expect == 200 else answer.error


def test_a_key_is_changed_everywhere_when_the_answer_comes(server, admin):
    made = make(admin, limit=25, limit_reset="daily", requests_per_minute=1000, containers_at_once=3, disabled_server_tools=["bash"])
    own = server.client(made["key"])

    def everywhere_is(**fields):
        for _ in range(24):
            now = own.get("/key").json["data"]
            assert {k: now[k] for k in fields} == fields, now

    assert change(admin, made) == made["data"]
    changed = change(admin, made, name="other", limit="30.5")
    assert changed == dict(made["data"], name="other", limit=30.5, limit_remaining=30.5)
    assert admin.get("/keys/" + made["hash"]).json["data"] == changed
    everywhere_is(limit=30.5, limit_reset="daily", requests_per_minute=1000)
    change(admin, made, limit_reset="weekly", requests_per_minute=2000)
    everywhere_is(limit=30.5, limit_reset="weekly", requests_per_minute=2000, containers_at_once=3)
    change(admin, made, limit=None, requests_per_minute=None, containers_at_once=None, disabled_server_tools=None)
    everywhere_is(limit=None, limit_reset=None, requests_per_minute=None, containers_at_once=None, disabled_server_tools=[])
    change(admin, made, expires_at="2100-01-01", disabled_server_tools=["shell"])
    everywhere_is(expires_at="2100-01-01T00:00:00.000Z", disabled_server_tools=["shell"], name="other")
    ask = {"model": "brig/script", "input": "x", "tools": [{"type": "openrouter:shell"}]}
    assert {own.post("/responses", ask).status for _ in range(12)} == {403}
    change(admin, made, disabled_server_tools=[], expires_at=None)
    assert {own.post("/responses", ask).status for _ in range(12)} == {200}
    everywhere_is(expires_at=None)


@pytest.mark.parametrize("fields, param", [
    ({"name": None}, "name"), ({"name": ""}, "name"), ({"limit": -1}, "limit"), ({"limit": None, "limit_reset": "daily"}, "limit_reset"),
    ({"limit_reset": "daily"}, "limit_reset"), ({"limit_reset": "hourly"}, "limit_reset"), ({"requests_per_minute": 0}, "requests_per_minute"),
    ({"expires_at": "2020-01-01"}, "expires_at"), ({"disabled_server_tools": ["web_search"]}, "disabled_server_tools"),
    ({"admin": True}, "admin"), ({"workspace": "two"}, "workspace"), ({"revoked": False}, "revoked"),
])
def test_what_a_key_cannot_be_changed_to_is_refused(admin, fields, param):
    made = make(admin)
    assert change(admin, made, 400, **dict({"containers_at_once": 7}, **fields))["param"] == param
    assert admin.get("/keys/" + made["hash"]).json["data"] == made["data"]


def test_whose_keys_are_changed(server, admin):
    made = make(admin)
    change(server.client("far admin"), made, 404, name="x")
    change(server.client(made["key"]), made, 403, name="x")
    (boss,) = [k for k in admin.get("/keys").json["data"] if k["name"] == "boss"]
    assert "brig.yaml" in change(admin, boss, 403, name="x")["message"]
    assert admin.delete("/keys/" + made["hash"]).status == 200
    for gone in (made, {"hash": "0" * 64}, {"hash": "short"}):
        change(admin, gone, 404, name="x")
    assert admin.get("/keys/" + made["hash"]).json["data"]["name"] == "team"


# ---- revoking ----

def test_a_revoked_key_is_refused_everywhere_when_the_answer_comes(server, admin):
    made = make(admin)
    assert everywhere(server, made["key"]) == {200}
    answer = admin.delete("/keys/" + made["hash"])
    assert answer.status == 200 and answer.json["revoked"]
    assert everywhere(server, made["key"]) == {401}
    assert admin.get("/keys/" + made["hash"]).json["data"]["revoked"]
    assert admin.delete("/keys/" + made["hash"]).status == 200
    for nothing in ("0" * 64, "short", made["hash"] + "0"):
        assert admin.delete("/keys/" + nothing).status == 404
        assert admin.get("/keys/" + nothing).status == 404


def test_a_key_may_be_revoked_while_a_turn_runs_with_it(server, admin, provider):
    made = make(admin)
    gate = threading.Event()
    model = provider.model(Reply([chunk({"role": "assistant", "content": ""}), Wait(gate)] + text_deltas("the last") + ending("stop", (10, 5))))
    stream = server.client(made["key"]).begin(model)
    model.wait()
    assert admin.delete("/keys/" + made["hash"]).status == 200
    gate.set()
    assert "completed" in Story(stream.rest()).types[-2]
    assert everywhere(server, made["key"]) == {401}


def test_keys_outlive_the_server_and_expire(make_server):
    server = make_server()
    server.start()
    made = make(server.client("admin"))
    short = make(server.client("admin"), expires_at="2100-01-01")
    server.stop()
    server.start()
    assert server.client(made["key"]).get("/key").json["data"]["hash"] == made["hash"]
    server.stop()
    db = sqlite3.connect(server.data / "gateway" / "brig.db")
    with db:
        db.execute("UPDATE keys SET expires_ms = 1000 WHERE hash = ?", (short["hash"],))
    db.close()
    server.start()
    answer = server.client(short["key"]).get("/key")
    assert answer.status == 401 and "expired" in answer.error["message"]
