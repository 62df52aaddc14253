// Stored responses, as the SDKs use them by default: nobody says `store` here.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { createOpenAI } from "@ai-sdk/openai";
import { Agent, OpenAIProvider, Runner, shellTool, tool } from "@openai/agents";
import { generateText, stepCountIs, streamText, tool as aiTool } from "ai";
import OpenAI from "openai";
import { z } from "zod";

import { Brig, KEY } from "./brig.mjs";
import { Fake, call, calls, shell, text } from "./fake.mjs";
import { connect, ways } from "./openai.mjs";

let fake, brig, client, asks;

before(async () => {
  fake = await new Fake().start();
  brig = await new Brig(12, fake).start();
  client = connect(brig);
  asks = ways(client);
});

after(async () => {
  await brig?.stop();
  fake?.stop();
});

describe("openai", () => {
  for (const way of Object.keys(ways())) {
    test(`${way}: goes on by id`, async () => {
      const model = fake.model(calls([shell(["echo hi"])]), text("It says hi."), text("Still."));
      const first = await asks[way]({ model: model.name, input: "go", tools: [{ type: "brig:shell" }] });
      assert.equal(first.store, true);
      const second = await asks[way]({ model: model.name, input: "sure?", tools: [{ type: "brig:shell" }],
        previous_response_id: first.id });
      assert.equal(second.previous_response_id, first.id);
      assert.equal(second.output_text, "Still.");
      const before = model.requests[1].body.messages;
      assert.deepEqual(model.requests[2].body.messages.slice(0, before.length), before);
    });
  }

  test("inputTokens.count of what goes on by id", async () => {
    const model = fake.model(text("one"));
    const first = await client.responses.create({ model: model.name, input: "word ".repeat(2000) });
    const ask = { model: model.name, input: "on" };
    const alone = await client.responses.inputTokens.count(ask);
    const all = await client.responses.inputTokens.count({ ...ask, previous_response_id: first.id });
    assert.equal(all.object, "response.input_tokens");
    assert.ok(all.input_tokens > alone.input_tokens + 2000);
    await assert.rejects(client.responses.inputTokens.count({ ...ask, previous_response_id: "resp_none" }),
      (error) => error instanceof OpenAI.BadRequestError && error.code === "previous_response_not_found");
  });

  test("a background stream: goes away, and reads on", async () => {
    let go;
    const late = new Promise((done) => (go = done));
    const { steps } = text("It is so. And it is done.");
    const model = fake.model({ steps: [...steps.slice(0, 3), () => late, ...steps.slice(3)] });
    const stream = await client.responses.create({ model: model.name, input: "go", background: true, stream: true });
    let id, last, said = "";
    for await (const event of stream) {
      id ??= event.response.id;
      last = event.sequence_number;
      if (event.type === "response.output_text.delta") said += event.delta;
      if (said.length > 7) break; // and the connection is closed
    }
    const rest = await client.responses.retrieve(id, { stream: true, starting_after: last });
    const whole = client.responses.stream({ response_id: id });
    go();
    const numbers = [];
    let response;
    for await (const event of rest) {
      numbers.push(event.sequence_number);
      if (event.type === "response.output_text.delta") said += event.delta;
      response = event.response;
    }
    assert.deepEqual(numbers, numbers.map((_, i) => last + 1 + i));
    assert.equal(said, "It is so. And it is done.");
    assert.equal(response.status, "completed");
    assert.equal((await whole.finalResponse()).output_text, said);
    assert.equal((await client.responses.stream({ response_id: id }).finalResponse()).output_text, said);
    assert.equal((await client.responses.retrieve(id)).output_text, said);
  });

  test("a stream of what was not in the background", async () => {
    const first = await client.responses.create({ model: fake.model(text("one")).name, input: "go" });
    await assert.rejects(client.responses.retrieve(first.id, { stream: true }),
      (error) => error instanceof OpenAI.BadRequestError && error.param === "stream");
  });

  test("retrieve, inputItems.list and delete", async () => {
    const model = fake.model(text("one"), text("two"));
    const first = await client.responses.create({ model: model.name, input: "go" });
    const second = await client.responses.create({ model: model.name, previous_response_id: first.id,
      input: [{ role: "user", content: "on" }] });
    const again = await client.responses.retrieve(second.id);
    assert.deepEqual(again, second);
    assert.equal(again.output_text, "two");
    const items = [];
    for await (const item of client.responses.inputItems.list(second.id, { order: "asc", limit: 1 })) items.push(item);
    assert.deepEqual(items.map((i) => [i.role, i.content[0].type, i.content[0].text]), [
      ["user", "input_text", "go"], ["assistant", "output_text", "one"], ["user", "input_text", "on"]]);
    await client.responses.delete(first.id);
    await assert.rejects(client.responses.retrieve(first.id), OpenAI.NotFoundError);
    await assert.rejects(client.responses.create({ model: model.name, input: "x", previous_response_id: first.id }),
      (error) => error instanceof OpenAI.BadRequestError && error.code === "previous_response_not_found" &&
        error.param === "previous_response_id");
  });

  test("compact, and go on from the window", async () => {
    const model = fake.model(text("Which colour?"), text("They want a boat."), text("Here it is."));
    const first = await client.responses.create({ model: model.name, input: "I want a boat." });
    const window = await client.responses.compact({ model: model.name, previous_response_id: first.id,
      instructions: "Sell boats." });
    assert.equal(window.object, "response.compaction");
    assert.deepEqual(window.output.map((i) => i.type), ["message", "compaction"]);
    assert.equal(window.usage.total_tokens, 15);
    const next = await client.responses.create({ model: model.name, store: false,
      input: [...window.output, { role: "user", content: "Blue." }] });
    assert.equal(next.output_text, "Here it is.");
    assert.match(JSON.stringify(model.requests[2].body.messages), /I want a boat.*They want a boat.*Blue\./);
    await assert.rejects(client.responses.compact({ input: "x" }), (error) =>
      error instanceof OpenAI.BadRequestError && error.param === "model");
  });

  test("an idempotency key runs commands once", async () => {
    const model = fake.model(calls([shell(["echo x >> marks; cat marks"])]), text("done"));
    const ask = { model: model.name, input: "go", tools: [{ type: "brig:shell" }] };
    const first = await client.responses.create(ask, { headers: { "Idempotency-Key": "sdk-1" } });
    const again = await client.responses.create(ask, { headers: { "Idempotency-Key": "sdk-1" } });
    assert.deepEqual(again, first);
    assert.equal(model.requests.length, 2);
  });
});

// ---- @openai/agents ----

describe("@openai/agents", () => {
  const runner = () => new Runner({ tracingDisabled: true, modelProvider: new OpenAIProvider({
    openAIClient: new OpenAI({ apiKey: KEY, baseURL: `${brig.url}/v1`, maxRetries: 0 }), useResponses: true }) });

  for (const stream of [false, true]) {
    test(`previousResponseId, ${stream ? "streamed" : "whole"}`, async () => {
      const model = fake.model(calls([call("weather", { place: "Rome" })]), text("It is hot."),
        calls([shell(["echo hi"])]), text("It says hi."));
      const weather = tool({ name: "weather", description: "Weather", parameters: z.object({ place: z.string() }),
        execute: async () => "hot" });
      const agent = new Agent({ name: "A", model: model.name, instructions: "Be good.", tools: [weather,
        shellTool({ environment: { type: "container_auto" } })] });
      const run = async (input, options) => {
        const result = await runner().run(agent, input, { ...options, stream });
        if (stream) await result.completed;
        return result;
      };
      const first = await run("How is Rome?");
      assert.equal(first.finalOutput, "It is hot.");
      const second = await run("And the shell?", { previousResponseId: first.lastResponseId });
      assert.equal(second.finalOutput, "It says hi.");
      const last = model.requests.at(-1).body.messages;
      assert.deepEqual(last.map((m) => m.role),
        ["system", "user", "assistant", "tool", "assistant", "user", "assistant", "tool"]);
    });
  }
});

// ---- ai with @ai-sdk/openai ----

describe("@ai-sdk/openai", () => {
  const provider = () => createOpenAI({ apiKey: KEY, baseURL: `${brig.url}/v1` });

  async function ask(streamed, options) {
    if (!streamed) return generateText({ maxRetries: 0, ...options });
    const result = streamText({ maxRetries: 0, ...options });
    return { text: await result.text, response: await result.response, providerMetadata: await result.providerMetadata };
  }

  for (const streamed of [false, true]) {
    test(`a second turn with item references, ${streamed ? "streamed" : "whole"}`, async () => {
      const model = fake.model(calls([shell(["echo hi"])]), text("It says hi."), text("Still."));
      const openai = provider();
      const tools = { shell: openai.tools.shell({ environment: { type: "containerAuto" } }) };
      const messages = [{ role: "user", content: "go" }];
      const first = await ask(streamed, { model: openai.responses(model.name), tools, messages });
      assert.equal(first.text, "It says hi.");
      messages.push(...first.response.messages, { role: "user", content: "sure?" });
      const second = await ask(streamed, { model: openai.responses(model.name), tools, messages });
      assert.equal(second.text, "Still.");
      const before = model.requests[1].body.messages;
      assert.deepEqual(model.requests[2].body.messages.slice(0, before.length), before);
    });

    test(`a tool loop, and previousResponseId, ${streamed ? "streamed" : "whole"}`, async () => {
      const model = fake.model(calls([call("weather", { place: "Rome" })]), text("It is hot."), text("Still."));
      const openai = provider();
      const weather = aiTool({ description: "Weather", inputSchema: z.object({ place: z.string() }),
        execute: async () => "hot" });
      const first = await ask(streamed, { model: openai.responses(model.name), tools: { weather }, prompt: "Rome?",
        stopWhen: stepCountIs(3) });
      assert.equal(first.text, "It is hot.");
      const second = await ask(streamed, { model: openai.responses(model.name), prompt: "Sure?", providerOptions: {
        openai: { previousResponseId: first.providerMetadata.openai.responseId } } });
      assert.equal(second.text, "Still.");
      assert.deepEqual(model.requests.at(-1).body.messages.map((m) => m.role),
        ["user", "assistant", "tool", "assistant", "user"]);
    });
  }
});
