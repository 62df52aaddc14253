// Google's own SDK as the judge of the Gemini API, under /v1, as it calls it, and /v1beta.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { ApiError, GoogleGenAI } from "@google/genai";

import { Brig, KEY, processesWith, until } from "./brig.mjs";
import { Fake, call, calls, chunk, cut, hold, refuse, shell, text } from "./fake.mjs";

const COMMANDS = ["cat /etc/os-release", "python3 --version"];
const README = "Run these.\n" + COMMANDS.map((c) => "```\n" + c + "\n```").join("\n");
const SHELL = { tools: [{ brigShell: {} }] };
const WEATHER = {
  name: "weather", description: "Weather of a place",
  parametersJsonSchema: { type: "object", properties: { place: { type: "string" } }, required: ["place"] },
};

let fake, brig, ai, shellAi;

before(async () => {
  fake = await new Fake().start();
  brig = await new Brig(9, fake, { limits: { keepalive: "100ms", upstream_retries: 0 } }).start();
  const connect = (extraBody) => new GoogleGenAI({ apiKey: KEY, httpOptions: { baseUrl: brig.url, extraBody } });
  ai = connect();
  shellAi = connect(SHELL);
});

after(async () => {
  await brig?.stop();
  fake?.stop();
});

/** All parts of an answer, streamed or not. */
const ways = (client) => ({
  whole: async (ask) => (await client.models.generateContent(ask)).candidates[0].content.parts,
  streamed: async (ask) => {
    const parts = [];
    for await (const piece of await client.models.generateContentStream(ask)) {
      parts.push(...piece.candidates[0].content.parts);
    }
    return parts;
  },
});
const textOf = (parts) => parts.map((part) => (part.thought ? "" : part.text ?? "")).join("");

describe("the README's request", () => {
  for (const way of ["whole", "streamed"]) {
    for (const kind of ["brig/script", "a chat provider"]) {
      test(`${way}, ${kind}`, async () => {
        const model = kind === "brig/script" ? kind : fake.model(calls([shell(COMMANDS)]), text("They ran.")).name;
        const parts = await ways(shellAi)[way]({ model, contents: README });
        const code = parts.find((part) => part.executableCode).executableCode;
        assert.equal(code.language, "LANGUAGE_UNSPECIFIED");
        assert.match(code.code, /commands=19,17\ncat \/etc\/os-release\npython3 --version$/);
        const results = parts.flatMap((part) => part.codeExecutionResult ?? []);
        assert.equal(results.length, 2);
        for (const result of results) assert.equal(result.outcome, "OUTCOME_OK");
        assert.match(results[0].output, /PRETTY_NAME="Debian GNU\/Linux 12/);
        assert.match(results[1].output, /^Python 3\.11\.\d+\n$/);
        assert.match(textOf(parts), kind === "brig/script" ? /^brig\/script is no model/ : /^They ran\.$/);
      });
    }
  }
});

describe("text", () => {
  test("streams in pieces, with usage at the end", async () => {
    const model = fake.model(text("Grüße aus der Ferne 😀", { usage: [20, 9, 5, 3] }));
    let said = "";
    let last;
    for await (const piece of await ai.models.generateContentStream({ model: model.name, contents: "hi" })) {
      said += piece.text;
      last = piece;
    }
    assert.equal(said, "Grüße aus der Ferne 😀");
    assert.equal(last.candidates[0].finishReason, "STOP");
    assert.equal(last.modelVersion, model.name);
    const { cost, cost_details: details, is_byok: byok, ...tokens } = last.usageMetadata; // ours beside Google's
    assert.equal(cost, 0); // a model without a price
    assert.equal(details.upstream_inference_input_cost, 0);
    assert.equal(byok, false);
    assert.deepEqual(tokens, { promptTokenCount: 20, candidatesTokenCount: 6, totalTokenCount: 29,
      cachedContentTokenCount: 5, thoughtsTokenCount: 3 });
  });

  test("settings go to a model of another dialect", async () => {
    const model = fake.model(text('{"a":1}'));
    const answer = await ai.models.generateContent({ model: model.name, contents: "hi", config: {
      systemInstruction: "Be brief.", temperature: 0.5, maxOutputTokens: 50, stopSequences: ["X"],
      responseMimeType: "application/json", responseSchema: { type: "OBJECT", properties: { a: { type: "INTEGER" } } } } });
    assert.equal(answer.text, '{"a":1}');
    const asked = model.requests[0].body;
    assert.deepEqual(asked.messages[0], { role: "system", content: "Be brief." });
    assert.equal(asked.max_tokens, 50);
    assert.deepEqual(asked.response_format.json_schema.schema, { type: "object", properties: { a: { type: "integer" } } });
  });

  test("a silent model keeps the stream open", async () => {
    const model = fake.model({ steps: [chunk({ role: "assistant" }), () => new Promise((r) => setTimeout(r, 350)),
      ...text("late").steps] });
    assert.equal(textOf(await ways(ai).streamed({ model: model.name, contents: "hi" })), "late");
  });
});

describe("functions", () => {
  for (const way of ["whole", "streamed"]) {
    test(`${way}: calls in parallel, their answers, and the model's words`, async () => {
      const model = fake.model(calls([call("weather", { place: "Rome" }, "a"), call("weather", { place: "Oslo" }, "b")]),
        text("Both are fine."));
      const config = { tools: [{ functionDeclarations: [WEATHER] }] };
      const parts = await ways(ai)[way]({ model: model.name, contents: "go", config });
      const made = parts.flatMap((part) => part.functionCall ?? []);
      assert.deepEqual(made.map((c) => [c.id, c.args.place]), [["a", "Rome"], ["b", "Oslo"]]);
      const contents = [{ role: "user", parts: [{ text: "go" }] }, { role: "model", parts },
        { role: "user", parts: made.map((c) => ({ functionResponse: { id: c.id, name: c.name,
          response: { output: `sun in ${c.args.place}` } } })) }];
      assert.equal(textOf(await ways(ai)[way]({ model: model.name, contents, config })), "Both are fine.");
      const told = model.requests[1].body.messages.filter((m) => m.role === "tool");
      assert.deepEqual(told.map((m) => [m.tool_call_id, m.content]), [["a", "sun in Rome"], ["b", "sun in Oslo"]]);
    });
  }

  test("the SDK's own loop calls them", async () => {
    const model = fake.model(calls([call("weather", { place: "Rome" }, "a")]), text("Sunny."));
    const tool = { tool: async () => ({ functionDeclarations: [WEATHER] }),
      callTool: async (made) => made.map((c) => ({ functionResponse: { id: c.id, name: c.name, response: { output: "sun" } } })) };
    const answer = await ai.models.generateContent({ model: model.name, contents: "go", config: { tools: [tool] } });
    assert.equal(answer.text, "Sunny.");
    assert.equal(model.requests[1].body.messages.at(-1).content, "sun");
  });
});

describe("chats", () => {
  for (const way of ["sendMessage", "sendMessageStream"]) {
    test(`${way}: what was said comes back to the model as it was`, async () => {
      const model = fake.model(calls([shell(["echo one > f; echo err >&2; exit 2"])], { content: "Look." }),
        text("It ran, more or less."), calls([shell(["cat f"])]), text("Bye."));
      const chat = shellAi.chats.create({ model: model.name });
      const say = async (message) => {
        const answer = await chat[way]({ message });
        if (way === "sendMessage") return answer.candidates[0].content.parts;
        const parts = [];
        for await (const piece of answer) parts.push(...piece.candidates[0].content.parts);
        return parts;
      };
      const first = await say("go");
      assert.equal(textOf(first), "Look.It ran, more or less.");
      const failed = first.find((part) => part.codeExecutionResult).codeExecutionResult;
      assert.equal(failed.outcome, "OUTCOME_FAILED");
      assert.equal(failed.output, "err\n[exit code 2; stdout 0 bytes, stderr 4 bytes]");
      const second = await say("again");
      assert.equal(second.find((part) => part.codeExecutionResult).codeExecutionResult.output, "one\n");
      const [before, later] = [1, 2].map((n) => model.requests[n].body.messages);
      assert.deepEqual(later.slice(0, before.length), before);
    });
  }
});

describe("thoughts", () => {
  test("are thoughts, and their seal survives the SDK", async () => {
    const model = fake.model(text("Yes.", { reasoning: "Hm." }), text("Still."));
    const chat = ai.chats.create({ model: model.name, config: { thinkingConfig: { includeThoughts: true } } });
    const answer = await chat.sendMessage({ message: "go" });
    const [thought] = answer.candidates[0].content.parts;
    assert.equal(thought.text, "Hm.");
    assert.equal(thought.thought, true);
    assert.match(thought.thoughtSignature, /^[A-Za-z0-9+/]+=*$/);
    await chat.sendMessage({ message: "on" });
    assert.equal(model.requests[1].body.messages[1].reasoning_content, "Hm.");
  });
});

describe("what goes wrong", () => {
  const rejects = (promise, status, says) => assert.rejects(promise, (error) => {
    assert.ok(error instanceof ApiError, `${error}`);
    assert.equal(error.status, status);
    assert.match(error.message, says);
    return true;
  });

  test("refusals are ApiErrors", async () => {
    const model = fake.model(refuse(429, { message: "slow down" }));
    await rejects(ai.models.generateContent({ model: model.name, contents: "x" }), 429, /slow down/);
    await rejects(ai.models.generateContent({ model: "nobody/nothing", contents: "x" }), 404, /nothing/);
    await rejects(ai.models.generateContent({ model: model.name, contents: "x", config: { temperature: 5 } }), 400,
      /temperature/);
    await rejects(ai.models.generateContent({ model: model.name, contents: "x",
      config: { tools: [{ codeExecution: {} }] } }), 400, /codeExecution/);
    const stranger = new GoogleGenAI({ apiKey: "wrong", httpOptions: { baseUrl: brig.url } });
    await assert.rejects(stranger.models.generateContent({ model: model.name, contents: "x" }), /API key/);
  });

  test("a stream that breaks off throws", async () => {
    const model = fake.model({ steps: [chunk({ role: "assistant" }), chunk({ content: "Half" }), cut] });
    let said = "";
    await assert.rejects(async () => {
      for await (const piece of await ai.models.generateContentStream({ model: model.name, contents: "x" })) {
        said += piece.text;
      }
    }, ApiError);
    assert.equal(said, "Half");
  });

  test("a client that goes away ends the command and the upstream", async () => {
    const mark = `77${process.pid}`;
    const model = fake.model(calls([shell([`sleep ${mark}`])]));
    const gone = new AbortController();
    const asked = shellAi.models.generateContent({ model: model.name, contents: "x", config: { abortSignal: gone.signal } });
    await until(() => processesWith(`sleep ${mark}`).length, "the command did not start");
    gone.abort();
    await assert.rejects(asked);
    await until(() => !processesWith(`sleep ${mark}`).length, "the command runs on");
    const silent = fake.model({ steps: [chunk({ role: "assistant" }), hold] });
    const other = new AbortController();
    const waiting = ai.models.generateContent({ model: silent.name, contents: "x", config: { abortSignal: other.signal } });
    const request = await silent.request(1);
    other.abort();
    await assert.rejects(waiting);
    await request.gone;
  });
});

describe("beside", () => {
  for (const apiVersion of ["v1beta", "v1alpha"]) {
    test(`the same under ${apiVersion}`, async () => {
      const client = new GoogleGenAI({ apiKey: KEY, httpOptions: { baseUrl: brig.url, apiVersion } });
      assert.equal(textOf(await ways(client).streamed({ model: fake.model(text("hi")).name, contents: "x" })), "hi");
      await assert.rejects(client.models.embedContent({ model: "fake/m", contents: "x" }), ApiError);
    });
  }

  test("tokens are counted", async () => {
    const counted = await ai.models.countTokens({ model: fake.model().name, contents: "How many are these?" });
    assert.ok(counted.totalTokens > 3 && counted.totalTokens < 40, `${counted.totalTokens}`);
  });

  test("models are listed and found", async () => {
    const names = [];
    for await (const model of await ai.models.list()) names.push(model.name);
    assert.ok(names.includes("models/brig/script"), names.join());
    assert.equal((await ai.models.get({ model: "brig/script" })).name, "models/brig/script");
  });
});
