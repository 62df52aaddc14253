"""What a user inside sees is a small machine of the container's size, and the tools of a machine work in it.
(tests/escape/test_everyday.py has useradd, tar, git, one package, python, terminals and bash.)"""
import os
import re

import pytest

from sandboxtest import fresh, output_of

CGROUPS = ["auto"]  # version 1 has the same limits on a hybrid machine
SETTINGS = {"container": {"cpus": 2}}


@pytest.fixture(scope="module")
def boxes(server):
    """Run in a machine of one processor, or of two."""
    client = server.client()
    made = {1: fresh("one"), 2: fresh("two")}
    for cpus, name in made.items():
        assert client.post("/containers", {"name": name, "cpus": cpus}).status == 200
    yield lambda command, cpus=1, **fields: output_of(client, made[cpus], command, timeout_ms=120000, **fields)
    for name in made.values():
        client.delete("/containers/" + name)


def test_its_size(boxes):
    assert boxes("nproc; getconf _NPROCESSORS_ONLN; grep -c ^processor /proc/cpuinfo; grep -c '^cpu[0-9]' /proc/stat;"
                 " python3 -c 'import os; print(len(os.sched_getaffinity(0)))'; free -m | awk '/^Mem/ {print $2}'; free -m |"
                 " awk '/^Swap/ {print $2}'; awk '/^MemTotal/ {print $2}' /proc/meminfo") == "1\n1\n1\n1\n1\n256\n0\n262144\n"


def test_two_processors(boxes):
    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("this machine has one processor")
    assert boxes("nproc; grep -c ^processor /proc/cpuinfo; grep -c '^cpu[0-9]' /proc/stat", cpus=2) == "2\n2\n2\n"


def test_disks(boxes):
    """df by the images' sizes: home, what else it writes, and the small ones in memory."""
    sizes = {line.split()[0]: int(line.split()[1]) for line in boxes("df -BM --output=target,size | tail -n +2 | tr -d M").splitlines()}
    assert set(sizes) == {"/", "/workspace/home", "/tmp", "/dev/shm"}
    for place in ("/", "/workspace/home"):
        assert 200 <= sizes[place] <= 256
    for place in ("/tmp", "/dev/shm"):
        assert 16 <= sizes[place] <= 128
    assert re.fullmatch(r"\d+\n", boxes("df --output=iavail /workspace/home | tail -1").replace(" ", ""))


def test_processes(boxes):
    """ps and top show the container's own, with sensible numbers."""
    shown = boxes("sleep 31 & until [ $(cat /proc/$!/comm) = sleep ]; do :; done; ps -eo pid,user,comm --no-headers; kill $!").split("\n")[:-1]
    names = sorted(line.split()[2] for line in shown)
    assert len(names) == 4 and set(names) > {"bash", "ps", "sleep"}, shown  # and init
    # Once without the screen: five lines of summary, the table, and what runs.
    top = boxes("(while :; do :; done) & sleep 0.3; top -b -n1; kill $!").split("\n")
    assert top[0].startswith("top - ") and re.match(r"Tasks: +[3-6] total", top[1]) and top[2].startswith("%Cpu(s):"), top
    total = float(re.match(r"MiB Mem : +([0-9.]+) total", top[3]).group(1))
    assert total == 256.0
    assert re.match(r" +PID USER", top[6]) and [line for line in top[7:] if line.split()[-1:] == ["bash"]], top
    assert boxes("ps aux | awk '$3 > 1000 || $4 > 100'") == ""


def test_times(boxes):
    """The load is its own; the time since the start is the kernel's, which processes' own times count from."""
    up, load = boxes("cut -d. -f1 /proc/uptime; cut -d' ' -f1 /proc/loadavg; uptime >/dev/null; w >/dev/null").split()
    assert int(up) > 0 and float(load) < 20
    assert boxes("sleep 1.2; test $(ps -o etimes= -p $$) -ge 1 && test $(ps -o etimes= -p $$) -lt 60 && echo sensible") == "sensible\n"


def test_what_is_used_is_seen(boxes):
    used = lambda: int(boxes("free -m | awk '/^Mem/ {print $3}'"))
    before = used()
    boxes("python3 -c 'import time; b = bytearray(100 << 20); open(\"up\", \"w\"); time.sleep(60)' & until [ -e up ]; do sleep 0.05; done")
    assert 90 <= used() - before < 150
    boxes("pkill python3")


REPOSITORY = """set -e
mkdir -p /var/repo && cd /var/repo
package() {
	mkdir -p "$1/DEBIAN" "$1/usr/share/$1"
	printf 'Package: %s\\nVersion: %s\\nArchitecture: all\\nMaintainer: a <a@b>\\nDepends: %s\\nDescription: x\\n' "$1" "$2" "$3" > "$1/DEBIAN/control"
	echo "$2" > "$1/usr/share/$1/version"
	dpkg-deb -b "$1" . >/dev/null
	rm -r "$1"
}
package small-part 1.0 libc6
package small-whole 1.0 'small-part (>= 1.0)'
for f in *.deb; do
	dpkg-deb -f $f
	echo "Filename: ./$f"
	echo "Size: $(stat -c %s $f)"
	echo "SHA256: $(sha256sum $f | cut -d' ' -f1)"
	echo
done > Packages
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:/var/repo ./' > /etc/apt/sources.list
apt-get update -q
"""


def test_apt_from_a_repository_of_files(boxes):
    """Lists, dependencies, a question that nobody answers (P11), an installation, and its end."""
    said = boxes("cat > r.sh; bash r.sh 2>&1", stdin=REPOSITORY)
    assert "Reading package lists" in said and "Err:" not in said
    assert boxes("apt-cache policy small-whole | grep Candidate") == "  Candidate: 1.0\n"
    asked = boxes("apt-get install small-whole 2>&1; echo code $?")
    assert "Do you want to continue? [Y/n] Abort." in asked and asked.endswith("code 1\n"), asked
    assert boxes("apt-get install -y -q small-whole >/dev/null 2>&1; cat /usr/share/small-*/version; dpkg -l | grep -c '^ii  small-'"
                 ) == "1.0\n1.0\n2\n"
    assert boxes("dpkg -r small-part >/dev/null 2>&1; echo $?; apt-get purge -y small-part >/dev/null 2>&1; ls -d /usr/share/small-*"
                 " 2>/dev/null | wc -l") == "1\n0\n"


def test_dpkg_and_pip_leave_the_image_alone(boxes, server):
    """What one container installs no other has."""
    assert boxes("echo mine > /usr/share/mine; cat /usr/share/mine; rm -r /var/lib/dpkg/info; dpkg -s bash >/dev/null && echo ok") == "mine\nok\n"
    assert boxes("cat /usr/share/mine 2>/dev/null; ls /var/lib/dpkg/info | wc -l | grep -vx 0 >/dev/null; echo $?", cpus=2) == "0\n"


def test_git(boxes):
    """As root and as an owner of nothing: history, branches, a bare remote, a push over files."""
    assert boxes("set -e; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; git init -q --bare far;"
                 " git clone -q far near 2>/dev/null; cd near; for i in 1 2 3; do echo $i > f; git add f; git commit -qm c$i; done; git push -q"
                 " origin HEAD; git checkout -qb side HEAD~1; git log --format=%s; cd ..; git clone -q file://$PWD/far third; git -C third"
                 " log --format=%s | head -1; git -C near status --short | wc -l") == "c2\nc1\nc3\n0\n"


C_PROGRAM = r"""#include <pthread.h>
#include <stdio.h>
static void *f(void *p) { *(int *)p = 6; return p; }
int main(void) { pthread_t t; int n = 0; pthread_create(&t, 0, f, &n); pthread_join(t, 0); printf("%d\n", n * 7); }
"""


@pytest.mark.parametrize("tool, command, stdin, answer", [
    ("gcc", "gcc -O2 -pthread -x c - -o p && ./p", C_PROGRAM, "42\n"),
    ("node", "node -e 'console.log(6 * 7)'", None, "42\n"),
    ("npm", "npm --version >/dev/null && echo 42", None, "42\n"),
    ("sqlite3", "sqlite3 x.db 'create table t(a); insert into t values(42); select a from t'", None, "42\n"),
    ("jq", "echo '{\"a\": 42}' | jq .a", None, "42\n"),
    ("perl", "perl -e 'print 6 * 7, \"\\n\"'", None, "42\n"),
    ("make", "make -s -f /dev/stdin", "all:\n\t@echo 42\n", "42\n"),
])
def test_tools_that_the_image_may_have(boxes, tool, command, stdin, answer, say):
    if boxes("command -v %s || echo none" % tool) == "none\n":
        pytest.skip("the base image has no %s" % tool)
    assert boxes(command, **({"stdin": stdin} if stdin else {})) == answer


def test_job_control(boxes):
    """Groups of processes, stopping and going on, on a terminal and off it."""
    assert boxes("set -m; sleep 60 & kill -STOP %1; sleep 0.2; jobs | tr -s ' ' | cut -d' ' -f2; bg %1 >/dev/null; sleep 0.1; jobs -r |"
                 " wc -l; kill %1; wait %1 2>/dev/null; echo $?; (trap 'echo caught; exit 9' INT; kill -INT $BASHPID); echo $?") == \
        "Stopped\n1\n143\ncaught\n9\n"
    assert boxes("python3 - <<'P'\nimport glob, os, pty, time\npid, fd = pty.fork()\nif pid == 0: os.execvp('bash', ['bash', '--norc', '-i'])\n"
                 "def wait(mark):\n  data = b''\n  while mark not in data: data += os.read(fd, 4096)\n"
                 "def state():\n  for p in glob.glob('/proc/[0-9]*'):\n    try:\n"
                 "      if open(p + '/cmdline').read() == 'sleep\\0' + '77\\0': return open(p + '/stat').read().split()[2]\n"
                 "    except OSError: pass\n"
                 "def until(s):\n  while state() != s: time.sleep(0.05)\n"
                 "os.write(fd, b'PS1=; sleep 77; echo c$?e\\n'); until('S'); os.write(fd, b'\\x1a'); wait(b'c148e')\n"
                 "os.write(fd, b'fg\\n'); until('S'); os.write(fd, b'\\x03'); until(None)\n"
                 "os.write(fd, b'echo d$((6*7))e; exit 5\\n'); wait(b'd42e')\n"
                 "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\nP") == "5\n"
