"""Every example of the README that is marked is run as it stands, but for the address and the path of the program."""
import json
import os
import re
import subprocess


from brigtest import BRIG, KEYS, ROOT

EXAMPLES = dict(re.findall(r"^```\w+ readme=(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S))
# TypeScript needs Node and the SDKs: tests/sdk runs it.
ELSEWHERE = {"typescript", "messages", "gemini"}


def run(server, command, body):
    env = dict(os.environ, BRIG_URL=server.url, BRIG_KEY=KEYS["one"])
    return subprocess.run(command + [body], env=env, capture_output=True, text=True, timeout=60)


def test_every_marked_example_is_run_somewhere():
    assert set(EXAMPLES) == {"env", "curl", "python", "run", "files", "config"} | ELSEWHERE


def test_env(server, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "key").write_text("the-key\n")
    body = EXAMPLES["env"].replace("/var/lib/brig", str(folder)) + 'echo "$BRIG_URL $BRIG_KEY"\n'
    assert run(server, ["sh", "-c"], body).stdout == "http://127.0.0.1:8484 the-key\n"


def test_curl(server):
    done = run(server, ["bash", "-c"], EXAMPLES["curl"])
    (item, message) = json.loads(done.stdout)["output"]
    assert 'NAME="Debian GNU/Linux"' in item["output"][0]["stdout"]
    assert item["output"][1]["stdout"].startswith("Python 3.")


def test_python(server):
    done = run(server, ["/usr/bin/python3", "-c"], EXAMPLES["python"])
    assert done.returncode == 0, done.stderr
    assert "$\npython3 --version\n" in done.stdout and "Python 3." in done.stdout and "cost in dollars: 0.003" in done.stdout


def test_run(server):
    done = run(server, ["bash", "-c"], EXAMPLES["run"].replace("build/brig", BRIG))
    assert done.stdout == "5050\n" and done.returncode == 0


def test_files(server, tmp_path):
    done = run(server, ["bash", "-ec"], "cd %s\n" % tmp_path + EXAMPLES["files"].replace("build/brig", BRIG))
    assert done.returncode == 0 and done.stderr == "", done
    assert done.stdout.splitlines()[0].split()[-1] == "PATH"
    assert done.stdout.splitlines()[1].endswith("  in/report.csv")
    assert done.stdout.splitlines()[2:] == ["month,sum,checked"]


def test_config(make_server, provider):
    from fake_provider import text
    server = make_server()
    server.prepare()
    lines = EXAMPLES["config"].replace("http://127.0.0.1:8000", "http://127.0.0.1:%d" % provider.port)
    server.prepare = lambda: None
    server.config_path.write_text(lines + "keys: [{key: %s}]\nids: {base: %d}\n" % (KEYS["one"], server.id_base))
    server.args = ["--data", str(server.data), "--listen", "127.0.0.1:0"]
    client = server.start().client()
    for name in ("fast", "local/qwen3-32b"):
        model = provider.model(text("from the local model"))
        provider.models["qwen3-32b"] = model
        from brigtest import text_of
        assert text_of(client.ask(name)) == "from the local model"
