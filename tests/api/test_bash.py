"""openrouter:bash and brig:bash: a session that goes on from call to call, and what tries to break it."""
import json
import threading

import pytest

import brigtest
from fake_provider import call, calls, text
from messagestest import Messages, blocks

BASH = {"type": "openrouter:bash", "parameters": {"engine": "openrouter"}}
BRIG_BASH = {"type": "brig:bash", "parameters": {"engine": "openrouter"}}
RESULT = "openrouter_bash_tool_result"


@pytest.fixture
def api(client):
    return Messages(client)


def bash(what, id="call_1", **more):
    """One call: a command, a list of them, or arguments."""
    arguments = what if isinstance(what, dict) else {"commands": what} if isinstance(what, list) else {"command": what}
    return call("bash", dict(arguments, **more), id)


class Told:
    """What came of a turn whose model made these calls, one in each reply."""

    def __init__(self, api, provider, *calls_made, entry=BASH, **fields):
        self.made = [c if isinstance(c, dict) and "function" in c else bash(c) for c in calls_made]
        self.model = provider.model(*[calls(dict(c, id="call_%d" % i)) for i, c in enumerate(self.made)], text("done"))
        self.message = api.create(self.model, tools=[entry], **fields)
        self.blocks = [b for b in self.message["content"] if b["type"].endswith("_tool_result")]
        self.results = [b["content"] for b in self.blocks]
        self.containers = [b.get("container_id") for b in self.blocks]
        assert len(self.results) == len(self.made)

    @property
    def texts(self):
        return [r["stdout"] for r in self.results]

    @property
    def codes(self):
        return [r["exitCode"] for r in self.results]

    def seen(self, n=-1):
        """What the model reads of its last call, in request n."""
        said = self.model.requests[n].json["messages"]
        return json.loads([m for m in said if m["role"] == "tool"][-1]["content"])


# ---- the session ----

def test_one_command(api, provider):
    told = Told(api, provider, "echo out; echo err >&2; echo more; exit 3")
    (made,) = blocks(told.message, "server_tool_use")
    assert (made["name"], made["input"]) == ("openrouter:bash", {"command": "echo out; echo err >&2; echo more; exit 3"})
    assert told.results == [{"command": "echo out; echo err >&2; echo more; exit 3", "stdout": "out\nerr\nmore\n",
                             "stderr": "", "exitCode": 3}]
    assert told.seen() == {"stdout": "out\nerr\nmore\n", "stderr": "", "exitCode": 3}


def test_the_session_goes_on(api, provider):
    told = Told(api, provider,
                "x=5; export Y='a b'; cd /tmp; f() { echo \"f $1\"; }; umask 027; set -o pipefail; shopt -s extglob; "
                "a=(1 '2 3'); declare -A m=([k]='v w'); readonly R=1; v=$'n\\nl\\xff\"$(no)'",
                "echo $x $Y $PWD $(f 1) $(umask) \"${a[1]}\" \"${m[k]}\" $R; [[ $SHELLOPTS == *pipefail* ]] && shopt extglob; "
                "env | grep ^Y; echo \"$v\" | od -An -c; x=6",
                "echo $x; cd -; pwd")
    assert told.texts[1] == ("5 a b /tmp f 1 0027 2 3 v w 1\nextglob        \ton\nY=a b\n"
                             "   n  \\n   l 377   \"   $   (   n   o   )  \\n\n")
    assert told.texts[2] == "6\n/workspace/home\n/workspace/home\n"
    assert told.codes == [0, 0, 0]


def test_it_begins_at_home(api, provider):
    told = Told(api, provider, "pwd; id -u; cat; echo $# \"$0\"; echo $HOME", "y=1", "set | grep -c '^y='; set | wc -c")
    assert told.texts[0] == "/workspace/home\n0\n0 bash\n/workspace/home\n"
    count, size = map(int, told.texts[2].split())
    assert count == 1 and size < 3000  # the state itself is not among the variables


def test_several_commands(api, provider):
    told = Told(api, provider, ["x=1; cd /", "echo \"unterminated", "echo $x $PWD; false", "(exit 7)"],
                {"command": "echo one", "commands": ["echo two"]}, {"commands": "echo three"})
    assert told.results[0]["exitCode"] == 2
    assert told.texts[0].endswith("1 /\n") and "unexpected EOF" in told.texts[0]
    assert told.texts[1:] == ["one\ntwo\n", "three\n"]


def test_what_is_in_the_background_goes_on(api, provider):
    told = Told(api, provider, "(sleep 0.5; echo late > late) & echo began", "until [ -s late ]; do sleep 0.1; done; cat late", "sleep 100 >&2 & echo $?")
    assert told.texts == ["began\n", "late\n", "0\n"]


def test_a_session_is_of_one_turn(api, provider):
    first = Told(api, provider, "x=5; cd /tmp; echo kept > ~/file", session_id="bash-turns")
    second = Told(api, provider, "echo \"[$x]\" $PWD; cat ~/file", session_id="bash-turns")
    assert second.texts == ["[] /workspace/home\nkept\n"]
    assert first.containers == second.containers


def test_shell_and_bash_share_a_container(api, provider):
    model = provider.model(calls(bash("echo b > /tmp/b; y=7", id="1"), call("shell", {"commands": ["cat /tmp/b; echo [$y]"]}, "2")),
                           calls(bash("echo $y", id="3")), text("ok"))
    message = api.create(model, tools=[BASH, {"type": "openrouter:shell"}])
    results = [b["content"] for b in message["content"] if b["type"].endswith("_tool_result")]
    assert results[1]["output"][0]["stdout"] == "b\n[]\n" and results[2]["stdout"] == "7\n"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_brig_bash_has_blocks_that_every_sdk_knows(api, provider, stream):
    model = provider.model(calls(bash("echo hi; echo ho >&2; exit 3")), text("ok"))
    message = (api.stream(model, tools=[BRIG_BASH]).message if stream else api.create(model, tools=[BRIG_BASH]))
    (made,), (result,) = blocks(message, "server_tool_use"), blocks(message, "bash_code_execution_tool_result")
    assert (made["name"], made["input"]) == ("bash_code_execution", {"command": "echo hi; echo ho >&2; exit 3"})
    assert result["content"] == {"type": "bash_code_execution_result", "stdout": "hi\nho\n", "stderr": "", "return_code": 3,
                                 "content": []}


# ---- what tries to break it ----

HOSTILE = {
    "quote": "x=2\necho \"unterminated",
    "single quote": "x=2\necho 'unterminated",
    "heredoc": "x=2; cat <<EOF\nhello",
    "parenthesis": "y=(",
    "keyword": "x=2\nfi",
    "exit": "x=2; exit 9",
    "exit in a function": "g() { local y=9; exit 4; }; x=2; g",
    "return": "x=2; return 5",
    "exec": "exec echo replaced",
    "exec of nothing": "x=2; exec /nonexistent",
    "closed streams": "x=2; exec 0<&- 1>&- 2>&-",
    "set -e": "x=2; set -e; false; echo no",
    "set -u": "x=2; set -u; echo $nope; echo no",
    "set -n": "x=2\nset -n\necho no",
    "set -t": "x=2; set -t; echo t",
    "set -v": "x=2; set -v",
    "set -x": "x=2; set -x",
    "posix": "x=2; foo-bar() { :; }; set -o posix; POSIXLY_CORRECT=1",
    "posix and a quote": "x=2; set -o posix\necho 'unterminated",
    "exit trap": "x=2; trap 'echo bye' EXIT",
    "exit trap and exit": "x=2; trap 'echo bye' EXIT; exit 3",
    "debug trap": "x=2; trap 'echo DBG' DEBUG ERR RETURN",
    "functions": "x=2; builtin() { :; }; eval() { :; }; declare() { :; }; trap() { :; }; printf() { :; }; unset() { :; }; "
                 "exec() { :; }; cd() { :; }; set() { :; }; read() { :; }; exit() { :; }; shopt() { :; }; umask() { :; }; shift() { :; }",
    "readonly builtin": "x=2; builtin() { :; }; readonly -f builtin",
    "disabled builtins": "x=2; enable -n printf declare eval read",
    "aliases": "x=2; shopt -s expand_aliases; alias if=false '{=false' eval=false exec=false",
    "readonly": "x=2; readonly IFS POSIXLY_CORRECT PATH",
    "IFS": "x=2; IFS=abcdefghijklmnopqrstuvwxyz_",
    "PATH": "x=2; PATH=",
    "environment": "x=2; export BASH_ENV=/nonexistent LC_ALL=nonsense SHELLOPTS BASHOPTS",
    "own variables": "x=2; __brig_a=; __brig_b=; __brig_c=; __brig_x=; readonly __brig_d=1 __brig_a __brig_b __brig_c",
    "signal": "x=2; kill -TERM $$",
    "kill": "x=2; kill -KILL $$",
    "stopped": "x=2; kill -STOP $$ & sleep 0.1",
    "gone directory": "x=2; mkdir /tmp/gone; cd /tmp/gone; rmdir /tmp/gone",
    "junk in the state": "x=2; printf 'S\\0exit 1\\0exit 1\\0E\\0' >&250",
    "state of the guest's own": "x=2; printf '\\0S\\0exit 1\\0exit 1\\0E\\0' >&250; exec true",
    "closed state": "x=2; exec 250>&-",
    "failglob": "x=2; shopt -s failglob nullglob nocasematch extdebug compat31",
    "limits": "x=2; ulimit -n 20; ulimit -u 1",
    "NUL": "x=2; printf 'a\\0b'",
    "large state": "x=2; big=$(head -c 2000000 /dev/zero | tr '\\0' a)",
    "flood": "x=2; head -c 30000000 /dev/zero >&250",
    "many variables": "x=2; for i in $(seq 2000); do eval v$i=$i; done",
}
# What a shell's own end leaves behind is what was there before.
AS_BEFORE = {"parenthesis", "exec", "exec of nothing", "set -n", "exit trap and exit", "readonly builtin", "disabled builtins", "kill", "closed state",
             "large state", "flood", "own variables", "stopped", "state of the guest's own", "aliases", "readonly"}


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_session_survives(api, provider, kind):
    command = dict({"command": HOSTILE[kind]}, **({"timeout_ms": 1500} if kind == "stopped" else {}))
    told = Told(api, provider, "x=1; h() { builtin echo here; }", command, "h; builtin echo \"x=$x\"", "z=3", "builtin echo \"$z\"")
    if kind == "state of the guest's own":
        return  # it has made its own session end, and only that; see below
    assert "here\n" in told.texts[2], told.results
    values = ("x=1\n",) if kind == "exec" else ("x=1\n", "x=2\n") if kind in AS_BEFORE else ("x=2\n",)
    assert told.texts[2].endswith(values), told.results
    assert told.texts[4].endswith("3\n"), told.results


def test_a_restart_helps_against_ones_own_state(api, provider):
    forged = "printf '\\0S\\0exit 1\\0exit 1\\0E\\0' >&250; exec true"
    told = Told(api, provider, forged, "echo no", {"restart": True}, "echo yes")
    assert told.results[1]["exitCode"] == 1 and told.texts[1] == ""
    assert told.texts[3] == "yes\n"


def test_lines_count_from_one(api, provider):
    told = Told(api, provider, "echo 1\nnosuchcommand", "echo 'x")
    assert told.texts[0] == "1\nbash: line 2: nosuchcommand: command not found\n" and told.codes == [127, 2]
    assert told.texts[1].startswith("bash: eval: line 1: unexpected EOF")


def test_a_timeout_leaves_the_session_as_it_was(api, provider):
    told = Told(api, provider, "x=1", {"command": "x=2; echo begun; sleep 60; echo no", "timeout_ms": 2000}, "echo $x")
    assert told.texts == ["", "begun\n", "1\n"] and told.codes == [0, 124, 0]
    assert told.results[1]["outcome"] == {"type": "timeout"}
    assert told.seen(2) == {"stdout": "begun\n", "stderr": "", "exitCode": 124, "outcome": {"type": "timeout"}}


def test_the_time_is_for_the_whole_call(api, provider):
    told = Told(api, provider, {"commands": ["sleep 1; echo a", "sleep 60; echo b", "echo c"], "timeout_ms": 4000}, "echo on")
    assert told.texts == ["a\n", "on\n"] and told.codes == [124, 0]


def test_the_length_is_for_the_whole_call(api, provider):
    told = Told(api, provider, {"commands": ["seq 1000", "seq 1000", "echo end"], "max_output_length": 400})
    assert 0 < len(told.texts[0]) <= 400 and "characters" in told.texts[0]


# ---- restart ----

def test_restart(api, provider):
    told = Told(api, provider, "x=1; echo f > ~/f; sleep 300 & echo ok", {"restart": True}, "echo [$x]; ls -A ~; pgrep sleep; pwd",
                {"restart": True, "command": "echo again"}, "true")
    first, second, third, fourth, fifth = told.containers
    assert second != first and second.startswith(first[:32] + "-r") and len(second) <= 40
    assert third == second and fourth not in (first, second) and fifth == fourth
    assert told.texts == ["ok\n", "", "[]\n/workspace/home\n", "again\n", ""]


def test_a_replay_goes_on_in_the_new_container(api, provider):
    told = Told(api, provider, "true", {"restart": True}, "echo new > ~/file")
    told.model.replies += [calls(bash("cat ~/file", id="call_9")), text("ok")]
    message = api.create(told.model, [{"role": "user", "content": "go"}, {"role": "assistant", "content": told.message["content"]},
                                      {"role": "user", "content": "and now?"}], tools=[BASH])
    assert blocks(message, RESULT)[0]["content"]["stdout"] == "new\n"


# ---- arguments ----

@pytest.mark.parametrize("arguments, word", [
    ({}, "command is missing"), ({"command": 7}, "must be strings"), ({"commands": [1]}, "must be strings"),
    ({"commands": {}}, "list of strings"), ({"restart": "yes"}, "true or false"), ({"command": "a\0b"}, "NUL"),
    ({"command": "x" * 131072}, "at most"), ({"commands": ["true"] * 101}, "at most"), ({"command": "x", "timeout_ms": 0}, "above 0"),
], ids=lambda v: v if isinstance(v, str) else None)
def test_bad_arguments_are_told_to_the_model(api, provider, arguments, word):
    told = Told(api, provider, call("bash", arguments), "echo fine")
    assert word in told.results[0]["error"] and "stdout" not in told.results[0]
    assert told.results[1]["stdout"] == "fine\n"
    assert word in told.seen(1)["error"]


# ---- replay ----

@pytest.mark.parametrize("entry", [BASH, BRIG_BASH], ids=["openrouter", "brig"])
def test_a_replay_is_the_same_bytes(api, provider, entry):
    told = provider.model(calls(bash("echo a; echo b >&2"), bash(["echo 1", "(exit 3)", "echo 2"], id="call_2")),
                          calls(bash({"command": "echo x; sleep 60", "timeout_ms": 2000}, id="call_3")),
                          calls(bash({"command": "kill -SEGV $$"}, id="call_4"), call("bash", "{\"comm", "call_5")), text("ok"), text("two"))
    message = api.create(told, tools=[entry])
    last = brigtest.raw_list(told.requests[-1], "messages").decode()
    api.create(told, [{"role": "user", "content": "go"}, {"role": "assistant", "content": message["content"]},
                      {"role": "user", "content": "and now?"}], tools=[entry])
    now = brigtest.raw_list(told.requests[-1], "messages").decode()
    same = next((i for i, (a, b) in enumerate(zip(last, now)) if a != b), len(last))
    assert now.startswith(last + ","), (last[same - 80:same + 200], now[same - 80:same + 200])


# ---- engines and other APIs ----

@pytest.mark.parametrize("entry", [{"type": "openrouter:bash"}, {"type": "brig:bash", "parameters": {"engine": "native"}},
                                   {"type": "openrouter:bash", "parameters": {"engine": "auto"}},
                                   {"type": "bash_20250124", "name": "bash"}], ids=json.dumps)
def test_other_engines_give_the_call_to_the_client(api, provider, entry):
    model = provider.model(calls(bash("echo hi")))
    message = api.create(model, tools=[entry])
    (made,) = blocks(message, "tool_use")
    assert (made["name"], made["input"], message["stop_reason"]) == ("bash", {"command": "echo hi"}, "tool_use")


@pytest.mark.parametrize("kind", ["openrouter:bash", "brig:bash", "bash_20250124"])
@pytest.mark.parametrize("path, body", [("/responses", {"input": "x"}), ("/chat/completions", {"messages": [{"role": "user", "content": "x"}]})])
def test_other_apis_name_the_one_to_use(client, provider, path, body, kind):
    model = provider.model(text("no"))
    answer = client.post(path, dict(body, model=model.name, tools=[{"type": kind}]))
    assert answer.status == 400 and "Messages API" in answer.error["message"], answer
    assert not model.requests


def test_the_script_makes_bash_calls_too(api):
    message = api.create("brig/script", "```\nx=1; cd /tmp\n```\n```\necho $x $PWD\n```\n---\n```\necho again $x\n```", tools=[BASH])
    assert [b["content"]["stdout"] for b in blocks(message, RESULT)] == ["1 /tmp\n", "again 1\n"]


def test_a_client_that_leaves_ends_the_command(server, api, provider):
    model = provider.model(calls(bash("echo begun; exec sleep 4321")))
    stream = api.begin(model, tools=[BASH])
    brigtest.wait_for(lambda: server.guests("sleep 4321"))
    stream.close()
    brigtest.wait_for(lambda: not server.guests("sleep 4321"))


def test_secrets_of_a_session_stay_in_its_turn(server, client, provider):
    """The same container, two turns at once: each has a session of its own."""
    api = Messages(client)
    model = provider.model(calls(bash("x=mine; touch ~/one; until [ -e ~/two ]; do sleep 0.05; done; echo $x")), calls(bash("echo $x")), text("ok"))
    other = provider.model(calls(bash("until [ -e ~/one ]; do sleep 0.05; done; echo \"[$x]\"; x=yours")), calls(bash("touch ~/two; echo $x")), text("ok"))
    got = {}
    threads = [threading.Thread(target=lambda m=m: got.update({m.name: api.create(m, tools=[BASH], session_id="bash-two")}))
               for m in (model, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = {name: [b["content"]["stdout"] for b in blocks(message, RESULT)] for name, message in got.items()}
    assert said == {model.name: ["mine\n", "mine\n"], other.name: ["[]\n", "yours\n"]}
