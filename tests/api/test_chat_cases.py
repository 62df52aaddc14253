"""Every stream of tests/cases/chat through the real server: the client gets what NAME.events says, and nothing else."""
import json
import pathlib
import re

import pytest

from fake_provider import Cut, Reply

CASES = pathlib.Path(__file__).resolve().parents[1] / "cases" / "chat"
TOOLS = [{"type": "function", "name": n, "parameters": {"type": "object"}} for n in ("f", "g", "shell", "now", "here")]
SETTINGS = {"sandbox": False}


class Events:
    """What NAME.events says: texts, calls and the end."""

    def __init__(self, lines):
        self.text, self.reasoning, self.calls, self.error, self.finish, self.usage = "", "", [], None, None, None
        self.begun = any(line.startswith("begin ") for line in lines)
        for line in lines:
            if m := re.match(r'call id=(<minted>|".*?") name=(".*")$', line):
                self.calls.append([json.loads(m[2]), ""])
            elif m := re.match(r"  (text|refusal|reasoning|args) (.*)$", line):
                piece = json.loads(m[2])
                if m[1] == "args":
                    self.calls[-1][1] += piece
                elif m[1] == "reasoning":
                    self.reasoning += piece
                else:
                    self.text += piece
            elif m := re.match(r"error (\d+) \S* ?: (.*)$|error (\d+) (\S+): (.*)$", line):
                self.error = (int(m[1] or m[3]), m[2] or m[5])
            elif m := re.match(r"end (\w+)$", line):
                self.finish = m[1]
            elif m := re.match(r"usage input=(\d+) cached=(\d+) cache_write=\d+ output=(\d+) reasoning=(\d+)", line):
                self.usage = tuple(int(n) for n in m.groups())

    def good_calls(self):
        """Whether the client's functions are called as they should be: other calls go back to the model."""
        def good(call):
            try:
                return bool(call[0]) and isinstance(json.loads(call[1] or "{}"), dict)
            except ValueError:
                return False
        return all(good(c) for c in self.calls)


def case(path):
    return Events((CASES / (re.sub(r"\.(sse|json)$", "", path.name) + ".events")).read_text().splitlines())


PATHS = sorted(p for p in CASES.iterdir() if p.suffix in (".sse", ".json") and case(p).good_calls())


def reply(path, split):
    steps = [path.read_bytes()] if path.stat().st_size else []
    if ".cut." in path.name:
        steps.append(Cut())
    return Reply(steps, split=split, content_type="application/json" if path.suffix == ".json" else "text/event-stream")


def texts(output, kind):
    return "".join(part.get("text", part.get("refusal", "")) for item in output if item["type"] == kind
                   for part in item["content"])


def check(response, events):
    output = response["output"]
    assert texts(output, "message") == events.text
    assert [[i["name"], i["arguments"]] for i in output if i["type"] == "function_call"] == [
        [n, a or "{}"] if a else [n, a] for n, a in events.calls]
    if events.usage:
        usage = response["usage"]
        assert (usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"], usage["output_tokens"],
                usage["output_tokens_details"]["reasoning_tokens"]) == events.usage


def status_of(events):
    return "incomplete" if events.finish in ("length", "filter") else "completed"


def test_there_are_cases():
    assert len(PATHS) > 60


@pytest.mark.parametrize("split", [0, 1], ids=["whole", "bytewise"])
@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.name)
def test_case(client, provider, path, split):
    events = case(path)
    model = provider.model(reply(path, split))
    answer = client.post("/responses", {"model": model.name, "input": "go", "tools": TOOLS})
    if events.error:
        status, text = events.error
        assert answer.status == status, answer
        assert text in answer.error["message"] or "connection" in text  # that one is the HTTP client's
        return
    assert answer.status == 200, answer
    assert answer.json["status"] == status_of(events)
    check(answer.json, events)
    assert len(model.requests) == 1


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.name)
def test_case_streamed(client, provider, path):
    events = case(path)
    model = provider.model(reply(path, 0))
    if events.error and not events.begun:  # nothing was promised yet: a plain answer with the status
        answer = client.post("/responses", {"model": model.name, "input": "go", "tools": TOOLS, "stream": True})
        assert answer.status == events.error[0], answer
        return
    story = client.stream(model, tools=TOOLS)
    if events.error:
        assert story.response["status"] == "failed"
        assert events.error[1] in story.response["error"]["message"] or "connection" in events.error[1]
    else:
        check(story.response, events)
        assert story.response["status"] == status_of(events)
