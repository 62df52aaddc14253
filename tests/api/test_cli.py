"""The command line: serve and its errors, run, ask, ps, doctor, version."""
import json
import os
import re
import signal
import socket
import stat
import subprocess

import pytest

import brigtest
from brigtest import BRIG, KEYS, wait_for
from fake_provider import calls, shell, text


def brig(*args, server=None, stdin=subprocess.DEVNULL, env=None, timeout=60, **more):
    environment = dict(os.environ, **(env or {}))
    environment.pop("BRIG_DATA", None)
    if server is not None:
        environment.update(BRIG_URL=server.url, BRIG_KEY=KEYS["one"])
    if isinstance(stdin, bytes):
        more["input"] = stdin
        stdin = None
    return subprocess.run([BRIG] + list(args), capture_output=True, timeout=timeout, env=environment,
                          **({"stdin": stdin} if stdin is not None else {}), **more)


# ---- the program ----

def test_version():
    done = brig("version")
    assert done.returncode == 0 and re.fullmatch(rb"brig \d+\.\d+\.\d+\n", done.stdout) and not done.stderr
    assert brig("--version").stdout == done.stdout


def test_help():
    done = brig("--help")
    assert done.returncode == 0
    for name in (b"serve", b"run", b"ask", b"ps", b"image", b"doctor", b"version"):
        assert name in done.stdout
        of_one = brig(name.decode(), "--help")
        assert of_one.returncode == 0 and b"usage: brig " + name in of_one.stdout


@pytest.mark.parametrize("args", [[], ["no-such-command"], ["version", "x"], ["serve", "--no-such-flag"], ["serve", "x"],
                                  ["run"], ["run", "--timeout", "soon", "--", "true"], ["ask", "model"],
                                  ["serve", "--listen"], ["ps", "--json=1"], ["run", "--container", "a/b", "--", "true"]])
def test_wrong_usage_is_exit_code_2(args):
    done = brig(*args)
    assert done.returncode == 2 and done.stderr and not done.stdout


# ---- serve ----

@pytest.mark.parametrize("yaml, says", [
    ("listen: here\n", ":1:9: listen:"),
    ("workers: 0\n", ":1:10: workers:"),
    ("workers: 3\nnonsense: 1\n", ":2:1: unknown key"),
    ("container:\n  memory: lots\n", ":2:11: container.memory:"),
    ("providers:\n- name: a\n  dialect: morse\n", ":3:12: providers[0].dialect:"),
    ("providers:\n- name: a\n  dialect: openai-chat\n  base_url: ftp://x\n", ":4:13: providers[0].base_url:"),
    ("keys:\n- key: short\n", ":2:8: keys[0].key:"),
    ("workers: 1\nworkers: 2\n", ":2:1:"),
    ("a: [\n", ":"),
    ("- list\n", ":1:1:"),
    ("models:\n- name: m\n  route: [nobody/x]\n", ":3:11: models[0].route[0]:"),
    ("limits:\n  timeout: 400s\n", ":2:12: limits.timeout:"),
    ("providers:\n- {name: a, dialect: openai-chat, base_url: 'http://x', api_key_env: NOT_SET_ANYWHERE}\n",
     "NOT_SET_ANYWHERE"),
])
def test_serve_says_where_the_configuration_is_wrong(tmp_path, yaml, says):
    config = tmp_path / "brig.yaml"
    config.write_text(yaml)
    done = brig("serve", "--config", str(config), "--data", str(tmp_path / "data"))
    assert done.returncode == 1 and not done.stdout
    said = done.stderr.decode()
    assert said.startswith("brig: %s:" % config) and says in said and len(said.splitlines()) == 1, said
    assert not (tmp_path / "data").exists()


def test_serve_says_when_the_file_is_not_there(tmp_path):
    done = brig("serve", "--config", str(tmp_path / "none.yaml"))
    assert done.returncode == 1 and b"none.yaml" in done.stderr


def test_serve_says_when_the_port_is_taken(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = brig("serve", "--listen", "127.0.0.1:%d" % taken.getsockname()[1], "--data", "/var/tmp/brig-test-port-%d"
                    % os.getpid())
    assert done.returncode == 1 and b"in use" in done.stderr and not done.stdout
    import shutil
    shutil.rmtree("/var/tmp/brig-test-port-%d" % os.getpid(), ignore_errors=True)


def test_a_first_key_is_made_and_found(make_server):
    """Without keys in the configuration: `key` in the data folder, mode 0600, found by the command line."""
    server = make_server(config={"keys": None, "listen": None})
    server.args = ["--listen", "127.0.0.1:0"]
    server.start()
    assert server.lines == ["ready " + server.url]
    key = server.data / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert (server.data / "url").read_text().strip() == server.url
    client = server.client(key=key.read_text().strip())
    assert client.get("/models").status == 200
    assert server.client(key=KEYS["one"]).get("/models").status == 401
    done = brig("run", "--data", str(server.data), "--", "echo", "found")
    assert done.stdout == b"found\n" and done.returncode == 0, done
    assert brig("ps", "--data", str(server.data)).returncode == 0
    server.stop()
    kept = key.read_text()
    done = brig("run", "--data", str(server.data), "--", "true")
    assert done.returncode == 125 and done.stderr
    server.start()
    assert key.read_text() == kept


def test_providers_come_from_the_environment_where_there_is_no_file(tmp_path):
    import shutil
    data = "/var/tmp/brig-test-env-%d" % os.getpid()
    os.makedirs(data + "/images", mode=0o711)
    os.link(brigtest.test_image(), data + "/images/base.erofs") if os.stat(brigtest.test_image()).st_dev == os.stat(
        data).st_dev else shutil.copy(brigtest.test_image(), data + "/images/base.erofs")
    env = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    env.update(OPENAI_API_KEY="sk-test-0123456789", OLLAMA_HOST="127.0.0.1:9")
    process = subprocess.Popen([BRIG, "serve", "--listen", "127.0.0.1:0", "--data", data], env=env,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    try:
        url = process.stdout.readline().decode().split()[1]
        ask = lambda model: brig("ask", "--data", data, "--no-shell", model, "hi")
        assert b"ollama" in ask("ollama/m").stderr
        assert b"not known" in ask("anthropic/m").stderr
        assert ask("brig/script").returncode == 0 and url
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        shutil.rmtree(data)


# ---- run ----

@pytest.mark.parametrize("code", [0, 1, 3, 124, 255])
def test_run_exits_with_the_command_s_code(server, code):
    assert brig("run", "--", "sh", "-c", "exit %d" % code, server=server).returncode == code


def test_run_prints_the_command_s_own_bytes(server):
    done = brig("run", "--", "bash", "-c", r"printf 'a\0\xff\xe4b'; printf 'err\xfe' >&2", server=server)
    assert done.stdout == b"a\0\xff\xe4b" and done.stderr == b"err\xfe" and done.returncode == 0
    done = brig("run", "--", "head", "-c", "3000000", "/dev/urandom", server=server)
    assert len(done.stdout) == 3000000


def test_run_passes_arguments_as_they_are(server):
    assert brig("run", "--", "printf", "[%s]", "a b", "*", "$HOME", "--help", server=server).stdout == b"[a b][*][$HOME][--help]"


def test_run_prints_as_it_comes(server):
    process = subprocess.Popen([BRIG, "run", "--container", "as-it-comes", "--", "bash", "-c",
                                "echo one; until [ -e go ]; do sleep 0.01; done; echo two"], stdout=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, env=dict(os.environ, BRIG_URL=server.url, BRIG_KEY=KEYS["one"]))
    assert process.stdout.readline() == b"one\n"
    server.client().run("as-it-comes", "touch go")
    assert process.communicate(timeout=60)[0] == b"two\n" and process.returncode == 0


def test_run_times_out_with_124(server):
    done = brig("run", "--timeout", "1500", "--", "bash", "-c", "echo begun; sleep 600", server=server)
    assert done.returncode == 124 and done.stdout == b"begun\n"


def test_run_says_which_signal(server):
    assert brig("run", "--", "bash", "-c", "kill -TERM $$", server=server).returncode == 143


def test_run_of_what_is_not_there_fails_with_a_message(server):
    done = brig("run", "--", "no-such-program", server=server)
    assert done.returncode in (125, 127) and b"No such file" in done.stderr


def test_run_reads_standard_input(server):
    assert brig("run", "--", "tr", "a-z", "A-Z", server=server, stdin=b"hello\n").stdout == b"HELLO\n"


def test_run_without_a_name_leaves_no_container(server):
    ids = lambda: [c["id"] for c in server.client().get("/containers?limit=100").json["data"]]
    before = ids()
    brig("run", "--", "true", server=server)
    assert ids() == before


def test_run_keeps_a_named_container(server):
    brig("run", "--container", "named", "--", "sh", "-c", "echo kept > f", server=server)
    assert brig("run", "--container", "named", "--", "cat", "f", server=server).stdout == b"kept\n"


def test_ctrl_c_ends_the_command(server):
    process = subprocess.Popen([BRIG, "run", "--", "sleep", "98100"], stdin=subprocess.DEVNULL,
                               env=dict(os.environ, BRIG_URL=server.url, BRIG_KEY=KEYS["one"]))
    wait_for(lambda: server.guests("sleep 98100"))
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    wait_for(lambda: not server.guests("sleep 98100"))


def test_run_json(server):
    done = brig("run", "--json", "--", "echo", "hi", server=server)
    assert json.loads(done.stdout)["output"][0]["stdout"] == "hi\n"


def test_no_server_and_a_wrong_key_are_said(server):
    done = brig("run", "--", "true", env={"BRIG_URL": "http://127.0.0.1:9", "BRIG_KEY": "x" * 20})
    assert done.returncode == 125 and b"brig:" in done.stderr
    done = brig("run", "--", "true", env={"BRIG_URL": server.url, "BRIG_KEY": "wrong-key-wrong-key"})
    assert done.returncode == 125 and b"key" in done.stderr


# ---- ask ----

def test_ask_shows_commands_and_the_answer(server, provider):
    model = provider.model(calls(shell("echo hi", "exit 3")), text("It says hi."))
    done = brig("ask", model.name, "go", server=server)
    out = done.stdout.decode()
    assert done.returncode == 0, done
    assert "$ echo hi\n" in out and "hi\n" in out and "exit 3" in out and "It says hi." in out and "0.003" in out


def test_ask_json(server, provider):
    done = brig("ask", "--json", provider.model(text("ok")).name, "go", server=server)
    assert brigtest.text_of(brigtest.check_object(json.loads(done.stdout))) == "ok"


def test_ask_reads_standard_input_and_keeps_a_session(server):
    brig("ask", "--session", "asked", "brig/script", "-", server=server, stdin=b"```\necho kept > f\n```\n")
    done = brig("ask", "--session", "asked", "brig/script", "```\ncat f\n```", server=server)
    assert b"kept" in done.stdout


def test_ask_fails_with_the_server_s_words(server, provider):
    from fake_provider import error
    done = brig("ask", "nobody/nothing", "go", server=server)
    assert done.returncode == 1 and b"nobody/nothing" in done.stderr
    done = brig("ask", provider.model(error(500, {"error": {"message": "boom"}})).name, "go", server=server)
    assert done.returncode == 1 and b"boom" in done.stderr


# ---- ps, image, doctor ----

def test_ps_lists_containers(server):
    server.client().run("listed", "true")
    done = brig("ps", server=server)
    assert done.returncode == 0 and b"CONTAINER" in done.stdout and b"listed" in done.stdout
    rows = json.loads(brig("ps", "--json", server=server).stdout)
    rows = rows["data"] if isinstance(rows, dict) else rows
    assert "listed" in [r["id"] for r in rows]


def test_doctor_reports_each_thing_and_leaves_nothing(tmp_path):
    done = brig("doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["fit"] else 1)
    names = {c["name"]: c for c in report["checks"]}
    assert report["fit"] == all(c["present"] for c in report["checks"] if c["required"])
    assert len(names) >= 8
    for word in ("user namespace", "overlay", "seccomp", "loop", "memory", "pids", "freez", "andlock"):
        assert any(word in n for n in names), (word, list(names))
    table = brig("doctor").stdout.decode()
    assert "capabilities" in table and all(n in table for n in names)
