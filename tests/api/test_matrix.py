"""Every API on every provider, streamed and not: one table of cases, each tried in each cell, printed as one table.

What a model is shown must be the same whether its client streams or not, so each cell states it once.
"""
import pytest

from dialects import PNG, SERVED, SPOKEN, Fail, Say, Talker

SIGNATURE = "c2lnbmF0dXJlIG9mIGEgdGhvdWdodA=="
QUESTION = [("system", "Be brief."), ("user", "What now?")]


@pytest.fixture(scope="module")
def server(four):
    return four


TABLE = {}


@pytest.fixture(scope="module", autouse=True)
def table(request):
    yield
    columns = ["%s%s" % (p, "~" if s else "") for p in SERVED for s in (False, True)]
    lines = ["%-22s%s" % ("client ↓ provider →", "".join("%-12s" % c for c in columns))]
    for spoken in SPOKEN:
        for case in CASES:
            row = [TABLE.get((spoken, p, s, case.__name__), "-") for p in SERVED for s in (False, True)]
            lines.append("%-22s%s" % (spoken + " " + case.__name__, "".join("%-12s" % r for r in row)))
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("\n" + "\n".join(lines) + "\n(~: streamed)", flush=True)


class Cell:
    def __init__(self, server, upstream, spoken, served, stream):
        self.upstream, self.spoken, self.served, self.stream = upstream, spoken, served, stream
        self.talker = Talker(server.client(), spoken, stream)

    def says(self, *says):
        return self.upstream.says(self.served, *says)

    def start(self, **options):
        return SPOKEN[self.spoken].start("What now?", **options)

    def results(self, answer, outputs):
        return SPOKEN[self.spoken].results(answer, outputs)

    def seen(self, model, n):
        return SERVED[self.served].seen(model.requests[n])


def ended(answer):
    return answer.finish in ("completed", "end_turn", "STOP", "stop")


def called(answer):
    return answer.finish in ("completed", "tool_use", "STOP", "tool_calls")


# ---- the cases ----

def text(cell):
    model = cell.says(Say("Grüße, Welt 😀."))
    answer = cell.talker.ask(model, cell.start())
    assert (answer.status, answer.error) == (200, None), answer.body
    assert answer.text == "Grüße, Welt 😀."
    assert ended(answer), answer.finish
    assert answer.usage == (10, 5)
    assert cell.seen(model, 0) == QUESTION


def function(cell):
    model = cell.says(Say(calls=[("weather", {"city": "Rome"})]), Say("It is sunny."))
    first = cell.talker.ask(model, cell.start(), functions=["weather"])
    assert first.error is None, first.error
    assert [c[1:] for c in first.calls] == [("weather", {"city": "Rome"})]
    assert called(first), first.finish
    second = cell.talker.ask(model, cell.start() + cell.results(first, {"weather": "sunny"}), functions=["weather"])
    assert second.text == "It is sunny.", second.error
    assert cell.seen(model, 1)[:2] == QUESTION
    assert [s[:3] for s in cell.seen(model, 1)[2:]] == [("call", "weather", {"city": "Rome"}), ("result", "sunny")]


def parallel(cell):
    calls = [("weather", {"city": "Rome"}), ("news", {"city": "Oslo"})]
    model = cell.says(Say("Both.", calls=calls), Say("Done."))
    options = {"functions": ["weather", "news"]}
    first = cell.talker.ask(model, cell.start(), **options)
    assert first.error is None, first.error
    assert first.text == "Both." and [c[1:] for c in first.calls] == calls
    assert first.calls[0][0] != first.calls[1][0] or first.calls[0][0] is None
    second = cell.talker.ask(model, cell.start() + cell.results(first, {"weather": "sunny", "news": "none"}), **options)
    assert second.text == "Done.", second.error
    assert [s[:3] for s in cell.seen(model, 1)[2:]] == [
        ("text", "Both."), ("call",) + calls[0], ("call",) + calls[1], ("result", "sunny"), ("result", "none")]


def shell(cell):
    command = "python3 -c 'print(sum(range(1, 101)))'"
    model = cell.says(Say(calls=[("shell", {"commands": [command]})]), Say("It is 5050."), Say("Again."))
    answer = cell.talker.ask(model, cell.start(), shell=True)
    if cell.spoken == "chat":
        assert answer.status == 400 and "openrouter:shell" in answer.error, answer.body
        assert "Responses" in answer.error and "Messages" in answer.error
        assert not model.requests
        return
    assert answer.error is None, answer.error
    assert answer.text == "It is 5050."
    assert len(answer.shell) == 1 and command in answer.shell[0][0] and "5050" in answer.shell[0][1], answer.shell
    assert ended(answer), answer.finish
    assert answer.usage == (20, 10)
    seen = cell.seen(model, 1)
    assert seen[:2] == QUESTION and seen[2][:3] == ("call", "shell", {"commands": [command]})
    assert seen[3][0] == "result" and "5050" in seen[3][1]
    # Replayed, the model is shown what it was shown.
    replayed = answer.replay
    if cell.spoken == "messages":
        replayed = [{"role": "assistant", "content": replayed}]
    elif cell.spoken == "gemini":
        replayed = [{"role": "model", "parts": replayed}]
    again = cell.talker.ask(model, cell.start() + replayed + cell.start(), shell=True)
    assert again.text == "Again.", again.error
    assert cell.seen(model, 2) == seen + [("text", "It is 5050."), ("user", "What now?")]


def thinking(cell):
    call = ("weather", {"city": "Rome"})
    model = cell.says(Say(thinking="Rome, then.", signature=SIGNATURE, calls=[call]), Say("Sunny."))
    first = cell.talker.ask(model, cell.start(), functions=["weather"])
    assert first.error is None, first.error
    assert first.thinking == "Rome, then."
    assert [c[1:] for c in first.calls] == [call]
    second = cell.talker.ask(model, cell.start() + cell.results(first, {"weather": "sunny"}), functions=["weather"])
    assert second.text == "Sunny.", second.error
    seen = [s for s in cell.seen(model, 1)[2:] if not (cell.served == "gemini" and s[0] == "thinking")]
    if cell.served == "gemini":
        assert seen == [("call",) + call + (SIGNATURE,), ("result", "sunny")]
    else:
        assert seen == [("thinking", "Rome, then.", SIGNATURE), ("call",) + call + (None,), ("result", "sunny")]


def image(cell):
    model = cell.says(Say("A dot."))
    answer = cell.talker.ask(model, cell.start(image=True))
    assert answer.text == "A dot.", answer.error
    assert cell.seen(model, 0) == QUESTION + [("image", "image/png", PNG)]


def error(cell):
    model = cell.says(Fail(400, "this model takes no questions"))
    answer = cell.talker.ask(model, cell.start())
    assert answer.status == 400
    assert "this model takes no questions" in answer.error


def cut(cell):
    model = cell.says(Say("Half of it", cut=True), Say("Half of it", cut=True), Say("Half of it", cut=True))
    answer = cell.talker.ask(model, cell.start())
    assert answer.error, "the client was not told"
    if cell.stream:
        assert answer.text and "Half of it".startswith(answer.text)
    else:
        assert answer.status in (500, 502, 503), answer.status


CASES = [text, function, parallel, shell, thinking, image, error, cut]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("served", list(SERVED))
@pytest.mark.parametrize("spoken", list(SPOKEN))
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_cell(server, upstream, case, spoken, served, stream):
    TABLE[spoken, served, stream, case.__name__] = "FAILED"
    case(Cell(server, upstream, spoken, served, stream))
    TABLE[spoken, served, stream, case.__name__] = "ok"
