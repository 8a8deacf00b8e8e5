// The official client of OpenAI for JavaScript, unmodified, against /openai/v1 with a real engine behind it.
//
// It reads OPENAI_BASE_URL and OPENAI_API_KEY by itself. STOKE_URL is for what OpenAI's API does not show.
import assert from "node:assert/strict";
import OpenAI, { toFile } from "openai";

const client = new OpenAI({ maxRetries: 0 });
const HI = [{ role: "user", content: "hi" }];
// The model is random, so that its end of text is, too.
const chat = { model: "chat", messages: HI, ignore_eos: true };
// The engine streams no text that is a part of a character, and begins no response before the first text. Random bytes
// may be such a part; token 324 is "a".
const letters = { model: "chat", ignore_eos: true, logit_bias: [[324, 100]], stream: true };

async function stokehold(path) {
  const headers = { authorization: `Bearer ${process.env.OPENAI_API_KEY}` };
  const response = await fetch(process.env.STOKE_URL + path, { headers });
  assert.ok(response.ok, path);
  return response.json();
}

const job = (id) => stokehold(`/v1/jobs/${id}?wait_s=60`);
const chatJobs = async () => (await stokehold("/v1/jobs?endpoint=chat&limit=100")).jobs.map((listed) => listed.id);

async function models() {
  const listed = [];
  for await (const model of client.models.list()) listed.push(model.id);
  assert.deepEqual(listed.sort(), ["chat", "draw", "embed", "gpt-4o-mini", "text-embedding-3-small", "vectors"]);
  assert.equal((await client.models.retrieve("chat@1")).id, "chat@1");
}

async function chats() {
  const answer = await client.chat.completions.create({ ...chat, max_tokens: 5 });
  assert.equal(answer.usage.completion_tokens, 5);
  assert.ok(answer.choices[0].message.content);
  assert.ok(answer._request_id);
  const stream = await client.chat.completions.create({
    ...chat, max_tokens: 100, stream: true, stream_options: { include_usage: true },
  });
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  assert.equal(chunks.at(-1).usage.completion_tokens, 100);
  assert.equal(chunks.at(-2).choices[0].finish_reason, "length");
  assert.ok(chunks.filter((chunk) => chunk.choices[0]?.delta.content).length > 25);
}

async function completions() {
  const answer = await client.completions.create({ model: "chat", prompt: "hi", max_tokens: 4, ignore_eos: true });
  assert.equal(answer.usage.completion_tokens, 4);
  const streamed = await client.completions.create({ ...letters, prompt: "hi", max_tokens: 4 });
  const texts = [];
  for await (const chunk of streamed) texts.push(chunk.choices[0].text);
  assert.ok(texts.join(""));
}

async function responses() {
  const answer = await client.responses.create({ model: "chat", input: "hi", max_output_tokens: 5 });
  assert.equal(answer.status, "completed");
  const types = [];
  const stream = await client.responses.create({ ...letters, input: "hi", max_output_tokens: 5 });
  for await (const event of stream) types.push(event.type);
  assert.equal(types[0], "response.created");
  assert.equal(types.at(-1), "response.completed");
}

async function embeddings() {
  // By default the client asks for base64.
  const answer = await client.embeddings.create({ model: "embed", input: ["a", "bc"] });
  const rounded = answer.data.map((item) => item.embedding.map((number) => Number(number.toFixed(3))));
  assert.deepEqual(rounded, [[1, 0.097], [2, 0.197]]);
}

async function images() {
  const text = (image) => Buffer.from(image.b64_json, "base64").toString();
  const drawn = await client.images.generate({ model: "draw", prompt: "a cat", n: 2 });
  assert.deepEqual(drawn.data.map(text), ["a cat", "a cat"]);
  const file = (content) => toFile(Buffer.from(content), `${content}.png`, { type: "image/png" });
  const image = [await file("one"), await file("two")];
  const edited = await client.images.edit({ model: "draw", prompt: "a hat", image, mask: await file("mask") });
  assert.deepEqual(edited.data.map(text), ["one+two+mask+a hat"]);
}

async function batches() {
  const body = { ...chat, max_tokens: 5 };
  const line = (custom_id) => JSON.stringify({ custom_id, method: "POST", url: "/v1/chat/completions", body });
  const lines = Buffer.from(`${line("a")}\n${line("b")}\n`);
  const file = await client.files.create({ file: await toFile(lines, "lines.jsonl"), purpose: "batch" });
  assert.deepEqual([file.filename, file.bytes, file.purpose], ["lines.jsonl", lines.length, "batch"]);
  const { id } = await client.batches.create({
    input_file_id: file.id, endpoint: "/v1/chat/completions", completion_window: "24h", metadata: { of: "js" },
  });
  assert.ok((await stokehold(`/v1/batches/${id}?wait_s=60`)).ended_at);
  const batch = await client.batches.retrieve(id);
  assert.deepEqual([batch.status, batch.request_counts.completed, batch.metadata], ["completed", 2, { of: "js" }]);
  const output = await (await client.files.content(batch.output_file_id)).text();
  const answered = output.trimEnd().split("\n").map((text) => JSON.parse(text));
  assert.deepEqual(answered.map((line) => line.custom_id).sort(), ["a", "b"]);
  for (const { response } of answered) assert.equal(response.body.usage.completion_tokens, 5);
  const listed = [];
  for await (const listedBatch of client.batches.list()) listed.push(listedBatch.id);
  assert.deepEqual(listed, [id]);

  for await (const { id } of client.files.list()) assert.ok((await client.files.delete(id)).deleted);
  await assert.rejects(client.files.retrieve(file.id), OpenAI.NotFoundError);
}

async function errors() {
  await assert.rejects(client.chat.completions.create({ ...chat, model: "nothing" }), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.deepEqual([error.code, error.param, error.type], ["model_not_found", "model", "invalid_request_error"]);
    return true;
  });
  await assert.rejects(client.chat.completions.create({ ...chat, messages: "text" }), OpenAI.BadRequestError);
  const stranger = new OpenAI({ apiKey: "sk-wrong", maxRetries: 0 });
  await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
}

async function hangUps() {
  const { data: stream, response } = await client.chat.completions
    .create({ ...chat, max_tokens: 8_000, stream: true })
    .withResponse();
  for await (const chunk of stream) {
    assert.ok(chunk.id);
    break; // Leaving the loop aborts the request.
  }
  const ended = await job(response.headers.get("stokehold-job-id"));
  assert.equal(ended.state, "cancelled", JSON.stringify(ended));
}

async function abortedBeforeTheAnswer() {
  const known = new Set(await chatJobs());
  const controller = new AbortController();
  const answer = client.chat.completions.create({ ...chat, max_tokens: 8_000 }, { signal: controller.signal });
  answer.catch(() => {}); // It is awaited below.
  let id;
  for (const deadline = Date.now() + 30_000; !id; id = (await chatJobs()).find((listed) => !known.has(listed))) {
    assert.ok(Date.now() < deadline, "no job appears");
  }
  controller.abort();
  await assert.rejects(answer, OpenAI.APIUserAbortError);
  const ended = await job(id);
  assert.equal(ended.state, "cancelled", JSON.stringify(ended));
}

for (const check of [models, chats, completions, responses, embeddings, images, batches, errors, hangUps,
  abortedBeforeTheAnswer]) {
  await check();
  console.log(check.name, "ok");
}
