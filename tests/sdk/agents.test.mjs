// Whole agents on every provider dialect: each real client asks for the two commands and must come back with what
// they printed, streamed and not. What a client's own loop needs is configured as its users would.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import path from "node:path";
import { after, before, describe, test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { GoogleGenAI } from "@google/genai";
import { Agent, OpenAIProvider, Runner, shellTool, tool } from "@openai/agents";
import { callModel, serverTool } from "@openrouter/agent";
import { createOpenRouter } from "@openrouter/ai-sdk-provider";
import { OpenRouter } from "@openrouter/sdk";
import { generateText, streamText } from "ai";
import OpenAI from "openai";
import { z } from "zod";

import { Brig, KEY } from "./brig.mjs";

const PROVIDERS = ["responses", "messages", "gemini", "chat"];
const ASK = "Run the two commands.";
const RELEASE = /PRETTY_NAME=\\?"Debian GNU\/Linux 12/;
const PYTHON = /Python 3\.11\.\d+/;

let upstream, brig;

before(async () => {
  upstream = spawn("/usr/bin/python3", [path.join(import.meta.dirname, "upstream.py")],
    { stdio: ["pipe", "pipe", "inherit"] });
  const line = await new Promise((done, failed) => {
    upstream.stdout.once("data", (data) => done(String(data)));
    upstream.once("exit", (code) => failed(new Error(`upstream.py ended with ${code}`)));
  });
  brig = await new Brig(7, null, { providers: JSON.parse(line) }).start();
});

after(async () => {
  await brig?.stop();
  upstream?.stdin.end();
});

/** The answer's text tells what the tool gave. */
function check(text) {
  assert.match(text, /The tool gave:/);
  assert.match(text, RELEASE);
  assert.match(text, PYTHON);
}

/** A test for each provider, streamed and not. */
function everywhere(name, run) {
  describe(name, () => {
    for (const provider of PROVIDERS) {
      for (const streamed of [false, true]) {
        test(`${provider}, ${streamed ? "streamed" : "whole"}`, () => run(`${provider}/agent`, streamed));
      }
    }
  });
}

/** fetch that puts a server tool into each request body, where an SDK knows no such entry. */
const withTool = (entry) => (url, init) => {
  const body = JSON.parse(init.body);
  body.tools = [...(body.tools ?? []), entry];
  return fetch(url, { ...init, body: JSON.stringify(body) });
};

// ---- the vendors' own SDKs ----

for (const type of ["openrouter:shell", "brig:shell", "shell"]) {
  everywhere(`openai, ${type}`, async (model, stream) => {
    const client = new OpenAI({ apiKey: KEY, baseURL: `${brig.url}/v1`, maxRetries: 0 });
    const tools = [type === "shell" ? { type, environment: { type: "container_auto" } } : { type }];
    const response = stream
      ? await client.responses.stream({ model, input: ASK, tools }).finalResponse()
      : await client.responses.create({ model, input: ASK, tools });
    assert.equal(response.status, "completed");
    check(response.output_text);
  });
}

for (const type of ["openrouter:shell", "brig:shell"]) {
  everywhere(`@anthropic-ai/sdk, ${type}`, async (model, stream) => {
    const client = new Anthropic({ apiKey: KEY, baseURL: brig.url, maxRetries: 0 });
    const ask = { model, max_tokens: 4096, messages: [{ role: "user", content: ASK }], tools: [{ type }] };
    const message = stream ? await client.messages.stream(ask).finalMessage() : await client.messages.create(ask);
    assert.equal(message.stop_reason, "end_turn");
    check(message.content.findLast((block) => block.type === "text").text);
  });
}

everywhere("@google/genai, brigShell", async (model, stream) => {
  const client = new GoogleGenAI({ apiKey: KEY, httpOptions: { baseUrl: brig.url,
    extraBody: { tools: [{ brigShell: {} }] } } });
  const ask = { model, contents: ASK };
  let text = "";
  if (stream) {
    for await (const chunk of await client.models.generateContentStream(ask)) {
      for (const part of chunk.candidates?.[0]?.content?.parts ?? []) text += part.thought ? "" : part.text ?? "";
    }
  } else {
    const answer = await client.models.generateContent(ask);
    for (const part of answer.candidates[0].content.parts) text += part.thought ? "" : part.text ?? "";
  }
  check(text);
});

everywhere("@openrouter/sdk, openrouter:shell", async (model, stream) => {
  const client = new OpenRouter({ apiKey: KEY, serverURL: `${brig.url}/api/v1`, retryConfig: { strategy: "none" } });
  const ask = { model, input: ASK, tools: [{ type: "openrouter:shell" }], stream };
  const answer = await client.beta.responses.send({ responsesRequest: ask });
  let response = answer;
  if (stream) {
    for await (const event of answer) if (event.type === "response.completed") response = event.response;
  }
  check(response.output.findLast((item) => item.type === "message").content.map((part) => part.text).join(""));
});

// ---- agents ----

const weather = () => tool({
  name: "weather", description: "Weather of a city", parameters: z.object({ city: z.string() }),
  execute: ({ city }) => `sunny in ${city}`,
});

everywhere("@openai/agents, hosted shell and a function", async (model, stream) => {
  const client = new OpenAI({ apiKey: KEY, baseURL: `${brig.url}/v1`, maxRetries: 0 });
  const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient: client, useResponses: true }),
    tracingDisabled: true });
  const agent = new Agent({ name: "two", instructions: "Be brief.", model,
    tools: [weather(), shellTool({ environment: { type: "container_auto" } })] });
  const result = await runner.run(agent, ASK, { stream });
  if (stream) await result.completed;
  check(result.finalOutput);
});

everywhere("@openrouter/agent, openrouter:shell", async (model, stream) => {
  const client = new OpenRouter({ apiKey: KEY, serverURL: `${brig.url}/api/v1`, retryConfig: { strategy: "none" } });
  const result = callModel(client, { model, input: ASK, tools: [serverTool({ type: "openrouter:shell" })] });
  let text = "";
  if (stream) for await (const delta of result.getTextStream()) text += delta;
  else text = await result.getText();
  check(text);
});

async function viaAi(model, stream, tools) {
  const ask = { model, prompt: ASK, tools, maxRetries: 0 };
  if (!stream) return (await generateText(ask)).text;
  let text = "";
  for await (const part of streamText(ask).fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") text += part.text;
  }
  return text;
}

everywhere("ai with @ai-sdk/openai, its shell", async (model, stream) => {
  const openai = createOpenAI({ apiKey: KEY, baseURL: `${brig.url}/v1` });
  check(await viaAi(openai(model), stream, { shell: openai.tools.shell({ environment: { type: "containerAuto" } }) }));
});

everywhere("ai with @ai-sdk/anthropic, brig:shell", async (model, stream) => {
  const anthropic = createAnthropic({ apiKey: KEY, baseURL: `${brig.url}/v1`, fetch: withTool({ type: "brig:shell" }) });
  check(await viaAi(anthropic(model), stream));
});

everywhere("ai with @ai-sdk/google, brigShell", async (model, stream) => {
  const google = createGoogleGenerativeAI({ apiKey: KEY, baseURL: `${brig.url}/v1beta`,
    fetch: withTool({ brigShell: {} }) });
  check(await viaAi(google(model), stream));
});

// ---- Chat Completions has no server tools, and says where there are some ----

const REFUSED = /openrouter:shell.*(Responses|Messages)/s;

everywhere("openai chat, a server tool is refused", async (model, stream) => {
  const client = new OpenAI({ apiKey: KEY, baseURL: `${brig.url}/v1`, maxRetries: 0 });
  const ask = { model, messages: [{ role: "user", content: ASK }], tools: [{ type: "openrouter:shell" }], stream };
  await assert.rejects(client.chat.completions.create(ask), (error) => error.status === 400 && REFUSED.test(error.message));
});

everywhere("@openrouter/ai-sdk-provider, a server tool is refused", async (model, stream) => {
  const openrouter = createOpenRouter({ apiKey: KEY, baseURL: `${brig.url}/api/v1`,
    fetch: withTool({ type: "openrouter:shell" }) });
  await assert.rejects(viaAi(openrouter.chat(model), stream),
    (error) => error.statusCode === 400 && REFUSED.test(error.message));
});
