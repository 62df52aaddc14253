// OpenAI's own SDK as the judge of what goes wrong: error classes, retries, cuts, going away, time limits.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import OpenAI from "openai";

import { Brig, KEY, processesWith, until } from "./brig.mjs";
import { Fake, calls, chunk, cut, hold, refuse, shell, text } from "./fake.mjs";
import { collect, connect, ran, rejection, ways } from "./openai.mjs";

let fake, brig, client, asks;

before(async () => {
  fake = await new Fake().start();
  brig = await new Brig(1, fake, {
    limits: { body: "64k" }, models: [{ name: "team/some/name:free", route: ["fake/listed"] }] }).start();
  client = connect(brig, { maxRetries: 0 });
  asks = ways(client);
});

after(async () => {
  await brig?.stop();
  fake?.stop();
});

const SCRIPT = { model: "brig/script", input: "go" };

describe("a request that is refused", () => {
  const cases = [
    ["no model", { input: "go" }, "missing_required_parameter", "model"],
    ["a wrong type", { ...SCRIPT, temperature: "hot" }, "invalid_type", "temperature"],
    ["a wrong item", { ...SCRIPT, input: [{ type: "no_such_item" }] }, null, "input[0].type"],
    ["an unknown tool", { ...SCRIPT, tools: [{ type: "code_interpreter", container: { type: "auto" } }] },
      "unsupported_value", "tools[0].type"],
    ["two shells", { ...SCRIPT, tools: [{ type: "brig:shell" }, { type: "openrouter:shell" }] }, null, "tools"],
    ["no tool calls wanted", { ...SCRIPT, tools: [{ type: "brig:shell" }], max_tool_calls: 0 }, null, "max_tool_calls"],
    ["a network policy", { ...SCRIPT, tools: [{ type: "brig:shell", parameters: { environment: {
      type: "container_auto", network_policy: { type: "allowlist", allowed_domains: ["https://example.org"] } } } }] }, null,
     "tools[0]"],
    ["stored and not", { ...SCRIPT, store: false, background: true }, "unsupported_parameter", "background"],
    ["continued", { ...SCRIPT, previous_response_id: "resp_1" }, "previous_response_not_found", "previous_response_id"],
  ];
  for (const [name, request, code, param] of cases) {
    test(`400: ${name}`, async () => {
      for (const ask of Object.values(asks)) {
        const error = await rejection(ask(request));
        assert.ok(error instanceof OpenAI.BadRequestError, `${error}`);
        assert.equal(error.status, 400);
        assert.equal(error.type, "invalid_request_error");
        if (code) assert.equal(error.code, code);
        assert.ok(error.code === null || typeof error.code === "string");
        assert.ok(error.param?.startsWith(param), `${error.param}`);
        assert.ok(error.message.length > 10);
        assert.match(error.requestID, /^gen-/);
      }
    });
  }

  test("401: a wrong key, and none", async () => {
    for (const headers of [{ authorization: "Bearer nobodys-key-0123456789" }, { authorization: null }]) {
      const error = await rejection(client.responses.create(SCRIPT, { headers }));
      assert.ok(error instanceof OpenAI.AuthenticationError, `${error}`);
      assert.deepEqual([error.code, error.type, error.param], ["invalid_api_key", "authentication_error", null]);
      assert.ok(!error.message.includes("nobodys"));
    }
  });

  test("404: a model that nobody serves", async () => {
    for (const ask of Object.values(asks)) {
      const error = await rejection(ask({ model: "brig/skript", input: "go" }));
      assert.ok(error instanceof OpenAI.NotFoundError, `${error}`);
      assert.deepEqual([error.code, error.type, error.param], ["model_not_found", "invalid_request_error", "model"]);
    }
  });

  test("404: what this API knows and brig does not", async () => {
    const asked = [client.responses.retrieve("resp_1"), client.responses.cancel("resp_1"),
      client.embeddings.create({ model: "x", input: "y" })];
    for (const error of await Promise.all(asked.map(rejection))) {
      assert.ok(error instanceof OpenAI.NotFoundError, `${error}`);
      assert.equal(error.code, "not_found");
    }
  });

  test("413: a body over the limit", async () => {
    const error = await rejection(client.responses.create({ model: "brig/script", input: "x".repeat(80_000) }));
    assert.ok(error instanceof OpenAI.APIError, `${error}`);
    assert.equal(error.status, 413);
    assert.ok(error.code === null || typeof error.code === "string");
  });
});

describe("a provider that refuses", () => {
  const cases = [
    [429, OpenAI.RateLimitError, "rate_limit_exceeded"],
    [500, OpenAI.InternalServerError, "provider_unavailable"],
    [503, OpenAI.InternalServerError, "provider_overloaded"],
    [401, OpenAI.InternalServerError, "provider_authentication"], // not the client's key
  ];
  for (const [status, kind, code] of cases) {
    test(`with ${status}`, async () => {
      for (const ask of Object.values(asks)) {
        const error = await rejection(ask({ model: fake.model(refuse(status, { message: "no" })).name, input: "go" }));
        assert.ok(error instanceof kind, `${error}`);
        assert.equal(error.code, code);
        assert.equal(error.param, null);
      }
    });
  }

  test("with a page of HTML", async () => {
    const page = { status: 502, headers: { "content-type": "text/html" }, steps: ["<html>Bad gateway</html>"] };
    const error = await rejection(client.responses.create({ model: fake.model(page).name, input: "go" }));
    assert.ok(error instanceof OpenAI.InternalServerError && error.code === "provider_unavailable", `${error}`);
    assert.ok(!error.message.includes("<html>"));
  });

  test("with what is too long for it", async () => {
    const model = fake.model(refuse(400, { message: "too long", code: "context_length_exceeded" }));
    const error = await rejection(client.responses.create({ model: model.name, input: "go" }));
    assert.ok(error instanceof OpenAI.BadRequestError && error.code === "context_length_exceeded", `${error}`);
  });
});

describe("retries of the SDK", () => {
  const down = () => refuse(500, { message: "down" });

  test("are made where nothing has happened yet", async () => {
    const eager = connect(brig, { maxRetries: 1 });
    const model = fake.model(down(), text("up again"));
    const response = await eager.responses.create({ model: model.name, input: "go" });
    assert.equal(response.output_text, "up again");
    assert.deepEqual([eager.wire.sent, model.requests.length], [2, 2]);
  });

  test("wait as long as the provider asks", async () => {
    const eager = connect(brig, { maxRetries: 1 });
    const model = fake.model(refuse(429, { message: "slower" }, { "retry-after": "1" }), text("now"));
    const start = performance.now();
    const response = await eager.responses.create({ model: model.name, input: "go" });
    assert.equal(response.output_text, "now");
    assert.ok(performance.now() - start >= 950, "Retry-After was not passed on");
    assert.equal(eager.wire.sent, 2);
  });

  test("are not made once commands have run", async () => {
    for (const tool of ["openrouter:shell", "brig:shell"]) {
      const eager = connect(brig, { maxRetries: 2 });
      const model = fake.model(calls([shell(["echo once"])]), down(), down(), down());
      const error = await rejection(eager.responses.create({ model: model.name, input: "go", tools: [{ type: tool }] }));
      assert.ok(error instanceof OpenAI.InternalServerError, `${error}`);
      assert.equal(error.headers.get("x-should-retry"), "false");
      assert.equal(eager.wire.sent, 1);
      assert.equal(model.requests.length, 2);
      const body = JSON.parse(Buffer.from(eager.wire.answers[0].bytes, "latin1"));
      assert.equal(ran(body.response)[0].stdout, "once\n", "what has run is not lost");
    }
  });
});

describe("a failure in the middle of a stream", () => {
  const broken = () => ({ steps: [chunk({ content: "half an ans" }), cut] });
  const inside = () => ({ steps: [chunk({ content: "half an ans" }),
    'data: {"error":{"message":"out of memory","code":500}}\n\n'] });

  for (const [name, reply] of [["a cut connection", broken], ["an error event", inside]]) {
    test(`${name}: the raw stream throws after what came before`, async () => {
      const eager = connect(brig, { maxRetries: 2 });
      const stream = await eager.responses.create({ model: fake.model(reply()).name, input: "go", stream: true });
      let said = "";
      const error = await rejection((async () => {
        for await (const event of stream) if (event.type === "response.output_text.delta") said += event.delta;
      })());
      assert.equal(said, "half an ans");
      assert.ok(error instanceof OpenAI.APIError, `${error}`);
      assert.equal(error.type, "server_error");
      assert.equal(typeof error.code, "string");
      assert.equal(error.param, null);
      assert.ok(error.message.length > 10);
      assert.equal(eager.wire.sent, 1, "a stream that has begun is not sent again");
    });

    test(`${name}: the helper rejects`, async () => {
      const stream = client.responses.stream({ model: fake.model(reply()).name, input: "go" });
      const seen = [];
      stream.on("event", (event) => seen.push(event.type));
      const error = await rejection(stream.finalResponse());
      assert.ok(error instanceof OpenAI.APIError && !(error instanceof OpenAI.APIConnectionError), `${error}`);
      assert.equal(typeof error.code, "string");
      assert.ok(seen.includes("response.output_text.delta"));
    });

    test(`${name}: the last events are error and response.failed`, async () => {
      const stream = await client.responses.create({ model: fake.model(reply()).name, input: "go", stream: true });
      await rejection(collect(stream));
      const raw = await until(() => client.wire.answers.at(-1).bytes);
      assert.match(raw, /^event: error\ndata: .*\n\nevent: response\.failed\ndata: .*\n\ndata: \[DONE\]\n\n$/m);
    });
  }

  test("after commands, what they did is in response.failed", async () => {
    const model = fake.model(calls([shell(["echo done"])]), refuse(500, { message: "down" }));
    const answer = await fetch(`${brig.url}/v1/responses`, {
      method: "POST", headers: { authorization: `Bearer ${KEY}` },
      body: JSON.stringify({ model: model.name, input: "go", stream: true, tools: [{ type: "brig:shell" }] }) });
    const events = (await answer.text()).match(/(?<=^data: )\{.*$/gm).map(JSON.parse);
    assert.deepEqual(events.slice(-2).map((e) => e.type), ["error", "response.failed"]);
    assert.equal(ran(events.at(-1).response)[0].stdout, "done\n");
    // The SDK's own rules, without its early end at `error`.
    const { accumulateResponse } = await import("openai/lib/responses/ResponseAccumulator");
    const response = events.reduce((sum, event) => accumulateResponse(event, sum), undefined);
    assert.equal(response.status, "failed");
  });
});

describe("a client that goes away", () => {
  const marks = (n) => `sleep 86${n}.${process.pid}`;

  async function goneWithin(ms, since, what, message) {
    await until(what, message);
    const took = performance.now() - since;
    assert.ok(took < ms, `${message}: only after ${took.toFixed()} ms`);
  }

  for (const [name, leave] of [
    ["break", async (stream) => {
      for await (const event of stream) if (event.type === "response.output_text.delta") break;
    }],
    ["abort()", async (stream) => {
      const error = (async () => {
        for await (const event of stream) if (event.type === "response.output_text.delta") stream.controller.abort();
      })();
      await error; // an aborted raw stream ends quietly
    }],
  ]) {
    test(`${name} in a raw stream closes the upstream`, async () => {
      const model = fake.model({ steps: [chunk({ content: "word" }), hold] });
      const stream = await client.responses.create({ model: model.name, input: "go", stream: true });
      await leave(stream);
      const left = performance.now();
      await goneWithin(5000, left, () => model.requests[0].closedAt, "the upstream was not closed");
    });
  }

  test("abort() of the helper closes the upstream", async () => {
    const model = fake.model({ steps: [chunk({ content: "word" }), hold] });
    const stream = client.responses.stream({ model: model.name, input: "go" });
    let left;
    stream.on("response.output_text.delta", () => {
      left = performance.now();
      stream.abort();
    });
    const error = await rejection(stream.finalResponse());
    assert.ok(error instanceof OpenAI.APIUserAbortError, `${error}`);
    await goneWithin(5000, left, () => model.requests[0].closedAt, "the upstream was not closed");
  });

  test("a signal on a whole request closes the upstream", async () => {
    const model = fake.model({ steps: [hold] });
    const leaving = new AbortController();
    const answer = rejection(client.responses.create({ model: model.name, input: "go" }, { signal: leaving.signal }));
    await model.request(1);
    const left = performance.now();
    leaving.abort();
    assert.ok(await answer instanceof OpenAI.APIUserAbortError);
    await goneWithin(5000, left, () => model.requests[0].closedAt, "the upstream was not closed");
  });

  for (const [n, streamed] of [[1, true], [2, false]]) {
    test(`its command is killed, ${streamed ? "streamed" : "whole"}`, async () => {
      const mark = marks(n);
      const model = fake.model(calls([shell([mark])]), text("never asked"));
      const leaving = new AbortController();
      const request = { model: model.name, input: "go", stream: streamed, tools: [{ type: "brig:shell" }] };
      const answer = (async () => {
        const response = await client.responses.create(request, { signal: leaving.signal });
        if (streamed) for await (const _ of response);
      })().catch((error) => error);
      await until(() => processesWith(mark).length, "the command did not start");
      const left = performance.now();
      leaving.abort();
      await goneWithin(5000, left, () => !processesWith(mark).length, "the command was not killed");
      await answer;
      assert.equal(model.requests.length, 1);
    });
  }

  test("its own time limit ends the request on both sides", async () => {
    for (const stream of [false, true]) {
      const impatient = connect(brig, { timeout: 2000, maxRetries: 0 });
      const model = fake.model({ steps: [hold] });
      const error = await rejection((async () => {
        const answer = await impatient.responses.create({ model: model.name, input: "go", stream });
        if (stream) for await (const _ of answer);
      })());
      assert.ok(error instanceof OpenAI.APIConnectionTimeoutError, `${error}`);
      await until(() => model.requests[0].closedAt, "the upstream was not closed");
    }
  });
});

describe("what else the SDK offers", () => {
  test("models are listed, page by page, and one is found", async () => {
    fake.named("listed", text("hi"));
    const found = [];
    for await (const model of client.models.list()) found.push(model);
    const script = found.find((model) => model.id === "brig/script");
    assert.equal(script.object, "model");
    assert.match(script.description, /not a model/i);
    assert.equal(typeof script.created, "number");
    assert.ok(found.some((model) => model.owned_by === "fake"));
    for (const id of ["brig/script", "team/some/name:free"]) {
      assert.ok(found.some((model) => model.id === id), id);
      assert.equal((await client.models.retrieve(id)).id, id);
    }
    assert.ok(await rejection(client.models.retrieve("nobody/knows")) instanceof OpenAI.NotFoundError);
  });

  test("containers are made, found, listed and deleted", async () => {
    const made = await client.containers.create({ name: "sdk-one", memory_limit: "256m" });
    assert.deepEqual([made.object, made.name, made.id], ["container", "sdk-one", "sdk-one"]);
    assert.ok(Math.abs(made.created_at - Date.now() / 1000) < 60);
    assert.equal(made.expires_after.anchor, "last_active_at");

    const done = await client.post(`/containers/${made.id}/exec`, { body: { commands: ["echo 5050 > f", "cat f"] } });
    assert.equal(done.output[1].stdout, "5050\n");
    assert.deepEqual(done.output[1].outcome, { type: "exit", exit_code: 0 });

    const found = await client.containers.retrieve(made.id);
    assert.equal(found.id, made.id);
    assert.ok(["running", "frozen"].includes(found.status), found.status);
    assert.equal(found.network_policy.type, "disabled");

    for (const name of ["sdk-two", "sdk-three"]) await client.containers.create({ name });
    const listed = [];
    for await (const container of client.containers.list({ limit: 1 })) listed.push(container.id);
    for (const id of ["sdk-one", "sdk-two", "sdk-three"]) assert.equal(listed.filter((l) => l === id).length, 1, `${listed}`);
    const first = await client.containers.list({ order: "asc", limit: 100 });
    assert.deepEqual(first.data.map((c) => c.id).filter((id) => id.startsWith("sdk-")), ["sdk-one", "sdk-two", "sdk-three"]);

    await client.containers.delete(made.id);
    const error = await rejection(client.containers.retrieve(made.id));
    assert.ok(error instanceof OpenAI.NotFoundError, `${error}`);
    for (const id of ["sdk-two", "sdk-three"]) await client.containers.delete(id);
  });

  test("a container with a file that is not there is not made", async () => {
    const error = await rejection(client.containers.create({ name: "sdk-files", file_ids: ["file-1"] }));
    assert.ok(error instanceof OpenAI.BadRequestError, `${error}`);
    assert.ok(await rejection(client.containers.retrieve("sdk-files")) instanceof OpenAI.NotFoundError);
  });

  test("an answer comes with its request id", async () => {
    const { data, response, request_id } = await client.responses.create({ model: "brig/script", input: "go" }).withResponse();
    assert.match(request_id, /^gen-/);
    assert.equal(data._request_id, request_id);
    assert.equal(response.headers.get("x-generation-id"), request_id);
  });
});
