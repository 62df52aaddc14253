#!/usr/bin/python3
"""The long forms: one server under everything at once for HOURS (a third by default), then a line `N passed, N failed`.

Each scenario is a thread that repeats its round until the time is over; a round that goes wrong is counted and said, and the
scenario goes on. Once a minute there is a line: rounds so far, what went wrong, and what the server's processes hold.
Time 0 is after all that fills once has filled: from then on nothing may grow. (Rows such as P15: tests/sandbox/test_complaints.py.)
"""
import contextlib
import json
import os
import pathlib
import random
import resource
import signal
import sys
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sandbox"))

from sandboxtest import descriptors, fresh, groups_of, hierarchies, init_of, output_of  # noqa: E402
import brigtest  # noqa: E402
from brigtest import SHELL, outputs_of, parse_sse, resident, wait_for  # noqa: E402

SECONDS = float(os.environ.get("HOURS") or 1 / 3) * 3600
SLEEP_AFTER = 20
CONFIG = {"container": {"memory": "128m", "home": "128m", "scratch": "128m", "processes": 100, "live": 24,
                        "sleep_after": "%ds" % SLEEP_AFTER, "memory_allowed": ["64m"]}}
start = time.monotonic()


def left():
    return SECONDS - (time.monotonic() - start)


def pause(seconds):
    time.sleep(max(0.0, min(seconds, left())))


def say(text):
    print("%7.1f min  %s" % ((time.monotonic() - start) / 60, text), flush=True)


class Scenario(threading.Thread):
    """One of them; it passes when a round was done and none went wrong."""

    def __init__(self, server, name, work):
        super().__init__(name=name, daemon=True)
        self.server, self.work, self.rounds, self.wrong = server, work, 0, 0

    def run(self):
        rounds = self.work(self.server.client())
        while left() > 0:
            try:
                next(rounds)
                self.rounds += 1
            except StopIteration:
                return
            except Exception:  # whatever it is, it is one round that went wrong
                self.wrong += 1
                if self.wrong <= 5:
                    say("%s: %s" % (self.name, traceback.format_exc(limit=-3)))
                rounds = self.work(self.server.client())
                pause(1)

    @property
    def good(self):
        return self.rounds > 0 and not self.wrong and not self.is_alive()


# ---- scenarios: generators, a yield for each round ----

def steady(client):
    """T6: a command a second, and none lost; its file counts along."""
    name, n = fresh("steady"), 0
    while True:
        n += 1
        assert output_of(client, name, "echo >> n; stat -c %s n") == "%d\n" % n
        yield
        pause(1)


def detached_end(client, path, offset=0):
    """All output from an offset on, read as it comes, and the outcome."""
    text = ""
    while True:
        piece = client.get(path + "?stdout_offset=%d&wait=20" % (offset + len(text))).json
        assert piece["stdout_offset"] == offset + len(text), piece
        text += piece["stdout"]
        if piece["status"] == "done" and not piece["stdout"]:
            return text, piece["output"][0]["outcome"]


def silent(client):
    """P15: nothing for 11 minutes. Signs of life; a connection that breaks after one minute; no byte and no code is lost."""
    while left() > 30:
        name, silence = fresh("silent"), int(min(660, left() - 20))
        command = "echo first; sleep %d; seq 1 20000; exit 42" % silence
        began = time.monotonic()
        client.execute(name, command, detach=True, exec_id="quiet", expect=202)
        path = "/containers/%s/exec/quiet" % name
        stream = client.open_stream("/containers/%s/exec" % name, {"commands": ["sleep %d; exit 43" % silence], "stream": True},
                                    timeout=silence + 60)
        first = client.open_stream(path + "?wait=600&stdout_offset=6", None, method="GET", timeout=700)
        pause(min(60, silence / 2))
        first.reset()
        text, outcome = detached_end(client, path)
        assert text == "first\n" + "".join("%d\n" % i for i in range(1, 20001)) and outcome == {"type": "exit", "exit_code": 42}, outcome
        assert time.monotonic() - began >= silence
        with contextlib.closing(stream):
            events, comments = parse_sse(stream.rest())
        assert events[-1][0] == "exec.done" and events[-1][1]["output"][0]["outcome"] == {"type": "exit", "exit_code": 43}, events
        assert len(comments) >= silence / 10 - 2, len(comments)
        client.delete("/containers/" + name)
        yield


def background(client):
    """P3: a job that was left behind outlives every limit of a command; so does one that is detached, read from any byte on."""
    while left() > 20:
        name, seconds = fresh("back"), min(400.0, left() - 10)
        client.execute(name, "i=0; while sleep 0.2; do i=$((i + 1)); echo $i; done", detach=True, exec_id="ticks", expect=202)
        output_of(client, name, "(while sleep 0.2; do echo >> ticks; done) & true", timeout_ms=1000)
        path, end, seen, size = "/containers/%s/exec/ticks" % name, time.monotonic() + seconds, 0, 0
        offset = 0
        while time.monotonic() < end:
            pause(10)
            size, before = int(output_of(client, name, "sleep 1; stat -c %s ticks")), size
            assert size > before
            piece = client.get(path + "?stdout_offset=%d" % offset).json
            assert piece["status"] == "running" and piece["stdout_offset"] == offset
            numbers = [int(n) for n in piece["stdout"].split()]
            assert numbers == list(range(seen + 1, seen + 1 + len(numbers))) and numbers
            seen, offset = numbers[-1], offset + len(piece["stdout"])
            yield
        client.delete("/containers/" + name)


def sleeper(client):
    """F12: write, sleep, wake, and all that was ever written is there, also what was written right before."""
    name, written = fresh("sleeper"), []
    while left() > SLEEP_AFTER * 2:
        wanted = "%032x" % random.getrandbits(128)
        output_of(client, name, "echo %s > f%d; setsid -f sleep 1000" % (wanted, len(written)))
        written.append(wanted)
        wait_for(lambda: client.get("/containers/" + name).json["status"] == "asleep", SLEEP_AFTER * 3, 0.5)
        assert output_of(client, name, "for i in $(seq 0 %d); do cat f$i; done; pgrep -c sleep; true" % (len(written) - 1)) == \
            "".join(w + "\n" for w in written) + "0\n"
        yield


def churn(client):
    """Containers that come and go."""
    while True:
        name = fresh("churn")
        assert output_of(client, name, "echo a > f; (sleep 1000 &); seq 2000 | tail -1") == "2000\n"
        assert output_of(client, name, "cat f; pgrep -c sleep") == "a\n1\n"
        assert client.delete("/containers/" + name).status == 200
        assert output_of(client, name, "ls -A") == ""
        client.delete("/containers/" + name)
        yield
        pause(1)


HOSTILE = [":(){ :|:& };:; sleep 99", "python3 -c 'b = b\"\"\nwhile True: b += bytes(8 << 20)'", "yes & cat /dev/zero >&2",
           "head -c 1G /dev/zero > big; i=0; while : > $((i += 1)); do :; done; exit 3", "trap '' TERM; kill -STOP -1; sleep 99",
           "for s in $(seq 64); do kill -$s 1; done; kill -9 -1", "while :; do (:) & done", "dd if=/dev/zero of=big bs=1M oflag=sync",
           "python3 -c 'import os\nwhile True:\n  try: os.fork()\n  except OSError: pass'"]


def hostile(client):
    """Whatever it does, it is over at its deadline, and the next command answers; now and then init dies."""
    name, i = fresh("hostile"), 0
    while True:
        i += 1
        output = client.run(name, HOSTILE[i % len(HOSTILE)], timeout_ms=3000)
        assert output["outcome"] != {"type": "exit", "exit_code": 0} or "kill" in HOSTILE[i % len(HOSTILE)], output
        assert output_of(client, name, "rm -rf * 2>/dev/null; echo next", timeout_ms=60000) == "next\n"
        if i % 20 == 0:
            client.delete("/containers/" + name)
        elif i % 7 == 0:
            kill_init(client, name)
        yield
        pause(5)


def kill_init(client, name):
    mark = "sleep 9%d" % random.randrange(10 ** 8, 10 ** 9)
    with contextlib.closing(client.open_stream("/containers/%s/exec" % name, {"commands": [mark + "; true"]})) as stream:
        (pid, *_) = wait_for(lambda: client.server.guests(mark))
        os.kill(init_of(client.server, pid), signal.SIGKILL)
        body = json.loads(stream.body())
        assert stream.status >= 500 or body["output"][0]["outcome"] != {"type": "exit", "exit_code": 0}, body

    def ready():
        return client.post("/containers/%s/exec" % name, {"commands": ["true"]}).status == 200
    wait_for(ready)


def leaving(client):
    """Clients that go at any moment leave nothing running."""
    name = fresh("leaving")
    while True:
        mark = "sleep 8%d" % random.randrange(10 ** 8, 10 ** 9)
        for _ in range(5):
            stream = client.open_stream("/containers/%s/exec" % name, {"commands": ["setsid -f %s; %s" % (mark, mark)], "stream": True})
            time.sleep(random.random() * 0.05)
            stream.reset()
        wait_for(lambda: not client.server.guests(mark), 20, 0.05)
        assert output_of(client, name, "echo next") == "next\n"
        yield
        pause(3)


def turns(client):
    """The whole of it: a model that asks for commands, streamed and not."""
    text = "Run these.\n```\necho $((6 * 7)); echo >> n\n```\n```\nstat -c %s n\n```"
    name, n = fresh("t"), 0
    while True:
        n += 1
        if n % 2:
            response = client.ask("brig/script", text, tools=[SHELL], session_id=name)
        else:
            response = client.stream("brig/script", text, tools=[SHELL], session_id=name).response
        assert [o["stdout"] for o in outputs_of(response)] == ["42\n", "%d\n" % n], response["output"]
        yield
        pause(2)


SCENARIOS = [("steady 1", steady), ("steady 2", steady), ("steady 3", steady), ("silent", silent), ("background", background),
             ("sleeper", sleeper), ("churn", churn), ("hostile", hostile), ("leaving", leaving), ("turns", turns)]


# ---- what must not grow ----

def loops(server):
    count = 0
    for backing in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            count += backing.read_text().startswith(str(server.data))
    return count


def state(server):
    """{what: (amount, how much more is no growth)}"""
    gateway, supervisor = server.gateways(), server.supervisor()
    cgroups = 0
    for hierarchy in hierarchies():
        cgroups += len(groups_of(server, hierarchy))
    return {"gateway MiB": (sum(map(resident, gateway)) >> 20, 16), "gateway fds": (sum(map(descriptors, gateway)), 64),
            "supervisor MiB": (resident(supervisor) >> 20, 4), "supervisor fds": (descriptors(supervisor), 6 * 24),
            "sandboxes": (len(server.children("brig: init")), 24), "groups": (cgroups, 4 * 24),
            "loops": (loops(server), 4 * 24)}


def least(states):
    """Of several looks the lowest: what goes up and down with the load is no growth."""
    return {what: min(s[what][0] for s in states) for what in states[0]}


def floods():
    """O6: a hundred containers that print without end."""
    server = brigtest.Server(None, config={"container": {"live": 110, "memory": "64m", "home": "32m", "scratch": "32m"}})
    with server.running():
        client = server.client()
        names = [fresh() for _ in range(100)]
        for name in names:
            client.run(name, "true")
        before, found = sum(map(resident, server.gateways())), []
        threads = [threading.Thread(target=lambda n=n: found.append(client.run(n, "yes & cat /dev/zero >&2", timeout_ms=5000)))
                   for n in names]
        for thread in threads:
            thread.start()
        most = 0
        while any(t.is_alive() for t in threads):
            most = max(most, sum(map(resident, server.gateways())))
            time.sleep(0.1)
        say("floods: 100 at once, %d MiB more in the gateway" % ((most - before) >> 20))
        assert len(found) == 100 and all(o["outcome"] == {"type": "timeout"} for o in found)
        assert most - before < 100 * (1 << 20)


def check(name, what):
    """Runs a check that is no scenario; says whether it passed."""
    try:
        what()
        return True
    except Exception:  # whatever it is
        say("%s: %s" % (name, traceback.format_exc(limit=-3)))
        return False


def growth(states):
    """The last fifth against the second fifth of the minutes."""
    if len(states) < 5:
        say("too short a time to see growth in")
        return
    n = max(1, len(states) // 5)
    early, late = least(states[n:2 * n]), least(states[-n:])
    say("least held early: %s" % early)
    say("least held late:  %s" % late)
    for what, amount in late.items():
        assert amount <= early[what] + states[0][what][1], what


def main():
    global start
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    results = {"floods": check("floods", floods)}
    server = brigtest.Server(None, config=CONFIG)
    states = []
    try:
        server.start()
        start = time.monotonic()
        threads = [Scenario(server, name, work) for name, work in SCENARIOS]
        for thread in threads:
            thread.start()
        while left() > 0:
            pause(min(60.0, SECONDS / 10))
            states.append(state(server))
            say("%d rounds, %d wrong; %s" % (sum(t.rounds for t in threads), sum(t.wrong for t in threads),
                                             ", ".join("%d %s" % (v[0], k) for k, v in states[-1].items())))
        for thread in threads:
            thread.join(120)
        for thread in threads:
            results[thread.name] = thread.good
            say("%-10s %6d rounds, %d wrong%s" % (thread.name, thread.rounds, thread.wrong, ", hangs" if thread.is_alive() else ""))
        results["growth"] = check("growth", lambda: growth(states))
        results["nothing is left"] = check("nothing is left", server.stop)
    finally:
        if server.process is not None:
            server.kill()
        if all(results.values()):
            server.remove()
        else:
            say("the server's log: %s" % server.log_path)
    bad = [name for name, good in results.items() if not good]
    if bad:
        say("failed: " + ", ".join(bad))
    print("%d passed, %d failed" % (len(results) - len(bad), len(bad)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
