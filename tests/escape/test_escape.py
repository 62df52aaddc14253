"""The hostile guest: escape.c inside containers, as container root and as another user, with what only the outside can
see beside it. Every case is harmless where it succeeds: it prints, and acts on nothing but what it made itself."""
import base64
import concurrent.futures
import hashlib
import os
import pathlib
import platform
import socket
import subprocess
import sys
import threading
import time
import uuid

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "api"))

import brigtest  # noqa: E402
from brigtest import wait_for  # noqa: E402

IDS = """L16 X1 X2 X4 X7 X8 X9 X10 X10-limits X10-signals X10-identity X11 K1 K2 K3 K3-options K4 K5 K6 K11 L1 L5 L3 L6 L6-numbers
L7 L15 L18""".split()


@pytest.fixture(scope="session", autouse=True)
def needs():
    if os.geteuid() != 0:
        pytest.exit("these tests make sandboxes: run them as root", returncode=77)


@pytest.fixture(scope="module")
def escape(tmp_path_factory):
    """The program, as text that goes in over standard input."""
    out = tmp_path_factory.mktemp("escape") / "escape"
    subprocess.run(["musl-gcc", "-std=gnu11", "-D_GNU_SOURCE", "-static", "-O1", "-Wall", "-Wextra", "-Werror", "-idirafter",
                    "/usr/include", "-idirafter", "/usr/include/%s-linux-gnu" % platform.machine(), "-s",
                    str(HERE / "escape.c"), "-o", str(out)], check=True)
    return base64.b64encode(out.read_bytes()).decode()


@pytest.fixture(scope="module", params=["auto", "v1"])
def server(request):
    """On the control groups that the machine has, and on version 1 alone."""
    server = brigtest.Server(None, config={"cgroups": request.param})
    try:
        yield server.start()
        server.stop()
    finally:
        if server.process is not None:
            server.kill()
        server.remove()


@pytest.fixture
def client(server):
    return server.client()


@pytest.fixture
def box(client, escape):
    """Makes new containers with the program in them."""
    made = []

    def make():
        name = "e-" + uuid.uuid4().hex[:12]
        made.append(name)
        assert output_of(client, name, "base64 -d > /tmp/escape && chmod 755 /tmp/escape", stdin=escape) == ""
        return name

    yield make
    for name in made:
        client.delete("/containers/" + name)


def output_of(client, name, command, code=0, **fields):
    output = client.run(name, command, **fields)
    assert output["outcome"] == {"type": "exit", "exit_code": code}, output
    return output["stdout"]


def in_time(client, name, seconds=1.0):
    """The next command answers, or says why not, at once."""
    start = time.monotonic()
    answer = client.post("/containers/%s/exec" % name, {"commands": ["echo next"]})
    took = time.monotonic() - start
    assert took < seconds, "the next command took %.1f s: %s" % (took, answer)
    return answer.status == 200 and answer.json["output"][0]["stdout"] == "next\n"


# ---- the program ----

@pytest.mark.parametrize("user", ["root", "1000", "1000:0"])
def test_cases(client, box, user):
    """All of them in one new container: each prints one line."""
    output = client.run(box(), "/tmp/escape", user=user, timeout_ms=120000)
    lines = output["stdout"].splitlines()
    assert [line.split()[0] for line in lines] == IDS
    assert not [line for line in lines if line.split()[1] != "PASS"], output
    print("%d classes tried as %s" % (len(lines), user))


def test_no_channel_between_containers(client, box):
    """L2: locks, leases, watches, IPC and names of one are not another's."""
    a, b = box(), box()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        maker = pool.submit(client.run, a, "/tmp/escape channel-make", timeout_ms=20000)
        wait_for(lambda: "escape-channel" in output_of(client, a, "ls /dev/shm"))
        time.sleep(0.3)
        assert output_of(client, b, "/tmp/escape channel-seek").startswith("L2 PASS")
        assert maker.result()["stdout"] == "ready\ndone\n"


def test_the_channel_test_can_fail(client, box):
    """The same within one container finds everything."""
    name = box()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        maker = pool.submit(client.run, name, "/tmp/escape channel-make", timeout_ms=20000)
        wait_for(lambda: "escape-channel" in output_of(client, name, "ls /dev/shm"))
        time.sleep(0.3)
        assert output_of(client, name, "/tmp/escape channel-seek", code=1).startswith("L2 FAIL abstract socket: worked")
        assert "saw event" in maker.result()["stdout"]


# ---- what only the outside can see ----

def test_nothing_of_the_host_can_be_read(server, client, box):
    """L4: names, paths and ids of this machine."""
    other = box()
    texts = [socket.gethostname(), str(server.data), str(server.folder), "base.erofs", other, server.cgroup_name(),
             pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()]
    texts += [w for w in pathlib.Path("/proc/cmdline").read_text().split() if len(w) > 8]
    with open("/proc/self/mountinfo") as mounts:
        texts += [p for p in (m.split()[4] for m in mounts) if p.startswith("/sys/fs/cgroup/") and len(p) > 15]
    print(output_of(client, box(), "/tmp/escape leaks " + " ".join("'%s'" % t for t in texts if len(t) > 3)))


def test_sockets_of_the_host_are_out_of_reach(client, box):
    """X14, N16: its loopback and its abstract names."""
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0escape-host-socket")
    abstract.listen()
    port = socket.create_server(("127.0.0.1", 0))
    port6 = socket.create_server(("::1", 0), family=socket.AF_INET6)
    program = """import socket
for family, address in ((socket.AF_UNIX, "\\0escape-host-socket"), (socket.AF_INET, ("127.0.0.1", %d)),
                        (socket.AF_INET6, ("::1", %d))):
    print(socket.socket(family).connect_ex(address))
print("escape-host" in open("/proc/net/unix").read())
""" % (port.getsockname()[1], port6.getsockname()[1])
    assert output_of(client, box(), "python3 -", stdin=program) == "111\n111\n111\nFalse\n"


def test_a_shell_that_is_init(server, client, box):
    """X1: /bin/sh as a script of /proc/self/exe makes init's child execute init's own file, as the guest."""
    image = hashlib.sha256(pathlib.Path(brigtest.BRIG).read_bytes()).hexdigest()
    name = box()
    output_of(client, name, "printf '#!/proc/self/exe\\n' > /usr/bin/trap && chmod 755 /usr/bin/trap")
    watch = "for i in $(seq 400); do for p in /proc/[0-9]*; do (: >> $p/exe) 2>/dev/null && echo opened $p; done; done"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        watcher = pool.submit(client.run, name, watch, timeout_ms=5000)
        for _ in range(50):
            answer = client.post("/containers/%s/exec" % name, {"argv": ["/usr/bin/trap"]})
            assert answer.status == 200 and answer.json["output"][0]["outcome"]["exit_code"] != 0, answer
        assert watcher.result()["stdout"] == ""
    output_of(client, name, "printf '#!/proc/self/exe\\n' > /tmp/sh && chmod 755 /tmp/sh && mv /usr/bin/bash /usr/bin/b2 &&"
                            " cp /tmp/sh /usr/bin/bash; cp /tmp/sh /usr/bin/dash")
    assert client.run(name, "echo never")["stdout"] == ""
    assert client.execute(name, argv=["/usr/bin/b2", "-c", "echo still"])["output"][0]["stdout"] == "still\n"
    assert hashlib.sha256(pathlib.Path(brigtest.BRIG).read_bytes()).hexdigest() == image


@pytest.mark.parametrize("cwd", ["/proc/self/fd/%d" % n for n in list(range(24)) + [1023]]
                         + ["/proc/1/cwd", "/proc/1/root", "/proc/1/fd/3", "/proc/self/fd/4/..", "/proc/thread-self/fd/5"])
def test_working_directories_that_lead_out(client, box, cwd):
    """X2: none of init's descriptors is one of the command's."""
    answer = client.post("/containers/x2/exec", {"commands": ["pwd"], "cwd": cwd})
    assert answer.status == 400 and "working directory" in answer.error["message"], answer


def test_names_that_lead_into_init(client, box):
    """Files that init reads by name, as something else."""
    for link in ("/proc/self/fd/3", "/proc/1/environ", "/proc/self/mem", "/dev/zero", "/dev/tty", "/tmp", "/tmp/fifo"):
        name = box()
        output_of(client, name, "mkfifo /tmp/fifo; ln -sfn %s /etc/passwd; ln -sfn %s /etc/group" % (link, link))
        # As a user of no name nothing is looked up but by bash itself, which these would make wait or grow.
        assert client.execute(name, argv=["printf", "next"])["output"][0]["stdout"] == "next"
        answer = client.post("/containers/%s/exec" % name, {"argv": ["true"], "user": "nobody"})
        assert answer.status == 400 and "user" in answer.error["message"], answer


def test_a_container_without_its_workspace(client, box):
    """Where the guest has moved home away, commands still run in it."""
    name = box()
    output_of(client, name, "echo kept > f; mv /workspace /w; ln -s /etc /workspace; mkdir -p /etc/home")
    assert output_of(client, name, "pwd; cat f") == "/w/home\nkept\n"
    output_of(client, name, "rm /workspace; mv /w /workspace; rmdir /etc/home")
    assert output_of(client, name, "pwd") == "/workspace/home\n"


def test_hosts_devices_are_not_touched(server, client, box):
    """X11: also a node that no capability is needed for opens nothing."""
    assert "Permission denied" in client.run(box(), "mknod n c 0 0; cat n")["stderr"]


# ---- everything used up ----

def test_network_memory_is_counted(server, client, box):
    """L9: what waits in sockets is not beside the limit of memory."""
    name = box()
    program = """import socket, resource, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
out, kept = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), []
out.setblocking(False)
for _ in range(2000):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 0))
    kept.append(s)
    for _ in range(10):
        try: out.sendto(bytes(40000), s.getsockname())
        except OSError: break
print([l for l in open("/proc/net/sockstat") if l.startswith("UDP:")][0].split()[-1])
"""
    pages = int(output_of(client, name, "python3 -", stdin=program, timeout_ms=30000))
    assert pages * 4096 < 100 << 20, "%d MiB wait in sockets" % (pages >> 8)


def test_what_outlives_processes_is_bounded(client, box):
    """L9: SysV segments and queues, and full tmpfs, leave init enough to live."""
    name = box()
    program = """import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
for _ in range(40):
    if os.fork() == 0:
        i = libc.shmget(0, 16 << 20, 0o600 | 0o1000)
        at = libc.shmat(i, None, 0)
        ctypes.memset(at, 1, 16 << 20)
        os._exit(0)
    os.wait()
n = 0
while (q := libc.msgget(0, 0o600)) >= 0:
    n += 1
    while libc.msgsnd(q, ctypes.create_string_buffer(b"\\1" * 4008), 4000, 0o4000) == 0: pass
print(n)
for d in ("/tmp", "/dev/shm"):
    try:
        for i in range(1 << 20): open("%s/%0240d" % (d, i), "w").close()
    except OSError: pass
    try:
        with open("%s/%0240d" % (d, 0), "wb", buffering=0) as f:
            while True: f.write(bytes(65536))
    except OSError: pass
"""
    assert int(output_of(client, name, "python3 -", stdin=program, timeout_ms=60000)) <= 128
    pid = output_of(client, name, "cat /proc/sys/kernel/random/boot_id")
    for _ in range(3):
        assert in_time(client, name)
    assert output_of(client, name, "python3 -c 'print(bytes(1 << 20)[0])'") == "0\n"
    assert output_of(client, name, "cat /proc/sys/kernel/random/boot_id") == pid, "init was killed in between"


def test_processes_used_up(client, box):
    """L8, P17: in the foreground to the deadline, and left in the background."""
    name = box()
    start = time.monotonic()
    output = client.run(name, ":(){ :|:& };:; sleep 99", timeout_ms=700)
    assert output["outcome"]["type"] == "timeout" and time.monotonic() - start < 3
    assert in_time(client, name)
    client.run(name, "(:(){ :|:& };:) >/dev/null 2>&1 & sleep 0.2", timeout_ms=2000)
    for _ in range(5):
        in_time(client, name)


def test_memory_used_up_by_eight(client, box):
    name = box()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for output in pool.map(lambda _: client.run(name, "python3 -c 'bytearray(400 << 20)'"), range(8)):
            assert output["outcome"]["exit_code"] == 137 and output["outcome"]["reason"] == "memory", output
    assert in_time(client, name)


@pytest.mark.parametrize("place", ["/workspace/home", "/var", "/tmp", "/dev/shm"])
def test_disks_used_up(client, box, place):
    """L11, F10: bytes, then inodes. Commands still start, rm works."""
    name = box()
    fill = """import os
try:
    with open("{0}/big", "wb", buffering=0) as f:
        while True: f.write(bytes(1 << 20))
except OSError as e: print(e.errno)
os.unlink("{0}/big")
os.mkdir("{0}/many")
try:
    for i in range(1 << 20): open("{0}/many/%d" % i, "w").close()
except OSError as e: print(e.errno)
""".format(place)
    assert output_of(client, name, "python3 -", stdin=fill, timeout_ms=60000) == "28\n28\n"
    assert in_time(client, name)
    output_of(client, name, "rm -rf {0}/many && echo fine > {0}/f && cat {0}/f && rm {0}/f".format(place), timeout_ms=60000)


def test_a_flood_costs_no_memory(server, client, box):
    """O6: eight at once, both streams."""
    name = box()
    before = sum(map(brigtest.resident, server.gateways()))
    most, done = [0], threading.Event()

    def watch():
        while not done.wait(0.02):
            most[0] = max(most[0], sum(map(brigtest.resident, server.gateways())))

    thread = threading.Thread(target=watch)
    thread.start()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        outputs = list(pool.map(lambda _: client.run(name, "yes abc & cat /dev/zero >&2", timeout_ms=1500), range(8)))
    done.set()
    thread.join()
    for output in outputs:
        assert output["outcome"] == {"type": "timeout"} and len(output["stdout"]) == 16384
    assert most[0] < before + (16 << 20), "%d MiB" % (most[0] >> 20)


# ---- deadlines ----

LURK = """import os, signal, socket, sys, time
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
for i in range(12):
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        if i == 0: socket.create_server(("127.0.0.1", 9000)); time.sleep(1000)
        if i % 3 == 0: os.kill(os.getpid(), signal.SIGSTOP)
        if i % 3 == 1: os.posix_spawn("/bin/sleep", ["sleep", "95002"], {})
        time.sleep(1000)
print("up", flush=True)
time.sleep(1000)
"""


def test_the_tree_is_gone_at_the_deadline(server, client, box):
    """P1, P5, L14: ignored signals, new sessions, double forks, stopped ones, a port."""
    name = box()
    for _ in range(3):
        start = time.monotonic()
        output = client.run(name, "python3 -", stdin=LURK, timeout_ms=800)
        assert output["outcome"] == {"type": "timeout"} and output["stdout"] == "up\n"
        assert time.monotonic() - start < 1.8
        assert not server.guests("95002") and not server.guests("python3 -")
        assert output_of(client, name, "python3 -c 'import socket; socket.create_server((\"127.0.0.1\", 9000))'; ls /proc |"
                                       " grep -c '^[0-9]'") == "4\n"


# ---- of a server whose service manager spares it ----

def test_a_guest_is_not_spared_when_the_server_is():
    """L9: a negative oom score of the server's is nothing that a guest has, or can get back."""
    if subprocess.run(["choom", "-n", "-500", "--", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("this machine lets nobody set a negative oom score")
    server = brigtest.Server(None)
    server.prefix = ["choom", "-n", "-500", "--"]
    with server.running():
        client = server.client()
        assert int(output_of(client, "spared", "cat /proc/self/oom_score_adj")) >= 0
        assert int(output_of(client, "spared", "cat /proc/1/oom_score_adj")) >= 0
        refused = client.run("spared", "echo -500 > /proc/self/oom_score_adj")
        assert refused["outcome"]["exit_code"] != 0 and "Permission denied" in refused["stderr"], refused
