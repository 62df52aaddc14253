"""Containers over time, and processes that die: freezing, sleep, waking, no room, crashes, restarts, the end."""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import sqlite3
import time

import pytest

from brigtest import KEYS, SHELL, connect, cpu_ticks, descendants, items_of, outputs_of, text_of, wait_for
from fake_provider import Hold, Reply, calls, chunk, shell, text

SPIN = "sh -c 'while :; do :; done'"


def status(client, id):
    answer = client.get("/containers/" + id)
    return answer.json["status"] if answer.status == 200 else None


def reach(client, id, state):
    wait_for(lambda: status(client, id) == state, message="%s is %s" % (id, status(client, id)))


def stopped(pid):
    """Waits until a process computes no more: version 1 freezes in its own time. What it has computed."""
    def still():
        before = cpu_ticks(pid)
        time.sleep(0.5)
        return cpu_ticks(pid) == before
    wait_for(still)
    return cpu_ticks(pid)


# ---- freezing ----

def test_an_idle_container_is_frozen_and_uses_no_cpu(server, client):
    client.run("frozen", "setsid -f %s >/dev/null 2>&1" % SPIN)
    reach(client, "frozen", "frozen")
    (spinner,) = [p for p in server.guests("while :; do :; done")]
    before = stopped(spinner)
    # The next use thaws it: the process is still the same.
    assert client.run("frozen", "pgrep -c -f 'while :; do'; sleep 0.3")["stdout"].strip() >= "1"
    assert cpu_ticks(spinner) > before
    reach(client, "frozen", "frozen")
    client.delete("/containers/frozen")


def test_background_processes_run_on_through_the_whole_turn(client, provider):
    model = provider.model(calls(shell("(sleep 0.6; echo late > late) & true")),
                           calls(shell("until [ -s late ]; do sleep 0.05; done; cat late")), text("ok"))
    response = client.ask(model, tools=[SHELL])
    assert outputs_of(response)[1]["stdout"] == "late\n"


def test_a_container_is_not_frozen_while_a_turn_holds_it(server, client, provider):
    model = provider.model(calls(shell("setsid -f %s >/dev/null 2>&1" % SPIN)), Reply([Hold()]))
    stream = client.begin(model, tools=[SHELL], session_id="held")
    model.wait(2)
    (spinner,) = server.guests("while :; do :; done")
    before = cpu_ticks(spinner)
    wait_for(lambda: cpu_ticks(spinner) > before)
    stream.close()
    reach(client, "sess_held", "frozen")
    client.delete("/containers/sess_held")


# ---- sleep and waking ----

def test_sleep_and_wake(make_server, provider):
    server = make_server(config={"container": {"sleep_after": "1s", "pool": 0}})  # whose inits would be seen
    client = server.start().client()
    client.run("s", "echo kept > f; mkdir d; chown 1234:5678 d; chmod 4755 f; echo lost > /tmp/f; echo lost > /root/f; "
                    "echo lost > /etc/f; setsid -f sleep 97001; until pgrep -x sleep >/dev/null; do :; done")
    reach(client, "s", "asleep")
    # An asleep container is files only.
    wait_for(lambda: not server.guests("sleep 97001") and not server.children("brig: init"))
    output = client.run("s", "cat f; stat -c '%u:%g %a' d f; ls /tmp /root; ls /etc/f; pgrep sleep; echo end")
    lines = output["stdout"].splitlines()
    assert lines[0] == "kept" and lines[1] == "1234:5678 755" and lines[2].startswith("0:0 ")
    assert "lost" not in output["stdout"] and lines[-1] == "end"
    assert not [l for l in lines if l == "f"]
    # A command in progress is not idle.
    assert client.run("s", "sleep 1.6; echo awake")["stdout"] == "awake\n"


def test_a_wake_costs_the_floor_again(make_server, provider):
    client = make_server().start().client()
    ask = lambda: client.ask(provider.model(calls(shell("true")), text("ok")), tools=[SHELL], session_id="cost")[
        "usage"]["cost_details"]["server_tool_cost"]
    assert ask() == 0.003
    assert ask() < 0.003
    wait_for(lambda: client.post("/containers/sess_cost/sleep", {}).status == 200)
    reach(client, "sess_cost", "asleep")
    assert ask() == 0.003


# ---- no room ----

@pytest.fixture(params=[1, 3], ids=["workers1", "workers3"])
def workers(request):
    return request.param


def crowded(make_server, workers, **limits):
    server = make_server(workers=workers, config={"container": {"live": 2, "memory": "128m", "home": "128m", "scratch": "128m"},
                                 "limits": dict({"capacity_wait": "300ms"}, **limits)})
    return server.start()


def test_the_longest_idle_container_makes_room(make_server, workers):
    client = crowded(make_server, workers).client()
    for name in ("a", "b"):
        client.run(name, "echo %s > f" % name)
        reach(client, name, "frozen")
    assert client.run("c", "echo c")["stdout"] == "c\n"
    assert status(client, "a") == "asleep" and status(client, "b") != "asleep"
    # Its files are still there; now b is the one to go.
    assert client.run("a", "cat f")["stdout"] == "a\n"
    assert status(client, "b") == "asleep"


def test_without_room_an_exec_is_429_and_a_call_failed(make_server, provider, workers):
    server = crowded(make_server, workers)
    client = server.client()
    busy = [client.open_stream("/containers/busy-%d/exec" % i, {"commands": ["sleep 98001"]}) for i in range(2)]
    wait_for(lambda: len(server.guests("sleep 98001")) >= 2)
    answer = client.post("/containers/late/exec", {"commands": ["true"]})
    assert answer.status == 429 and int(answer.headers["retry-after"]) >= 1, answer
    model = provider.model(calls(shell("touch never")), text("no room, then"))
    response = client.ask(model, tools=[SHELL])
    (item,) = items_of(response, "openrouter:shell")
    assert item["status"] == "failed" and "capacity" in item["error"] and not item.get("output")
    assert text_of(response) == "no room, then"
    assert "capacity" in model.requests[1].messages[-1]["content"]
    for stream in busy:
        stream.close()
    wait_for(lambda: client.post("/containers/late/exec", {"commands": ["true"]}).status == 200)


def test_waiting_for_room_is_rewarded(make_server, workers):
    server = crowded(make_server, workers, capacity_wait="60s")
    client = server.client()
    busy = [client.open_stream("/containers/busy-%d/exec" % i, {"commands": ["sleep 98002"]}) for i in range(2)]
    wait_for(lambda: len(server.guests("sleep 98002")) >= 2)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.run, "patient", "echo there")
        time.sleep(0.3)
        assert not waiting.done()
        busy[0].close()
        assert waiting.result(60)["stdout"] == "there\n"
    busy[1].close()


# ---- full disks ----

def test_a_full_home_is_the_guests_own_trouble(server, client):
    """ext4 discards what was deleted before it is free again, so the first write after rm may come a moment too early."""
    output = client.run("full", "head -c 400M /dev/zero > big; echo $?; rm -f big; "
                                "for i in $(seq 200); do echo ok > f && break; sleep 0.1; done; cat f")
    assert output["stdout"].splitlines()[-1] == "ok" and "No space left" in output["stderr"]
    client.delete("/containers/full")


# ---- deaths ----

def test_a_gateway_that_is_killed(make_server, provider, workers):
    """Its turns are lost, the container and others' turns are not, and there is a new gateway soon."""
    server = make_server(workers=workers).start()
    client = server.client()
    client.run("c", "echo kept > f; echo live > /tmp/live")
    victims = server.gateways()
    assert len(victims) == workers
    streams = {}
    for _ in range(60):  # until each gateway has a stream of its own
        model = provider.model(Reply([chunk({"content": "begun"}), Hold()]))
        stream = client.begin(model)
        stream.until("begun")
        local = stream.sock.getsockname()[1]
        owner = owner_of(server, victims, local)
        if owner in streams:
            stream.close()
        else:
            streams[owner] = (stream, model)
        if len(streams) == workers:
            break
    assert len(streams) == workers
    os.kill(victims[0], signal.SIGKILL)
    stream, model = streams.pop(victims[0])
    with pytest.raises((EOFError, OSError)):
        stream.rest()
    assert model.requests[0].closed.wait(60)
    for stream, model in streams.values():
        assert not model.requests[0].closed.is_set()
    wait_for(lambda: len([g for g in server.gateways() if g != victims[0]]) == workers)
    wait_for(lambda: try_run(client, "c", "cat f /tmp/live") == "kept\nlive\n")
    for stream, _ in streams.values():
        stream.close()


def try_run(client, container, command):
    with contextlib.suppress(OSError, EOFError):
        return client.run(container, command)["stdout"]


def owner_of(server, gateways, port):
    """The gateway that has the connection from this local port."""
    want = "%04X" % server.port, "%04X" % port
    inode = None
    with open("/proc/net/tcp") as f:
        for line in f.readlines()[1:]:
            fields = line.split()
            if (fields[1].split(":")[1], fields[2].split(":")[1]) == want:
                inode = fields[9]
    for pid in gateways:
        for fd in os.listdir("/proc/%d/fd" % pid):
            with contextlib.suppress(OSError):
                if os.readlink("/proc/%d/fd/%s" % (pid, fd)) == "socket:[%s]" % inode:
                    return pid
    raise AssertionError("no gateway has it")


def test_commands_of_a_killed_gateway_are_killed_and_others_go_on(make_server, provider):
    server = make_server(workers=3).start()
    client = server.client()
    client.run("c", "true")
    streams = {}
    for n in range(60):
        stream = client.open_stream("/containers/c/exec", {"commands": ["echo up; sleep 99%03d" % n], "stream": True})
        stream.until('"text":"up')
        owner = owner_of(server, server.gateways(), stream.sock.getsockname()[1])
        if owner in streams or len(streams) == 2:
            stream.close()
        else:
            streams[owner] = (stream, "sleep 99%03d" % n)
        if len(streams) == 2:
            break
    (dead, (_, gone)), (_, (other, stays)) = streams.items()
    os.kill(dead, signal.SIGKILL)
    wait_for(lambda: not server.guests(gone))
    assert server.guests(stays), "the command of another gateway was killed"
    for stream, _ in streams.values():
        stream.close()


def test_init_that_is_killed(server, client, provider):
    """Each command in progress gets an error outcome, never exit 0; the container is asleep, its files stay."""
    client.run("no-init", "echo kept > f")
    stream = client.open_stream("/containers/no-init/exec", {"commands": ["echo begun; sleep 98003", "echo never"]})
    wait_for(lambda: server.guests("sleep 98003"))
    kill_init(server, "sleep 98003")
    answer = stream.body()
    found = json.loads(answer)
    assert stream.status >= 500 or found.get("error") or found["output"][0]["outcome"]["exit_code"] != 0, answer
    assert "never" not in str(found)
    wait_for(lambda: try_run(client, "no-init", "cat f") == "kept\n")
    # The same in a turn.
    model = provider.model(calls(shell("echo begun; sleep 98004", "touch never")), text("it broke"))
    stream = client.begin(model, tools=[SHELL], session_id="no-init")
    wait_for(lambda: server.guests("sleep 98004"))
    kill_init(server, "sleep 98004")
    from brigtest import Story
    story = Story(stream.rest())
    (item,) = items_of(story.response, "openrouter:shell")
    assert item["status"] in ("failed", "incomplete") and item["error"], item
    assert not any(o["outcome"] == {"type": "exit", "exit_code": 0} for o in item.get("output", []))
    assert text_of(story.response) == "it broke"
    wait_for(lambda: try_run(client, "sess_no-init", "ls; echo ok") == "ok\n")


def kill_init(server, guest):
    """SIGKILL to the init that the guest's process descends from."""
    (pid, *_) = server.guests(guest)
    while True:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            if f.read().startswith(b"brig: init"):
                break
        with open("/proc/%d/status" % pid) as f:
            pid = int(next(l for l in f if l.startswith("PPid:")).split()[1])
        assert pid > 1
    os.kill(pid, signal.SIGKILL)


def test_a_killed_supervisor_leaves_nothing_and_the_next_one_serves_the_same_files(make_server, provider, workers):
    server = make_server(workers=workers).start()
    client = server.client()
    client.run("c", "echo kept > f; echo lost > /tmp/f; setsid -f sleep 98005")
    running = client.open_stream("/containers/d/exec", {"commands": ["echo x > half; sleep 98006"]})
    model = provider.model(Reply([chunk({"content": "begun"}), Hold()]))
    stream = client.begin(model)
    stream.until("begun")
    wait_for(lambda: server.guests("sleep 98006"))
    gateways = server.gateways()
    server.kill()
    assert model.requests[0].closed.wait(60)
    # init and the gateways go by themselves.
    wait_for(lambda: not server.own(), message="still there: %s" % server.own())
    for s in (running, stream):
        s.close()
    (server.data / "url").unlink(missing_ok=True)
    server.start()
    assert not set(gateways) & set(server.gateways())
    client = server.client()
    assert status(client, "c") == "asleep"
    assert client.run("c", "cat f; ls /tmp; pgrep sleep")["stdout"] == "kept\n"
    assert client.run("d", "cat half")["stdout"] == "x\n"


def test_a_second_server_on_the_same_data_folder_is_refused(server):
    import subprocess
    from brigtest import BRIG
    second = subprocess.run([BRIG, "serve", "--config", str(server.config_path), "--listen", "127.0.0.1:0"],
                            capture_output=True, text=True, timeout=30)
    assert second.returncode == 1 and "ready" not in second.stdout, second
    assert str(server.data) in second.stderr or "in use" in second.stderr, second.stderr
    assert server.client().request("GET", "/healthz").status == 200
    assert server.client().run("still", "echo here")["stdout"] == "here\n"


# ---- the end ----

def test_drain_finishes_what_runs_and_takes_nothing_new(make_server, provider, workers):
    server = make_server(workers=workers, config={"grace": "300s"}).start()
    client = server.client()
    model = provider.model(calls(shell("until [ -e go ]; do sleep 0.01; done; echo went")), text("finished"))
    stream = client.begin(model, tools=[SHELL], session_id="drain")
    job = client.open_stream("/containers/job/exec", {"commands": ["sleep 2.7; echo job done"]})
    wait_for(lambda: server.guests("sleep 2.7"))
    helper = client.open_stream("/containers/sess_drain/exec", {"commands": ["sleep 2.5; touch go"]})
    stream.until("output_item.added")
    wait_for(lambda: server.guests("sleep 2.5"))
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: refused(server))
    from brigtest import Story
    story = Story(stream.rest())
    assert outputs_of(story.response)[0]["stdout"] == "went\n" and text_of(story.response) == "finished"
    assert json.loads(job.body())["output"][0]["stdout"] == "job done\n"
    server.stop()


def refused(server):
    import socket
    try:
        socket.create_connection((server.host, server.port), 1).close()
        return False
    except OSError:
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_wait(make_server, provider, number):
    server = make_server(config={"grace": "300s"}).start()
    client = server.client()
    model = provider.model(calls(shell("sleep 98007")), text("never"))
    stream = client.begin(model, tools=[SHELL])
    wait_for(lambda: server.guests("sleep 98007"))
    server.process.send_signal(number)
    wait_for(lambda: refused(server))
    assert server.process.poll() is None
    server.process.send_signal(number)
    server.stop()
    assert "gateway_died" not in server.log() and "egress_died" not in server.log()  # they were killed
    stream.close()


def test_the_grace_period_ends(make_server, provider):
    server = make_server(config={"grace": "500ms"}).start()
    client = server.client()
    model = provider.model(calls(shell("sleep 98008")), text("never"))
    stream = client.begin(model, tools=[SHELL])
    detached = client.execute("d", "sleep 98009", detach=True, expect=202)
    wait_for(lambda: server.guests("sleep 98008") and server.guests("sleep 98009"))
    started = time.monotonic()
    server.stop()
    assert time.monotonic() - started < 25 and detached  # 30 s are allowed where nothing is set
    stream.close()


def test_idle_keep_alive_connections_do_not_hold_the_end(make_server):
    from brigtest import connect
    server = make_server(config={"grace": "300s"}).start()
    idle = [connect(server) for _ in range(20)]
    server.stop()
    for sock in idle:
        sock.close()


def test_a_gateway_has_no_privileges(server):
    for pid in server.gateways():
        with open("/proc/%d/status" % pid) as f:
            fields = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
        assert set(fields["Uid"].split()) == {str(server.id_base)} and set(fields["Gid"].split()) == {str(server.id_base)}
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(fields[name], 16) == 0, (name, fields[name])
        assert fields["NoNewPrivs"] == "1" and fields["Groups"].strip() == ""


def test_processes_say_what_they_are(server, client):
    client.run("titles", "true")
    titles = {t.split(" ")[1] for t in descendants(server.supervisor()).values() if t.startswith("brig: ")}
    assert {"gateway", "init"} <= titles


def test_cgroups_v1_when_asked_for(make_server, provider):
    """The same on a v1 tree: deadline, freezing, sleep, memory, and nothing left behind."""
    server = make_server(config={"cgroups": "v1", "container": {"sleep_after": "6s", "memory": "128m", "home": "128m",
                                                                "scratch": "128m"}})
    client = server.start().client()
    outputs = client.execute("v", "setsid -f sleep 98010; sleep 98011", "echo next", timeout_ms=1500)["output"]
    assert outputs[0]["outcome"] == {"type": "timeout"} and outputs[1]["stdout"] == "next\n"
    assert not server.guests("sleep 9801")
    killed = client.run("v", "python3 -c 'b = bytearray(400 << 20)'")["outcome"]
    assert killed["exit_code"] == 137 and killed["reason"] == "memory", killed
    client.run("v", "echo kept > f; setsid -f %s >/dev/null 2>&1" % SPIN)
    reach(client, "v", "frozen")
    (spinner,) = server.guests("while :; do :; done")
    stopped(spinner)
    reach(client, "v", "asleep")
    assert client.run("v", "cat f")["stdout"] == "kept\n"


def test_without_sandboxes_the_server_serves_models_only(make_server, provider):
    server = make_server(config={"sandbox": False}).start()
    client = server.client()
    assert text_of(client.ask(provider.model(text("ok")))) == "ok"
    assert client.ask(provider.model(), tools=[SHELL], expect=400).error["param"] == "tools[0].type"
    answer = client.post("/containers/x/exec", {"commands": ["true"]})
    assert 400 <= answer.status < 600 and "sandbox" in answer.text, answer


def test_without_sandboxes_no_container_is_said_to_be_deleted(make_server, provider):
    client = make_server(config={"sandbox": False}).start().client()
    assert client.post("/containers", {"name": "kept"}).status == 200
    answer = client.delete("/containers/kept")
    assert answer.status == 503 and "files" in answer.error["message"]
    assert client.get("/containers/kept").json["status"] == "asleep"


def test_work_that_ends_when_its_clients_and_the_server_have_gone(make_server):
    """The store keeps the pool waiting until the gateway takes itself apart: what the work was for goes on to nothing that
    is gone already."""
    server = make_server(env={"MALLOC_PERTURB_": "165"}).start()  # what is freed is no longer what it was
    client = server.client()
    store = sqlite3.connect(server.data / "gateway" / "brig.db", isolation_level=None)
    wait_for(lambda: store.execute("SELECT * FROM keeper").fetchall())
    store.execute("BEGIN IMMEDIATE")
    asked = [("POST", "", b'{"name": "new", "keep_running": true}'), ("DELETE", "/old", b""),
             ("POST", "/old/exec", b'{"commands": ["true"]}')]
    sockets = []
    for method, path, body in asked * 2:  # more than the pool has threads
        sockets.append(connect(server))
        sockets[-1].sendall(b"%s /api/v1/containers%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: "
                            b"application/json\r\nContent-Length: %d\r\n\r\n%s" % (
                                method.encode(), path.encode(), KEYS["one"].encode(), len(body), body))
    wait_for(lambda: b'brig_queue_depth{queue="pool"} 0' not in client.request("GET", "/metrics").body)
    (gateway,) = server.gateways()
    for sock in sockets:
        sock.close()
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: "futex" in pathlib.Path("/proc/%d/wchan" % gateway).read_text())  # its loop is over
    store.execute("ROLLBACK")
    server.process.wait(30)
    server.stop()
    assert "gateway_died" not in server.log()
    assert store.execute("SELECT * FROM keeper").fetchall() == []  # it went to the end
    store.close()
