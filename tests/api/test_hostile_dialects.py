"""What random requests and answers (test_random_dialects.py), and people who meant it, found wrong between dialects."""
import pytest

import brigtest
from dialects import SERVED, SPOKEN, Say, data, event
from fake_provider import Reply
from test_broken_upstreams import ask, say  # noqa: F401 (fixtures)
from test_matrix import server  # noqa: F401 (fixtures)

WHOLE_AND_STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def response_of(answer, stream):
    """The response object of an answer, which must keep the rules."""
    assert answer.status == 200, answer
    if stream:
        return brigtest.Story(answer.body).response
    brigtest.check_object(answer.json)
    return answer.json


@WHOLE_AND_STREAMED
@pytest.mark.parametrize("part", [{"executableCode": {"language": "PYTHON", "code": "1"}}, {"functionCall": "weather"},
                                  {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}, {"type": "message"}])
def test_what_only_gemini_knows_is_no_item_of_a_response(say, ask, part, stream):
    """It was an item with nothing but an id, which no client can read."""
    gemini = SERVED["gemini"]
    model = say("gemini", Reply([data(gemini.body(Say("x"), [part, {"text": "after"}], "STOP"))]))
    response = response_of(ask("responses", model, stream=stream, raw=True), stream)
    assert [item["type"] for item in response["output"]] == ["message"]
    assert brigtest.text_of(response) == "after"


@WHOLE_AND_STREAMED
@pytest.mark.parametrize("block", [{}, {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}])
def test_what_only_anthropic_knows_is_no_item_of_a_response(say, ask, block, stream):
    served = SERVED["messages"]
    steps = [s for s in served.stream(Say("after")).steps]
    begin = [event("content_block_start", {"index": 7, "content_block": block}),
             event("content_block_stop", {"index": 7})]
    model = say("messages", Reply(steps[:1] + begin + steps[1:]))
    response = response_of(ask("responses", model, stream=stream, raw=True), stream)
    assert [item["type"] for item in response["output"]] == ["message"]
    assert brigtest.text_of(response) == "after"


@WHOLE_AND_STREAMED
@pytest.mark.parametrize("spoken,served", [("gemini", "responses"), ("gemini", "messages"), ("responses", "messages"),
                                           ("messages", "responses"), ("chat", "messages")])
def test_a_signature_of_megabytes_comes_and_goes(say, ask, spoken, served, stream):
    """Sealed for a client of Gemini's API it was too much for a buffer, and the connection was cut without a word."""
    signature = "c2lnbmF0dXJl" * 400000
    model = say(served, Say(thinking="Rome, then.", signature=signature, calls=[("weather", {"city": "Rome"})]),
                Say("Sunny."))
    first = ask(spoken, model, stream=stream, tools=["weather"])
    assert first.error is None and first.thinking == "Rome, then.", first.error
    history = SPOKEN[spoken].start("What now?") + SPOKEN[spoken].results(first, {"weather": "sunny"})
    second = ask(spoken, model, stream=stream, history=history, tools=["weather"])
    assert second.text == "Sunny.", second.error
    assert ("thinking", "Rome, then.", signature) in SERVED[served].seen(model.requests[1])
