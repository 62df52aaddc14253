"""Inside the machine: `brig serve` on a pure version 2 tree, from a group as a service manager delegates one.

Prints `ok NAME` or `FAILED NAME: why` for each test.
"""
import base64
import concurrent.futures
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback
import uuid

sys.path.insert(0, "/opt/tests/api")
import brigtest  # noqa: E402
from brigtest import wait_for  # noqa: E402

TREE = pathlib.Path("/sys/fs/cgroup")
SERVICE = TREE / "service"
SPIN = "sh -c 'while :; do :; done'"
CONFIG = {"container": {"memory": "128m", "memory_allowed": ["128m", "256m"], "home": "64m", "scratch": "128m", "processes": 100,
                        "sleep_after": "300s", "pool": 0}}  # whose groups would be taken for those of the tests


def groups(server):
    """The groups of our containers."""
    ours = SERVICE / server.cgroup_name()
    return sorted(p for p in ours.iterdir() if p.is_dir()) if ours.is_dir() else []


def read(path, key):
    """The number after a word of a flat file."""
    for line in path.read_text().splitlines():
        if line.startswith(key + " "):
            return int(line.split()[1])
    raise AssertionError("no %s in %s" % (key, path))


def status(client, name):
    return client.get("/containers/" + name).json["status"]


def reach(client, name, state, seconds=20):
    wait_for(lambda: status(client, name) == state, seconds, message="%s is %s" % (name, status(client, name)))


def is_in(server, name, client):
    """The one group that is new once the container lives."""
    before = groups(server)
    client.run(name, "true")
    new = [g for g in groups(server) if g not in before]
    assert len(new) == 1, (before, new)
    return new[0]


# ---- tests ----

def test_where_it_runs(server, client):
    """Its own group was left for one below, so that controllers could be passed on."""
    own = pathlib.Path("/proc/%d/cgroup" % server.supervisor()).read_text().strip()
    assert own == "0::/service/%s.main" % server.cgroup_name(), own
    assert {"memory", "pids", "cpu"} <= set((SERVICE / "cgroup.subtree_control").read_text().split())


def test_limits(server, client):
    group = is_in(server, "limits", client)
    run = group / "run"
    assert (run / "memory.max").read_text() == "%d\n" % (128 << 20)
    assert (run / "pids.max").read_text() == "100\n"
    assert (run / "cpu.max").read_text() == "100000 100000\n"
    assert not (group / "init/cgroup.procs").read_text() == ""
    # init is out of the limits of what it runs, and a leaf out of init's.
    assert (group / "init/memory.max").read_text() == "max\n"
    owner = (run / "cgroup.procs").stat().st_uid
    assert owner >= server.id_base and (run / "memory.max").stat().st_uid == 0
    assert (group / "cgroup.procs").stat().st_uid == owner and (group / "cgroup.subtree_control").stat().st_uid == 0


def test_the_tree_is_not_visible_inside(server, client):
    output = client.run("seen", "cat /proc/self/cgroup; ls /sys/fs/cgroup 2>&1; grep -c -e ' - cgroup' /proc/self/mountinfo")
    assert server.cgroup_name() not in output["stdout"] and "cgroup.procs" not in output["stdout"], output
    assert output["stdout"].endswith("0\n"), output


def test_memory_is_limited_and_its_kill_named(server, client):
    group = is_in(server, "memory", client)
    killed = client.run("memory", "python3 -c 'b = bytearray(300 << 20)'", timeout_ms=60000)["outcome"]
    assert killed["exit_code"] == 137 and killed["reason"] == "memory", killed
    assert read(group / "run/memory.events", "oom_kill") == 1
    # What is within the limit is not; a later kill of another kind is not taken for one.
    assert client.run("memory", "python3 -c 'b = bytearray(40 << 20); print(len(b))'")["stdout"] == "%d\n" % (40 << 20)
    assert "reason" not in client.run("memory", "kill -KILL $$")["outcome"]


def test_memory_that_kills_a_child_only(server, client):
    """Named also where the command lives on to tell of it; and only then."""
    eat = "python3 -c 'b = bytearray(300 << 20)'"
    found = [o["outcome"] for o in client.execute("child", eat + "; exit $?", eat + "; exit 3", "exit 137", timeout_ms=60000)["output"]]
    assert found == [{"type": "exit", "exit_code": 137, "reason": "memory"}, {"type": "exit", "exit_code": 3},
                     {"type": "exit", "exit_code": 137}], found
    client.delete("/containers/child")


def test_commands_leave_nothing(server, client):
    """Of fifty: no group, no process, no descriptor of init's more than after the first ten."""
    group = is_in(server, "many", client)

    def state():
        client.run("many", "sleep 0.5")
        wait_for(lambda: not server.guests("sleep 0.01"))
        (init,) = (group / "init/cgroup.procs").read_text().split()
        return len(list(group.glob("**/"))), len(os.listdir("/proc/%s/fd" % init)), int((group / "run/pids.current").read_text())

    client.execute("many", *["(sleep 0.01 &) ; true"] * 10)
    before = state()
    client.execute("many", *["(sleep 0.01 &) ; true"] * 40)
    after = state()
    assert after[0] <= before[0] + 8 and after[1] <= before[1] + 8 and after[2] == before[2] == 0, (before, after)
    client.delete("/containers/many")


def test_processes_are_limited(server, client):
    group = is_in(server, "pids", client)
    script = """
import os, sys, time
n = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60); os._exit(0)
        n += 1
except OSError as e:
    print(n, e.errno)
"""
    output = client.run("pids", "cat > f.py; python3 f.py", stdin=script)
    n, errnum = map(int, output["stdout"].split())
    assert 90 <= n < 100 and errnum == 11, output
    assert read(group / "run/pids.events", "max") >= 1
    # The next command answers, or says why not; the bomb goes with the container.
    start = time.monotonic()
    client.post("/containers/pids/exec", {"commands": ["echo next"]})
    assert time.monotonic() - start < 40
    client.delete("/containers/pids")
    wait_for(lambda: not server.guests("f.py"))


def test_cpu_is_limited(server, client):
    client.post("/containers", {"name": "cpu", "cpus": 0.2})
    group = is_in(server, "cpu", client)
    assert (group / "run/cpu.max").read_text() == "20000 100000\n"
    before = read(group / "cpu.stat", "usage_usec")
    start = time.monotonic()
    client.run("cpu", "timeout 6 %s" % SPIN)
    took = time.monotonic() - start
    share = (read(group / "cpu.stat", "usage_usec") - before) / 1e6 / took
    assert 0.1 < share < 0.35, share
    assert read(group / "run/cpu.stat", "nr_throttled") > 5


def test_a_deadline_ends_the_whole_tree(server, client):
    script = "echo begun; setsid -f sleep 97001; (trap '' TERM HUP; setsid sh -c 'kill -STOP $$' & sleep 97001) & sleep 97001"
    output = client.execute("deadline", script, "echo next", timeout_ms=6000)["output"]
    assert output[0]["outcome"] == {"type": "timeout"} and output[0]["stdout"] == "begun\n", output
    assert output[1]["stdout"] == "next\n", output
    assert not server.guests("97001") and not server.guests("kill -STOP")


def test_an_idle_container_is_frozen(server, client):
    group = is_in(server, "frozen", client)
    client.run("frozen", "setsid -f %s >/dev/null 2>&1" % SPIN)
    reach(client, "frozen", "frozen")
    wait_for(lambda: read(group / "run/cgroup.events", "frozen") == 1)
    before = read(group / "run/cpu.stat", "usage_usec")
    time.sleep(1)
    assert read(group / "run/cpu.stat", "usage_usec") == before
    assert read(group / "init/cgroup.events", "frozen") == 0
    # The next use thaws it; asleep it is gone, and a deletion ends it although it is frozen.
    assert client.run("frozen", "sleep 0.5; pgrep -c -f 'while :; do'")["stdout"].strip() >= "1"
    assert read(group / "run/cpu.stat", "usage_usec") > before
    reach(client, "frozen", "frozen")
    client.delete("/containers/frozen")
    wait_for(lambda: not group.exists())
    assert not server.guests("while :; do")


def test_sleep_and_waking(server, client):
    mine = brigtest.Server(None, config={"container": dict(CONFIG["container"], sleep_after="2s")})
    mine.prefix = server.prefix_of("other")
    with mine.running():
        client = mine.client()
        client.run("s", "echo kept > f; mkdir d; chown 1000:1000 d; setsid -f sleep 97002")
        reach(client, "s", "asleep")
        wait_for(lambda: not mine.guests("97002"))
        assert client.run("s", "cat f; stat -c %u d; pgrep -c sleep")["stdout"] == "kept\n1000\n0\n"
    left = (TREE / "other").iterdir()
    assert not [p for p in left if p.is_dir()]


BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


def served_from(server, prefix):
    """Where the groups of a server are that is started with a prefix, and that it works and leaves nothing."""
    mine = brigtest.Server(None, config=CONFIG)
    mine.prefix = prefix
    with mine.running():
        answer = mine.client().post("/containers/c/exec", {"commands": ["sleep 97009 & echo works; cat /proc/self/cgroup"]})
        assert answer.status == 200, "%s\n%s" % (answer, mine.log_tail())
        output = answer.json["output"][0]
        assert output["stdout"].startswith("works\n") and mine.cgroup_name() not in output["stdout"], output
        (guest,) = mine.guests("97009")
        path = pathlib.Path("/proc/%d/cgroup" % guest).read_text().strip()
        return path.partition("/" + mine.cgroup_name())[0]


def test_started_by_hand(server, client):
    """In a group with other processes, which are not ours to move: at the tree's root."""
    prefix = server.prefix_of("login")
    shell = subprocess.Popen(prefix + ["sleep", "300"])
    try:
        wait_for(lambda: str(shell.pid) in (TREE / "login/cgroup.procs").read_text().split())
        assert served_from(server, prefix) == "0::"
        assert (TREE / "login/cgroup.procs").read_text() == "%d\n" % shell.pid
        assert not [p for p in (TREE / "login").iterdir() if p.is_dir()]
    finally:
        shell.kill()
        shell.wait()


def test_in_a_container(server, client):
    """With a tree of its own, in which all processes are its container's: they make room."""
    script = "umount %s; mount -t cgroup2 cgroup %s; setsid -f sleep 97003; exec \"$@\"" % (TREE, TREE)
    assert served_from(server, server.prefix_of("box") + ["unshare", "-C", "-m", "/bin/sh", "-c", script, "sh"]) == "0::/box"
    (other,) = [pid for pid, (_, title, _) in brigtest.process_table().items() if title == "sleep 97003"]
    assert (TREE / "box/cgroup.procs").read_text() == "%d\n" % other
    assert not [p for p in (TREE / "box").iterdir() if p.is_dir()]
    os.kill(other, signal.SIGKILL)


def test_one_that_is_full_does_not_hold_up_another(server, client):
    """A fork bomb in one: another answers as ever, and so does this one's init, which is not behind it in any queue."""
    client.run("calm", "true")
    run = is_in(server, "bomb", client) / "run"
    client.run("bomb", "cat > bomb.py", stdin=BOMB)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        bomb = pool.submit(client.run, "bomb", "exec python3 bomb.py", timeout_ms=15000)
        wait_for(lambda: int((run / "pids.current").read_text()) > 90)
        start = time.monotonic()
        assert client.run("calm", "echo calm")["stdout"] == "calm\n"
        calm = time.monotonic() - start
        answer = client.post("/containers/bomb/exec", {"commands": ["echo next"]})
        itself = time.monotonic() - start - calm
        assert bomb.result()["outcome"] == {"type": "timeout"}
    print("# another answered in %.2f s, itself with %d in %.2f s" % (calm, answer.status, itself))
    assert calm + itself < 12, "not before the bomb's end"
    assert not server.guests("bomb.py")
    assert client.run("bomb", "echo next")["stdout"] == "next\n"


FLOOD = "while :; do dd if=/dev/zero of=big bs=1M count=40 conv=fsync 2>/dev/null; rm big; done"


def test_pressure_of_the_disk(server, client):
    """`true` in one container while another writes all it can. Printed; under emulation only much more is a failure."""
    def times():
        found = []
        for _ in range(15):
            start = time.monotonic()
            client.run("calm", "true")
            found.append((time.monotonic() - start) * 1e3)
        return sorted(found)[7], max(found)

    client.run("calm", "true")
    alone = times()
    client.execute("loud", FLOOD, detach=True, exec_id="flood", expect=202)
    time.sleep(1)
    beside = times()
    client.delete("/containers/loud")
    client.delete("/containers/calm")
    print("# `true` alone: median %.0f ms, most %.0f ms; beside a flood: %.0f, %.0f" % (alone + beside))
    assert beside[0] < 8 * alone[0] + 1000


def test_escape(server, client):
    """The hostile guest of tests/escape finds no way here either."""
    program = base64.b64encode(pathlib.Path("/opt/escape").read_bytes()).decode()
    for user in ("root", "1000"):
        name = "e-" + uuid.uuid4().hex[:12]
        client.run(name, "base64 -d > /tmp/escape && chmod 755 /tmp/escape", stdin=program)
        output = client.run(name, "/tmp/escape", user=user, timeout_ms=120000)
        lines = output["stdout"].splitlines()
        assert len(lines) > 20, output
        bad = [line for line in lines if line.split()[1] != "PASS"]
        print("# %d classes tried as %s" % (len(lines), user))
        assert not bad, bad
        client.delete("/containers/" + name)


def test_nothing_is_left(server, client):
    """The last one: after the end our group is as it was."""
    server.stop()
    assert not [p for p in SERVICE.iterdir() if p.is_dir()]
    assert "memory" not in (SERVICE / "cgroup.subtree_control").read_text()


def main():
    tests = [(n[5:], f) for n, f in globals().items() if n.startswith("test_") and callable(f)]
    (TREE / "cgroup.subtree_control").write_text("+memory +pids +cpu")

    def prefix_of(group):
        """A command that becomes the server in a group that has nothing else in it."""
        (TREE / group).mkdir(exist_ok=True)
        return ["/bin/sh", "-c", 'echo 0 > %s/cgroup.procs; exec "$@"' % (TREE / group), "sh"]

    server = brigtest.Server(None, config=CONFIG)
    server.prefix, server.prefix_of = prefix_of("service"), prefix_of
    failed = 0
    try:
        server.start()
        for name, test in tests:
            try:
                test(server, server.client())
                print("ok " + name)
            except Exception:  # whatever it is, it fails this test only
                failed += 1
                print("FAILED %s: %s" % (name, traceback.format_exc()))
            sys.stdout.flush()
    finally:
        if failed:
            print("# the server said:\n" + server.log_tail())
        if server.process is not None:
            server.kill()
    return failed != 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
