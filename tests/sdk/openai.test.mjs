// OpenAI's own SDK as the judge of the Responses API under /v1.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { zodTextFormat } from "openai/helpers/zod";
import { toResponseInputItems } from "openai/lib/responses/ResponseInputItems";
import { z } from "zod";

import { Brig } from "./brig.mjs";
import { Fake, call, calls, pause, shell, text } from "./fake.mjs";
import { collect, connect, ran, ways } from "./openai.mjs";

const COMMANDS = ["cat /etc/os-release", "python3 --version"];
const README = "Run these.\n" + COMMANDS.map((c) => "```\n" + c + "\n```").join("\n");
const SHELLS = ["openrouter:shell", "brig:shell"];
const WEATHER = {
  type: "function", name: "weather", description: "Weather of a place", strict: true,
  parameters: { type: "object", properties: { place: { type: "string" } }, required: ["place"], additionalProperties: false },
};

let fake, brig, client, asks;

before(async () => {
  fake = await new Fake().start();
  brig = await new Brig(0, fake, { limits: { keepalive: "100ms" } }).start();
  client = connect(brig);
  asks = ways(client);
});

after(async () => {
  await brig?.stop();
  fake?.stop();
});

/** A model's two replies: the commands in one call, then text. */
const scripted = (...commands) => [calls([shell(commands)]), text("They ran.")];

describe("the README's request", () => {
  for (const way of Object.keys(ways())) {
    for (const tool of SHELLS) {
      for (const kind of ["brig/script", "a chat provider"]) {
        test(`${way}, ${tool}, ${kind}`, async () => {
          const model = kind === "brig/script" ? kind : fake.model(...scripted(...COMMANDS)).name;
          const response = await asks[way]({ model, input: README, tools: [{ type: tool }] });

          assert.equal(response.status, "completed");
          assert.equal(response.model, model);
          assert.equal(response.error, null);
          const [release, python] = ran(response);
          assert.equal(release.command, COMMANDS[0]);
          assert.match(release.stdout, /PRETTY_NAME="Debian GNU\/Linux 12/);
          assert.match(python.stdout, /^Python 3\.11\.\d+\n$/);
          for (const { stderr, outcome } of [release, python]) {
            assert.equal(stderr, "");
            assert.deepEqual(outcome, { type: "exit", exit_code: 0 });
          }
          const holder = response.output.find((item) => item.container_id);
          assert.match(holder.container_id, /^[\w-]{1,40}$/);
          assert.equal(response.output.at(-1).type, "message");
          assert.match(response.output_text, kind === "brig/script" ? /^brig\/script is no model/ : /^They ran\.$/);

          const { usage } = response;
          assert.equal(usage.cost_details.server_tool_cost, usage.cost, "neither model has a price");
          assert.ok(usage.cost > 0 && usage.cost < 0.1, `${usage.cost}`);
          assert.equal(usage.total_tokens, kind === "brig/script" ? 0 : 30);
        });
      }
    }
  }
});

describe("streams", () => {
  test("have the documented events in the documented order", async () => {
    const model = fake.model(...scripted("echo hi", "echo no >&2; exit 3"));
    const { types } = await collect(await client.responses.create({
      model: model.name, input: "go", stream: true, tools: [{ type: "brig:shell" }] }));
    const command = ["added", "delta", "done"].map((e) => `response.shell_call_command.${e}`);
    const output = ["delta", "done"].map((e) => `response.shell_call_output_content.${e}`);
    assert.deepEqual(types.filter((t, i) => t !== "response.output_text.delta" || types[i - 1] !== t), [
      "response.created", "response.in_progress",
      "response.output_item.added", ...command, ...command, "response.output_item.done",
      "response.output_item.added", ...output, ...output, "response.output_item.done",
      "response.output_item.added", "response.content_part.added", "response.output_text.delta", "response.output_text.done",
      "response.content_part.done", "response.output_item.done",
      "response.completed",
    ]);
  });

  test("the helper tells deltas with what they have come to", async () => {
    const model = fake.model(...scripted("echo one; sleep 2; echo two"));
    const stream = client.responses.stream({ model: model.name, input: "go", tools: [{ type: "brig:shell" }] });
    const stdout = [], snapshots = [];
    stream.on("response.shell_call_output_content.delta", (e) => stdout.push(e.delta.stdout));
    stream.on("response.output_text.delta", (e) => snapshots.push(e.snapshot));
    await stream.done();
    assert.deepEqual(stdout, ["one\n", "two\n"], "output comes while the command runs");
    assert.deepEqual(snapshots, ["They ra", "They ran."]);
  });

  test("keep-alive comments on an idle stream are one line each and do no harm", async () => {
    for (const tool of SHELLS) {
      const idle = fake.model(calls([shell(["sleep 1"])]), { steps: [pause(1000), ...text("late but there").steps] });
      const { response } = await collect(await client.responses.create({
        model: idle.name, input: "go", stream: true, tools: [{ type: tool }] }));
      const raw = client.wire.answers.at(-1).bytes;
      assert.equal(response.output_text, "late but there");
      const pings = raw.match(/^:.*\n/gm) ?? [];
      assert.ok(pings.length >= 4, `${pings.length} comments in 2 s`);
      assert.deepEqual([...new Set(pings)], [": ping\n"]);
      assert.ok(!raw.includes(": ping\n\n"), "an empty line after a comment");
      // Older clients end an event at every empty line, and parse its data, also where it has none.
      for (const block of raw.trimEnd().split("\n\n")) {
        const data = block.split("\n").filter((l) => l.startsWith("data: ")).map((l) => l.slice(6)).join("\n");
        if (data !== "[DONE]") assert.ok(JSON.parse(data).type);
      }
    }
  });

  test("the helper waits through keep-alive comments too", async () => {
    const model = fake.model({ steps: [pause(350), ...text("late").steps] });
    const response = await client.responses.stream({ model: model.name, input: "go" }).finalResponse();
    assert.equal(response.output_text, "late");
  });

  test("text of every kind comes through unharmed", async () => {
    const odd = "naïve 🦀 \u2028 \"quoted\" \\ tab\t nul\u0000 \r\n end";
    const response = await client.responses.stream({ model: fake.model(text(odd)).name, input: "go" }).finalResponse();
    assert.equal(response.output_text, odd);
  });

  test("a hundred commands in one call", async () => {
    const commands = Array.from({ length: 100 }, (_, i) => `echo ${i}`);
    for (const tool of SHELLS) {
      const { response } = await collect(await client.responses.create({
        model: fake.model(...scripted(...commands)).name, input: "go", stream: true, tools: [{ type: tool }] }));
      assert.deepEqual(ran(response).map((r) => r.stdout), commands.map((_, i) => `${i}\n`));
    }
  });

  test("several calls, failures, signals and timeouts", async () => {
    const replies = [
      calls([shell(["exit 7", "kill -9 $$"], { id: "a" }), shell(["echo early; sleep 60"], { id: "b", timeout_ms: 1500 })],
        { content: "First.", reasoning: "Let me see." }),
      calls([shell(["printf '\\377x'"], { id: "a" })]), // an id that the model uses again
      text("Done."),
    ];
    for (const ask of Object.values(asks)) {
      for (const tool of SHELLS) {
        const response = await ask({ model: fake.model(...replies).name, input: "go", tools: [{ type: tool }] });
        const results = ran(response);
        assert.deepEqual(results.map((r) => r.outcome.type), ["exit", "exit", "timeout", "exit"]);
        assert.equal(results[0].outcome.exit_code, 7);
        assert.equal(results[1].outcome.exit_code, 137);
        assert.equal(results[1].outcome.signal, "SIGKILL");
        assert.equal(results[2].stdout, "early\n");
        assert.equal(results[3].stdout, "\ufffdx");
      }
    }
  });

  test("a call that could not be run", async () => {
    for (const ask of Object.values(asks)) {
      for (const tool of SHELLS) {
        const model = fake.model(calls([call("shell", { commands: [] })]), calls([call("nonsense", {})]), text("I see."));
        const response = await ask({ model: model.name, input: "go", tools: [{ type: tool }] });
        assert.equal(response.status, "completed");
        assert.equal(response.output_text, "I see.");
        const items = response.output.filter((item) => /shell/.test(item.type));
        const told = items.filter((item) => item.error).map((item) => item.error);
        assert.match(told[0], /^Not run: commands is empty/);
        assert.match(told[1], /^Not run: .*"nonsense"/);
        const each = tool === "brig:shell" ? ["completed", "incomplete"] : ["failed"];
        assert.deepEqual(items.map((item) => item.status), [...each, ...each]);
      }
    }
  });
});

describe("functions beside the shell", () => {
  for (const way of Object.keys(ways())) {
    for (const tool of SHELLS) {
      test(`the call comes back and its answer goes on: ${way}, ${tool}`, async () => {
        const model = fake.model(
          calls([shell(["echo 5050 | tee sum"], { id: "call_a" }), call("weather", { place: "Kiel" }, "call_b")],
            { reasoning: "Both at once.", content: "One moment." }),
          text("5050 and rain."), text("The same again."));
        const request = { model: model.name, tools: [{ type: tool }, WEATHER], include: ["reasoning.encrypted_content"] };

        const first = await asks[way]({ ...request, input: "go" });
        assert.equal(first.status, "completed");
        assert.equal(ran(first)[0].stdout, "5050\n");
        const wanted = first.output.find((item) => item.type === "function_call");
        assert.deepEqual([wanted.name, JSON.parse(wanted.arguments), wanted.status], ["weather", { place: "Kiel" }, "completed"]);
        assert.equal(model.requests.length, 1, "the client's answer is awaited");

        // The SDK's own clean-up of items for replay knows the shell items that OpenAI has.
        const items = tool === "brig:shell" ? toResponseInputItems(first.output) : first.output;
        const history = [{ role: "user", content: "go" }, ...items,
          { type: "function_call_output", call_id: wanted.call_id, output: "rain" }];
        const second = await asks[way]({ ...request, input: history });
        assert.equal(second.output_text, "5050 and rain.");
        assert.equal(ran(second).length, 0, "history is not run again");

        const messages = model.requests[1].body.messages;
        const assistant = messages.find((m) => m.role === "assistant");
        assert.deepEqual(assistant.tool_calls.map((c) => c.id), ["call_a", "call_b"]);
        assert.equal(assistant.content, "One moment.");
        assert.equal(assistant.reasoning_content, "Both at once.");
        const results = messages.filter((m) => m.role === "tool");
        assert.deepEqual(results.map((m) => m.tool_call_id), ["call_a", "call_b"]);
        assert.match(results[0].content, /5050/);
        assert.equal(results[1].content, "rain");

        const third = await asks[way]({ ...request, input: [...history, ...second.output, { role: "user", content: "again" }] });
        assert.equal(third.output_text, "The same again.");
        assert.deepEqual(model.requests[2].body.messages.slice(0, messages.length), messages, "the beginning is as it was");
      });
    }
  }

  test("arguments as they come in a stream", async () => {
    const model = fake.model(calls([call("weather", { place: "Kiel" })]));
    const stream = client.responses.stream({ model: model.name, input: "go", tools: [WEATHER] });
    let last;
    stream.on("response.function_call_arguments.delta", (event) => (last = event.snapshot));
    const response = await stream.finalResponse();
    assert.equal(last, '{"place":"Kiel"}');
    assert.deepEqual(response.output[0].parsed_arguments, { place: "Kiel" });
  });

  test("a chosen container is the one that is used", async () => {
    for (const tool of SHELLS) {
      const parameters = { environment: { type: "container_reference", container_id: `mine-${tool.split(":")[0]}` } };
      const response = await client.responses.create({
        model: fake.model(...scripted("echo kept > f", "cat f")).name, input: "go", tools: [{ type: tool, parameters }] });
      assert.equal(ran(response)[1].stdout, "kept\n");
      const id = response.output.map((item) => item.container_id ?? item.environment?.container_id).find(Boolean);
      assert.equal(id, parameters.environment.container_id);
    }
  });
});

describe("other ends of a response", () => {
  test("reasoning is an item that every way reads", async () => {
    for (const ask of Object.values(asks)) {
      const model = fake.model(text("42", { reasoning: "Six times seven.", usage: [10, 9, 4, 3] }));
      const response = await ask({ model: model.name, input: "go", reasoning: { effort: "high" } });
      const [thought, message] = response.output;
      assert.deepEqual([thought.type, message.type], ["reasoning", "message"]);
      assert.deepEqual(thought.content, [{ type: "reasoning_text", text: "Six times seven." }]);
      assert.equal(response.usage.output_tokens_details.reasoning_tokens, 3);
      assert.equal(response.usage.input_tokens_details.cached_tokens, 4);
      assert.equal(model.requests[0].body.reasoning_effort, "high");
    }
  });

  test("the token limit makes it incomplete", async () => {
    for (const ask of Object.values(asks)) {
      const model = fake.model(text("cut in the mid", { finish: "length" }));
      const response = await ask({ model: model.name, input: "go", max_output_tokens: 16 });
      assert.equal(response.status, "incomplete");
      assert.deepEqual(response.incomplete_details, { reason: "max_output_tokens" });
      assert.equal(response.output_text, "cut in the mid");
      assert.equal(response.output.at(-1).status, "incomplete");
    }
  });

  test("a call cut by the token limit is not run", async () => {
    for (const ask of Object.values(asks)) {
      const model = fake.model(calls([shell(["touch ran"])], { finish: "length" }));
      const response = await ask({ model: model.name, input: "go", tools: [{ type: "brig:shell" }] });
      assert.equal(response.status, "incomplete");
      assert.deepEqual(ran(response), []);
    }
  });

  test("structured output is parsed", async () => {
    const format = zodTextFormat(z.object({ sum: z.number() }), "answer");
    const model = fake.model(text('{"sum":5050}'));
    const response = await client.responses.parse({ model: model.name, input: "go", text: { format } });
    assert.deepEqual(response.output_parsed, { sum: 5050 });
    assert.equal(model.requests[0].body.response_format.json_schema.name, "answer");
  });

  test("a model's price is counted in exact decimals", async () => {
    const model = fake.named("priced", text("hi", { usage: [1000, 100, 400] }));
    const { usage } = await client.responses.create({ model: model.name, input: "go" });
    assert.equal(usage.cost, 0.0026); // 600 × 2.5 + 400 × 0.25 + 100 × 10, in millionths
  });
});
