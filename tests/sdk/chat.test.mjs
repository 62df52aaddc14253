// OpenAI's own SDK, and others that speak chat completions, as judges of that API on every provider dialect; and
// each vendor's SDK on a provider of its own dialect, where bytes are passed on.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import path from "node:path";
import { after, before, describe, test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import { createOpenAI } from "@ai-sdk/openai";
import { GoogleGenAI } from "@google/genai";
import { createOpenRouter } from "@openrouter/ai-sdk-provider";
import { OpenRouter } from "@openrouter/sdk";
import { generateText, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";

import { Brig, KEY } from "./brig.mjs";

const PROVIDERS = ["responses", "messages", "gemini", "chat"];

let upstream, brig, openai;

before(async () => {
  upstream = spawn("/usr/bin/python3", [path.join(import.meta.dirname, "upstream.py")],
    { stdio: ["pipe", "pipe", "inherit"] });
  const line = await new Promise((done, failed) => {
    upstream.stdout.once("data", (data) => done(String(data)));
    upstream.once("exit", (code) => failed(new Error(`upstream.py ended with ${code}`)));
  });
  brig = await new Brig(10, null, { providers: JSON.parse(line), sandbox: false }).start();
  openai = new OpenAI({ apiKey: KEY, baseURL: `${brig.url}/v1`, maxRetries: 0 });
});

after(async () => {
  await brig?.stop();
  upstream?.stdin.end();
});

function everywhere(name, run) {
  describe(name, () => {
    for (const provider of PROVIDERS) {
      for (const streamed of [false, true]) {
        test(`${provider}, ${streamed ? "streamed" : "whole"}`, () => run(`${provider}/agent`, streamed));
      }
    }
  });
}

const asked = [];
const weather = {
  type: "function",
  function: {
    name: "weather", description: "Weather of a city", parse: JSON.parse,
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    function: ({ city }) => { asked.push(city); return `sunny in ${city}`; },
  },
};
const messages = [{ role: "system", content: "Be brief." }, { role: "user", content: "How is the weather?" }];

everywhere("openai: text", async (model, stream) => {
  if (!stream) {
    const answer = await openai.chat.completions.create({ model, messages });
    assert.equal(answer.object, "chat.completion");
    assert.equal(answer.model, model);
    assert.equal(answer.choices[0].finish_reason, "stop");
    assert.ok(answer.choices[0].message.content.length > 0);
    assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
    return;
  }
  const runner = openai.chat.completions.stream({ model, messages, stream_options: { include_usage: true } });
  const answer = await runner.finalChatCompletion();
  assert.equal(answer.model, model);
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.ok(answer.choices[0].message.content.length > 0);
  assert.ok((await runner.totalUsage()).total_tokens > 0);
});

everywhere("openai: runTools", async (model, stream) => {
  asked.length = 0;
  const runner = openai.chat.completions.runTools({ model, messages, tools: [weather], stream });
  assert.match(await runner.finalContent(), /sunny in Rome/);
  assert.deepEqual(asked, ["Rome"]);
});

everywhere("@ai-sdk/openai, chat", async (model, stream) => {
  const provider = createOpenAI({ apiKey: KEY, baseURL: `${brig.url}/v1` });
  await agent(provider.chat(model), stream);
});

everywhere("@openrouter/ai-sdk-provider", async (model, stream) => {
  const provider = createOpenRouter({ apiKey: KEY, baseURL: `${brig.url}/api/v1` });
  await agent(provider.chat(model), stream);
});

async function agent(model, stream) {
  const cities = [];
  const ask = {
    model, prompt: "How is the weather?", stopWhen: stepCountIs(3), maxRetries: 0,
    tools: {
      weather: tool({
        description: "Weather of a city", inputSchema: z.object({ city: z.string() }),
        execute: ({ city }) => { cities.push(city); return `sunny in ${city}`; },
      }),
    },
  };
  const text = stream ? await streamText(ask).text : (await generateText(ask)).text;
  assert.match(text, /sunny in Rome/);
  assert.deepEqual(cities, ["Rome"]);
}

everywhere("@openrouter/sdk", async (model, stream) => {
  const client = new OpenRouter({ apiKey: KEY, serverURL: `${brig.url}/api/v1`, retryConfig: { strategy: "none" } });
  const answer = await client.chat.send({ chatRequest: { model, messages, stream } });
  let text = "";
  if (stream) for await (const chunk of answer) text += chunk.choices[0]?.delta?.content ?? "";
  else text = answer.choices[0].message.content;
  assert.ok(text.length > 0);
});

describe("server tools are named", () => {
  const shells = /not supported on the Chat Completions API.*\/responses.*\/messages/;
  for (const [type, text] of [["openrouter:shell", shells], ["brig:shell", shells], ["openrouter:bash", /POST \/messages/]]) {
    test(type, async () => {
      const ask = openai.chat.completions.create({ model: "chat/agent", messages, tools: [{ type }] });
      await assert.rejects(ask, (error) => error instanceof OpenAI.BadRequestError && text.test(error.message) &&
        error.param === "tools[0].type" && error.code === "unsupported_value");
    });
  }
});

describe("bytes that are passed on", () => {
  test("openai responses, whole and streamed", async () => {
    const ask = { model: "responses/agent", input: "Hello", store: false };
    const whole = await openai.responses.create(ask);
    assert.equal(whole.model, "responses/agent");
    assert.equal(whole.status, "completed");
    const streamed = await openai.responses.stream(ask).finalResponse();
    assert.equal(streamed.model, "responses/agent");
    assert.equal(streamed.output_text, whole.output_text);
  });

  test("@anthropic-ai/sdk, whole and streamed", async () => {
    const client = new Anthropic({ apiKey: KEY, baseURL: brig.url, maxRetries: 0 });
    const ask = { model: "messages/agent", max_tokens: 100, messages: [{ role: "user", content: "Hello" }] };
    const whole = await client.messages.create(ask);
    assert.equal(whole.model, "messages/agent");
    assert.equal(whole.stop_reason, "end_turn");
    const streamed = await client.messages.stream(ask).finalMessage();
    assert.equal(streamed.model, "messages/agent");
    assert.deepEqual(streamed.content, whole.content);
  });

  test("@google/genai, whole and streamed", async () => {
    const client = new GoogleGenAI({ apiKey: KEY, httpOptions: { baseUrl: brig.url } });
    const ask = { model: "gemini/agent", contents: "Hello" };
    const whole = await client.models.generateContent(ask);
    assert.equal(whole.modelVersion, "gemini/agent");
    let text = "";
    for await (const chunk of await client.models.generateContentStream(ask)) {
      text += chunk.text ?? "";
      assert.equal(chunk.modelVersion, "gemini/agent");
    }
    assert.equal(text, whole.text);
  });
});
