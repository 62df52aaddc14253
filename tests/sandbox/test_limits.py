"""What one container may take, and what others notice of it. (Disks that are full, and output: tests/escape.)"""
import concurrent.futures
import os
import threading
import time

import pytest

import brigtest
from brigtest import SHELL, cpu_ticks, items_of, text_of, wait_for
from fake_provider import calls, shell, text
from sandboxtest import fresh, group_of, output_of, percentile, said, times_of

MIB = 1 << 20


# ---- memory ----

def test_memory_that_kills_a_child_only(client):
    """Named also where the command itself lives on, or tells of it in its own way; and only then."""
    name = fresh()
    eat = "python3 -c 'bytearray(400 << 20)'"
    killed = {"type": "exit", "exit_code": 137}
    found = [client.run(name, command, timeout_ms=60000)["outcome"] for command in
             ("exec " + eat, eat, eat + "; exit $?", "(%s) & wait $!; exit $?" % eat, eat + "; echo on", eat + " || exit 3", "exit 137")]
    assert found[0] == dict(killed, signal="SIGKILL", reason="memory")
    assert found[1] in (dict(killed, reason="memory"), dict(killed, signal="SIGKILL", reason="memory"))  # bash may exec
    assert found[2] == found[3] == dict(killed, reason="memory")
    assert found[4] == {"type": "exit", "exit_code": 0} and found[5] == {"type": "exit", "exit_code": 3}
    assert found[6] == killed


def test_memory_within_the_limit_is_there(client):
    assert output_of(client, fresh(), "python3 -c 'print(len(bytearray(180 << 20)))'") == "%d\n" % (180 * MIB)


def test_files_are_no_memory(client):
    """A cache of files gives way: writing and reading back more than the limit kills nobody."""
    name = fresh()
    assert output_of(client, name, "head -c 200M /dev/zero > a && head -c 200M /dev/zero > /var/b && cat a /var/b | wc -c",
                     timeout_ms=120000) == "%d\n" % (400 * MIB)
    client.delete("/containers/" + name)


def test_tmpfs_is_memory_and_bounded(client):
    """/tmp and /dev/shm end before the container's memory does."""
    assert output_of(client, fresh(), "for d in /tmp /dev/shm; do head -c 300M /dev/zero > $d/f 2>/dev/null; "
                                      "test $(stat -c %s $d/f) -lt 150000000 && echo bounded; rm $d/f; done") == "bounded\nbounded\n"


# ---- processes ----

FORK = """import os, time
n = 0
try:
    while True:
        if os.fork() == 0: time.sleep(300)
        n += 1
except OSError as e: print(n, e.errno, flush=True)
time.sleep(300)
"""
THREADS = """import threading, time
n = 0
try:
    while n < 10000:
        threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
        n += 1
except RuntimeError: print(n, 11, flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("bomb", [FORK, THREADS], ids=["processes", "threads"])
def test_processes_are_a_containers_own(server, client, bomb):
    """P18, P19: two containers at their limit, each of the whole of it; a third is not touched."""
    names = [fresh(), fresh()]
    for name in names:
        client.run(name, "cat > bomb.py", stdin=bomb)
        client.execute(name, "exec python3 bomb.py", detach=True, exec_id="bomb", expect=202)
    for name in names:
        path = "/containers/%s/exec/bomb?wait=30" % name
        said_it = wait_for(lambda: client.get(path).json["stdout"])
        n, errnum = map(int, said_it.split())
        assert 110 <= n <= 128 and errnum == 11
        # What is full may refuse, and does so at once.
        start = time.monotonic()
        client.post("/containers/%s/exec" % name, {"commands": ["true"]})
        assert time.monotonic() - start < 30
    assert output_of(client, fresh(), "for i in $(seq 60); do sleep 1 & done; wait; echo fine") == "fine\n"
    for name in names:
        client.delete("/containers/" + name)
    wait_for(lambda: not server.guests("bomb.py"))


def test_processes_are_limited_unless_told(provider):
    """P18: to 512 where nothing was set."""
    server = brigtest.Server(provider)
    del server.config["container"]["processes"]
    with server.running():
        client = server.client()
        client.run("told", "setsid -f sleep 97203 >/dev/null 2>&1")
        (pid,) = wait_for(lambda: server.guests("97203"))
        assert (group_of(server, pid, "pids") / "pids.max").read_text() == "512\n"


# ---- processors ----

BURN = "python3 - <<'P'\nimport os\nos.sched_setaffinity(0, range(%d))\nfor _ in range(3):\n  if os.fork() == 0: break\n" \
       "while True: pass # burn\nP" % os.cpu_count()


@pytest.mark.parametrize("cpus", [1, 0.3])
def test_processors(server, client, cpus, say):
    """Four processes that take what they get, on every processor there is: in all, the container's share."""
    name = fresh()
    client.post("/containers", {"name": name, "cpus": cpus})
    client.run(name, "cat > burn", stdin=BURN)
    client.execute(name, "bash burn", detach=True, exec_id="burn", expect=202)

    def burners():
        inits = {init for init in server.children("brig: init")}
        table = brigtest.process_table()
        return [pid for pid, (_, title, _) in table.items() if title == "python3 -" and pid in server.own() and pid not in inits]

    pids = wait_for(lambda: (lambda p: p if len(p) >= 4 else None)(burners()))
    time.sleep(0.3)  # what it had saved up is spent
    before, start = sum(map(cpu_ticks, pids)), time.monotonic()
    time.sleep(2)
    share = (sum(map(cpu_ticks, pids)) - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - start)
    client.delete("/containers/" + name)
    say("%s of %s processors used, asked for %s" % (round(share, 2), os.cpu_count(), cpus))
    assert share < cpus * 1.2 + 0.05
    assert share > cpus * 0.1  # others may need the machine


# ---- open files ----

def test_open_files(client):
    """4,096, up to 65,536 for who asks; the next command has its own."""
    name = fresh()
    program = """import os, resource
def most():
    n = []
    try:
        while True: n.append(os.open("/dev/null", 0))
    except OSError as e: print(len(n) + 3, e.errno)
    for fd in n: os.close(fd)
most()
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
most()
try: resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard + 1))
except (ValueError, OSError): print("no more")
"""
    said_it = output_of(client, name, "exec python3 -", stdin=program).split("\n")
    soft, hard = said_it[0].split(), said_it[1].split()
    assert soft == ["4096", "24"] and 4096 < int(hard[0]) <= 65536 and hard[1] == "24" and said_it[2] == "no more"
    assert output_of(client, name, "ulimit -n") == "4096\n"


# ---- others under pressure ----

MEMORY = "while :; do python3 -c 'b = bytearray(230 << 20)\nwhile True: b += bytes(4 << 20)' 2>/dev/null; done"
CACHE = "head -c 220M /dev/zero > big; while :; do cat big > /dev/null; done"
DISK = "while :; do dd if=/dev/zero of=big bs=1M count=150 conv=fsync 2>/dev/null; rm big; sync; done"


def test_pressure(server, client, say):
    """Of memory in one container, of caches, of the disk: `true` in another. Twice its p99 is the aim; on a machine that
    others use as well only much more than that is a failure."""
    calm, loud = fresh("calm"), fresh("loud")
    client.run(calm, "true")
    client.run(loud, "true")
    true = lambda: output_of(client, calm, "true")
    times_of(true, 20)
    alone = times_of(true, 100)
    say("[%s] `true` in a live container: %s" % (server.config["cgroups"], said(alone)))
    for kind, command in (("memory", MEMORY), ("caches", CACHE), ("the disk", DISK)):
        client.execute(loud, command, detach=True, exec_id=kind.split()[-1], expect=202)
        time.sleep(1)
        times = times_of(true, 100)
        client.delete("/containers/" + loud)
        say("[%s] while another uses up %s: %s" % (server.config["cgroups"], kind, said(times)))
        assert percentile(times, 0.5) < max(0.5, percentile(alone, 0.5) * 5 + 0.02)
        assert percentile(times, 0.9) < max(1.0, percentile(alone, 0.99) * 4) or kind == "the disk"


# ---- no room ----

def test_hundreds_of_containers(make_server, say):
    """200 on a server for 8, sixteen at once: each has its turn and keeps its files; no more than 8 ever live."""
    server = make_server(config={"container": {"live": 8, "memory": "64m", "home": "32m", "scratch": "32m"}})
    client = server.client()
    names = [fresh("h%03d" % i) for i in range(200)]
    most, done, order = [0], threading.Event(), []

    def watch():
        while not done.wait(0.05):
            most[0] = max(most[0], len(server.children("brig: init")))

    def use(name):
        said = output_of(client, name, "cat f")
        order.append(name)
        return said

    thread = threading.Thread(target=watch)
    thread.start()
    start = time.monotonic()
    try:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            wrote = list(pool.map(lambda n: output_of(client, n, "echo %s > f; cat f" % n), names))
            read = list(pool.map(use, names[::2]))
    finally:
        done.set()
        thread.join()
    say("300 commands in 200 containers with room for 8: %.1f s" % (time.monotonic() - start))
    assert wrote == [n + "\n" for n in names] and read == [n + "\n" for n in names[::2]]
    assert most[0] <= 8 + 8, most  # those that end have a moment left
    alive = [n for n in names if client.get("/containers/" + n).json["status"] != "asleep"]
    assert len(alive) <= 8
    # Those used last are those that live.
    assert set(alive) <= set(order[-30:])


def test_no_room_at_all(make_server, provider, say):
    """All busy: an exec waits its 10 s and is a 429 with Retry-After, a call fails by name, and both tell nobody else to wait."""
    server = make_server(config={"container": {"live": 2, "pool": 0, "memory": "64m", "home": "32m", "scratch": "32m"}})
    client = server.client()
    for i in range(2):
        client.execute("busy-%d" % i, "sleep 97201", detach=True, exec_id="b", expect=202)
    wait_for(lambda: len(server.guests("97201")) >= 2)
    model = provider.model(calls(shell("true")), text("no room"))
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        asked = pool.submit(client.ask, model, tools=[SHELL])
        late = [pool.submit(client.post, "/containers/late-%d/exec" % i, {"commands": ["true"]}) for i in range(30)]
        time.sleep(1)
        assert client.run("busy-0", "echo meanwhile")["stdout"] == "meanwhile\n"
        for each in late:
            answer = each.result()
            assert answer.status == 429 and int(answer.headers["retry-after"]) >= 1, answer
            assert "capacity" in answer.error["message"], answer
        took = time.monotonic() - start
        response = asked.result()
    say("no room: 30 told after %.1f s" % took)
    assert 9.5 < took < 40
    (item,) = items_of(response, "openrouter:shell")
    assert item["status"] == "failed" and "no capacity" in item["error"] and text_of(response) == "no room"
    client.delete("/containers/busy-0/exec/b")
    assert client.run("late-0", "echo there")["stdout"] == "there\n"
    client.delete("/containers/busy-1")


def test_room_of_a_workspace(make_server):
    """One workspace at its own limit makes room among its own, waits for nobody else, and holds up nobody else."""
    server = make_server(config={"container": {"live": 6, "pool": 0, "memory": "64m", "home": "32m", "scratch": "32m"},
                                 "limits": {"workspace_live": 2, "capacity_wait": "3s"}})
    one, two = server.client(), server.client("two")
    one.run("a", "echo a > f")
    one.execute("busy", "sleep 97202", detach=True, exec_id="b", expect=202)
    wait_for(lambda: server.guests("97202"))
    assert one.run("c", "echo c")["stdout"] == "c\n"  # a goes
    assert one.get("/containers/a").json["status"] == "asleep"
    two.run("x", "true")
    two.run("y", "true")
    one.execute("c", "sleep 97202", detach=True, exec_id="b", expect=202)
    wait_for(lambda: len(server.guests("97202")) >= 2)
    answer = one.post("/containers/a/exec", {"commands": ["true"]})
    assert answer.status == 429 and int(answer.headers["retry-after"]) >= 1, answer
    assert two.run("x", "echo x")["stdout"] == "x\n"
    assert two.get("/containers/y").json["status"] != "asleep"
    one.delete("/containers/busy/exec/b")
    assert one.run("a", "cat f")["stdout"] == "a\n"
    one.delete("/containers/c")
