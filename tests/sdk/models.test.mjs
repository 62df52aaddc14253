// Each vendor's own SDK goes through the catalogue of models in its own way, page by page; and meets errors of its own kind.
import assert from "node:assert/strict";
import http from "node:http";
import { after, before, describe, test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import { GoogleGenAI } from "@google/genai";
import { OpenRouter } from "@openrouter/sdk";
import OpenAI from "openai";

import { Brig, KEY } from "./brig.mjs";

const LISTED = Array.from({ length: 57 }, (_, i) => ({ id: `vendor/m-${i}:free`, created: 1700000000, context_length: 1000 + i }));
const EXPECTED = ["fast", "brig/script", "fake/priced", ...LISTED.map((m) => "fake/" + m.id)].sort();

let upstream, brig, openai, anthropic, google, openrouter;

before(async () => {
  upstream = http.createServer((request, response) => {
    const found = request.method === "GET" && request.url === "/v1/models";
    response.writeHead(found ? 200 : 404, { "content-type": "application/json" });
    response.end(JSON.stringify(found ? { object: "list", data: LISTED } : { error: { message: "no" } }));
  });
  await new Promise((done) => upstream.listen(0, "127.0.0.1", done));
  const url = `http://127.0.0.1:${upstream.address().port}/v1`;
  brig = await new Brig(-1, { url }, { models: [{ name: "fast", route: ["fake/priced"] }] }).start();
  openai = new OpenAI({ baseURL: brig.url + "/v1", apiKey: KEY });
  anthropic = new Anthropic({ baseURL: brig.url, apiKey: KEY });
  google = new GoogleGenAI({ apiKey: KEY, httpOptions: { baseUrl: brig.url } });
  openrouter = new OpenRouter({ apiKey: KEY, serverURL: brig.url + "/api/v1" });
});

after(async () => {
  await brig?.stop();
  upstream?.close();
});

const all = async (pages, name) => {
  const names = [];
  for await (const model of pages) names.push(name(model));
  return names.sort();
};

describe("every model, by every SDK", () => {
  test("openai", async () => {
    assert.deepEqual(await all(await openai.models.list(), (m) => m.id), EXPECTED);
    assert.equal((await openai.models.retrieve("fake/vendor/m-3:free")).created, 1700000000);
  });

  test("anthropic", async () => {
    assert.deepEqual(await all(anthropic.models.list({ limit: 10 }), (m) => m.id), EXPECTED);
    assert.deepEqual(await all(anthropic.models.list(), (m) => m.id), EXPECTED);
    const model = await anthropic.models.retrieve("fake/vendor/m-3:free");
    assert.equal(model.display_name, "fake/vendor/m-3:free");
    assert.equal(model.max_input_tokens, 1003);
  });

  test("google", async () => {
    assert.deepEqual(await all(await google.models.list({ config: { pageSize: 10 } }), (m) => m.name),
      EXPECTED.map((m) => "models/" + m).sort());
    assert.equal((await google.models.get({ model: "fake/vendor/m-3:free" })).inputTokenLimit, 1003);
  });

  test("openrouter", async () => {
    const pages = [];
    for await (const page of await openrouter.models.list()) pages.push(page);
    assert.deepEqual(pages[0].result.data.map((m) => m.id).sort(), EXPECTED);
  });
});

describe("a model that is not there", () => {
  test("openai", () => assert.rejects(openai.models.retrieve("nobody"), OpenAI.NotFoundError));
  test("anthropic", () => assert.rejects(anthropic.models.retrieve("nobody"), (error) => {
    assert.ok(error instanceof Anthropic.NotFoundError);
    assert.equal(error.error.error.type, "not_found_error");
    assert.equal(error.requestID, error.error.request_id);
    return true;
  }));
  test("google", () => assert.rejects(google.models.get({ model: "nobody" }), { name: "ApiError", status: 404 }));
});
