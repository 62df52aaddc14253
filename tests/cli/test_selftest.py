"""brig selftest, and what brig serve does where a probe does not hold."""
import fcntl
import json
import os
import pathlib
import platform
import subprocess
import sys

import pytest

from brigtest import BRIG, Server

WITHOUT = str(pathlib.Path(__file__).with_name("without.py"))

PROBES = """ids no-new-privileges capabilities seccomp namespaces sockets keyrings bpf io_uring privileged-calls init terminal
    other-abi mounts host-paths host-name proc-masks proc-sys cgroup-files sysfs devices descriptors resource-limits network
    processes processors home-limit scratch-limit tmp-limit neighbours landlock kill freeze process-limit memory-limit
    cpu-limit""".split()
MAY_BE_ABSENT = {"other-abi", "landlock"}

# A system call that does nothing and says it did, and the probes that must notice.
CALLS = {"x86_64": {"prctl": 157, "seccomp": 317, "landlock_restrict_self": 446, "sethostname": 170, "prlimit64": 302,
                    "sched_setaffinity": 203},
         "aarch64": {"prctl": 167, "seccomp": 277, "landlock_restrict_self": 446, "sethostname": 161, "prlimit64": 261,
                     "sched_setaffinity": 122}}[platform.machine()]
FAULTS = {
    "bounding set kept": ("prctl", "0=24", {"capabilities"}),
    "no filters": ("seccomp", "0=1", {"seccomp", "namespaces", "sockets", "keyrings", "privileged-calls", "terminal"}),
    "no Landlock": ("landlock_restrict_self", None, {"landlock"}),
    "host name kept": ("sethostname", None, {"host-name"}),
    "core files": ("prlimit64", "1=4", {"resource-limits"}),
    "all processors": ("sched_setaffinity", None, {"processors"}),
}


def without(fault):
    """The command line before a program that is to run with that fault."""
    call, argument, _ = FAULTS[fault]
    return [sys.executable, WITHOUT, "%d%s" % (CALLS[call], ":" + argument if argument else "")]


def has_landlock():
    return "landlock" in pathlib.Path("/sys/kernel/security/lsm").read_text() if os.path.exists(
        "/sys/kernel/security/lsm") else True


def missing(fault):
    """Why this fault cannot be seen here."""
    if fault == "no Landlock" and not has_landlock():
        return "this kernel has no Landlock"
    if fault == "all processors" and len(os.sched_getaffinity(0)) < 2:
        return "one processor"
    return None


@pytest.fixture
def server():
    """One that was not started, with its data folder and configuration."""
    server = Server()
    server.prepare()
    yield server
    server.remove()


def selftest(server, *args, before=(), **more):
    return subprocess.run([*before, BRIG, "selftest", "--config", str(server.config_path), *args], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, timeout=120, **more)


def rows(done):
    answer = json.loads(done.stdout)
    assert set(answer) == {"holds", "probes", "kernel"}
    assert [row["name"] for row in answer["probes"]] == PROBES
    assert answer["holds"] == (done.returncode == 0)
    return {row["name"]: row for row in answer["probes"]}


def check_no_trace(server):
    assert sorted(p.name for p in server.data.iterdir()) == ["images"]
    assert os.listdir(server.data / "images") == ["base.erofs"]
    server.check_nothing_left()
    name = Server.cgroup_name(type("Folder", (), {"data": server.data / "selftest"}))
    for top, folders, _ in os.walk("/sys/fs/cgroup"):
        assert name not in folders, top


def test_every_probe_holds_and_leaves_nothing(server):
    done = selftest(server)
    assert done.returncode == 0, done.stdout + done.stderr
    probes, kernel = done.stdout.split("\n\n")
    lines = probes.splitlines()
    assert kernel.startswith("kernel %s" % os.uname().release)
    assert done.stderr == ""
    assert [line.split()[1] for line in lines] == PROBES
    for line in lines:
        state, name = line.split()[:2]
        assert state == "ok" or (state == "absent" and name in MAY_BE_ABSENT), line
        assert ": " in line
    check_no_trace(server)


def test_as_json(server):
    done = selftest(server, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    for name, row in rows(done).items():
        assert set(row) == {"name", "state", "required", "tried", "seen"}
        assert row["required"] == (name not in MAY_BE_ABSENT)
        assert row["tried"] and row["seen"]


def test_the_kernel_is_judged_the_same_everywhere(server):
    """What doctor, selftest and serve say of the running kernel's number."""
    kernel = json.loads(selftest(server, "--json").stdout)["kernel"]
    assert kernel["release"] == os.uname().release
    assert (kernel["state"] == "faulty") == bool(kernel["faults"])
    assert kernel["state"] in ("no known fault", "faulty", "unknown")
    done = subprocess.run([BRIG, "doctor", "--json", "--config", str(server.config_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["kernel"] == kernel
    server.start()
    log = server.log()
    server.stop()
    assert log.count('"event":"kernel_fault"') == len(kernel["faults"])
    assert ('"event":"kernel_unknown"' in log) == (kernel["state"] == "unknown")


def test_doctor_names_what_the_design_asks_for():
    done = subprocess.run([BRIG, "doctor", "--json"], capture_output=True, text=True)
    rows = {row["name"]: row for row in json.loads(done.stdout)["checks"]}
    required = {name for name, row in rows.items() if row["required"]}
    assert required == {"kernel", "capabilities of the supervisor", "user namespaces", "other namespaces",
                        "controllers memory, pids and cpu", "freezer", "ext4 on loop devices, idmapped", "erofs", "overlay",
                        "seccomp filters"}
    assert set(rows) - required == {"cgroup.kill", "Landlock", "Landlock scope of sockets", "Landlock scope of signals",
                                    "I/O limits", "CAP_SYS_RESOURCE", "TIOCSTI off for everybody"}
    assert all(row["detail"] for row in rows.values())


def test_beside_a_running_server():
    with Server(config={"keys": None}).running() as server:
        env = {**os.environ, "BRIG_DATA": str(server.data)}
        assert selftest(server).returncode == 0
        done = subprocess.run([BRIG, "run", "--", "echo", "still here"], env=env, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, "still here\n")
        assert not (server.data / "selftest").exists()


def test_two_at_once_do_not_meet(server):
    folder = server.data / "selftest"
    folder.mkdir(mode=0o700)
    with open(folder / "supervisor.lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        done = selftest(server)
        assert done.returncode == 1
        assert "selftest is in use by another brig (process %d)" % os.getpid() in done.stderr
        assert (folder / "supervisor.lock").exists()
    assert selftest(server).returncode == 0
    check_no_trace(server)


def test_what_a_killed_one_left_goes(server):
    folder = server.data / "selftest"
    for name in ("homes", "scratch", "templates"):
        (folder / name).mkdir(parents=True, mode=0o700)
        (folder / name / "old").write_bytes(b"x")
    folder.chmod(0o700)
    done = selftest(server)
    assert done.returncode == 0, done.stderr
    check_no_trace(server)


def test_without_an_image(server):
    (server.data / "images/base.erofs").unlink()
    done = selftest(server)
    assert (done.returncode, done.stdout) == (1, "")
    assert "base.erofs" in done.stderr and "No such file" in done.stderr, done.stderr
    assert not (server.data / "selftest").exists()


def test_without_root(server):
    server.config_path.chmod(0o644)
    done = selftest(server, preexec_fn=lambda: os.setuid(65534))
    assert (done.returncode, done.stderr) == (1, "brig: making sandboxes needs root\n")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_probe_that_does_not_hold(server, fault):
    """The feature is really taken away: what the kernel was asked for did not happen."""
    if missing(fault):
        pytest.skip(missing(fault))
    done = selftest(server, "--json", before=without(fault))
    assert done.returncode == 1, done.stdout + done.stderr
    failed = {name for name, row in rows(done).items() if row["state"] == "failed"}
    assert FAULTS[fault][2] <= failed, failed
    if len(FAULTS[fault][2]) == 1:
        assert failed == FAULTS[fault][2]
    check_no_trace(server)


def test_init_itself_refuses(server):
    """Without no_new_privs the kernel takes no Landlock rules from a process without rights: there is no sandbox at all."""
    done = selftest(server, before=[sys.executable, WITHOUT, "%d:0=38" % CALLS["prctl"]])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("brig: self-test: no sandbox can be made: "), done.stderr
    check_no_trace(server)


@pytest.mark.parametrize("fault", ["bounding set kept", "no filters", "no Landlock", "host name kept"])
def test_serve_refuses_and_names_it(server, fault):
    if missing(fault):
        pytest.skip(missing(fault))
    done = subprocess.run(without(fault) + [BRIG, "serve", "--config", str(server.config_path)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("brig: sandboxes do not hold on this host: probe "), done.stderr
    assert min(FAULTS[fault][2], key=PROBES.index) + " (" in last
    assert "`sandbox: off` serves without them" in last
    server.check_nothing_left()


def test_serve_without_sandboxes_needs_no_probe():
    server = Server(config={"sandbox": False})
    server.prefix = without("host name kept")
    with server.running():
        answer = server.client().post("/containers/c/exec", {"commands": ["true"]})
        assert answer.status >= 400 and "no sandboxes" in answer.body.decode()


def test_a_server_that_was_refused_starts_where_the_probes_hold(server):
    command = [BRIG, "serve", "--config", str(server.config_path)]
    done = subprocess.run(without("host name kept") + command, capture_output=True, stdin=subprocess.DEVNULL, timeout=120)
    assert done.returncode == 1
    server.start()
    assert server.client().run("c", "echo held")
    server.stop()
