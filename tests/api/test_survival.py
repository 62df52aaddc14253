"""Files that last: through sleep and waking, and through the death of any process at any time, against a model of what must
be there. BRIG_KILL_SECONDS says how long the killing goes on (60 here; `make soak` has more)."""
import contextlib
import http.client
import json
import os
import pathlib
import random
import signal
import threading
import time

import pytest

import brigtest
from brigtest import wait_for

KILL_SECONDS = float(os.environ.get("BRIG_KILL_SECONDS", "60"))

# Made by container root inside; everything about it must come back. Prints one line for each node.
TREE = r'''
import hashlib, os, socket, stat, sys
os.chdir(os.environ["HOME"])
n = int(sys.argv[1])
def write(path, data, mode=0o644):
    with open(path, "wb") as f: f.write(data)
    os.chmod(path, mode)
if n == 0:
    os.makedirs("a/b/c"); os.makedirs("empty/er"); os.makedirs("links")
    write("a/all", bytes(range(256))); write("a/none", b""); write("a/secret", b"s", 0)
    write("a/setuid", b"u", 0o6755); os.chown("a/setuid", 12, 13); os.chmod("a/setuid", 0o6755)
    os.link("a/all", "links/hard"); os.link("a/all", "a/b/c/hard")
    os.symlink("/etc/shadow", "links/absolute"); os.symlink("no/where", "links/dangling"); os.symlink("../a", "links/folder")
    for name in (b"-rf", b" space ", b"new\nline", b"\xff\xfe\x80", "\U0001f600".encode(), b"x" * 255, b"q'\"$`\\"):
        write(name, name)
    with open("sparse", "wb") as f:
        f.seek(100 << 20); f.write(b"end")
        f.seek(3 << 20); f.write(b"m" * 5000)
        f.truncate(300 << 20)
    os.setxattr("a/all", "user.color", b"\0blue"); os.setxattr("a/setuid", "user.stays", b"as it is"); os.setxattr("a", "user.of.folder", b"x" * 1000)
    os.mkdir("sticky"); os.chmod("sticky", 0o1777); os.mkdir("closed"); write("closed/in", b"in"); os.chmod("closed", 0)
    os.mkfifo("pipe"); socket.socket(socket.AF_UNIX).bind("socket")
    at = "deep"
    for i in range(30):
        os.mkdir(at); at += "/" + "d" * 100
    os.utime("a/none", ns=(0, 1234567890123456789)); os.utime("links/dangling", ns=(0, 987654321), follow_symlinks=False)
elif n > 0:
    write("round-%d" % n, os.urandom(n * 1000))
    write("a/all", bytes([n]) * 256)                  # keeps its inode, so every name sees it
    os.rename("a/moved" if n > 1 else "a/b", "a/moved.new"); os.rename("a/moved.new", "a/moved")
    if n % 3 == 0: os.unlink("round-%d" % (n - 1))
    os.utime("empty/er", ns=(n, n * 1000000007))
inodes = {}
def line(path, st, *more):
    print(repr(path), oct(st.st_mode), st.st_uid, st.st_gid, st.st_mtime_ns, *more)
for top, folders, files in os.walk(b"."):
    st = os.lstat(top)
    line(top, st, [(k, os.getxattr(top, k)) for k in sorted(os.listxattr(top))])
    folders.sort()
    for name in sorted(files + [f for f in folders if os.path.islink(os.path.join(top, f))]):
        path = os.path.join(top, name)
        st = os.lstat(path)
        if stat.S_ISREG(st.st_mode):
            digest = hashlib.sha256()
            with open(path, "rb") as f:
                for block in iter(lambda: f.read(1 << 20), b""): digest.update(block)
            line(path, st, st.st_size, st.st_nlink, inodes.setdefault(st.st_ino, path), digest.hexdigest(),
                 [(k, os.getxattr(path, k)) for k in sorted(os.listxattr(path))])
            if name == b"sparse": print("blocks", st.st_blocks < 1000)
        elif stat.S_ISLNK(st.st_mode):
            line(path, st, os.readlink(path))
'''


def look(client, name, n):
    output = client.run(name, "python3 - %d" % n, stdin=TREE, max_output_length=65536, timeout_ms=60000)
    assert output["outcome"] == {"type": "exit", "exit_code": 0}, output
    assert not output.get("stdout_truncated")
    return output["stdout"]


@pytest.fixture(params=["image", "blob"])
def saving(request):
    return request.param


def test_twenty_rounds_of_sleep_and_waking(saving):
    server = brigtest.Server(None, config={"container": {"live": 1, "pool": 0, "saving": saving}})
    with server.running():
        client = server.client()
        left = look(client, "box", 0)
        assert left.count("\n") > 50
        for n in range(1, 21):
            client.run("box", "echo lost > /tmp/lost; echo lost > /var/lost; sleep 1000 > /dev/null 2>&1 &")
            client.run("other", "true")  # there is room for one: the other sleeps
            assert client.get("/containers/box").json["status"] == "asleep"
            assert client.run("box", "ls /tmp /var/lost 2> /dev/null; pgrep sleep")["stdout"] == "/tmp:\n"
            assert look(client, "box", -1) == left, "round %d" % n
            left = look(client, "box", n)


def test_brought_back_on_an_empty_disk():
    """As another machine would see it: the blobs are there, the home's image is not."""
    server = brigtest.Server(None, config={"container": {"saving": "blob", "pool": 0, "sleep_after": "1s"}})
    with server.running():
        client = server.client()
        left = look(client, "box", 0)
        for n in range(1, 4):
            left = look(client, "box", n)
            server.stop()
            images = list((server.data / "homes").iterdir())
            assert images
            for image in images:
                image.unlink()
            server.start()
            client = server.client()
            assert look(client, "box", -1) == left, "round %d" % n
        # and with nothing of it left, it is a new one
        assert client.delete("/containers/box").status == 200
        assert client.run("box", "ls -A")["stdout"] == ""
        client.delete("/containers/box")
        assert not [p for p in server.data.rglob("manifest")]


def test_what_cannot_be_brought_back_is_said_and_kept():
    server = brigtest.Server(None, config={"container": {"saving": "blob", "pool": 0}})
    with server.running():
        client = server.client()
        client.run("box", "echo precious > f; head -c 5000000 /dev/urandom > g")
        server.stop()
        for image in (server.data / "homes").iterdir():
            image.unlink()
        manifest = next(server.data.rglob("manifest"))
        good = manifest.read_bytes()
        manifest.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
        server.start()
        client = server.client()
        for _ in range(2):
            answer = client.post("/containers/box/exec", {"commands": ["ls"]})
            assert answer.status >= 500 and "saved files" in answer.error["message"], answer
        manifest.write_bytes(good)
        piece = next(p for p in manifest.parent.iterdir() if p.stat().st_size == 4 << 20)
        bytes_of_piece = piece.read_bytes()
        piece.unlink()
        for _ in range(2):
            answer = client.post("/containers/box/exec", {"commands": ["ls"]})
            assert answer.status >= 500 and "could not be brought back" in answer.error["message"], answer
        piece.write_bytes(bytes_of_piece)
        assert client.run("box", "cat f; wc -c < g")["stdout"] == "precious\n5000000\n"


def test_an_image_that_cannot_be_mounted_is_kept(saving):
    server = brigtest.Server(None, config={"container": {"saving": saving, "pool": 0}})
    with server.running():
        client = server.client()
        client.run("box", "echo precious > f")
        server.stop()
        image = next((server.data / "homes").iterdir())
        with open(image, "r+b") as f:
            f.seek(1024)
            super_block = f.read(1024)
            f.seek(1024)
            f.write(bytes(1024))
        before = image.read_bytes()
        server.start()
        client = server.client()
        for _ in range(2):
            answer = client.post("/containers/box/exec", {"commands": ["ls"]})
            assert answer.status >= 500 and "cannot be mounted" in answer.error["message"], answer
        assert image.read_bytes() == before
        with open(image, "r+b") as f:
            f.seek(1024)
            f.write(super_block)
        assert client.run("box", "cat f")["stdout"] == "precious\n"


def without_homes(server):
    """As another machine would see it: the blobs are there, the homes' images are not."""
    server.stop()
    for image in (server.data / "homes").iterdir():
        image.unlink()
    server.start()
    return server.client()


def send(client, name, path, data):
    body = (b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n\r\n%s\r\n--xyz--\r\n' % (path.encode(), data))
    answer = client.request("POST", client.base + "/containers/%s/files" % name, body,
                            headers={"Content-Type": "multipart/form-data; boundary=xyz"})
    assert answer.status == 200, answer
    return answer.json["id"]


def test_files_api_of_homes_that_are_elsewhere():
    """What the API changes is saved before it is told, and a home that is not here is brought back first."""
    server = brigtest.Server(None, config={"container": {"saving": "blob", "pool": 0, "sleep_after": "50ms"}})
    with server.running():
        client = server.client()
        client.run("box", "echo old > old; echo gone > gone")
        client = without_homes(server)
        assert [f["path"] for f in client.get("/containers/box/files").json["data"]] == ["gone", "old"]
        assert client.get("/containers/box").json["status"] == "asleep"
        client = without_homes(server)
        new = send(client, "box", "new", b"new\n")
        assert client.get("/containers/box/files/%s/content" % new).body == b"new\n"
        client = without_homes(server)
        gone = next(f["id"] for f in client.get("/containers/box/files").json["data"] if f["path"] == "gone")
        assert client.delete("/containers/box/files/" + gone).status == 200
        client = without_homes(server)
        document = client.post("/containers/box/files/%s/promote" % new).json["id"]
        copied = client.post("/containers/box/files", {"file_id": document})
        assert copied.status == 200, copied
        client = without_homes(server)
        assert client.run("box", "cat old new; cat -- *-new; ls | wc -l")["stdout"] == "old\nnew\nnew\n3\n"


def test_a_home_with_no_inode_left_comes_back():
    """Files with several names too, which need a place of their own until all of their names are made."""
    server = brigtest.Server(None, config={"container": {"saving": "blob", "pool": 0, "home": "64m"}})
    with server.running():
        client = server.client()
        fill = ("i=0; while mkdir d$i && for k in $(seq 200); do : > d$i/$k || break 2; done; do ln d$i/1 hard$i; i=$((i+1)); done "
                "2> /dev/null; df --output=iavail . | tail -1; ls -R | sort | md5sum")
        output = client.run("box", fill, timeout_ms=60000)["stdout"].split()
        assert output[0] == "0", output
        client = without_homes(server)
        assert client.run("box", "df --output=iavail . | tail -1; ls -R | sort | md5sum")["stdout"].split() == output


def test_nothing_is_acknowledged_that_was_not_saved():
    """The blobs cannot be written: an exec, an upload and a turn say so, whenever in it the save failed."""
    server = brigtest.Server(None, config={"container": {"saving": "blob", "pool": 0}})
    with server.running():
        client = server.client()
        client.run("box", "echo saved > saved")
        blobs = server.data / "gateway" / "blob"
        blobs.chmod(0o500)
        answer = client.post("/containers/box/exec", {"commands": ["echo a > a"]})
        assert "could not be saved" in answer.json["error"]["message"], answer
        body = b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="b"\r\n\r\nb\r\n--xyz--\r\n'
        answer = client.request("POST", client.base + "/containers/box/files", body,
                                headers={"Content-Type": "multipart/form-data; boundary=xyz"})
        assert answer.status == 503 and "could not be saved" in answer.error["message"], answer
        turn = {"model": "brig/script", "input": "```\necho c > c\n```\n---\n```\nsleep 0.3; echo d\n```", "session_id": "turn",
                "tools": [{"type": "openrouter:shell"}]}
        for _ in range(3):
            answer = client.post("/responses", turn)
            assert answer.status >= 500 or answer.json["status"] == "failed", answer
        blobs.chmod(0o700)
        assert client.post("/responses", turn).json["status"] == "completed"
        client.run("box", "true")
        client = without_homes(server)
        assert client.run("box", "cat saved a b")["stdout"] == "saved\na\nb"
        assert client.run("sess_turn", "cat c")["stdout"] == "c\n"


def test_deleted_while_it_is_saved():
    """A container deleted in the middle of saves and restores, by two gateways: nothing of it comes back, nothing is left behind,
    and what a later one of the name acknowledged is saved."""
    server = brigtest.Server(None, workers=2, config={"container": {"saving": "blob", "pool": 0, "sleep_after": "20ms", "home": "64m"}})
    with server.running():
        client = server.client()
        stop = threading.Event()

        def use():
            while not stop.is_set():
                with contextlib.suppress(OSError, http.client.HTTPException):
                    client.post("/containers/box/exec", {"commands": ["head -c 3000000 /dev/urandom > f$RANDOM"]})

        users = [threading.Thread(target=use) for _ in range(2)]
        for user in users:
            user.start()
        r = random.Random(7)
        for _ in range(12):
            time.sleep(r.uniform(0, 0.3))
            assert client.delete("/containers/box").status in (200, 404)
        stop.set()
        for user in users:
            user.join()
        last = client.delete("/containers/box")
        assert last.status in (200, 404), last
        assert client.run("box", "ls -A; echo kept > kept")["stdout"] == ""
        client = without_homes(server)
        assert client.run("box", "ls -A; cat kept")["stdout"] == "kept\nkept\n"
        assert client.delete("/containers/box").status == 200
        left = [p for p in (server.data / "gateway" / "homes").iterdir()] + list((server.data / "gateway" / "blob" / "home").rglob("*"))
        assert not left, left


def test_death_while_it_is_brought_back():
    """Whoever dies, and whenever: a home that is half there is made anew, by whoever comes next, and is never saved as the whole."""
    server = brigtest.Server(None, workers=2, config={"container": {"saving": "blob", "pool": 0}})
    with server.running():
        client = server.client()
        client.run("box", "for i in $(seq 1500); do mkdir d$i; echo $i > d$i/f; done; head -c 20000000 /dev/urandom > big; ln big big2",
                   timeout_ms=60000)
        sums = "find . -type f -print0 | sort -z | xargs -0 md5sum | md5sum"
        want = client.run("box", sums)["stdout"]
        r = random.Random(3)
        for n in range(max(4, int(KILL_SECONDS / 5))):
            client = without_homes(server)

            def use(url_client=client):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    url_client.post("/containers/box/exec", {"commands": ["true"]}, timeout=60)

            users = [threading.Thread(target=use) for _ in range(2)]
            for user in users:
                user.start()
            time.sleep(r.uniform(0.005, 0.4))
            if n % 2 == 0:
                server.kill()
                wait_for(lambda: not server.own(), message="still there: %s" % server.own())
                (server.data / "url").unlink(missing_ok=True)
                server.start()
            else:
                for pid in server.gateways():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            for user in users:
                user.join()
            client = server.client()
            wait_for(lambda: try_run(client))
            assert client.run("box", sums)["stdout"] == want, "round %d" % n


# ---- death at any time ----

class Model:
    """What each file of each container may hold: the last acknowledged value, and those of operations without an answer."""

    def __init__(self):
        self.files = {}
        self.lock = threading.Lock()

    def begin(self, place, value):
        with self.lock:
            self.files.setdefault(place, {None}).add(value)

    def acknowledged(self, place, value):
        with self.lock:
            self.files[place] = {value}

    def places(self):
        with self.lock:
            return sorted(self.files)


def operate(server, model, name, stop, seed):
    """Writes, renames and removes in one container, one operation at a time, until told to stop."""
    r = random.Random(seed)
    client = server.client()
    n = 0
    while not stop.is_set():
        n += 1
        path = "f%d" % r.randrange(6)
        value = None if r.random() < 0.15 else "%d-%d-%s" % (seed, n, "x" * r.choice((0, 10, 5000)))
        model.begin((name, path), value)
        if value is None:
            command = "rm -f %s" % path
        elif r.random() < 0.5:
            command = "printf %%s %s > %s.new && mv %s.new %s" % (value, path, path, path)
        else:
            command = "printf %%s %s > .t && mv .t %s" % (value, path)
        try:
            answer = client.post("/containers/%s/exec" % name, {"commands": [command]}, timeout=60)
        except (OSError, http.client.HTTPException):
            time.sleep(0.02)
            continue
        done = answer.status == 200 and answer.json["output"][0]["outcome"] == {"type": "exit", "exit_code": 0}
        if done:
            model.acknowledged((name, path), value)
        elif answer.status != 200:
            time.sleep(0.02)


def read_all(client, name):
    script = "import json, os; print(json.dumps({f: open(f).read() for f in os.listdir() if f.startswith('f') and '.' not in f}))"
    return json.loads(client.run(name, "python3 -c %s" % json.dumps(script), max_output_length=65536)["stdout"])


def check(client, model, names):
    for name in names:
        there = read_all(client, name)
        for place in model.places():
            if place[0] != name:
                continue
            allowed = model.files[place]
            assert there.get(place[1]) in allowed, "%s: %r is none of %r" % (place, there.get(place[1]), allowed)
            model.acknowledged(place, there.get(place[1]))


def test_death_at_any_time(saving):
    workers = 2
    server = brigtest.Server(None, workers=workers, config={"container": {"saving": saving, "live": 2, "pool": 1, "sleep_after": "1s"}})
    names = ["a", "b", "c"]
    model, r = Model(), random.Random(4711)
    server.start()
    try:
        end = time.monotonic() + KILL_SECONDS / 2
        deaths = 0
        while time.monotonic() < end:
            stop = threading.Event()
            threads = [threading.Thread(target=operate, args=(server, model, name, stop, r.randrange(1 << 30))) for name in names]
            for t in threads:
                t.start()
            time.sleep(r.uniform(0.05, 1.5))
            victim = r.choice(["supervisor", "gateway", "both"])
            if victim != "supervisor":
                for pid in server.gateways()[:r.randrange(1, workers + 1)]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            if victim != "gateway":
                server.kill()
            deaths += 1
            time.sleep(r.uniform(0, 0.3))
            stop.set()
            for t in threads:
                t.join()
            if victim != "gateway":
                wait_for(lambda: not server.own(), message="still there: %s" % server.own())
                (server.data / "url").unlink(missing_ok=True)
                server.start()
            client = server.client()
            wait_for(lambda: try_run(client))
            check(client, model, names)
        assert deaths >= 2
        server.stop()
    finally:
        if server.process is not None:
            server.kill()
        server.remove()


def try_run(client):
    with contextlib.suppress(OSError, EOFError, AssertionError, http.client.HTTPException):
        return client.run("probe", "echo up")["stdout"] == "up\n"
