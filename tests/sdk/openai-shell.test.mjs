// OpenAI's SDK on providers of its own API: the shell in a container, at the provider's and on the client, reasoning
// that goes through, and tools that only OpenAI's API knows.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { toResponseInputItems } from "openai/lib/responses/ResponseInputItems";

import { Brig } from "./brig.mjs";
import { Fake } from "./fake.mjs";
import { connect, ran, rejection, ways } from "./openai.mjs";
import { call, message, reasoning, reply, shellItems } from "./responses.mjs";

const HOSTED = { type: "shell", environment: { type: "container_auto" } };
const LOCAL = { type: "shell", environment: { type: "local" } };

let fake, brig, client, asks;

before(async () => {
  fake = await new Fake().start();
  const provider = { dialect: "openai-responses", base_url: fake.url, api_key: "sk-upstream" };
  brig = await new Brig(11, null, { providers: [
    { name: "fake", ...provider }, { name: "native", ...provider, native_tools: ["shell"] },
    { name: "chat", dialect: "openai-chat", base_url: fake.url, api_key: "sk-upstream" },
  ] }).start();
  client = connect(brig);
  asks = ways(client);
});

after(async () => {
  await brig?.stop();
  fake?.stop();
});

const native = (model) => model.name.replace("fake/", "native/");

for (const way of Object.keys(ways())) {
  for (const store of [true, false]) {
    describe(`${way}, store ${store}`, () => {
      test("a shell in a container of ours, with encrypted reasoning, and the next turn", async () => {
        const model = fake.model(reply(reasoning("Let me see."), call("shell", { commands: ["echo 42", "exit 3"] })),
          reply(reasoning("So.", "ENC2=="), message("It is 42.")), reply(message("Bye.")));
        const response = await asks[way]({ model: model.name, input: "go", tools: [HOSTED], store });
        assert.equal(response.status, "completed");
        assert.deepEqual(response.output.map((item) => item.type),
          ["reasoning", "shell_call", "shell_call_output", "reasoning", "message"]);
        const [first, second] = ran(response);
        assert.equal(first.stdout, "42\n");
        assert.deepEqual(second.outcome, { type: "exit", exit_code: 3 });
        assert.equal(response.tools[0].environment.type, "container_reference");
        assert.equal(response.output_text, "It is 42.");

        await asks[way]({ model: model.name, tools: [HOSTED], store,
          input: [{ role: "user", content: "go" }, ...toResponseInputItems(response.output), { role: "user", content: "ok" }] });
        const [, before, after] = model.requests.map((r) => r.body.input);
        assert.deepEqual(after.slice(0, before.length), before);
        assert.equal(before[1].encrypted_content, "ENC==");
        assert.equal(after[4].encrypted_content, "ENC2==");
      });

      test("a shell at the provider's", async () => {
        const items = shellItems("ls", "pwd");
        const model = fake.model(reply(...items, message("Done.")), reply(message("Bye.")));
        const response = await asks[way]({ model: native(model), input: "go", tools: [HOSTED], store });
        assert.deepEqual(ran(response).map((r) => r.stdout), ["ran ls\n", "ran pwd\n"]);
        assert.deepEqual(response.output.slice(0, 2), items);
        await asks[way]({ model: native(model), tools: [HOSTED], store,
          input: [{ role: "user", content: "go" }, ...toResponseInputItems(response.output), { role: "user", content: "ok" }] });
        assert.deepEqual(model.requests[1].body.input[1].action.commands, ["ls", "pwd"]);
        assert.deepEqual(model.requests[1].body.tools, [HOSTED]);
      });

      test("a shell of the client's own", async () => {
        const model = fake.model(reply(call("shell", { commands: ["ls"] }, "call_x")), reply(message("One file.")));
        const response = await asks[way]({ model: model.name, input: "go", tools: [LOCAL], store });
        const [made] = response.output;
        assert.equal(made.type, "shell_call");
        assert.deepEqual(made.environment, { type: "local" });
        assert.deepEqual(made.action.commands, ["ls"]);
        const output = { type: "shell_call_output", call_id: made.call_id,
          output: [{ stdout: "a\n", stderr: "", outcome: { type: "exit", exit_code: 0 } }] };
        const end = await asks[way]({ model: model.name, tools: [LOCAL], store,
          input: [{ role: "user", content: "go" }, ...toResponseInputItems(response.output), output] });
        assert.equal(end.output_text, "One file.");
        assert.match(model.requests[1].body.input.at(-1).output, /"stdout":"a\\n"/);
      });

      test("web search with its citation, a custom tool, and a 400 elsewhere", async () => {
        const tools = [{ type: "web_search" }, { type: "custom", name: "sql" }];
        const search = { id: "ws_1", type: "web_search_call", status: "completed",
          action: { type: "search", query: "x", queries: ["x"] } };
        const annotations = [{ type: "url_citation", start_index: 0, end_index: 1, url: "https://a.example/", title: "A" }];
        const custom = { id: "ctc_1", type: "custom_tool_call", call_id: "call_c", name: "sql", input: "select 1" };
        const model = fake.model(reply(search, message("A.", { annotations }), custom));
        const response = await asks[way]({ model: model.name, input: "go", tools, store });
        assert.equal(response.output[0].type, "web_search_call");
        assert.deepEqual(response.output[1].content[0].annotations, annotations);
        assert.equal(response.output[2].input, "select 1");
        assert.deepEqual(model.requests[0].body.tools, tools);

        const error = await rejection(asks[way]({ model: model.name.replace("fake/", "chat/"), input: "go", tools, store }));
        assert.equal(error.status, 400);
        assert.equal(error.param, "tools[0].type");
        assert.match(error.message, /web_search/);
      });
    });
  }
}
