"""What the tests of the hostile guest share."""
import base64
import ctypes
import os
import pathlib
import struct
import subprocess
import sys
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "api"))

import brigtest  # noqa: E402
from brigtest import wait_for  # noqa: E402

USERS = ["root", "1000", "1000:0"]  # the container's own, another, and another in root's group
TRIED = {}  # {user: lines}, for the summary


def build(folder):
    """The program, as text that goes in over standard input."""
    out = folder / "escape"
    subprocess.run([str(HERE / "build"), str(out)], check=True)
    return base64.b64encode(out.read_bytes()).decode()


def new_box(client, program, **fields):
    """A new container with the program in it."""
    name = "e-" + uuid.uuid4().hex[:12]
    if fields:
        assert client.post("/containers", dict(fields, name=name)).status < 300
    assert output_of(client, name, "base64 -d > /tmp/escape && chmod 755 /tmp/escape", stdin=program) == ""
    return name


def output_of(client, name, command, code=0, **fields):
    output = client.run(name, command, **fields)
    assert output["outcome"] == {"type": "exit", "exit_code": code}, output
    return output["stdout"]


def answers(client, name, seconds=60, command="echo next"):
    """The next command of the container works, at once or as soon as what went before has been cleared away. Every
    answer must come within a time that is long for a machine, not for a person."""
    def try_it():
        start = time.monotonic()
        answer = client.post("/containers/%s/exec" % name, {"commands": [command]})
        assert time.monotonic() - start < 30, answer
        return answer.status == 200 and answer.json["output"][0]["stdout"] == "next\n"

    return wait_for(try_it, seconds, every=0.05, message="the container answers no more")


def status(client, name):
    return client.get("/containers/" + name).json["status"]


# ---- what the host sees ----

def kernel_log():
    """An open /dev/kmsg at its end, or None."""
    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(fd, 0, os.SEEK_END)
        return fd
    except OSError:
        return None


def kernel_said(fd):
    """The lines since then."""
    lines = []
    while True:
        try:
            lines.append(os.read(fd, 8192).decode("utf-8", "replace").split(";", 1)[-1].split("\n")[0])
        except BlockingIOError:
            os.close(fd)
            return lines
        except BrokenPipeError:
            pass  # some were overwritten; the next ones follow


class Canary:
    """A folder of the host that nobody has any business with: names() are ways to it, touched() says what happened there."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder, "canary-" + uuid.uuid4().hex[:8])
        self.folder.mkdir(mode=0o777)
        self.folder.chmod(0o777)
        for name in ("file", "passwd", "libevil.so"):
            (self.folder / name).write_text("root::0:0::/:/bin/sh\n")
        (self.folder / "in").mkdir()
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        for path in [self.folder] + list(self.folder.iterdir()):
            assert libc.inotify_add_watch(self.fd, str(path).encode(), 0xfff) > 0

    def names(self):
        rest = str(self.folder).lstrip("/")
        return ["/" + rest, "../" * 40 + rest, "/proc/1/root/" + rest, "/proc/self/fd/3/../" + rest]

    def touched(self):
        events = []
        while True:
            try:
                data = os.read(self.fd, 65536)
            except BlockingIOError:
                return events
            while data:
                _, mask, _, length = struct.unpack_from("iIII", data)
                events.append("%x %s" % (mask, data[16:16 + length].rstrip(b"\0").decode()))
                data = data[16 + length:]
