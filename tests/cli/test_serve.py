"""brig serve: what it refuses to start with, what it leaves in the data folder, what its gateways may do."""
import contextlib
import http.server
import json
import os
import pathlib
import signal
import socket
import stat
import subprocess
import threading

import pytest

import brigtest
from brigtest import BRIG, ROOT, Server, wait_for


def brig(*args, **more):
    return subprocess.run([BRIG, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, **more)


@pytest.fixture
def folder(tmp_path_factory):
    server = Server()
    yield server.folder
    server.remove()


def write(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_wrong_file_is_named_with_line_and_column(folder):
    config = write(folder / "brig.yaml", "workers: 2\nwrokers: 3\n")
    done = brig("serve", "--config", config, "--data", str(folder / "data"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == 'brig: %s:2:1: unknown key "wrokers"; did you mean "workers"?\n' % config
    assert not (folder / "data").exists()


@pytest.mark.parametrize("config, message", [
    ("/nonexistent.yaml", "/nonexistent.yaml: No such file or directory"),
    ("/dev/zero", "/dev/zero: not a regular file"),
    ("/etc", "/etc: not a regular file"),
])
def test_a_configuration_that_cannot_be_read(folder, config, message):
    done = brig("serve", "--config", config, "--data", str(folder / "data"))
    assert (done.returncode, done.stderr) == (1, "brig: %s\n" % message)


def test_a_configuration_that_is_too_long(folder):
    config = write(folder / "brig.yaml", "#" * (1 << 20) + "\n")
    done = brig("serve", "--config", config)
    assert (done.returncode, done.stderr) == (1, "brig: %s: more than 1048576 bytes\n" % config)


def provider_with(secret):
    return "providers: [{name: p, dialect: openai-chat, base_url: 'http://127.0.0.1:1/v1', %s}]\n" % secret


@pytest.mark.parametrize("content, message", [
    (None, "No such file or directory"),
    ("", "holds no key (one word of printable ASCII)"),
    ("two words\n", "holds no key (one word of printable ASCII)"),
    ("root:x:0:0:root:/root:/bin/bash\nnobody:x\n", "holds no key (one word of printable ASCII)"),
    ("a" * 5000, "more than 4096 bytes"),
])
def test_a_key_file_that_holds_no_key(folder, content, message):
    key = folder / "key-file"
    if content is not None:
        write(key, content)
    config = write(folder / "brig.yaml", provider_with("api_key_file: %s" % key))
    done = brig("serve", "--config", config, "--data", str(folder / "data"))
    assert done.returncode == 1
    assert done.stderr.endswith("providers[0].api_key_file: %s: %s\n" % (key, message))
    assert done.stderr.startswith("brig: %s:1:" % config)


@pytest.mark.parametrize("data, message", [
    ("relative", 'the data folder must be an absolute path, not "relative"'),
    ("/", 'the data folder must be an absolute path, not "/"'),
    ("/etc/passwd", "/etc/passwd: Not a directory"),
])
def test_a_data_folder_that_is_none(data, message):
    done = brig("serve", "--listen", "127.0.0.1:0", "--data", data)
    assert (done.returncode, done.stderr) == (1, "brig: %s\n" % message)


def test_a_data_folder_that_the_gateway_cannot_reach(folder):
    shut = folder / "shut"
    shut.mkdir(mode=0o700)
    done = brig("serve", "--listen", "127.0.0.1:0", "--data", str(shut / "data"))
    assert done.returncode == 1
    assert "cannot pass through %s" % shut in done.stderr


def test_a_data_folder_that_others_can_write(folder):
    data = folder / "data"
    data.mkdir()
    data.chmod(0o1777)
    done = brig("serve", "--listen", "127.0.0.1:0", "--data", str(data))
    assert (done.returncode, done.stderr) == (
        1, "brig: %s is writable by others; chmod go-w it, or choose another\n" % data)
    assert stat.S_IMODE(data.stat().st_mode) == 0o1777


def test_a_data_folder_of_somebody_else(folder):
    data = folder / "data"
    data.mkdir(mode=0o711)
    os.chown(data, 1234, 1234)
    done = brig("serve", "--listen", "127.0.0.1:0", "--data", str(data))
    assert (done.returncode, done.stderr) == (1, "brig: %s belongs to user 1234 and not to 0\n" % data)


def test_a_data_folder_of_other_ids(folder):
    data = folder / "data"
    (data / "gateway").mkdir(mode=0o700, parents=True)
    data.chmod(0o711)
    os.chown(data / "gateway", 1234, 1234)
    done = brig("serve", "--listen", "127.0.0.1:0", "--data", str(data))
    assert done.returncode == 1
    assert "gateway belongs to user 1234 and not to " in done.stderr
    assert done.stderr.endswith("; `ids.base` was another when it was made\n")


@pytest.mark.parametrize("workers", [1, 3])
def test_a_port_that_is_taken(folder, workers):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = write(folder / "brig.yaml", "workers: %d\n" % workers)
        done = brig("serve", "--config", config, "--listen", "127.0.0.1:%d" % port, "--data", str(folder / "data"))
    assert done.returncode == 1
    assert done.stderr == "brig: 127.0.0.1 port %d is in use; choose another with --listen\n" % port


def test_a_second_brig_does_not_share_the_port_of_the_first(folder):
    with Server(workers=3).running() as first:
        config = write(folder / "brig.yaml", "workers: 3\n")
        done = brig("serve", "--config", config, "--listen", "127.0.0.1:%d" % first.port, "--data", str(folder / "data"))
        assert done.returncode == 1
        assert "is in use" in done.stderr


def test_ids_that_belong_to_somebody(folder):
    subuid = write(folder / "subuid", "somebody:1879100000:65536\n", 0o644)
    done = subprocess.run(["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/subuid && exec "$1" doctor', subuid, BRIG],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == ("brig: /etc/subuid gives somebody the ids from 1879100000 to 1879165535, which lie within "
                           "brig's own; set ids.base to another start\n")


def modes(data):
    return {p.name: (stat.S_IMODE(p.stat().st_mode), p.stat().st_uid) for p in data.iterdir()}


def test_the_data_folder_and_its_first_key():
    server = Server(config={"keys": None})
    with server.running():
        assert stat.S_IMODE(server.data.stat().st_mode) == 0o711
        have = modes(server.data)
        for name in ("images", "homes", "scratch", "templates"):
            assert have[name] == (0o700, 0), name
        assert have["gateway"] == (0o700, server.id_base)
        assert have["key"] == (0o600, 0)
        assert have["url"] == (0o644, 0)
        key = (server.data / "key").read_text()
        assert len(key) == 46 and key.startswith("brig-") and key.endswith("\n")
        assert (server.data / "url").read_text() == server.url + "\n"
        assert server.lines == ["ready " + server.url]
        assert server.client(key.strip()).get("/models").status == 200
        assert server.client("brig-" + "a" * 40).get("/models").status == 401
        # The same key at the next start; the url goes with the server.
        server.stop()
        assert not (server.data / "url").exists()
        server.start()
        assert (server.data / "key").read_text() == key
        assert server.client(key.strip()).get("/models").status == 200


def test_a_second_server_on_one_data_folder():
    server = Server(config={"keys": None})
    with server.running():
        done = brig("serve", "--config", str(server.config_path), "--listen", "127.0.0.1:0")
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert (server.data / "url").read_text() == server.url + "\n"
        assert server.client((server.data / "key").read_text().strip()).get("/models").status == 200


def test_standard_descriptors_that_are_closed():
    server = Server()
    server.prepare()
    log = open(server.log_path, "wb")
    process = subprocess.Popen(["sh", "-c", 'exec "$0" "$@" <&-', BRIG, "serve", "--config", str(server.config_path)],
                               stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout.readline().startswith("ready http://")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        server.remove()


def test_a_key_file_of_the_data_folder_that_is_spoiled():
    server = Server(config={"keys": None})
    server.prepare()
    write(server.data / "key", "short\n")
    done = brig("serve", "--config", str(server.config_path))
    server.remove()
    assert (done.returncode, done.stderr) == (
        1, "brig: the file `key` of the data folder holds no key; remove it\n")


def status_of(pid):
    lines = pathlib.Path("/proc/%d/status" % pid).read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def open_files(pid):
    found = []
    for fd in os.listdir("/proc/%d/fd" % pid):
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            found.append(os.readlink("/proc/%d/fd/%s" % (pid, fd)))
    return found


@pytest.mark.parametrize("workers", [1, 3])
def test_what_a_gateway_may_do(workers):
    server = Server(workers=workers, env={"OPENAI_API_KEY": "sk-of-the-environment", "SOME_SECRET": "s3cret"},
                    config={"providers": None})
    with server.running():
        gateways = server.gateways()
        assert len(gateways) == workers
        for pid in gateways:
            status = status_of(pid)
            assert status["Uid"].split() == status["Gid"].split() == [str(server.id_base)] * 4
            assert status["Groups"].split() == []
            for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                assert int(status[name], 16) == 0, name
            assert status["NoNewPrivs"] == "1"
            environ = pathlib.Path("/proc/%d/environ" % pid).read_bytes()
            assert b"sk-of-the-environment" not in environ and b"s3cret" not in environ
            limits = pathlib.Path("/proc/%d/limits" % pid).read_text()
            files = next(line.split() for line in limits.splitlines() if line.startswith("Max open files"))
            assert files[3] == files[4]
            core = next(line.split() for line in limits.splitlines() if line.startswith("Max core file size"))
            assert core[4:6] == ["0", "0"]
            assert os.readlink("/proc/%d/fd/0" % pid) == "/dev/null"
            # The configuration was read and closed; no folder or file of root's is open.
            targets = open_files(pid)
            assert not [t for t in targets if t.startswith("/memfd:settings")]
            assert not [t for t in targets if t.startswith(str(server.data)) and "/gateway" not in t]
        # The secret went another way: the provider is served.
        names = [m["id"] for m in server.client().get("/models").json["data"]]
        assert "brig/script" in names


class Upstream(http.server.BaseHTTPRequestHandler):
    seen = []

    def do_POST(self):
        self.seen.append(self.headers["Authorization"])
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def test_the_three_ways_of_a_secret():
    upstream = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    url = "http://127.0.0.1:%d/v1" % upstream.server_port
    server = Server(env={"THE_KEY": "from-env"})
    server.config["providers"] = [
        {"name": "a", "dialect": "openai-chat", "base_url": url, "api_key": "literal"},
        {"name": "b", "dialect": "openai-chat", "base_url": url, "api_key_env": "THE_KEY"},
        {"name": "c", "dialect": "openai-chat", "base_url": url, "api_key_file": write(server.folder / "k", "from-file\n")},
        {"name": "d", "dialect": "openai-chat", "base_url": url},
    ]
    try:
        with server.running():
            for name in "abcd":
                answer = server.client().post("/responses", {"model": name + "/m", "input": "hi"})
                assert answer.status == 200, answer
        assert Upstream.seen == ["Bearer literal", "Bearer from-env", "Bearer from-file", None]
        for secret in ("literal", "from-env", "from-file"):
            assert secret not in server.log()
    finally:
        upstream.shutdown()
        upstream.server_close()


def as_nobody(*args, **more):
    return ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--", *args]


@pytest.fixture
def program_for_all(folder):
    """A copy that a user without rights can execute, wherever the checkout lies."""
    copy = folder / "brig"
    subprocess.run(["install", "-m", "755", BRIG, str(copy)], check=True)
    return str(copy)


def test_without_root_sandboxes_are_refused(folder, program_for_all):
    done = subprocess.run(as_nobody(program_for_all, "serve", "--listen", "127.0.0.1:0", "--data", "/tmp/brig-nobody"),
                          capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (
        1, "brig: making sandboxes needs root; run as root, or set `sandbox: off` in the configuration\n")


def test_without_root_and_sandboxes_it_serves(folder, program_for_all):
    data = folder / "mine"
    data.mkdir(mode=0o711)
    os.chown(data, 65534, 65534)
    config = write(folder / "brig.yaml", "sandbox: off\nlisten: 127.0.0.1:0\ndata: %s\n" % data, 0o644)
    process = subprocess.Popen(as_nobody(program_for_all, "serve", "--config", config), stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, stdin=subprocess.DEVNULL)
    try:
        assert process.stdout.readline().startswith("ready http://127.0.0.1:")
        done = subprocess.run(as_nobody(program_for_all, "ask", "--no-shell", "--data", str(data), "brig/script", "hello"),
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert "brig/script is no model" in done.stdout
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_root_without_sandboxes():
    server = Server(config={"sandbox": "off"})
    with server.running():
        answer = server.client().post("/responses", {"model": "brig/script", "input": "hello"})
        assert answer.status == 200, answer
        answer = server.client().post("/containers", {"name": "x"})
        if answer.status == 200:
            answer = server.client().post("/containers/x/exec", {"commands": ["true"]})
        assert answer.status in (400, 500, 503), answer


def test_a_killed_supervisor_takes_its_gateways_along():
    server = Server(workers=3)
    server.start()
    try:
        gateways = server.gateways()
        assert len(gateways) == 3
        server.kill()
        wait_for(lambda: not [p for p in gateways if os.path.exists("/proc/%d" % p)])
        # And the next one starts on what is left.
        server.start()
        server.stop()
    finally:
        if server.process:
            server.kill()
        server.remove()


def test_a_gateway_that_dies_is_started_again_on_the_same_port():
    server = Server(workers=1)
    with server.running():
        old, = server.gateways()
        os.kill(old, signal.SIGKILL)
        # The socket is kept: who connects meanwhile waits.
        assert server.client().get("/models").status == 200
        new, = wait_for(lambda: server.gateways())
        assert new != old


def test_the_documented_configuration_is_the_program_s():
    example = brig("serve", "--example").stdout
    text = (ROOT / "docs" / "configuration.md").read_text()
    assert "```yaml\n" + example + "```\n" in text, "run: scripts/update-docs"


def test_doctor():
    done = brig("doctor", "--json")
    table = json.loads(done.stdout)
    assert done.returncode == (0 if table["fit"] else 1)
    assert table["fit"] == all(c["present"] for c in table["checks"] if c["required"])
    assert {"user namespaces", "overlay"} <= {c["name"] for c in table["checks"]}
    plain = brig("doctor")
    assert plain.returncode == done.returncode
    for check in table["checks"]:
        assert check["name"] in plain.stdout
