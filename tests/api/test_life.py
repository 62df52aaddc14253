"""What time does to containers: sleep, keeping, expiry, deletions that a crash cut short. Time passes by setting rows back."""
import sqlite3
import time

import pytest

import brigtest
from brigtest import wait_for

DAY = 24 * 3600 * 1000
ROUND = 60  # seconds within which a keeper surely looks again, also when the last one died


@pytest.fixture(params=[1, 3])
def server(request):
    server = brigtest.Server(None, workers=request.param, config={"container": {"sleep_after": "1s", "keep_days": 30, "pool": 0}})
    with server.running():
        yield server


def database(server):
    return next(server.data.rglob("brig.db"))


def set_row(server, name, **values):
    columns = ", ".join("%s = ?" % c for c in values)
    with sqlite3.connect(database(server), timeout=10) as db:
        changed = db.execute("UPDATE containers SET %s WHERE id = ?" % columns, [*values.values(), name]).rowcount
    db.close()
    assert changed == 1


def ago(ms):
    return int(time.time() * 1000) - ms




def homes(server):
    return {p.name for p in (server.data / "homes").iterdir()}


def test_unused_ones_are_deleted_after_their_time(server):
    client = server.client()
    before = homes(server)
    for name in ("old", "young", "brief"):
        if name == "brief":
            made = client.post("/containers", {"name": name, "expires_after": {"anchor": "last_active_at", "minutes": 20}})
            assert made.json["expires_after"] == {"anchor": "last_active_at", "minutes": 20}
        assert client.run(name, "echo %s > f" % name)["outcome"]["exit_code"] == 0
    assert len(homes(server) - before) == 3
    set_row(server, "old", last_used_ms=ago(31 * DAY))
    set_row(server, "young", last_used_ms=ago(29 * DAY))
    set_row(server, "brief", last_used_ms=ago(21 * 60000))
    server.stop()
    server.start()  # the rows say it all
    wait_for(lambda: {c["id"] for c in client.get("/containers?limit=100").json["data"]} == {"young"}, ROUND)
    wait_for(lambda: len(homes(server) - before) == 1, ROUND)
    assert client.get("/containers/old").status == 404
    assert client.run("young", "cat f")["stdout"] == "young\n"
    assert client.run("old", "ls -A")["stdout"] == ""


def test_one_in_use_is_not_deleted(server):
    client = server.client()
    begun = client.post("/containers/busy/exec", {"argv": ["sh", "-c", "echo on > f; sleep 600"], "detach": True})
    assert begun.status == 202, begun
    wait_for(lambda: client.get("/containers/busy").status == 200)  # the answer does not wait for the row
    set_row(server, "busy", last_used_ms=ago(31 * DAY))
    # the keeper finds it, sees the holder, and counts that as use
    def touched():
        return client.get("/containers/busy").json["last_active_at"] > time.time() - 3600
    wait_for(touched, ROUND, every=0.2)
    assert client.run("busy", "cat f")["stdout"] == "on\n"
    assert client.get("/containers/busy/exec/" + begun.json["exec_id"]).json["status"] == "running"


def test_a_use_comes_before_the_deletion(server):
    client = server.client()
    client.run("back", "echo kept > f")
    set_row(server, "back", last_used_ms=ago(29 * DAY))
    assert client.run("back", "cat f")["stdout"] == "kept\n"
    assert client.get("/containers/back").json["last_active_at"] > time.time() - 3600


def test_a_deletion_that_a_crash_cut_short_is_ended(server):
    client = server.client()
    before = homes(server)
    client.run("half", "echo old > f")
    server.kill()
    set_row(server, "half", deleting=1, last_used_ms=ago(2 * 60000))
    server.start()
    wait_for(lambda: homes(server) == before, ROUND)
    wait_for(lambda: client.get("/containers/half").status == 404, ROUND)


def test_a_new_one_while_the_old_is_deleted(server):
    """Used after a deletion began: it is a new one, and stays."""
    client = server.client()
    client.run("twice", "true")
    set_row(server, "twice", deleting=1)
    assert "twice" not in {c["id"] for c in client.get("/containers?limit=100").json["data"]}
    assert client.run("twice", "echo new > g")["outcome"]["exit_code"] == 0
    assert client.get("/containers/twice").json["status"] != "deleting"
    set_row(server, "twice", deleting=1)
    assert client.post("/containers", {"name": "twice", "metadata": {"n": "2"}}).json["metadata"] == {"n": "2"}
    assert client.delete("/containers/twice").json["deleted"] is True


def test_kept_running(server):
    client = server.client()
    now = time.time()
    made = client.post("/containers", {"name": "kept", "keep_running": 3600}).json
    assert now + 3590 < made["keep_running_until"] < now + 3610
    for name in ("kept", "plain"):
        client.run(name, "(while sleep 0.05; do echo x >> ticks; done) > /dev/null 2>&1 &")
    wait_for(lambda: client.get("/containers/plain").json["status"] == "asleep", every=0.1)
    assert client.get("/containers/kept").json["status"] == "running"
    first = int(client.run("kept", "wc -l < ticks")["stdout"])
    wait_for(lambda: int(client.run("kept", "wc -l < ticks")["stdout"]) > first + 3)
    # no longer: asleep like any other, and what ran is gone
    assert client.post("/containers", {"name": "kept", "keep_running": False}).json["keep_running_until"] is None
    wait_for(lambda: client.get("/containers/kept").json["status"] == "asleep", every=0.1)
    assert client.get("/containers/plain").json["keep_running_until"] is None


def test_bad_times(server):
    client = server.client()
    for keep in ("yes", -1, 1.5, 31 * 24 * 3600 + 1, {}):
        bad = client.post("/containers", {"name": "bad", "keep_running": keep})
        assert bad.status == 400 and bad.error["param"] == "keep_running", bad
    for expiry in ("20", {"anchor": "created_at", "minutes": 5}, {"anchor": "last_active_at"},
                   {"anchor": "last_active_at", "minutes": 0}, {"anchor": "last_active_at", "minutes": 30 * 24 * 60 + 1}):
        bad = client.post("/containers", {"name": "bad", "expires_after": expiry})
        assert bad.status == 400 and bad.error["param"].startswith("expires_after"), bad
    assert client.get("/containers/bad").status == 404
