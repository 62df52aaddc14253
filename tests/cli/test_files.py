"""`brig files` and `brig rm`: a container's files from the command line."""
import array
import contextlib
import fcntl
import json
import os
import pty
import signal
import subprocess
import termios
import time
import uuid

import pytest

from brigtest import BRIG, wait_for
from test_commands import brig, names

MIB = 1 << 20


@pytest.fixture
def box(server):
    name = "c-" + uuid.uuid4().hex[:12]
    assert brig(server, "run", "--container", name, "--", "sh", "-c",
                "mkdir -p out; printf hello > out/report.csv; printf x > 'sp ace'").returncode == 0
    return name


def ok(done):
    assert (done.returncode, done.stderr) == (0, b""), done
    return done.stdout


def test_ls(server, box):
    lines = ok(brig(server, "files", "ls", box)).decode().splitlines()
    assert lines[0].split() == ["BYTES", "CHANGED", "(UTC)", "PATH"]
    assert [line.split(None, 3)[::3] for line in lines[1:]] == [["5", "out/report.csv"], ["1", "sp ace"]]
    listed = json.loads(ok(brig(server, "files", "ls", "--json", box)))
    assert [f["path"] for f in listed] == ["out/report.csv", "sp ace"]
    assert listed[0]["object"] == "container.file"
    brig(server, "run", "--container", box, "--", "sh", "-c", "touch \"$(printf 'a\\033[2Jb\\nc')\"; seq 2300 | xargs touch")
    assert b"a?[2Jb?c" in ok(brig(server, "files", "ls", box))
    assert len(json.loads(ok(brig(server, "files", "--json", "ls", box)))) == 2303


def test_an_empty_one_and_an_unknown_one(server):
    name = "c-" + uuid.uuid4().hex[:12]
    brig(server, "run", "--container", name, "true")
    assert ok(brig(server, "files", "ls", name)) == b"no files\n"
    assert json.loads(ok(brig(server, "files", "ls", "--json", name))) == []
    done = brig(server, "files", "ls", "none-such")
    assert done.returncode == 1 and b"(HTTP 404)" in done.stderr
    done = brig(server, "files", "ls", "a/../b")
    assert (done.returncode, done.stderr) == (1, b"brig: a container's id is 1 to 40 letters, digits, - and _: a/../b\n")


def test_get_and_put_to_the_byte(server, box, tmp_path):
    data = bytes(range(256)) * 5000 + os.urandom(MIB)
    (tmp_path / "up").write_bytes(data)
    assert ok(brig(server, "files", "put", box, str(tmp_path / "up"))) == b""
    assert ok(brig(server, "files", "put", box, str(tmp_path / "up"), "deep/er/f")) == b""
    assert ok(brig(server, "files", "get", box, "up", cwd=tmp_path)) == b""
    assert ok(brig(server, "files", "get", box, "deep/er/f", "-")) == data
    done = json.loads(ok(brig(server, "files", "get", "--json", box, "deep/er/f", str(tmp_path))))
    assert done == {"container_id": box, "path": "deep/er/f", "file": str(tmp_path / "f"), "bytes": len(data)}
    assert (tmp_path / "f").read_bytes() == data
    made = json.loads(ok(brig(server, "files", "put", "--json", box, "-", "stdin", input=data)))
    assert made["path"] == "stdin" and made["bytes"] == len(data)
    assert ok(brig(server, "run", "--container", box, "cmp", "up", "stdin")) == b""
    assert sorted(os.listdir(tmp_path)) == ["f", "up"]
    assert ok(brig(server, "files", "put", box, "/dev/null", "empty")) == b""
    assert ok(brig(server, "files", "get", box, "empty", "-")) == b""


def test_names_in_any_bytes(server, box):
    hostname = open("/etc/hostname", "rb").read()
    for name in (b"\xff\xfe", b"new\nline", b'q"uo\\te', b"-rf", "\u00fc".encode()):
        assert ok(brig(server, b"files", b"put", box, b"/etc/hostname", name)) == b""
        assert ok(brig(server, b"files", b"get", box, name, b"-")) == hostname


def test_what_fails_leaves_nothing(server, box, tmp_path):
    (tmp_path / "keep").write_bytes(b"old")
    done = brig(server, "files", "get", box, "none", str(tmp_path / "keep"))
    assert done.returncode == 1 and b"(HTTP 404)" in done.stderr
    assert os.listdir(tmp_path) == ["keep"] and (tmp_path / "keep").read_bytes() == b"old"
    assert brig(server, "files", "put", box, str(tmp_path / "none")).returncode == 1
    assert b"is a folder" in brig(server, "files", "put", box, str(tmp_path)).stderr
    assert b"standard input" in brig(server, "files", "put", box, "-").stderr
    done = brig(server, "files", "put", box, str(tmp_path / "keep"), "../keep")
    assert done.returncode == 1 and b"path must be relative" in done.stderr
    with open(tmp_path / "big", "wb") as big:
        big.truncate(300 * MIB)
    done = brig(server, "files", "put", box, str(tmp_path / "big"))
    assert done.returncode == 1 and b"(HTTP 413)" in done.stderr
    assert len(json.loads(ok(brig(server, "files", "ls", "--json", box)))) == 2


def test_rm_and_promote(server, box):
    (made,) = json.loads(ok(brig(server, "files", "promote", "--json", box, "out/report.csv")))
    assert made["filename"] == "out/report.csv"
    assert ok(brig(server, "files", "promote", box, "sp ace")).startswith(b"or_file_")
    assert ok(brig(server, "files", "rm", box, "sp ace")) == b""
    (gone,) = json.loads(ok(brig(server, "files", "rm", "--json", box, "out/report.csv")))
    assert gone["object"] == "container.file.deleted"
    done = brig(server, "files", "rm", box, "sp ace")
    assert done.returncode == 1 and done.stderr.startswith(b"brig: sp ace: the server says:")
    assert ok(brig(server, "files", "ls", box)) == b"no files\n"


def unread(pipe):
    """How many bytes wait in a pipe."""
    n = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, n)
    return n[0]


def test_an_interrupt_leaves_what_was_there(server, box, tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    brig(server, "run", "--container", box, "truncate", "-s", "50M", "big")
    read, write = os.pipe()
    put = subprocess.Popen([BRIG, "files", "put", box, "-", "half"], stdin=read, stderr=subprocess.PIPE,
                           env=dict(os.environ, BRIG_DATA=str(server.data)))
    os.close(read)
    os.write(write, b"x" * 4096)
    wait_for(lambda: unread(write) == 0)
    put.send_signal(signal.SIGINT)
    with contextlib.suppress(BrokenPipeError):
        os.write(write, b"x" * 4096)  # it may be in read(2)
    assert put.wait(60) == 130
    os.close(write)
    assert b"half" not in ok(brig(server, "files", "ls", box))
    assert (tmp_path / "f").read_bytes() == b"old"


def test_progress_is_for_terminals(server, box):
    ours, theirs = pty.openpty()
    read, write = os.pipe()
    put = subprocess.Popen([BRIG, "files", "put", box, "-", "slow"], stdin=read, stderr=theirs,
                           env=dict(os.environ, BRIG_DATA=str(server.data)))
    os.close(read)
    os.close(theirs)
    for _ in range(8):
        os.write(write, b"x" * 65536)
        time.sleep(0.2)
    os.close(write)
    assert put.wait(60) == 0
    shown = b""
    try:
        while True:
            shown += os.read(ours, 65536)
    except OSError:
        pass
    os.close(ours)
    assert b"slow  " in shown and b"KiB" in shown and b"/s" in shown and shown.endswith(b"\r\x1b[K")


def test_rm_removes_containers(server):
    two = ["rm-" + uuid.uuid4().hex[:8] for _ in range(2)]
    for name in two:
        brig(server, "run", "--container", name, "true")
    assert set(two) <= names(server)
    gone = json.loads(ok(brig(server, "rm", "--json", two[0])))
    assert gone == [{"id": two[0], "object": "container.deleted", "deleted": True}]
    assert ok(brig(server, "rm", two[1])) == b""
    assert not set(two) & names(server)
    done = brig(server, "rm", two[0])
    assert done.returncode == 1 and done.stderr.startswith(b"brig: %s: the server says:" % two[0].encode())
    assert brig(server, "rm", "no/id").returncode == 1
