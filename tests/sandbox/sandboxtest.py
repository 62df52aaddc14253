"""What these tests share: where a container's control groups are, what a server's processes hold, and times."""
import os
import pathlib
import sys
import threading
import time
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "api"))

import brigtest  # noqa: E402


def fresh(prefix="s"):
    return prefix + "-" + uuid.uuid4().hex[:12]


def output_of(client, name, command, code=0, **fields):
    """What one command printed, which ends with the code."""
    output = client.run(name, command, **fields)
    assert output["outcome"] == {"type": "exit", "exit_code": code}, output
    return output["stdout"]


# ---- control groups ----

def hierarchies():
    """{controller: mount point}; "" is version 2."""
    found = {}
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2":
            found[""] = before.split()[4]
        elif kind == "cgroup":
            found.update((option, before.split()[4]) for option in options.split(","))
    return found


def groups_of(server, name):
    """The containers' groups of a server in one hierarchy."""
    for top, folders, _ in os.walk(hierarchies()[name]):  # which others' groups that go meanwhile do not stop
        if server.cgroup_name() in folders:
            return sorted(p for p in pathlib.Path(top, server.cgroup_name()).iterdir() if p.is_dir())
    return []


def group_of(server, pid, name):
    """The group that a container has in one hierarchy, found by one of its processes."""
    for line in pathlib.Path("/proc/%d/cgroup" % pid).read_text().splitlines():
        _, names, path = line.split(":", 2)
        if name in names.split(","):
            before, ours, below = path.partition("/" + server.cgroup_name() + "/")
            assert ours, path
            return pathlib.Path(hierarchies()[name] + before + ours + below.split("/")[0])
    raise AssertionError("no hierarchy " + name)


def init_of(server, pid):
    """The init that a guest's process descends from."""
    table = brigtest.process_table()
    while not table[pid][1].startswith("brig: init"):
        pid = table[pid][0]
        assert pid > 1 and pid != server.supervisor()
    return pid


# ---- what processes hold ----

def descriptors(pid):
    return len(list(pathlib.Path("/proc/%d/fd" % pid).iterdir()))


def holdings(server, inits=()):
    """{title: (descriptors, resident bytes)} of the server's own processes."""
    pids = {"supervisor": [server.supervisor()], "gateway": server.gateways(), "init": list(inits)}
    return {title: (sum(map(descriptors, all_)), sum(map(brigtest.resident, all_))) for title, all_ in pids.items()}


# ---- times ----

def percentile(times, share):
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def times_of(what, n, every=0.0):
    """Seconds of n calls, with a pause between two."""
    times = []
    for _ in range(n):
        start = time.monotonic()
        what()
        times.append(time.monotonic() - start)
        time.sleep(every)
    return times


def said(times):
    return "p50 %.1f ms, p99 %.1f ms" % (percentile(times, 0.5) * 1e3, percentile(times, 0.99) * 1e3)


class Repeated:
    """Calls what() again and again in a thread until the block ends; it must have been called, without an error."""

    def __init__(self, what):
        self.what, self.count, self.problem, self.done = what, 0, None, threading.Event()
        self.thread = threading.Thread(target=self.loop, daemon=True)

    def loop(self):
        try:
            while not self.done.is_set():
                self.what()
                self.count += 1
        except Exception as e:  # whatever it is, the block's end says it
            self.problem = e

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.done.set()
        self.thread.join(60)
        if kind is None:
            assert self.problem is None, self.problem
            assert not self.thread.is_alive()
