"""Containers with a network policy: what requests may say, what a container reaches, and what is written down."""
import http.server
import json
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import threading
import time
import uuid

import pytest

import brigtest
from brigtest import SHELL, outputs_of, wait_for
from fake_provider import call, calls, shell, text

# Servers of the test's own, on loopback addresses that nobody else on this machine uses.
WEB = "127.77.%d.%d" % (1 + os.getpid() % 200, 1 + os.getpid() // 200 % 200)
NAMES = ["allowed.test", "other.test", "sub.allowed.test", "evilallowed.test", "hidden.test"]

GET = ("python3 -c 'import sys,urllib.request,urllib.error\n"
       "try: r=urllib.request.urlopen(sys.argv[1],timeout=20); print(r.status,r.read().decode())\n"
       "except urllib.error.HTTPError as e: print(e.code,e.read().decode())\n"
       "except Exception as e: print(\"failed\",e)' ")
RESOLVE = ("python3 -c 'import sys,socket\n"
           "try: print(socket.getaddrinfo(sys.argv[1],80,socket.AF_INET)[0][4][0])\n"
           "except OSError as e: print(\"failed\",e)' ")
CONNECT = ("python3 -c 'import sys,socket\n"
           "try: socket.create_connection((sys.argv[1],int(sys.argv[2])),timeout=20); print(\"connected\")\n"
           "except OSError as e: print(\"failed\",e)' ")


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/slow":
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            self.wfile.write(b"x")
            self.wfile.flush()
            self.server.held.append(self.connection)
            while not self.server.over.wait(0.2):
                pass
            return
        body = ("hello %s" % self.headers["Host"]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class WebServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *arguments):
        self.held, self.over = [], threading.Event()
        super().__init__(*arguments)


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    folder = tmp_path_factory.mktemp("web")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test",
                    "-addext", "subjectAltName=" + ",".join("DNS:" + n for n in NAMES), "-keyout",
                    folder / "key", "-out", folder / "cert"], check=True, capture_output=True)
    plain, secure = WebServer((WEB, 80), Web), WebServer((WEB, 443), Web)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    for server in (plain, secure):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield plain
    for server in (plain, secure):
        server.over.set()
        server.shutdown()
        server.server_close()


def make_config(**egress):
    return {"egress": dict({"allow_private": True, "deny": ["hidden.test"]}, **egress)}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    path = pathlib.Path(tmp_path_factory.mktemp("hosts"), "hosts")
    path.write_text("".join("%s %s\n" % (WEB, name) for name in NAMES))
    for folder in [path.parent, path.parent.parent]:
        folder.chmod(0o755)
    copy = pathlib.Path("/var/tmp/brig-test-hosts-%d" % os.getpid())
    copy.write_text(path.read_text())
    yield str(copy)
    copy.unlink()


@pytest.fixture(scope="module", params=[1, 3], ids=["workers1", "workers3"])
def server(request, provider, web, hosts):
    made = brigtest.Server(provider, workers=request.param, config=make_config(), env={"BRIG_EGRESS_HOSTS": hosts})
    with made.running():
        yield made


def fresh():
    return "n-" + uuid.uuid4().hex[:12]


def allow(*names):
    return {"type": "allowlist", "allowed_domains": list(names)}


def make(client, *names, expect=200, name=None):
    answer = client.post("/containers", {"name": name or fresh(), "network_policy": allow(*names)})
    assert answer.status == expect, answer
    return answer.json["id"] if expect == 200 else answer


def out(client, container, command):
    return client.run(container, command)["stdout"].strip()


def records(client, container, least=1):
    return wait_for(lambda: (lambda rows: len(rows) >= least and rows)(
        client.get("/containers/%s/network" % container).json["data"]))


# ---- what a request may say ----

BAD = [
    ({"type": "allowlist"}, "network_policy.allowed_domains"),
    (allow(), "network_policy.allowed_domains"),
    (allow("https://a.test"), "network_policy.allowed_domains[0]"),
    (allow("a.test", "b.test/x"), "network_policy.allowed_domains[1]"),
    (allow("a.test:443"), "network_policy.allowed_domains[0]"),
    (allow("a b.test"), "network_policy.allowed_domains[0]"),
    (allow("A.test"), "network_policy.allowed_domains[0]"),
    (allow(""), "network_policy.allowed_domains[0]"),
    (allow("10.0.0.1"), "network_policy.allowed_domains[0]"),
    (allow(*["n%d.test" % i for i in range(51)]), "network_policy.allowed_domains[50]"),
    ({"type": "allowlist", "allowed_domains": [1]}, "network_policy.allowed_domains[0]"),
    ({"type": "open"}, "network_policy.type"),
    ({"type": "disabled", "allowed_domains": ["a.test"]}, "network_policy.allowed_domains"),
    ("disabled", "network_policy"),
]


@pytest.mark.parametrize("policy,param", BAD, ids=[str(i) for i in range(len(BAD))])
def test_bad_policies_are_refused_by_their_entry(client, provider, policy, param):
    answer = client.post("/containers", {"name": fresh(), "network_policy": policy})
    assert answer.status == 400 and answer.error["param"] == param, answer
    model = provider.model(text("never"))
    tool = {"type": "openrouter:shell",
            "parameters": {"environment": {"type": "container_auto", "network_policy": policy}}}
    answer = client.ask(model, tools=[tool], expect=400)
    assert answer.error["param"] == "tools[0].parameters.environment." + param, answer


def test_a_policy_is_shown_with_its_warnings(client):
    name = make(client, "allowed.test", "*allowed.test", "a.*.test", "*.allowed.test")
    got = client.get("/containers/" + name).json
    assert got["network_policy"] == allow("allowed.test", "*allowed.test", "a.*.test", "*.allowed.test")
    assert len(got["warnings"]) == 2 and "*allowed.test" in got["warnings"][0] and "a.*.test" in got["warnings"][1]
    assert "warnings" not in client.get("/containers/" + make(client, "allowed.test")).json


def test_the_operators_bounds(make_server):
    server = make_server(config={"egress": {"allow": ["*.good.test", "good.test"]}, "keys": [
        {"key": brigtest.KEYS["one"], "account": "acme", "workspace": "one"},
        {"key": brigtest.KEYS["two"], "account": "acme", "workspace": "two", "egress_allow": ["a.good.test"]}]})
    server.start()
    one, two = server.client("one"), server.client("two")
    for name in ("good.test", "a.good.test", "*.good.test", "x*.good.test"):
        make(one, name)
    for name in ("other.test", "*", "*good.test", "good.test.evil.test"):
        answer = make(one, "good.test", name, expect=400)
        assert answer.error["param"] == "network_policy.allowed_domains[1]" and name in answer.error["message"]
    make(two, "a.good.test")
    make(two, "b.good.test", expect=400)


# ---- what a container reaches ----

def test_disabled_has_lo_alone(client):
    name = fresh()
    assert out(client, name, "ls /proc/sys/net/ipv4/conf | sort | tr '\\n' ' '") == "all default lo"
    assert out(client, name, "cat /etc/resolv.conf") == "nameserver 127.0.0.1"
    assert out(client, name, RESOLVE + "allowed.test").startswith("failed")
    assert "failed" in out(client, name, CONNECT + WEB + " 80")
    assert "failed" in out(client, name, CONNECT + "198.18.0.1 53")


def test_allowed_names_are_reached_and_no_others(client):
    name = make(client, "allowed.test")
    assert out(client, name, GET + "http://allowed.test/") == "200 hello allowed.test"
    assert out(client, name, "curl -sk https://allowed.test/") == "hello allowed.test"
    assert out(client, name, RESOLVE + "allowed.test").startswith("198.")
    for other in ("other.test", "sub.allowed.test", "evilallowed.test", "hidden.test", "example.com"):
        assert out(client, name, RESOLVE + other).startswith("failed"), other
    # An address that stands for the one name, asked for another.
    assert out(client, name, "curl -s -o /dev/null -w '%{http_code}' -H 'Host: other.test' "
                             "http://allowed.test/") == "520"
    assert out(client, name, "curl -sk --connect-to other.test:443:allowed.test:443 https://other.test/ ; "
                             "echo $?") != "0"
    assert "failed" in out(client, name, CONNECT + "allowed.test 8080")
    # An address of the guest's own, where egress listens and knows of no name.
    assert "hello" not in out(client, name, GET + "http://%s/" % WEB)
    assert "hello" not in out(client, name, "curl -s -H 'Host: allowed.test' http://%s/" % WEB)
    assert "failed" in out(client, name, CONNECT + "%s %d" % (client.server.host, client.server.port))


def test_patterns_and_the_deny_list(client):
    name = make(client, "*.test")
    assert out(client, name, GET + "http://sub.allowed.test/") == "200 hello sub.allowed.test"
    assert out(client, name, RESOLVE + "hidden.test").startswith("failed")


def test_everything_still_has_no_other_ports_and_no_denied_names(client):
    name = make(client, "*")
    assert out(client, name, GET + "http://other.test/") == "200 hello other.test"
    assert out(client, name, RESOLVE + "hidden.test").startswith("failed")
    assert "failed" in out(client, name, CONNECT + "other.test 22")
    assert "failed" in out(client, name, CONNECT + "%s %d" % (client.server.host, client.server.port))


def test_a_guest_cannot_take_the_ports(client):
    name = make(client, "allowed.test")
    take = ("python3 -c 'import socket,sys\n"
            "for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n"
            "  for host in (\"0.0.0.0\", \"127.0.0.1\", \"198.18.0.1\"):\n"
            "    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):\n"
            "      s = socket.socket(socket.AF_INET, kind); s.setsockopt(socket.SOL_SOCKET, option, 1)\n"
            "      for port in ((53, 80, 443) if kind == socket.SOCK_STREAM else (53,)):\n"
            "        try: s.bind((host, port)); s.listen() if kind == socket.SOCK_STREAM else 0; print(\"took\", port)\n"
            "        except OSError as e: pass\n"
            "print(\"end\")'")
    assert out(client, name, take) == "end"
    assert out(client, name, "ip route add default dev lo 2>&1 | head -c 20; ip link add d type dummy 2>&1 | wc -c") \
        != ""
    assert out(client, name, GET + "http://allowed.test/") == "200 hello allowed.test"


# ---- a live container keeps its policy ----

def environment(policy, container=None):
    env = {"type": "container_auto", "network_policy": policy}
    if container:
        env = {"type": "container_reference", "container_id": container, "network_policy": policy}
    return {"type": "openrouter:shell", "parameters": {"environment": env}}


def test_another_policy_is_a_conflict_while_it_is_live(client, provider):
    name = make(client, "allowed.test")
    assert out(client, name, "echo up") == "up"
    answer = client.post("/containers", {"name": name, "network_policy": allow("other.test")})
    assert answer.status == 409 and answer.error["param"] == "network_policy", answer
    model = provider.model(calls(shell("echo ran > ran")), text("ok"))
    refused = client.ask(model, tools=[environment(allow("other.test"), name)], expect=409)
    assert refused.error["param"] == "tools[0].parameters.environment.network_policy"
    assert refused.headers["x-should-retry"] == answer.headers["x-should-retry"] == "false"
    client.ask(model, tools=[environment({"type": "disabled"}, name)], expect=409)
    assert out(client, name, "ls ran 2>&1 | grep -c 'No such file'") == "1"
    # The same names in another order are the same policy.
    other = make(client, "allowed.test", "other.test")
    out(client, other, "true")
    make(client, "other.test", "allowed.test", name=other)


def test_a_conflict_changes_nothing(client):
    """Also not how long it is kept running."""
    name = make(client, "allowed.test")
    out(client, name, "true")
    answer = client.post("/containers", {"name": name, "keep_running": 3600, "network_policy": allow("other.test")})
    assert answer.status == 409, answer
    got = client.get("/containers/" + name).json
    assert got["keep_running_until"] is None and got["network_policy"] == allow("allowed.test")
    # The same policy, and it is.
    answer = client.post("/containers", {"name": name, "keep_running": 3600, "network_policy": allow("allowed.test")})
    assert answer.status == 200 and client.get("/containers/" + name).json["keep_running_until"], answer


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_policy_that_goes_live_while_the_model_thinks(client, provider, streamed):
    """The claim itself tells: 409 where nothing was sent, a failed item in a stream; and nothing runs."""
    name, answered = fresh(), threading.Event()

    def late(request):
        answered.wait(60)
        return calls(shell("echo ran > ran"))
    model = provider.model(late, text("so it is"))
    got = []

    def turn():
        tools = [environment(allow("other.test"), name)]
        if streamed:
            got.append(client.stream(model, tools=tools))
        else:
            got.append(client.ask(model, tools=tools, expect=409))
    client.post("/containers", {"name": name})
    thread = threading.Thread(target=turn)
    thread.start()
    model.wait()
    make(client, "allowed.test", name=name)
    assert out(client, name, "echo up") == "up"
    answered.set()
    thread.join(60)
    assert got, "the turn came to no end"
    if streamed:
        response = got[0].response
        (item,) = [i for i in response["output"] if i["type"] == "openrouter:shell"]
        assert response["status"] == "completed" and item["status"] == "failed"
        assert "another network policy" in item["error"]
    else:
        assert got[0].error["param"] == "tools[0].parameters.environment.network_policy"
        assert got[0].headers["x-should-retry"] == "false"
        assert len(model.requests) == 1
    assert client.get("/containers/" + name).json["network_policy"] == allow("allowed.test")
    assert out(client, name, "ls ran 2>&1 | grep -c 'No such file'") == "1"


@pytest.mark.parametrize("type", ["openrouter:shell", "brig:shell"])
def test_an_item_has_the_warnings(client, provider, type):
    model = provider.model(calls(shell("true")), text("ok"))
    tool = dict(environment(allow("allowed.test", "*allowed.test")), type=type)
    response = client.ask(model, tools=[tool])
    (item,) = [i for i in response["output"] if i["type"] in ("openrouter:shell", "shell_call_output")]
    assert len(item["warnings"]) == 1 and "*allowed.test" in item["warnings"][0]
    again = client.ask(provider.model(text("ok")), input=response["output"] + [
        {"type": "message", "role": "user", "content": "on"}], tools=[tool])
    assert again["status"] == "completed"


def test_a_run_says_how_many_verdicts_there_were(client):
    name = fresh()
    box = client.post("/containers", {"name": name, "network_policy": {"type": "allowlist", "allowed_domains": ["allowed.test"]}})
    assert box.status in (200, 201), box
    # A verdict is given when its connection ends: the run goes on for a while after that.
    run = client.open_stream("/containers/%s/exec" % name, {"commands": [
        "curl -s http://allowed.test/ >/dev/null; curl -s -H 'Host: other.test' http://allowed.test/ >/dev/null; "
        "until [ -e go ]; do sleep 0.05; done"]})
    wait_for(lambda: len(client.get("/containers/%s/network" % name).json["data"]) == 2)
    client.run(name, "touch go")
    run.body()
    assert run.status == 200
    generation = run.response_headers["x-generation-id"]

    def counts():
        (run,) = client.get("/generations/%s/tool_runs" % generation).json["data"]
        return run["network"] if run["network"]["denied"] and run["network"]["allowed"] else None
    network = wait_for(counts)
    hosts = network.pop("hosts")
    assert network == {"allowed": 1, "denied": 1, "more": 0}
    assert [h["verdict"] for h in hosts] == ["deny", "allow"]
    assert all(h["host"] == "allowed.test" and h["count"] == 1 and h["reason"] for h in hosts), hosts
    assert hosts[1]["bytes_in"] > 0 and hosts[1]["bytes_out"] > 0
    quiet = client.post("/containers/%s/exec" % name, {"commands": ["true"]}).headers["x-generation-id"]
    (run,) = client.get("/generations/%s/tool_runs" % quiet).json["data"]
    assert run["network"] == {"allowed": 0, "denied": 0, "hosts": [], "more": 0}


def test_the_cli(server, client, tmp_path):
    env = dict(os.environ, BRIG_URL=server.url, BRIG_KEY=client.key)

    def brig(*arguments):
        return subprocess.run([brigtest.BRIG, *arguments], env=env, capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL)

    done = brig("run", "--allow", "allowed.test", "--allow=*other.test", "--", "sh", "-c",
                "curl -s http://allowed.test/ http://other.test/ http://sub.allowed.test/")
    assert done.stdout == "hello allowed.testhello other.test" and "*other.test" in done.stderr, done
    name = fresh()
    assert brig("run", "--container", name, "--allow", "allowed.test", "--", "true").returncode == 0
    assert brig("run", "--container", name, "--", "curl", "-s", "http://allowed.test/").stdout == "hello allowed.test"
    refused = brig("run", "--container", name, "--allow", "other.test", "--", "true")
    assert refused.returncode == 125 and "another network policy" in refused.stderr, refused
    refused = brig("run", "--allow", "http://allowed.test", "--", "true")
    assert refused.returncode == 125 and "scheme" in refused.stderr, refused
    assert [line for line in brig("ps").stdout.splitlines() if name in line and "allowed.test" in line]


def test_sandboxes_of_the_pool_get_the_policy_of_their_claim(client):
    for attempt in range(100):
        time.sleep(0.3)  # the pool fills
        name = make(client, "allowed.test")
        before = client.server.log().count('"pooled":1')
        assert out(client, name, GET + "http://allowed.test/") == "200 hello allowed.test"
        assert out(client, name, "cat /etc/resolv.conf") == "nameserver 198.18.0.1"
        if client.server.log().count('"pooled":1') > before:
            break
    else:
        pytest.fail("no sandbox came from the pool:\n" + client.server.log_tail())


def test_a_turn_with_a_policy(client, provider):
    model = provider.model(calls(shell("curl -s http://allowed.test/", "curl -s http://other.test/ || echo no")),
                           text("ok"))
    response = client.ask(model, tools=[environment(allow("allowed.test"))])
    first, second = outputs_of(response)
    assert first["stdout"] == "hello allowed.test" and second["stdout"] == "no\n"


def test_bash_has_a_policy_too(client, provider):
    """The other tool, on the other API; and a bad one is a 400 by its path."""
    command = {"command": "curl -s http://allowed.test/; curl -s http://other.test/ || echo no"}
    model = provider.model(calls(call("bash", json.dumps(command))), text("ok"))

    def ask(policy):
        tool = {"type": "openrouter:bash", "parameters": {"engine": "openrouter", "environment": {
            "type": "container_auto", "network_policy": policy}}}
        return client.post("/messages", {"model": model.name, "max_tokens": 1000, "tools": [tool],
                                         "messages": [{"role": "user", "content": "go"}]})
    answer = ask(allow("allowed.test"))
    assert answer.status == 200, answer
    said = json.dumps(model.requests[-1].json["messages"])
    assert "hello allowed.test" in said and "hello other.test" not in said, answer
    answer = ask(allow("https://allowed.test"))
    assert answer.status == 400 and "network_policy.allowed_domains[0]" in answer.text, answer


def test_a_new_policy_applies_after_sleep(provider, web, hosts, make_server):
    server = make_server(config=dict(make_config(), container={"sleep_after": "1s"}), env={"BRIG_EGRESS_HOSTS": hosts})
    server.start()
    client = server.client()
    name = make(client, "allowed.test")
    assert out(client, name, "echo kept > kept; " + GET + "http://allowed.test/") == "200 hello allowed.test"
    wait_for(lambda: client.get("/containers/" + name).json["status"] == "asleep")
    make(client, "other.test", name=name)
    assert out(client, name, "cat kept; " + GET + "http://other.test/") == "kept\n200 hello other.test"
    assert out(client, name, RESOLVE + "allowed.test").startswith("failed")


# ---- egress dies ----

def test_egress_killed_in_the_middle(client, web):
    name = make(client, "allowed.test")
    assert out(client, name, GET + "http://allowed.test/") == "200 hello allowed.test"
    (egress,) = client.server.children("brig: egress")
    client.run(name, "(curl -s -o /dev/null http://allowed.test/slow; echo $? > ended) > /dev/null 2>&1 &")
    before = len(web.held)
    wait_for(lambda: out(client, name, "true") == "" and len(web.held) > before - 1 and web.held)
    os.kill(egress, signal.SIGKILL)
    # Connections that are made now wait for the new one; the old one has ended.
    assert out(client, name, GET + "http://allowed.test/") == "200 hello allowed.test"
    assert out(client, name, "for i in $(seq 500); do [ -s ended ] && break; sleep 0.1; done; cat ended") != "0"
    (anew,) = wait_for(lambda: client.server.children("brig: egress"))
    assert anew != egress
    assert "egress_died" in client.server.log()


def test_names_that_change_on_this_machine(web, make_server, tmp_path):
    """The file of hosts is read again: written in its place, and put in its place."""
    folder = pathlib.Path("/var/tmp/brig-test-sources-%d" % os.getpid())
    folder.mkdir()
    try:
        hosts = folder / "hosts"
        hosts.write_text("127.0.0.1 localhost\n")
        server = make_server(config=make_config(), env={"BRIG_EGRESS_HOSTS": str(hosts)})
        server.start()
        client = server.client()
        name = make(client, "new.test", "newer.test")
        assert out(client, name, GET + "http://new.test/").startswith("502")
        hosts.write_text("%s new.test\n" % WEB)
        wait_for(lambda: out(client, name, GET + "http://new.test/") == "200 hello new.test", every=0.5)
        (folder / "next").write_text("%s newer.test\n" % WEB)
        (folder / "next").rename(hosts)
        wait_for(lambda: out(client, name, GET + "http://newer.test/") == "200 hello newer.test", every=0.5)
        assert out(client, name, GET + "http://new.test/").startswith("502")
        hosts.unlink()  # what it had last goes on without the name
        wait_for(lambda: out(client, name, GET + "http://newer.test/").startswith("502"), every=0.5)
        assert "egress_died" not in server.log()
    finally:
        shutil.rmtree(folder)


def test_egress_that_cannot_start(provider, web, hosts, make_server):
    """Nothing is reached, connections do not wait for ever, and the rest works."""
    server = make_server(config=make_config(), env={"BRIG_EGRESS_HOSTS": hosts,
                                                    "BRIG_EGRESS_RESOLV_CONF": "/nonexistent"})
    server.start()
    client = server.client()
    assert out(client, fresh(), "echo well") == "well"
    name = make(client, "allowed.test")
    wait_for(lambda: server.log().count("egress_died") >= 2)
    said = out(client, name, "curl -s -m 40 --resolve allowed.test:80:198.18.77.1 http://allowed.test/; echo $?")
    assert said != "0" and said != "28" and "hello" not in said, said
    # It is tried again, more and more rarely.
    assert server.log().count("egress_died") < 12


def test_egress_runs_without_powers(client):
    (egress,) = client.server.children("brig: egress")
    status = pathlib.Path("/proc/%d/status" % egress).read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert set(fields["Uid"].split()) == {str(client.server.id_base + 1)}
    assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    if b"__asan_init" not in pathlib.Path(brigtest.BRIG).read_bytes():  # the sanitizer's calls are many more
        assert fields["Seccomp"] == "2"


def descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def test_a_gateway_that_is_started_again_gets_records(client):
    os.kill(client.server.gateways()[0], signal.SIGKILL)
    workers = client.server.config["workers"]
    wait_for(lambda: len(client.server.gateways()) == workers and answers(client))
    name = make(client, "allowed.test")
    for _ in range(workers * 2):
        out(client, name, GET + "http://allowed.test/")
    records(client, name, workers * 2)


def answers(client):
    try:
        return client.get("/containers?limit=1").status == 200
    except OSError:
        return False


def test_descriptors_come_back(client):
    """Policies, sockets and with them network namespaces go with their container."""
    (egress,) = client.server.children("brig: egress")
    watched = [client.server.supervisor(), egress] + client.server.gateways()

    def round():
        name = make(client, "allowed.test")
        assert out(client, name, GET + "http://allowed.test/") == "200 hello allowed.test"
        client.delete("/containers/" + name)

    round()
    time.sleep(1)
    before = [descriptors(pid) for pid in watched]
    for _ in range(15):
        round()
    # The pool may hold some more sandboxes than before, at six each; fifteen leaks would be 75.
    wait_for(lambda: all(descriptors(pid) < n + 40 for pid, n in zip(watched, before)),
             message="%s, then %s" % (before, [descriptors(pid) for pid in watched]))


# ---- what is written down ----

def test_records(client):
    name = make(client, "allowed.test")
    out(client, name, GET + "http://allowed.test/")
    out(client, name, RESOLVE + "other.test")
    rows = records(client, name, 2)
    allowed = [r for r in rows if r["verdict"] == "allow"]
    denied = [r for r in rows if r["verdict"] == "deny"]
    assert allowed[0]["name"] == "allowed.test" and allowed[0]["address"] == WEB and allowed[0]["port"] == 80
    assert allowed[0]["bytes_in"] > 0 and allowed[0]["bytes_out"] > 0
    assert denied[0]["name"] == "other.test" and denied[0]["port"] == 53 and denied[0]["reason"]
    assert abs(allowed[0]["time"] - time.time()) < 600
    assert len(client.get("/containers/%s/network?limit=1" % name).json["data"]) == 1
    assert client.get("/containers/%s/network?limit=0" % name).status == 400
    assert client.server.client("two").get("/containers/%s/network" % name).status == 404
    assert '"network"' in client.server.log() or "network" in client.server.log()
    client.delete("/containers/" + name)
    assert client.get("/containers/%s/network" % name).status == 404
    out(client, name, "true")
    assert client.get("/containers/%s/network" % name).json["data"] == []


# ---- what is written down of a run ----

def reach(*names):
    """A command that asks each of them."""
    return "; ".join("curl -s -o /dev/null http://%s/ || true" % name for name in names)


def networks_of(client, generation):
    return [run["network"] for run in client.get("/generations/%s/tool_runs" % generation).json["data"]]


def hosts_of(network):
    return {(h["host"], h["verdict"]): h["count"] for h in network["hosts"]}


def wait_for_hosts(client, generation, *wanted):
    """Egress tells a while later. Each run's hosts, as soon as all have what is wanted."""
    def found():
        networks = networks_of(client, generation)
        return [set(hosts_of(n)) for n in networks] == [set(w) for w in wanted] and networks
    return wait_for(found, every=0.05)


def exported(client, generation):
    lines = [json.loads(line) for line in client.get("/generations/export").body.splitlines()]
    return next([run["network"] for run in line["tool_runs"]] for line in lines if line["id"] == generation)


def test_each_run_of_a_turn_keeps_its_own_hosts(client, provider):
    name = fresh()
    model = provider.model(calls(shell(reach("allowed.test", "allowed.test", "other.test"))),
                           calls(shell(reach("sub.allowed.test", "hidden.test"))), calls(shell("true")), text("ok"))
    answer = client.post("/responses", {"model": model.name, "input": "go",
                                        "tools": [environment(allow("allowed.test", "*.allowed.test"), name)]})
    assert answer.status == 200, answer
    generation = answer.headers["x-generation-id"]
    wanted = [{("allowed.test", "allow"), ("other.test", "deny")},
              {("sub.allowed.test", "allow"), ("hidden.test", "deny")}, set()]
    networks = wait_for_hosts(client, generation, *wanted)
    assert hosts_of(networks[0])[("allowed.test", "allow")] == 2 and networks[0]["allowed"] == 2
    assert networks[1]["allowed"] == 1 and networks[1]["denied"] >= 1
    for network in networks:
        assert sum(h["count"] for h in network["hosts"]) + network["more"] == network["allowed"] + network["denied"]
        for h in network["hosts"]:
            assert h["reason"] and (h["bytes_in"] > 0) == (h["bytes_out"] > 0) == (h["verdict"] == "allow"), h
    # It stands with the run: the container may go, and another of its name come.
    assert client.delete("/containers/" + name).status == 200
    assert client.get("/containers/%s/network" % name).status == 404
    assert networks_of(client, generation) == networks == exported(client, generation)
    make(client, "other.test", name=name)
    again = client.post("/containers/%s/exec" % name, {"commands": [reach("other.test")]})
    wait_for_hosts(client, again.headers["x-generation-id"], {("other.test", "allow")})
    assert networks_of(client, generation) == networks


def test_execs_in_one_container_are_told_apart(client):
    name = make(client, "allowed.test", "other.test")
    made = [client.post("/containers/%s/exec" % name, {"commands": [reach(host)]}).headers["x-generation-id"]
            for host in ("allowed.test", "other.test", "allowed.test")]
    for generation, host in zip(made, ("allowed.test", "other.test", "allowed.test")):
        (network,) = wait_for_hosts(client, generation, {(host, "allow")})
        assert (network["allowed"], network["denied"], network["more"]) == (1, 0, 0)


def test_hosts_of_a_run_are_bounded(client):
    name = make(client, "allowed.test")
    ask = ("python3 -c 'import socket\n"
           "for i in range(40):\n"
           "  try: socket.getaddrinfo(\"refused-%02d.test\" % i,80,socket.AF_INET)\n"
           "  except OSError: pass'")
    generation = client.post("/containers/%s/exec" % name, {"commands": [ask]}).headers["x-generation-id"]

    def all_told():
        (network,) = networks_of(client, generation)
        return network["denied"] >= 40 and network
    network = wait_for(all_told, every=0.05)
    assert [h["host"] for h in network["hosts"]] == ["refused-%02d.test" % i for i in range(32)]
    assert network["more"] >= 8
    assert network["more"] == network["denied"] - sum(h["count"] for h in network["hosts"])


def test_a_connection_that_outlives_its_run_and_its_container(client, web):
    name, before = make(client, "allowed.test"), len(web.held)
    generation = client.post("/containers/%s/exec" % name, {"commands": [
        "curl -sN -o got http://allowed.test/slow > /dev/null 2>&1 & until [ -s got ]; do sleep 0.1; done"
    ]}).headers["x-generation-id"]
    wait_for(lambda: len(web.held) > before)
    assert networks_of(client, generation) == [{"allowed": 0, "denied": 0, "hosts": [], "more": 0}]
    client.delete("/containers/" + name)
    (network,) = wait_for_hosts(client, generation, {("allowed.test", "allow")})
    assert network["allowed"] == 1


def held_by_files(folder, needle):
    return [str(p) for p in folder.rglob("*") if p.is_file() and p.name != "base.erofs" and needle in p.read_bytes()]


@pytest.mark.parametrize("how", ["stored", "server", "workspace", "request"])
def test_no_host_is_on_disk_without_content(make_server, provider, web, hosts, how):
    """Once the container has gone, whose policy and network log have names."""
    config = dict(make_config(), logging={"store_content": how != "server"}, keys=[
        {"key": brigtest.KEYS["one"], "account": "acme", "workspace": "one", "admin": True}])
    server = make_server(config=config, env={"BRIG_EGRESS_HOSTS": hosts}).start()
    client = server.client()
    if how == "workspace":
        assert client.request("PATCH", "/api/v1/workspaces/one", {"store_content": False}).status == 200
    name, headers = make(client, "allowed.test"), {"x-brig-store-content": "false"} if how == "request" else {}
    generation = client.post("/containers/%s/exec" % name, {"commands": [reach("needle-in-a-name.test", "allowed.test")]},
                             headers=headers).headers["x-generation-id"]

    def told():
        (network,) = networks_of(client, generation)
        return network["denied"] and network["allowed"] and network
    network = wait_for(told, every=0.05)
    if how == "stored":
        assert set(hosts_of(network)) == {("needle-in-a-name.test", "deny"), ("allowed.test", "allow")}
    else:
        assert network["hosts"] == [] and network["more"] == network["denied"] + network["allowed"]
    assert client.delete("/containers/" + name).status == 200
    server.stop()
    assert bool(held_by_files(server.data, b"needle-in-a-name")) == (how == "stored")
    server.start()
    assert networks_of(server.client(), generation) == [network]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_that_is_cut_off_by_a_crash_keeps_its_hosts(make_server, provider, web, hosts, workers):
    server = make_server(workers=workers, config=make_config(), env={"BRIG_EGRESS_HOSTS": hosts}).start()
    client = server.client()
    model = provider.model(calls(shell("true")), calls(shell(reach("allowed.test", "other.test") + "; sleep 600")), text("never"))
    stream = client.begin(model, tools=[environment(allow("allowed.test"))])
    generation = stream.response_headers["x-generation-id"]
    wanted = [set(), {("allowed.test", "allow"), ("other.test", "deny")}]
    networks = wait_for_hosts(client, generation, *wanted)  # also while it runs
    first, second = client.get("/generations/%s/tool_runs" % generation).json["data"]
    assert first["status"] == "completed" and second["status"] is None and second["duration_ms"] is None
    for pid in server.gateways():
        os.kill(pid, signal.SIGKILL)

    def recovered():
        try:
            data = client.get("/generation?id=" + generation).json["data"]
        except OSError:
            return False
        return data["ledger_status"] == "recovered"
    wait_for(recovered, every=0.05)
    assert networks_of(client, generation) == networks
    first, second = client.get("/generations/%s/tool_runs" % generation).json["data"]
    assert (first["status"], second["status"]) == ("completed", "incomplete")
    assert first["duration_ms"] is not None and second["duration_ms"] is not None


def test_logs_show_the_hosts_of_a_run(server, client):
    name = make(client, "allowed.test")
    generation = client.post("/containers/%s/exec" % name, {
        "commands": [reach("allowed.test", "other.test")]}).headers["x-generation-id"]
    wait_for_hosts(client, generation, {("allowed.test", "allow"), ("other.test", "deny")})
    env = dict(os.environ, BRIG_URL=server.url, BRIG_KEY=client.key)
    shown = subprocess.run([brigtest.BRIG, "logs", generation], env=env, capture_output=True, text=True, timeout=60).stdout
    assert "allow allowed.test x1" in shown and "deny other.test x" in shown and "not allowed" in shown, shown
