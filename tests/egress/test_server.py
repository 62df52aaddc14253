"""The whole way: a real container of `brig serve`, through egress, to servers of the test, with the clients that people use.

The server runs in the test's own network namespace (egresstest.outside), so "the internet" is the test's here too.
"""

import io
import os
import sys
import tarfile
import uuid

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "api"))
import brigtest
from test_clients import (A, B, deb_package, git_repository, http2, npm_package, pip_package, program,
                          site, websockets)  # noqa: F401 (site is a fixture)

FORM = {"Content-Type": "multipart/form-data; boundary=xyz"}


def start(folder, **config):
    """A server that resolves with the test's name server; `brig serve` inherits this process's network."""
    (folder / "resolv.conf").write_text("nameserver 127.0.0.53\n")
    (folder / "hosts").write_text("127.0.0.1 localhost\n")
    env = {"BRIG_EGRESS_RESOLV_CONF": str(folder / "resolv.conf"), "BRIG_EGRESS_HOSTS": str(folder / "hosts")}
    config.setdefault("container", {"home": "1g", "memory": "512m"})
    return brigtest.Server(config=dict(config, limits={"file": "400m"}), env=env)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("server")
    for up in (made, made.parent, made.parent.parent):  # egress is another user
        os.chmod(up, 0o755)
    return made


@pytest.fixture(scope="module")
def server(world, folder):
    with start(folder).running() as s:
        yield s


class Container:
    def __init__(self, server, *names):
        self.client = server.client()
        policy = {"type": "allowlist", "allowed_domains": list(names)}
        answer = self.client.post("/containers", {"name": "c-" + uuid.uuid4().hex[:12], "network_policy": policy})
        assert answer.status == 200, answer
        self.id = answer.json["id"]

    def put(self, path, data):
        body = (b"--xyz\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n%s\r\n"
                b"--xyz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n%s\r\n--xyz--\r\n"
                % (path.encode(), data))
        answer = self.client.request("POST", f"{self.client.base}/containers/{self.id}/files", body, headers=FORM, timeout=120)
        assert answer.status == 200, answer

    def run(self, command, ok=True):
        """stdout; or, with ok=False, the whole output."""
        got = self.client.execute(self.id, command, timeout=200, timeout_ms=180000)["output"][0]
        if not ok:
            return got
        assert got["outcome"] == {"type": "exit", "exit_code": 0}, got
        return got["stdout"]

    def end(self):
        self.client.delete("/containers/" + self.id)


ENV = "export {0}=$HOME/ca.pem\n".format
TRUST = "".join(map(ENV, ["CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "npm_config_cafile"]))


@pytest.fixture
def inside(server, clean):
    """Runs a shell command in a new container that may reach a.example.com and what is under it."""
    made = Container(server, A, "*." + A)
    with open(clean.ca, "rb") as f:
        made.put("ca.pem", f.read())
    plain = made.run
    made.run = lambda command, ok=True: plain(TRUST + command, ok)
    yield made
    made.end()


def node_into(container):
    """The Node of this machine, with npm: the base image has none."""
    program("npm")
    node = os.path.realpath(program("node"))
    npm = os.path.dirname(os.path.dirname(os.path.realpath(program("npm"))))
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as t:
        t.add(node, "node/bin/node")
        t.add(npm, "node/npm")
    container.put("node.tar", tar.getvalue())
    return container.run("tar xf node.tar && rm node.tar && node/bin/node --version")


NPM = "PATH=$HOME/node/bin:$PATH npm_config_update_notifier=false node node/npm/bin/npm-cli.js "


def test_curl(inside, clean):
    assert inside.run(f"curl -sS --http1.1 http://{A}/") == f"hello {A}\n"
    assert inside.run(f"curl -sS http://{A}/ http://{A}/") == f"hello {A}\n" * 2
    assert inside.run(f"curl -sS --http1.1 https://{A}/ https://{B}/") == f"hello {A}\nhello {B}\n"
    assert inside.run(f"curl -sS -o /dev/null -w '%{{size_download}}' https://{A}/big9000000") == "9000000"
    denied = inside.run("curl -sS https://b.example.com/", ok=False)
    assert denied["outcome"]["exit_code"] == 6 and "Could not resolve host" in denied["stderr"]
    denied = inside.run(f"curl -sS --connect-to b.example.com:443:{A}:443 https://b.example.com/", ok=False)
    assert denied["outcome"]["exit_code"] == 35 and "unrecognized name" in denied["stderr"]
    denied = inside.run(f"curl -sS -H 'Host: b.example.com' -w '%{{http_code}}' http://{A}/")
    assert denied.endswith("520") and "reason: Host" in denied
    assert not [r for r in clean.requests if "b.example.com" in str(r)]
    assert not [n for n, _ in clean.names.asked if "b.example.com" in n], "no question for it left"


def test_http2(inside, clean):
    with http2(clean):
        assert inside.run(f"curl -sS --http2 -w ' %{{http_version}}\\n' https://{A}/ https://{A}/") == f"h2 {A} 2\n" * 2


def test_git(site, inside, tmp_path):
    git_repository(site, tmp_path)
    assert inside.run(f"git clone -q https://{A}/r.git got && cat got/file") == "content\n" * 1000


def test_pip(site, inside):
    pip_package(site)
    out = inside.run(f"python3 -m venv env && env/bin/pip install -q --disable-pip-version-check -i https://{A}/simple/ thing"
                     " && env/bin/python -c 'import thing; print(thing.value)'")
    assert out == "42\n"


def test_npm(site, inside, tmp_path):
    npm_package(site, tmp_path)
    node_into(inside)
    out = inside.run(f"{NPM} install --registry https://{A}/ --no-audit --no-fund thing && cat node_modules/thing/package.json")
    assert out.endswith('"version": "1.0.0"}')


def test_apt(site, inside, tmp_path):
    deb_package(site, tmp_path)
    out = inside.run("rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*\n"
                     f"echo 'deb [trusted=yes] http://{A}/ ./' > /etc/apt/sources.list\n"
                     "(apt-get -q update && apt-get -q install -y thing) > apt.log 2>&1 || { cat apt.log; exit 1; }\nthing")
    assert out == "a thing\n"


CLIENT = """
const seen = [];
for (const url of process.argv.slice(1)) {
  const s = new WebSocket(url);
  s.onopen = () => s.send('over ' + url);
  s.onmessage = (m) => { console.log(m.data); s.close(); };
  s.onerror = (e) => { console.log('failed ' + url); };
}
"""


def test_websockets(inside, clean):
    node_into(inside)
    kept = clean.web.serve, clean.tls.serve
    clean.web.serve = clean.tls.serve = websockets
    try:
        inside.put("client.js", CLIENT.replace("slice(1)", "slice(2)").encode())
        out = inside.run(f"node/bin/node --experimental-websocket client.js ws://{A}/chat wss://{A}/chat ws://b.example.com/")
    finally:
        clean.web.serve, clean.tls.serve = kept
    assert sorted(x for x in out.splitlines()) == sorted(
        [f"echo over ws://{A}/chat", f"echo over wss://{A}/chat", "failed ws://b.example.com/"])


# ---- limits, as the configuration sets them ----

@pytest.fixture(scope="module")
def low(world, tmp_path_factory, folder):
    egress = {"connections": 2, "questions_per_second": 3, "idle": "2s", "bytes": "256k"}
    with start(folder, egress=egress, container={"home": "256m", "memory": "256m"}).running() as s:
        yield s


@pytest.fixture
def limited(low, clean):
    made = Container(low, A)
    yield made
    made.end()


HOLD = """python3 -c '
import socket, sys
held = [socket.create_connection((sys.argv[1], 80)) for i in range(2)]
for s in held: s.sendall(b"GET /empty HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n" % sys.argv[1].encode()); s.recv(100)
s = socket.create_connection((sys.argv[1], 80)); s.settimeout(20)
print(s.recv(2000).decode())' """


QUESTIONS = """python3 -c '
import socket, sys
for i in range(40):
    try: print(socket.getaddrinfo(sys.argv[1], 80, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except OSError as e: print(e)' """


def test_a_limit_on_connections(limited):
    said = limited.run(HOLD + A)
    assert said.startswith("HTTP/1.1 429 ") and "reason: too many connections" in said


def test_a_limit_on_questions(limited):
    out = limited.run(QUESTIONS + A)
    assert "198." in out and "name resolution" in out, out
    rows = brigtest.wait_for(lambda: [r for r in limited.client.get(f"/containers/{limited.id}/network").json["data"]
                                      if r["reason"] == "too many questions"])
    assert rows[0]["port"] == 53


def test_a_limit_on_time(limited):
    said = limited.run(f"curl -sS http://{A}/silent -w ' %{{http_code}}'")
    assert "reason: idle too long" in said and said.endswith(" 504")


def test_a_limit_on_bytes(limited):
    got = limited.run(f"curl -sS -o got http://{A}/big5000000; echo $?; stat -c %s got")
    code, size = map(int, got.split())
    assert code == 56 and 0 < size <= 262144
    said = limited.run(f"head -c 400000 /dev/zero | curl -sS -T - -H 'Expect:' http://{A}/ -w ' %{{http_code}}'", ok=False)
    assert "reason: too many bytes" in said["stdout"] and " 413" in said["stdout"]


def test_new_connections_are_limited(world, clean, folder):
    with start(folder, egress={"connections_per_second": 2, "total": "3s"}).running() as s:
        c = Container(s, A)
        said = c.run(f"for i in $(seq 12); do curl -s -o out -w '%{{http_code}} ' http://{A}/; done; cat out")
        assert said.startswith("200 200 200 200 ") and " 429 " in said
        said = brigtest.wait_for(lambda: (lambda x: " 504" in x and x)(
            c.run(f"curl -sS http://{A}/silent -w ' %{{http_code}}'", ok=False)["stdout"]), every=1)
        assert "reason: open too long" in said
