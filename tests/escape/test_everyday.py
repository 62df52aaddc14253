"""What confinement must not break: the everyday commands of a machine, which a user inside takes for granted."""
import pytest

from conftest import run as running
from escapetest import brigtest, output_of


@pytest.fixture(scope="module", params=["auto", "v1"])
def server(request):
    yield from running(brigtest.Server(None, config={"cgroups": request.param}))


@pytest.fixture(scope="module")
def run(server):
    client = server.client()
    return lambda command, **fields: output_of(client, "everyday", command, timeout_ms=60000, **fields)


def test_processes_have_sensible_times(run):
    """Also those that began after the command did."""
    assert run("sleep 30 & sleep 1.1; ps -o etimes= -p $$ -p $! -p 1 | awk '$1 < 0 || $1 > 600'; kill $!; top -bn1 >/dev/null;"
               " ps -eo lstart= > /tmp/started; sort -u /tmp/started | wc -l") in ("1\n", "2\n", "3\n")
    assert run("date -d \"$(ps -o lstart= -p $$)\" +%s; date +%s").split()[0] > run("date +%s -d '-1 minute'").strip()


def test_disks_and_numbers(run):
    places = run("df --output=target").split("\n")[1:-1]
    assert sorted(places) == ["/", "/dev/shm", "/tmp", "/workspace/home"]
    assert run("nproc; free -m | awk '/Mem/ {print $2}'; swapon -s; ulimit -c; ulimit -n") == "1\n256\n0\n4096\n"
    assert run("ulimit -c 0; echo $?; ulimit -c unlimited; echo $?") == "0\n0\n"
    assert run("readlink /mnt/data; cd /mnt/data && echo x > y && ls /workspace/home/y; mktemp -u | head -c5; uptime >/dev/null"
               " && w >/dev/null && vmstat >/dev/null && echo fine") == "/workspace/home\n/workspace/home/y\n/tmp/fine\n"


def test_users(run):
    assert run("useradd -m bob && su bob -c 'id -un; touch ~/x; stat -c %U ~/x' && echo bob:pw | chpasswd && su -s /bin/sh nobody"
               " -c 'id -u' && runuser -u bob -- id -u && groupadd g1 && usermod -aG g1 bob && id -nG bob && userdel -r bob 2>&1 |"
               " grep -v mail; id; whoami; hostname") == \
        "bob\nbob\n65534\n1000\nbob g1\nuid=0(root) gid=0(root) groups=0(root)\nroot\neveryday\n"


def test_archives_keep_owners_and_modes(run):
    assert run("mkdir -p t/a o; touch t/a/f; chown 1000:2000 t/a/f; chmod 4755 t/a/f; ln -s f t/a/l; ln t/a/f t/a/h; mkfifo t/p;"
               " tar czf t.tgz t && tar xzpf t.tgz -C o && stat -c '%u %g %a %h' o/t/a/f && readlink o/t/a/l && test -p o/t/p &&"
               " cp -a o c && mv c c2 && rm -rf c2 o t && truncate -s 10G sparse && stat -c %b sparse") == "1000 2000 4755 2\nf\n0\n"
    assert run("mv /usr/share/doc /usr/share/doc2 && test $(ls /usr/share/doc2 | wc -l) -gt 50 && mv /usr/share/doc2"
               " /usr/share/doc && echo moved") == "moved\n"


def test_git(run):
    assert run("git init -q r && cd r && git config user.email a@b && git config user.name n && echo x > f && git add . && git"
               " commit -qm m && cd .. && git clone -q file://$PWD/r r2 && git -C r2 log --format=%s && git -C r gc -q && git -C r"
               " worktree add -q ../wt 2>&1 && ls wt") == "m\nf\n"


def test_packages(run):
    assert run("mkdir -p d/DEBIAN d/usr/bin; printf 'Package: hello-x\\nVersion: 1\\nArchitecture: all\\nMaintainer: a <a@b>\\n"
               "Description: x\\n' > d/DEBIAN/control; printf '#!/bin/sh\\necho hi\\n' > d/usr/bin/hellox; chmod 755 d/usr/bin/hellox;"
               " printf '#!/bin/sh\\nadduser --system --group --no-create-home hellod\\n' > d/DEBIAN/postinst; chmod 755"
               " d/DEBIAN/postinst; dpkg-deb -b d h.deb >/dev/null && apt-get install -y ./h.deb >/dev/null 2>&1 && hellox && id -un"
               " hellod && dpkg -s hello-x | grep ^Status && apt-get remove -y hello-x >/dev/null 2>&1; test -e /usr/bin/hellox ||"
               " echo gone") == "hi\nhellod\nStatus: install ok installed\ngone\n"


def test_python(run):
    assert run("""python3 - <<'P'
import asyncio, concurrent.futures, ctypes, multiprocessing, multiprocessing.shared_memory, os, pty, socket, sqlite3, subprocess
c = sqlite3.connect("x.db")
c.execute("pragma journal_mode=wal")
c.execute("create table t(a)")
c.execute("insert into t values(1)")
c.commit()
print(c.execute("select * from t").fetchall())
with concurrent.futures.ProcessPoolExecutor(3) as p: print(list(p.map(abs, [-1, -2])))
q = multiprocessing.Queue(); q.put(3); print(q.get())
s = multiprocessing.shared_memory.SharedMemory(create=True, size=100); s.close(); s.unlink()
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    with socket.create_server((address, 80), family=family) as l: socket.create_connection((address, 80)).close()
print(socket.gethostbyname(socket.gethostname()), os.cpu_count() >= len(os.sched_getaffinity(0)) == 1)
print(asyncio.run(asyncio.sleep(0, 4)), subprocess.run("true").returncode)
P""") == "[(1,)]\n[1, 2]\n3\n127.0.0.1 True\n4 0\n"
    assert run("python3 -m venv v && v/bin/python -m pip --version | cut -d' ' -f1 && mkdir w && cd w && printf 'from setuptools"
               " import setup\\nsetup(name=\"pk\",version=\"1\",py_modules=[\"pk\"])' > setup.py && echo 'x = 5' > pk.py && python3"
               " setup.py -q bdist_wheel >/dev/null 2>&1 && ../v/bin/pip install -q --no-index dist/*.whl && cd / &&"
               " /workspace/home/v/bin/python -c 'import pk; print(pk.x)'") == "pip\n5\n"


def test_terminals(run):
    assert run("python3 -c 'import pty; pty.spawn([\"tty\"])' | tr -d '\\r'; script -qc 'tty; echo hi' /dev/null | tr -d '\\r'") == \
        "/dev/pts/0\n/dev/pts/0\nhi\n"


def test_bash(run):
    assert run("set -m; sleep 100 & kill %1; wait %1 2>/dev/null; echo $?; timeout 0.2 sleep 5; echo $?; nohup true 2>/dev/null;"
               " flock /tmp/l -c 'echo locked'; mkfifo ff; (echo via > ff &); cat ff; diff <(echo a) <(echo a) && echo same; coproc"
               " cat; echo hey >&${COPROC[1]}; read -u ${COPROC[0]} z; echo $z; exec 3<>/dev/tcp/127.0.0.1/9 || echo refused; nice -n"
               " 5 nice; ionice -c3 true; echo $?; cat <<< here; seq 3 | xargs -P3 -n1 echo | sort | tail -1; echo $(:)$((6*7))") == \
        "143\n124\nlocked\nvia\nsame\nhey\nrefused\n5\n0\nhere\n3\n42\n"
    assert run("python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 & for i in $(seq 600); do curl -s localhost:8000 >/dev/null"
               " && break; sleep 0.1; done; curl -so /dev/null -w '%{http_code}\\n' localhost:8000; kill $!") == "200\n"
