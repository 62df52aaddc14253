"""X, from the outside: set-up, waking and paths against a guest that has prepared for them. Folders of the host that nobody
has any business with are watched meanwhile."""
import hashlib
import os
import pathlib
import platform
import re
import socket
import subprocess

import pytest

from conftest import run
from escapetest import brigtest, output_of

LIB = "/usr/lib/%s-linux-gnu" % platform.machine()
# Whatever a set-up, a helper or a tool of the host might look for in a root or a home.
NAMES = """proc dev sys etc tmp run var usr bin sbin lib lib64 root home workspace mnt data up wk work upper lower init
.git .ssh .profile .bashrc .bash_profile .config lost+found .brig core null zero console pts shm mqueue ptmx""".split()
TOOLS = """tar gzip xz zstd unpigz git mount umount mke2fs mkfs.ext4 mkfs.erofs e2fsck fsck resize2fs tune2fs losetup modprobe
cp rm ls cat sha256sum unshare nsenter runc crun ip iptables nft newuidmap newgidmap python3.9 env true""".split()


@pytest.fixture(scope="module")
def crowded():
    """Room for one: each use of another container puts the last one to sleep."""
    yield from run(brigtest.Server(None, config={"container": {"live": 1, "pool": 0, "memory": "128m", "home": "64m",
                                                                "scratch": "64m"}}))


@pytest.fixture(scope="module")
def base_files(tmp_path_factory):
    """{path: sha256} of the base image's files, from its bytes on the disk, past every cache."""
    folder = tmp_path_factory.mktemp("base")
    copy = folder / "copy.erofs"
    subprocess.run(["dd", "if=" + brigtest.test_image(), "of=%s" % copy, "bs=1M", "iflag=direct", "status=none"], check=True)
    script = """mount -t erofs -o ro,loop "$1" "$2" && cd "$2" && sha256sum usr/bin/su usr/bin/mount usr/bin/bash .%s/libc.so.6 \
.%s/ld-linux-*.so.* usr/lib/os-release""" % (LIB, LIB)
    (folder / "root").mkdir()
    said = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", str(copy), str(folder / "root")], check=True,
                          capture_output=True, text=True).stdout
    found = {}
    for line in said.splitlines():
        digest, path = line.split()
        found["/" + path.lstrip("./")] = digest
    yield copy, found
    copy.unlink()


def test_the_canary_can_die(canary):
    """What the tests below rely on: a look at it is seen."""
    assert not canary.touched()
    os.stat(canary.folder / "file")
    (canary.folder / "file").read_bytes()
    os.listdir(canary.folder)
    assert len(canary.touched()) > 2


# ---- X3, X6 ----

def hostile_home(canary):
    """Shell lines that fill home and the root with ways to the canary, and what else is odd."""
    lines = ["cd /workspace/home; cp /tmp/escape escape; ln -s '%s' 'link'; mkdir mark" % canary.folder]
    ways = canary.names()
    for n, name in enumerate(NAMES):
        lines.append("ln -sfn '%s' '%s'" % (ways[n % len(ways)], name))
    lines.append("ln -s '%s' \"$(printf 'a\\nb')\"; mkfifo fifo; : > '-rf'; ln -s link2 link1; ln -s link1 link2" % canary.folder)
    lines.append("for d in /etc /mnt /srv /opt /media /var /home; do mv $d $d.old; ln -s '%s' $d; done" % canary.folder)
    lines.append("ln -sfn '%s' /run/x; ln -sfn '%s/passwd' /etc.old/passwd; chmod 000 /workspace; chown 1234:1234 /workspace/home"
                 % (canary.folder, canary.folder))
    return "; ".join(lines)


def test_waking_over_hostile_files(crowded, canary, escape):
    """X3: sleeps and wakes, where home is full of links and two names in it change places all the time."""
    client = crowded.client()
    client.run("a", "base64 -d > /tmp/escape && chmod 755 /tmp/escape", stdin=escape)
    client.run("a", hostile_home(canary))
    flip = "setsid -f /workspace/home/escape attack flip /workspace/home/mark /workspace/home/link >/dev/null 2>&1"
    for n in range(15):
        answer = client.post("/containers/a/exec", {"argv": ["/bin/bash", "-c", "%s; cd /; for d in /etc /mnt /tmp/x; do ln -sfn '%s' $d;"
                                                             " done; chmod %s /workspace/home; echo $PWD" %
                                                             (flip, canary.folder, "000" if n % 2 else "777")]})
        assert answer.status == 200 and answer.json["output"][0]["stdout"] == "/\n", answer
        # By a name that init looks up in the guest's own files.
        answer = client.post("/containers/a/exec", {"argv": ["true"], "user": "nobody", "cwd": "/workspace/home/link"})
        assert answer.status in (200, 400), answer
        assert client.run("b", "echo b")["stdout"] == "b\n"
        assert client.get("/containers/a").json["status"] == "asleep"
    client.delete("/containers/a")
    client.delete("/containers/b")
    assert not canary.touched()


def test_a_path_that_changes_while_it_is_used(client, box, canary):
    """X6: a folder and a link out of the container change places while commands are started in it."""
    name = box()
    output_of(client, name, "mkdir /tmp/good; ln -s '%s' /tmp/bad; cp -r /tmp/good /tmp/flip" % canary.folder)
    output_of(client, name, "setsid -f /tmp/escape attack flip /tmp/flip /tmp/bad >/dev/null 2>&1")
    seen = set()
    for _ in range(60):
        answer = client.post("/containers/%s/exec" % name, {"commands": ["pwd -P"], "cwd": "/tmp/flip"})
        assert answer.status in (200, 400), answer
        seen.add(answer.json["output"][0]["stdout"] if answer.status == 200 else answer.status)
    assert seen <= {400, "/tmp/flip\n", "/tmp/bad\n"} and len(seen) > 1, seen
    assert not canary.touched()


# ---- X5, X12 ----

def test_tools_of_the_guest_run_in_the_guest(crowded, canary):
    """X5, X12: programs, libraries and settings that a helper of the host might take from a container, through all that it
    goes through."""
    client = crowded.client()
    evil = "#!/bin/sh\\ntouch '%s/in/hit' '%s/hit' /workspace/home/ran\\n" % (canary.folder, canary.folder)
    library = "%s/libevil.so" % canary.folder
    script = "; ".join([
        "printf \"%s\" > evil; chmod 755 evil" % evil.replace("'", "'\\''").replace('"', '\\"'),
        "for t in %s; do for d in /workspace/home /usr/local/bin /usr/local/sbin /usr/sbin; do cp evil $d/$t; done; done" % " ".join(TOOLS),
        "ln -sfn '%s' %s/libnss_files.so.2; ln -sfn '%s' %s/libnss_evil.so.2" % (library, LIB, library, LIB),
        "mkdir -p /usr/local/cuda/compat; ln -sfn / /usr/local/cuda/compat/libcuda.so.1; ln -sfn '%s' /usr/local/cuda/compat/x"
        % canary.folder,
        "echo 'passwd: evil' > /etc/nsswitch.conf; mkdir -p /usr/lib/locale; ln -sfn '%s' /usr/lib/locale/C.utf8.evil; echo '%s' >"
        " /etc/ld.so.conf.d/evil.conf; echo '%s' > .gitconfig; ln -sfn '%s' .bashrc"
        % (canary.folder, canary.folder, canary.folder, canary.folder)])
    made = client.post("/containers", {"name": "x5", "env": {"LD_PRELOAD": library, "LD_LIBRARY_PATH": "/usr/local/cuda/compat",
                                                             "GCONV_PATH": str(canary.folder), "BASH_ENV": "%s/file" % canary.folder,
                                                             "NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "0"}})
    assert made.status < 300, made
    assert client.run("x5", script)["outcome"]["exit_code"] == 0
    # Last, since no program starts without its complaint from here on.
    client.run("x5", "echo '%s' > /etc/ld.so.preload" % library)
    for n in range(3):
        for fields in ({}, {"user": "nobody"}, {"user": "daemon", "cwd": "/tmp"}, {"stdin": "x"}):
            client.post("/containers/x5/exec", dict({"commands": ["true"]}, **fields))
        assert client.run("other", "echo b")["stdout"] == "b\n"
    for path in ("", "/files", "/files/evil", "/archive"):
        client.get("/containers/x5" + path)
    client.delete("/containers/x5")
    client.delete("/containers/other")
    assert not canary.touched()


# ---- X13 ----

def test_no_user_of_the_machine_can_prepare_a_place(server, client, box):
    """The folders that set-up works in are nobody's to plant a link in, nor to look into."""
    box()
    program = """import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
data, done = sys.argv[1], []
folders = [data] + [os.path.join(data, n) for n in
                    ("images", "homes", "scratch", "templates", "trash", "mnt", "gateway", "blobs")]
for folder in folders:
    for act in (lambda: os.symlink("/", folder + "/x13"), lambda: os.mkdir(folder + "/x13"), lambda: os.rename(folder, folder + ".x"),
                lambda: os.rmdir(folder), lambda: os.listdir(folder), lambda: os.open(folder + "/../key", os.O_RDONLY)):
        try:
            act()
            done.append(folder)
        except OSError:
            pass
print(done)
"""
    said = subprocess.run(["/usr/bin/python3", "-c", program, str(server.data)], capture_output=True, text=True, check=True).stdout
    assert said == "[]\n"


# ---- X14 ----

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


def test_no_abstract_name_of_the_host_answers(client, box):
    """X14: all that there are on this machine."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0escape-host-name")
    listener.listen()
    names = set()
    for line in pathlib.Path("/proc/net/unix").read_bytes().splitlines()[1:]:
        name = re.sub(rb"^\S+ +\S+ +\S+ +\S+ +\S+ +\S+ +\d+ ?", b"", line)
        if name.startswith(b"@"):
            names.add(name[1:].replace(b"@", b"\0")[:100].hex())
    assert b"escape-host-name".hex() in names
    said = client.run(box(), "/tmp/escape attack reach", stdin="\n".join(sorted(names)) + "\n")
    assert said["stdout"] == "%d names refused\n" % len(names), said


# ---- K4 ----

def test_what_containers_share_in_memory_is_as_on_the_disk(client, box, base_files):
    """K4: after the guest has tried, another container reads what the disk says, and so does the host."""
    copy, digests = base_files
    assert len(digests) >= 5
    a, b = box(), box()
    paths = " ".join(sorted(digests))

    def read_by(name):
        lines = (line.split() for line in output_of(client, name, "sha256sum " + paths).splitlines())
        return {path: digest for digest, path in lines}

    assert read_by(b) == digests
    for user in ("root", "1000"):
        said = output_of(client, a, "/tmp/escape K4 K4-base", user=user)
        assert said.count("PASS") == 2, said
    assert read_by(b) == digests and read_by(a) == digests
    # The image itself, through the host's cache, against the copy that came past it.
    with open(brigtest.test_image(), "rb") as cached, open(copy, "rb") as direct:
        assert hashlib.file_digest(cached, "sha256").digest() == hashlib.file_digest(direct, "sha256").digest()
