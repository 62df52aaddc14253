// OpenRouter's own SDK as the judge of the Responses API under /api/v1.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { HTTPClient, OpenRouter } from "@openrouter/sdk";
import * as errors from "@openrouter/sdk/models/errors";

import { Brig, KEY, processesWith, until } from "./brig.mjs";
import { Fake, call, calls, chunk, cut, hold, pause, refuse, shell, text } from "./fake.mjs";
import { rejection } from "./openai.mjs";

const COMMANDS = ["cat /etc/os-release", "python3 --version"];
const README = "Run these.\n" + COMMANDS.map((c) => "```\n" + c + "\n```").join("\n");
const SHELL = { type: "openrouter:shell" };
const WEATHER = { type: "function", name: "weather", strict: null, parameters: { type: "object", properties: {} } };

let fake, brig, client, sent;

before(async () => {
  fake = await new Fake().start();
  brig = await new Brig(2, fake, { limits: { body: "64k", keepalive: "100ms" },
    models: [{ name: "fast", route: ["fake/priced"] }] }).start();
  client = connect({ retryConfig: { strategy: "none" } });
});

after(async () => {
  await brig?.stop();
  fake?.stop();
});

function connect(more = {}) {
  sent = 0;
  const httpClient = new HTTPClient();
  httpClient.addHook("beforeRequest", () => void sent++);
  return new OpenRouter({ serverURL: `${brig.url}/api/v1`, apiKey: KEY, httpClient, ...more });
}

/**
 * What the SDK could not read it hands on as `isUnknown`, without an error. Only the echo of an openrouter:* tool may
 * be that: the SDK sends such tools, and its own type of a response lacks them.
 */
function assertKnown(value, path = "") {
  if (value === null || typeof value !== "object") return;
  assert.ok(!value.isUnknown || value.raw.type === "openrouter:shell" && /\.tools\.\d+$/.test(path),
    `the SDK cannot read ${path}: ${JSON.stringify(value.raw)}`);
  if (value.isUnknown) return;
  for (const [key, inner] of Object.entries(value)) assertKnown(inner, `${path}.${key}`);
}

async function collect(stream) {
  const events = [];
  for await (const event of stream) {
    assertKnown(event, event.type);
    assert.equal(event.sequenceNumber, events.length);
    events.push(event);
  }
  return events;
}

/** The ways in which the SDK asks; each resolves to the response. */
const WAYS = {
  "whole": async (responsesRequest) => {
    const response = await client.responses.send({ responsesRequest });
    assertKnown(response);
    return response;
  },
  "whole, by its beta name": async (responsesRequest) => client.beta.responses.send({ responsesRequest }),
  "streamed": async (responsesRequest) => {
    const events = await collect(await client.responses.send({ responsesRequest: { ...responsesRequest, stream: true } }));
    const { response } = events.at(-1);
    const items = events.filter((e) => e.type === "response.output_item.done").map((e) => e.item);
    assert.deepEqual(items, response.output);
    const said = events.filter((e) => e.type === "response.output_text.delta").map((e) => e.delta).join("");
    assert.equal(said, textOf(response));
    return response;
  },
};

const textOf = (response) => response.output.filter((item) => item.type === "message")
  .flatMap((item) => item.content).map((part) => part.text).join("");
const shells = (response) => response.output.filter((item) => item.type === "openrouter:shell");
const scripted = (...commands) => [calls([shell(commands)]), text("They ran.")];

describe("the README's request", () => {
  for (const [way, ask] of Object.entries(WAYS)) {
    for (const kind of ["brig/script", "a chat provider"]) {
      test(`${way}, ${kind}`, async () => {
        const model = kind === "brig/script" ? kind : fake.model(...scripted(...COMMANDS)).name;
        const response = await ask({ model, input: README, tools: [SHELL] });
        assert.equal(response.status, "completed");
        assert.equal(response.model, model);
        const [item] = shells(response);
        assert.equal(item.status, "completed");
        assert.deepEqual(item.action, { commands: COMMANDS, timeoutMs: null, maxOutputLength: null });
        assert.match(item.containerId, /^[\w-]{1,40}$/);
        assert.match(item.output[0].stdout, /PRETTY_NAME="Debian GNU\/Linux 12/);
        assert.match(item.output[1].stdout, /^Python 3\.11\.\d+\n$/);
        for (const { stderr, outcome } of item.output) {
          assert.equal(stderr, "");
          assert.deepEqual(outcome, { type: "exit", exitCode: 0 });
        }
        assert.match(textOf(response), kind === "brig/script" ? /^brig\/script is no model/ : /^They ran\.$/);
        assert.ok(response.usage.cost > 0 && response.usage.cost < 0.1);
        assert.equal(response.usage.costDetails.serverToolCost, response.usage.cost);
        assert.deepEqual(response.usage.serverToolUseDetails, { toolCallsRequested: 1, toolCallsExecuted: 1 });
      });
    }
  }

  test("through callModel, which streams by itself", async () => {
    const result = client.callModel({ model: fake.model(text("Hello there.")).name, input: "go" });
    assert.equal(await result.getText(), "Hello there.");
    const deltas = [];
    for await (const delta of client.callModel({ model: fake.model(text("Hello there.")).name, input: "go" }).getTextStream())
      deltas.push(delta);
    assert.deepEqual(deltas, ["Hello t", "here."]);
  });
});

describe("answers", () => {
  test("events of a shell run come in the documented order, around silence", async () => {
    const model = fake.model(calls([shell(["sleep 0.3; echo hi"])]), { steps: [pause(300), ...text("Done.").steps] });
    const events = await collect(await client.responses.send({
      responsesRequest: { model: model.name, input: "go", stream: true, tools: [SHELL] } }));
    assert.deepEqual(events.map((e) => e.type), [
      "response.created", "response.in_progress",
      "response.output_item.added", "response.output_item.done",
      "response.output_item.added", "response.content_part.added", "response.output_text.delta", "response.output_text.done",
      "response.content_part.done", "response.output_item.done",
      "response.completed",
    ]);
    const [added, done] = events.slice(2, 4).map((e) => e.item);
    assert.equal(added.status, "in_progress");
    assert.equal(added.output, undefined);
    assert.deepEqual([done.id, done.callId, done.output[0].stdout], [added.id, added.callId, "hi\n"]);
  });

  for (const [way, ask] of Object.entries(WAYS)) {
    test(`failures, timeouts, parameters: ${way}`, async () => {
      const model = fake.model(
        calls([shell(["echo out; echo err >&2; exit 3", "echo early; sleep 60"], { timeout_ms: 2000 }),
          call("shell", { commands: 5 }, "call_2")], { content: "Now.", reasoning: "Hm." }),
        text("Done."));
      const parameters = { engine: "openrouter", environment: { type: "container_reference", containerId: "or-one" } };
      const response = await ask({ model: model.name, input: "go", tools: [{ ...SHELL, parameters }], maxToolCalls: 5,
        sessionId: "not-used", metadata: { a: "b" } });
      const [first, second] = shells(response);
      assert.equal(first.status, "completed");
      assert.equal(first.containerId, "or-one");
      assert.deepEqual(first.output[0], { stdout: "out\n", stderr: "err\n", outcome: { type: "exit", exitCode: 3 } });
      assert.deepEqual(first.output[1].outcome, { type: "timeout" });
      assert.equal(second.status, "failed");
      assert.match(second.error, /^Not run: /);
      assert.deepEqual(response.output.map((i) => i.type),
        ["reasoning", "message", "openrouter:shell", "openrouter:shell", "message"]);
      assert.deepEqual(response.metadata, { a: "b" });
      assert.equal(response.maxToolCalls, 5);
    });

    test(`a function beside the shell, and history: ${way}`, async () => {
      const model = fake.model(calls([shell(["echo 5050"], { id: "a" }), call("weather", { place: "Kiel" }, "b")],
        { reasoning: "Both." }), text("Rain."));
      const request = { model: model.name, tools: [SHELL, WEATHER] };
      const first = await ask({ ...request, input: "go" });
      const wanted = first.output.find((item) => item.type === "function_call");
      assert.deepEqual(JSON.parse(wanted.arguments), { place: "Kiel" });
      // The SDK writes its own items back in the wire's spelling.
      const input = [{ role: "user", content: "go" }, ...first.output,
        { type: "function_call_output", callId: wanted.callId, output: "rain" }];
      assert.equal(textOf(await ask({ ...request, input })), "Rain.");
      const { messages } = model.requests[1].body;
      assert.deepEqual(messages.find((m) => m.role === "assistant").tool_calls.map((c) => c.id), ["a", "b"]);
      assert.match(messages.find((m) => m.tool_call_id === "a").content, /5050/);
      assert.equal(messages.find((m) => m.tool_call_id === "b").content, "rain");
    });

    test(`every form of tool_choice can be read back: ${way}`, async () => {
      for (const toolChoice of ["auto", "none", "required", { type: "shell" }, { type: "function", name: "weather" },
        { type: "allowed_tools", mode: "auto", tools: [{ type: "function", name: "weather" }] }]) {
        const response = await ask({ model: fake.model(text("ok")).name, input: "go", toolChoice, tools: [SHELL, WEATHER] });
        assert.deepEqual(response.toolChoice, toolChoice);
      }
    });

    test(`sampling, reasoning and text settings can be read back: ${way}`, async () => {
      const settings = { temperature: 0.5, topP: 0.9, maxOutputTokens: 99, instructions: "Be brief.", user: "u",
        parallelToolCalls: false, promptCacheKey: "k", presencePenalty: 0.1, frequencyPenalty: 0.2 };
      const format = { type: "json_schema", name: "n", schema: { type: "object" }, strict: true };
      const response = await ask({ model: fake.model(text("{}")).name, input: "go", ...settings,
        reasoning: { effort: "high", summary: "auto" }, text: { format, verbosity: "low" } });
      for (const [key, value] of Object.entries(settings)) assert.deepEqual(response[key], value, key);
      assert.equal(response.reasoning.effort, "high");
      assert.equal(response.text.format.name, "n");
      assert.equal(response.text.verbosity, "low");
    });

    test(`incomplete by the token limit: ${way}`, async () => {
      const response = await ask({ model: fake.model(text("cut in the mid", { finish: "length" })).name, input: "go" });
      assert.equal(response.status, "incomplete");
      assert.equal(response.incompleteDetails.reason, "max_output_tokens");
      assert.equal(textOf(response), "cut in the mid");
    });
  }
});

describe("errors", () => {
  const cases = [
    ["BadRequestResponseError", 400, { model: "brig/script", input: "go", temperature: 99 }],
    ["BadRequestResponseError", 400, { model: "brig/script", input: "go", tools: [{ type: "openrouter:datetime" }] }],
    ["NotFoundResponseError", 404, { model: "brig/skript", input: "go" }],
    ["PayloadTooLargeResponseError", 413, { model: "brig/script", input: "x".repeat(80_000) }],
  ];
  for (const [kind, status, request] of cases) {
    for (const stream of [false, true]) {
      test(`${status} is a ${kind}, ${stream ? "streamed" : "whole"}: ${JSON.stringify(request).slice(0, 70)}`, async () => {
        const error = await rejection(client.responses.send({ responsesRequest: { ...request, stream } }));
        assert.ok(error instanceof errors[kind], `${error}`);
        assert.equal(error.statusCode, status);
        assert.equal(error.error.code, status);
        assert.ok(error.error.message.length > 10);
      });
    }
  }

  test("401 is an UnauthorizedResponseError", async () => {
    const stranger = connect({ apiKey: "nobodys-key-0123456789" });
    const error = await rejection(stranger.responses.send({ responsesRequest: { model: "brig/script", input: "go" } }));
    assert.ok(error instanceof errors.UnauthorizedResponseError, `${error}`);
    assert.equal(error.error.code, 401);
  });

  for (const [status, kind] of [[429, "TooManyRequestsResponseError"], [500, "BadGatewayResponseError"],
    [503, "ServiceUnavailableResponseError"]]) {
    test(`a provider's ${status} is a ${kind}`, async () => {
      for (const stream of [false, true]) {
        const responsesRequest = { model: fake.model(refuse(status, { message: "no" })).name, input: "go", stream };
        const error = await rejection(client.responses.send({ responsesRequest }));
        assert.ok(error instanceof errors[kind], `${error}`);
      }
    });
  }

  test("a failure in the middle of a stream is two events that it can read", async () => {
    const model = fake.model({ steps: [chunk({ content: "half" }), cut] });
    const events = await collect(await client.responses.send({
      responsesRequest: { model: model.name, input: "go", stream: true } }));
    const [error, failed] = events.slice(-2);
    assert.deepEqual([error.type, failed.type], ["error", "response.failed"]);
    assert.equal(typeof error.code, "string");
    assert.equal(error.param, null);
    assert.equal(failed.response.status, "failed");
    assert.deepEqual(failed.response.error, { code: error.code, message: error.message });
  });
});

describe("a client that goes away", () => {
  test("closes the upstream", async () => {
    const model = fake.model({ steps: [chunk({ content: "word" }), hold] });
    const stream = await client.responses.send({ responsesRequest: { model: model.name, input: "go", stream: true } });
    for await (const event of stream) if (event.type === "response.output_text.delta") break;
    await until(() => model.requests[0].closedAt, "the upstream was not closed");
  });

  test("has its command killed", async () => {
    const mark = `sleep 863.${process.pid}`;
    const model = fake.model(calls([shell([mark])]));
    const leaving = new AbortController();
    const answer = rejection(client.responses.send({ responsesRequest: { model: model.name, input: "go", tools: [SHELL] } },
      { fetchOptions: { signal: leaving.signal } }));
    await until(() => processesWith(mark).length, "the command did not start");
    leaving.abort();
    await answer;
    await until(() => !processesWith(mark).length, "the command was not killed");
  });

  test("its own time limit ends the request on both sides", async () => {
    const model = fake.model({ steps: [hold] });
    const error = await rejection(client.responses.send({ responsesRequest: { model: model.name, input: "go" } },
      { timeoutMs: 2000 }));
    assert.equal(error.name, "RequestTimeoutError");
    await until(() => model.requests[0].closedAt, "the upstream was not closed");
  });
});

test("models are listed with what they cost", async () => {
  const listed = await client.models.list();
  const pages = [];
  for await (const page of listed) pages.push(page);
  const { data, totalCount } = pages[0].result;
  assertKnown(data);
  assert.equal(totalCount, data.length);
  const find = (id) => data.find((model) => model.id === id);
  assert.deepEqual(find("fake/priced").pricing, { prompt: "0.0000025", completion: "0.00001", inputCacheRead: "0.00000025" });
  assert.deepEqual(find("brig/script").pricing, { prompt: "0", completion: "0" });
  assert.match(find("brig/script").description, /^Not a model/);
  assert.equal(find("fast").pricing.prompt, "-1");
  assert.deepEqual(find("fast").architecture.outputModalities, ["text"]);
});

test("a refused request is sent once", async () => {
  const eager = connect(); // with the SDK's own retries
  const error = await rejection(eager.responses.send({ responsesRequest: { model: "nobody/knows", input: "go" } }));
  assert.ok(error instanceof errors.NotFoundResponseError);
  assert.equal(sent, 1);
});

// The SDK sends again after any 5xx, for up to an hour: what has run must not run twice.
test("what fails after its commands ran is sent once", async () => {
  const eager = connect(); // with the SDK's own retries
  const model = fake.model(calls([shell(["echo once"])]), refuse(500, { message: "boom" }));
  const response = await eager.responses.send({
    responsesRequest: { model: model.name, input: "go", tools: [{ type: "openrouter:shell" }] },
  });
  assert.equal(response.status, "failed");
  assert.equal(shells(response)[0].output[0].stdout, "once\n");
  assert.equal(sent, 1);
});
