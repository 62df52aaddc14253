// Anthropic's own SDK, and the AI SDK's provider for it, as the judges of the Messages API.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import { createAnthropic } from "@ai-sdk/anthropic";
import { generateText, streamText } from "ai";

import { Brig, KEY } from "./brig.mjs";
import { Fake, call, calls, hold, pause, refuse, shell, text } from "./fake.mjs";

const SHELLS = ["openrouter:shell", "brig:shell"];
const WEATHER = {
  name: "weather", description: "Weather of a place",
  input_schema: { type: "object", properties: { place: { type: "string" } }, required: ["place"] },
};
const RESULT = { "openrouter:shell": "openrouter_shell_tool_result", "brig:shell": "bash_code_execution_tool_result" };

let fake, brig, client;

before(async () => {
  fake = await new Fake().start();
  brig = await new Brig(8, fake, { limits: { keepalive: "100ms", upstream_retries: 0 } }).start();
  client = new Anthropic({ apiKey: KEY, baseURL: brig.url, maxRetries: 0 });
});

after(async () => {
  await brig?.stop();
  fake?.stop();
});

const WAYS = {
  whole: (ask) => client.messages.create(ask),
  streamed: (ask) => client.messages.stream(ask).finalMessage(),
  "streamed, put together by hand": async (ask) => {
    let message, partial;
    for await (const event of await client.messages.create({ ...ask, stream: true })) {
      if (event.type === "message_start") message = event.message;
      if (event.type === "content_block_start") message.content.push(event.content_block), partial = "";
      const block = message.content.at(-1);
      const { delta } = event;
      if (delta?.type === "text_delta") block.text += delta.text;
      if (delta?.type === "thinking_delta") block.thinking += delta.thinking;
      if (delta?.type === "signature_delta") block.signature = delta.signature;
      if (delta?.type === "input_json_delta") partial += delta.partial_json;
      if (event.type === "content_block_stop" && partial) block.input = JSON.parse(partial);
      if (event.type === "message_delta") Object.assign(message, delta, { usage: event.usage });
    }
    return message;
  },
};

const ask = (model, more = {}) => ({
  model: model.name, max_tokens: 1000, messages: [{ role: "user", content: "go" }], ...more,
});

for (const [way, create] of Object.entries(WAYS)) {
  describe(way, () => {
    test("text", async () => {
      const message = await create(ask(fake.model(text("Grüße 😀.")), { system: "Be good." }));
      assert.deepEqual(message.content.map((block) => block.text), ["Grüße 😀."]);
      assert.equal(message.stop_reason, "end_turn");
      assert.equal(message.usage.output_tokens, 5);
      assert.equal(message.usage.input_tokens, 10);
    });

    for (const type of SHELLS) {
      test(`${type}, then a tool of the client's, and the whole replayed`, async () => {
        const model = fake.model(
          calls([shell(["echo $((40 + 2))"], { id: "a" })], { content: "Let me see." }),
          calls([shell(["echo bye"], { id: "b" }), call("weather", { place: "Rome" }, "c")]),
          text("It is sunny."));
        const tools = [{ type }, WEATHER];
        const first = await create(ask(model, { tools }));
        assert.equal(first.stop_reason, "tool_use");
        assert.deepEqual(first.content.map((block) => block.type),
          ["text", "server_tool_use", RESULT[type], "server_tool_use", RESULT[type], "tool_use"]);
        const out = first.content[2].content;
        assert.equal(type === "brig:shell" ? out.stdout : out.output[0].stdout, "42\n");
        const wanted = first.content.at(-1);
        assert.deepEqual(wanted.input, { place: "Rome" });

        const second = await create(ask(model, { tools, messages: [
          { role: "user", content: "go" },
          { role: "assistant", content: first.content },
          { role: "user", content: [{ type: "tool_result", tool_use_id: wanted.id, content: "sunny" }] },
        ] }));
        assert.equal(second.content[0].text, "It is sunny.");
        const [, before, again] = model.requests.map((request) => request.body.messages);
        assert.deepEqual(again.slice(0, before.length), before);
        assert.deepEqual(again.slice(before.length).map((m) => m.role), ["assistant", "tool", "tool"]);
        assert.equal(again.at(-1).content, "sunny");
      });
    }

    test("thinking", async () => {
      const message = await create(ask(fake.model(text("4.", { reasoning: "2 and 2" })),
        { max_tokens: 4000, thinking: { type: "enabled", budget_tokens: 2000 } }));
      assert.equal(message.content[0].thinking, "2 and 2");
      assert.equal(message.content[1].text, "4.");
    });
  });
}

test("the SDK's own loop runs the client's tools beside the server's", async () => {
  const model = fake.model(calls([shell(["echo 7"], { id: "a" }), call("weather", { place: "Rome" }, "b")]),
    text("Sunny, and 7."));
  const runner = client.beta.messages.toolRunner(ask(model, { tools: [{ type: "openrouter:shell" }, {
    ...WEATHER, run: ({ place }) => `sunny in ${place}`, parse: (input) => input,
  }] }));
  const message = await runner.runUntilDone();
  assert.equal(message.content.at(-1).text, "Sunny, and 7.");
  const told = model.requests[1].body.messages;
  assert.equal(told.at(-1).content, "sunny in Rome");
});

test("pings keep a stream open while a command runs", async () => {
  const model = fake.model(calls([shell(["sleep 1; echo late"])]), text("ok"));
  const message = await client.messages.stream(ask(model, { tools: [{ type: "openrouter:shell" }] })).finalMessage();
  assert.equal(message.content[1].content.output[0].stdout, "late\n");
});

test("events of the helper", async () => {
  const stream = client.messages.stream(ask(fake.model(calls([call("weather", { place: "Rome" })], { content: "Hm." })),
    { tools: [WEATHER] }));
  const seen = { text: "", inputs: [] };
  stream.on("text", (piece) => seen.text += piece);
  stream.on("inputJson", (piece, snapshot) => seen.inputs.push(snapshot));
  await stream.finalMessage();
  assert.equal(seen.text, "Hm.");
  assert.deepEqual(seen.inputs.at(-1), { place: "Rome" });
});

test("tokens are counted", async () => {
  const { input_tokens: n } = await client.messages.countTokens({ model: fake.model().name,
    messages: [{ role: "user", content: "word ".repeat(100) }] });
  assert.ok(n > 80 && n < 200, String(n));
});

test("errors are the SDK's own", async () => {
  await assert.rejects(client.messages.create(ask(fake.model(), { messages: [] })), (error) =>
    error instanceof Anthropic.BadRequestError && error.error.error.type === "invalid_request_error" &&
    /at least one message/.test(error.message) && typeof error.requestID === "string");
  await assert.rejects(new Anthropic({ apiKey: "nobody", baseURL: brig.url, maxRetries: 0 }).messages.create(ask(fake.model())),
    Anthropic.AuthenticationError);
  await assert.rejects(client.messages.create(ask({ name: "nobody/knows" })), Anthropic.NotFoundError);
  await assert.rejects(client.messages.create(ask(fake.model(refuse(429, { message: "slow down" })))), Anthropic.RateLimitError);
});

test("an error in the middle of a stream", async () => {
  const broken = { steps: [...text("half").steps.slice(0, 2), 'data: {"error":{"message":"dead","code":500}}\n\n'] };
  await assert.rejects(client.messages.stream(ask(fake.model(broken))).finalMessage(), (error) =>
    error instanceof Anthropic.APIError && error.type === "api_error");
});

test("a client that gives up stops the model", async () => {
  const model = fake.model({ steps: [...text("half").steps.slice(0, 2), hold] });
  const stream = client.messages.stream(ask(model));
  await new Promise((done) => stream.once("text", done));
  stream.abort();
  await assert.rejects(stream.finalMessage());
  await (await model.request(1)).gone;
});

describe("the AI SDK", () => {
  const provider = (entry) => createAnthropic({ apiKey: KEY, baseURL: `${brig.url}/v1`, fetch: (url, init) => {
    const body = JSON.parse(init.body);
    return fetch(url, { ...init, body: JSON.stringify({ ...body, tools: [...(body.tools ?? []), entry] }) });
  } });

  for (const streamed of [false, true]) {
    test(`brig:shell and its replay, ${streamed ? "streamed" : "whole"}`, async () => {
      const model = fake.model(calls([shell(["echo hi; exit 3"], { id: "a" })]), text("It failed."), text("Yes."));
      const anthropic = provider({ type: "brig:shell" })(model.name);
      const request = { model: anthropic, messages: [{ role: "user", content: "go" }], maxRetries: 0, maxOutputTokens: 500 };
      const result = streamed ? streamText(request) : await generateText(request);
      assert.equal(await result.text, "It failed.");
      const { messages } = await result.response;
      const again = await generateText({ ...request,
        messages: [{ role: "user", content: "go" }, ...messages, { role: "user", content: "sure?" }] });
      assert.equal(again.text, "Yes.");
    });
  }
});
