"""Direct use: containers by name, and commands in them: collected, streamed, detached, resumed, repeated, killed."""
import base64
import concurrent.futures
import contextlib
import time
import uuid

import pytest

from brigtest import check_error, parse_sse, wait_for


@pytest.fixture(scope="module")
def server(servers_1_and_3):
    return servers_1_and_3


def fresh():
    return "c-" + uuid.uuid4().hex[:12]


def stream_exec(client, container, **body):
    with contextlib.closing(client.open_stream("/containers/%s/exec" % container, dict(body, stream=True))) as stream:
        assert stream.status == 200, stream.body()
        events, comments = parse_sse(stream.rest())
    for name, event in events:
        assert event["type"] == name
    return events


# ---- containers ----

def test_create_get_list_delete(client):
    name = fresh()
    made = client.post("/containers", {"name": name, "metadata": {"a": "b"}})
    assert made.status in (200, 201), made
    made = made.json
    assert made["id"] == name and made["object"] == "container" and made["name"] == name
    assert made["metadata"] == {"a": "b"} and made["memory_limit"] == "256m"
    assert made["status"] in ("running", "frozen", "asleep") and made["network_policy"] == {"type": "disabled"}
    assert isinstance(made["created_at"], int) and isinstance(made["last_active_at"], int)
    assert client.get("/containers/" + name).json["id"] == name
    assert name in [c["id"] for c in client.get("/containers?limit=100").json["data"]]
    gone = client.delete("/containers/" + name)
    assert gone.json == {"id": name, "object": "container.deleted", "deleted": True}
    assert client.get("/containers/" + name).status == 404


def test_a_name_that_is_no_id_gets_one(client):
    made = client.post("/containers", {"name": "my box / \u00fc"}).json
    assert made["id"].startswith("cntr_") and made["name"] == "my box / \u00fc"
    assert client.post("/containers", {}).json["id"].startswith("cntr_")
    assert client.run(made["id"], "echo ok")["stdout"] == "ok\n"


def test_the_list_is_paged(client):
    names = [fresh() for _ in range(5)]
    for name in names:
        client.post("/containers", {"name": name})
        time.sleep(0.002)  # they are ordered by the millisecond they were made in
    seen, after = [], ""
    while True:
        page = client.get("/containers?limit=2&order=asc" + after).json
        assert page["object"] == "list" and len(page["data"]) <= 2
        if page["data"]:
            assert page["first_id"] == page["data"][0]["id"] and page["last_id"] == page["data"][-1]["id"]
        seen += [c["id"] for c in page["data"]]
        if not page["has_more"]:
            break
        after = "&after=" + page["last_id"]
    assert [s for s in seen if s in names] == names and len(seen) == len(set(seen))
    assert client.get("/containers?name=%s" % names[2]).json["data"][0]["id"] == names[2]
    assert client.get("/containers?limit=100").json["data"][0]["id"] == names[-1]


def test_delete_takes_the_files_and_an_exec_makes_it_anew(client):
    name = fresh()
    client.run(name, "echo old > f")
    assert client.delete("/containers/" + name).status == 200
    assert client.run(name, "ls")["stdout"] == ""


def test_delete_ends_what_runs(server, client):
    name = fresh()
    stream = client.open_stream("/containers/%s/exec" % name, {"commands": ["sleep 95001"]})
    wait_for(lambda: server.guests("sleep 95001"))
    assert client.delete("/containers/" + name).status == 200
    wait_for(lambda: not server.guests("sleep 95001"))
    stream.status
    stream.close()


def test_sleep_ends_what_is_left_running_and_keeps_files(server, client):
    name = fresh()
    client.run(name, "echo kept > f; nohup sleep 95002 >/dev/null 2>&1 &")
    wait_for(lambda: server.guests("sleep 95002"))
    asleep = client.post("/containers/%s/sleep" % name)
    assert asleep.status == 200 and asleep.json["id"] == name and asleep.json["status"] == "asleep", asleep
    wait_for(lambda: not server.guests("sleep 95002"))
    assert client.post("/containers/%s/sleep" % name).json["status"] == "asleep"
    assert client.run(name, "cat f")["stdout"] == "kept\n"
    assert client.post("/containers/%s/sleep" % fresh()).status == 404


def test_a_container_in_use_is_not_put_to_sleep(server, client):
    name = fresh()
    stream = client.open_stream("/containers/%s/exec" % name, {"commands": ["sleep 95003"]})
    wait_for(lambda: server.guests("sleep 95003"))
    refused = client.post("/containers/%s/sleep" % name)
    assert refused.status == 409 and "in use" in refused.json["error"]["message"], refused
    assert server.guests("sleep 95003")
    stream.close()


def test_a_container_keeps_its_environment_and_limits(client):
    name = fresh()
    client.post("/containers", {"name": name, "env": {"GREETING": "hello w\u00f6rld", "B": ""}, "cpus": 0.5})
    output = client.run(name, "echo $GREETING [$B]; nproc; grep MemTotal /proc/meminfo")
    assert output["stdout"].splitlines()[0] == "hello w\u00f6rld []"
    assert output["stdout"].splitlines()[2].split()[1] == str(256 * 1024)
    assert client.run(name, "echo $GREETING", env={"GREETING": "mine"})["stdout"] == "mine\n"


# ---- exec, collected ----

def test_commands_run_in_order_and_are_collected(client):
    answer = client.execute(fresh(), "echo a; echo b >&2", "exit 3", "pwd")
    assert set(answer) == {"container_id", "exec_id", "output"}
    assert answer["output"] == [
        {"stdout": "a\n", "stderr": "b\n", "outcome": {"type": "exit", "exit_code": 0}},
        {"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 3}},
        {"stdout": "/workspace/home\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]


def test_argv_is_run_without_a_shell(client):
    output = client.execute(fresh(), argv=["printf", "%s|", "a b", "$HOME", "*", "", "\u00e4"])["output"][0]
    assert output["stdout"] == "a b|$HOME|*||\u00e4|"
    answer = client.post("/containers/x/exec", {"argv": ["no-such-program"]})
    assert answer.status == 400 and "No such file" in check_error(answer, client.base)["message"]


def test_cwd(client):
    name = fresh()
    assert client.run(name, "pwd", cwd="/etc")["stdout"] == "/etc\n"
    client.run(name, "mkdir -p deep/er")
    assert client.run(name, "pwd", cwd="/workspace/home/deep/er")["stdout"] == "/workspace/home/deep/er\n"
    answer = client.post("/containers/%s/exec" % name, {"commands": ["pwd"], "cwd": "/nowhere"})
    assert answer.status == 400 or answer.json["output"][0]["outcome"]["exit_code"] != 0, answer


def test_env(client):
    output = client.run(fresh(), "echo \"$A\"; echo \"$PATH\" | grep -c /usr/bin", env={"A": "x\n$(y) \u00fc"})
    assert output["stdout"] == "x\n$(y) \u00fc\n1\n"


def test_user(client):
    name = fresh()
    assert client.run(name, "id -un; id -u", user="nobody")["stdout"].splitlines()[1] == "65534"
    assert client.run(name, "id -u; id -g", user="1000:1000")["stdout"] == "1000\n1000\n"
    assert client.run(name, "id -u", user="0")["stdout"] == "0\n"
    answer = client.post("/containers/%s/exec" % name, {"commands": ["id"], "user": "stranger"})
    assert answer.status == 400 or answer.json["output"][0]["outcome"]["exit_code"] != 0, answer


def test_stdin(client):
    assert client.run(fresh(), "cat; echo end", stdin="line 1\nl\u00efne 2\n")["stdout"] == "line 1\nl\u00efne 2\nend\n"
    big = "x" * 1000000
    assert client.run(fresh(), "wc -c", stdin=big)["stdout"].strip() == "1000000"
    # Only the first command gets it.
    assert [o["stdout"] for o in client.execute(fresh(), "cat", "cat", stdin="once")["output"]] == ["once", ""]
    # Who does not read it does not hang.
    assert client.run(fresh(), "true", stdin=big)["outcome"]["exit_code"] == 0


def test_timeout(client):
    output = client.run(fresh(), "echo begun; sleep 600", timeout_ms=1500)
    assert output == {"stdout": "begun\n", "stderr": "", "outcome": {"type": "timeout"}}


def test_24_hours_are_accepted(client):
    assert client.run(fresh(), "echo ok", timeout_ms=86400000)["stdout"] == "ok\n"
    assert client.post("/containers/x/exec", {"commands": ["true"], "timeout_ms": 86400001}).status == 400


def test_max_output_length(client):
    output = client.run(fresh(), "seq 100000", max_output_length=200)
    assert len(output["stdout"]) <= 200 and output["stdout_truncated"] and output["stdout_length"] == 588895


# ---- streamed ----

def test_a_streamed_exec(client):
    name = fresh()
    events = stream_exec(client, name, commands=["echo a; echo b >&2", "exit 5"])
    kinds = [n for n, _ in events]
    assert kinds[0] == "exec.started" and kinds[-1] == "exec.done" and kinds.count("exec.command_done") == 2
    assert events[0][1]["container_id"] == name
    outputs = {(e["command"], e["stream"]): e["text"] for n, e in events if n == "exec.output"}
    assert outputs == {(0, "stdout"): "a\n", (0, "stderr"): "b\n"}
    assert [e["outcome"]["exit_code"] for n, e in events if n == "exec.command_done"] == [0, 5]
    assert [o["outcome"]["exit_code"] for o in events[-1][1]["output"]] == [0, 5]


def test_streamed_output_comes_as_it_is_printed(client):
    name = fresh()
    stream = client.open_stream("/containers/%s/exec" % name, {
        "commands": ["echo one; until [ -e go ]; do sleep 0.01; done; echo two"], "stream": True})
    stream.until('"text":"one\\n"')
    client.run(name, "touch go")
    stream.rest()
    assert b'"text":"two\\n"' in stream.text
    stream.close()


def test_streamed_output_is_never_cut(client):
    events = stream_exec(client, fresh(), commands=["seq 200000"], max_output_length=100)
    text = "".join(e["text"] for n, e in events if n == "exec.output")
    assert text == "".join("%d\n" % i for i in range(1, 200001))
    assert len(events[-1][1]["output"][0]["stdout"]) <= 100


def test_streamed_text_never_splits_a_character(client):
    events = stream_exec(client, fresh(), commands=["python3 -c 'print(\"\\u4e2d\\U0001f600\" * 50000)'"])
    text = "".join(e["text"] for n, e in events if n == "exec.output")
    assert text == "\u4e2d\U0001f600" * 50000 + "\n"


def test_streamed_base64_is_the_bytes(client):
    events = stream_exec(client, fresh(), argv=["head", "-c", "100001", "/dev/zero"], encoding="base64")
    data = b"".join(base64.b64decode(e["data"], validate=True) for n, e in events if n == "exec.output")
    assert data == b"\0" * 100001


def test_keep_alive_while_nothing_is_printed(make_server):
    server = make_server(config={"limits": {"keepalive": "100ms"}}).start()
    stream = server.client().open_stream("/containers/x/exec", {"commands": ["sleep 0.6"], "stream": True})
    events, comments = parse_sse(stream.rest())
    assert len(comments) >= 2 and events[-1][0] == "exec.done"
    stream.close()


# ---- detached, resumed ----

def test_a_detached_exec_answers_at_once_and_is_resumed_by_offset(client):
    name = fresh()
    answer = client.execute(name, "echo one; until [ -e go ]; do sleep 0.01; done; echo two; echo err >&2", detach=True,
                            exec_id="job", expect=202)
    assert answer["status"] == "running" and answer["exec_id"] == "job"
    path = "/containers/%s/exec/job" % name
    first = wait_for(lambda: (lambda r: r if r["stdout"] else None)(client.get(path + "?wait=5").json))
    assert first["stdout"] == "one\n" and first["status"] == "running" and first["stdout_offset"] == 0
    client.run(name, "touch go")
    done = wait_for(lambda: (lambda r: r if r["status"] == "done" else None)(
        client.get(path + "?stdout_offset=4&wait=5").json))
    assert done["stdout"] == "two\n" and done["stderr"] == "err\n" and done["stdout_offset"] == 4
    assert done["output"][0]["stdout"] == "one\ntwo\n"
    again = client.get(path + "?stdout_offset=6&stderr_offset=4").json
    assert again["stdout"] == "o\n" and again["stderr"] == ""


def test_wait_returns_when_there_is_something(client):
    name = fresh()
    client.execute(name, "sleep 0.5; echo late", detach=True, exec_id="w", expect=202)
    started = time.monotonic()
    seen = client.get("/containers/%s/exec/w?wait=30" % name).json
    while not seen["stdout"]:
        seen = client.get("/containers/%s/exec/w?wait=30" % name).json
    assert time.monotonic() - started < 25 and seen["stdout"] == "late\n"


def test_of_a_detached_exec_the_newest_mebibyte_is_kept(client):
    name = fresh()
    client.execute(name, "head -c 3000000 /dev/zero | tr '\\0' a; echo -n end", detach=True, exec_id="big", expect=202)
    path = "/containers/%s/exec/big" % name
    wait_for(lambda: client.get(path + "?stdout_offset=9999999&wait=5").json["status"] == "done")
    got, offset, first = "", 0, None
    while True:
        piece = client.get(path + "?stdout_offset=%d" % offset).json
        first = piece["stdout_offset"] if first is None else first
        if not piece["stdout"]:
            break
        got += piece["stdout"]
        offset = piece["stdout_offset"] + len(piece["stdout"])
    assert first == 3000003 - (1 << 20) and len(got) == 1 << 20 and got.endswith("aaaend")


def test_a_detached_exec_is_killed_by_delete(server, client):
    name = fresh()
    client.execute(name, "sleep 96001", "echo never", detach=True, exec_id="kill", expect=202)
    wait_for(lambda: server.guests("sleep 96001"))
    assert client.delete("/containers/%s/exec/kill" % name).status == 200
    wait_for(lambda: not server.guests("sleep 96001"))
    done = wait_for(lambda: (lambda r: r if r["status"] == "done" else None)(
        client.get("/containers/%s/exec/kill?wait=5" % name).json))
    assert done["output"][0]["outcome"]["exit_code"] == 137 and len(done["output"]) == 1


# ---- exec_id ----

def test_a_repeated_exec_id_is_the_first_run(client):
    name = fresh()
    first = client.execute(name, "echo x >> log; cat log", exec_id="same")
    again = client.execute(name, "echo x >> log; cat log", exec_id="same")
    assert first["output"][0]["stdout"] == again["output"][0]["stdout"] == "x\n"
    assert client.run(name, "cat log")["stdout"] == "x\n"
    # In another container it is another.
    assert client.execute(fresh(), "echo other", exec_id="same")["output"][0]["stdout"] == "other\n"


def test_a_repeated_exec_id_waits_for_the_first_run(client):
    name = fresh()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(client.execute, name, "echo x >> log; sleep 0.5; cat log", exec_id="twice")
                for _ in range(4)]
        assert {r.result()["output"][0]["stdout"] for r in runs} == {"x\n"}


def test_every_gateway_finds_an_exec(client):
    """With three gateways a request lands anywhere; an exec has one owner."""
    name = fresh()
    for i in range(12):
        client.execute(name, "echo %d" % i, detach=True, exec_id="e%d" % i, expect=202)
    for i in range(12):
        wait_for(lambda: client.get("/containers/%s/exec/e%d?wait=5" % (name, i)).json["status"] == "done")
        assert client.get("/containers/%s/exec/e%d" % (name, i)).json["stdout"] == "%d\n" % i
    for i in range(12):
        assert client.execute(name, "echo again", exec_id="e%d" % i)["output"][0]["stdout"] == "%d\n" % i


def test_an_exec_of_another_workspace_is_unknown(server, client):
    name = fresh()
    client.execute(name, "echo mine", exec_id="mine", detach=True, expect=202)
    stranger = server.client("two")
    assert stranger.get("/containers/%s/exec/mine" % name).status == 404
    assert stranger.delete("/containers/%s/exec/mine" % name).status == 404
    assert stranger.execute(name, "echo theirs", exec_id="mine")["output"][0]["stdout"] == "theirs\n"


# ---- many at once ----

def test_at_most_eight_commands_run_at_once_and_all_run(client):
    name = fresh()
    client.run(name, "true")
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        runs = [pool.submit(client.run, name, "echo + >> n; sleep 0.3; grep -c . n; echo - >> n") for _ in range(12)]
        assert all(r.result()["outcome"]["exit_code"] == 0 for r in runs)
    log = client.run(name, "cat n")["stdout"].split()
    running = peak = 0
    for mark in log:
        running += 1 if mark == "+" else -1
        peak = max(peak, running)
    assert log.count("+") == 12 and peak <= 8


def test_an_exec_that_waits_its_turn_can_be_killed(server, client):
    name = fresh()
    for i in range(8):
        client.execute(name, "sleep 96008", detach=True, exec_id="busy%d" % i, expect=202)
    wait_for(lambda: len(server.guests("sleep 96008")) >= 8)
    for n, pause in enumerate((0.3, 1, 3, 10)):  # until init has it: before, there is only a claim to end
        path = "/containers/%s/exec/waits%d" % (name, n)
        client.execute(name, "touch ran", detach=True, exec_id="waits%d" % n, expect=202)
        time.sleep(pause)
        assert client.delete(path).status == 200
        done = wait_for(lambda: (lambda r: r if r["status"] == "done" else None)(client.get(path + "?wait=5").json))
        if "error" not in done:
            break
    assert done["output"][0]["outcome"] == {"type": "exit", "exit_code": 137, "signal": "SIGKILL"}
    for i in range(8):
        client.delete("/containers/%s/exec/busy%d" % (name, i))
    assert client.run(name, "ls ran")["outcome"]["exit_code"] == 2


def test_many_containers_at_once(client):
    names = [fresh() for _ in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        outputs = list(pool.map(lambda n: client.run(n, "echo %s > f; cat f; hostname" % n)["stdout"], names))
    assert [o.splitlines()[0] for o in outputs] == names
