// Requests and responses as bytes, without a connection. The Python client has the same tests.

import assert from "node:assert/strict";
import { test } from "node:test";

import { HEAD_BYTES_MAX, HttpError, ResponseReader, writeHead } from "../dist/esm/internal/http1.js";

const LENGTH = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Request-Id:  req-1\t\r\n\r\nhello";
const CHUNKS =
  "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n" +
  '3;name="value"\r\nhel\r\n0002 \r\nlo\r\n0\r\nTrailer: dropped\r\n\r\n';
const NO_TRAILERS = CHUNKS.replace("Trailer: dropped\r\n", "");
const INTERIM = `HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n${LENGTH}`;
const WHOLE = { LENGTH, CHUNKS, NO_TRAILERS, INTERIM };

/** @param {...string} pieces */
function read(...pieces) {
  const reader = new ResponseReader();
  for (const [number, piece] of pieces.entries()) {
    assert.equal(reader.feed(Buffer.from(piece, "latin1")), number === pieces.length - 1);
  }
  return reader;
}

/** @param {string} text @param {number} size */
const split = (text, size) => text.match(new RegExp(`[^]{1,${size}}`, "g")) ?? [];

for (const [name, response] of Object.entries(WHOLE)) {
  test(`a response arrives in pieces of any size: ${name}`, () => {
    for (const size of [1, 2, 3, 7, 1000]) {
      const reader = read(...split(response, size));
      assert.deepEqual([reader.status, reader.text(), reader.reusable], [200, "hello", true]);
    }
  });
}

test("headers are found by name in any case, and repeated ones are joined", () => {
  const reader = read("HTTP/1.1 200 OK\r\ncontent-LENGTH: 0\r\nVary: a\r\nVARY:b\r\nX-Request-Id:  req-1\t\r\n\r\n");
  const found = ["content-length", "Vary", "x-request-id", "request-id", "x"].map((name) => reader.header(name));
  assert.deepEqual(found, ["0", "a, b", "req-1", undefined, undefined]);
});

test("characters that are split between pieces", () => {
  const body = Buffer.from("é€𝄞");
  const bytes = Buffer.concat([Buffer.from(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n`), body]);
  const reader = new ResponseReader();
  for (const byte of bytes) reader.feed(Buffer.from([byte]));
  assert.equal(reader.text(), "é€𝄞");
});

test("a response that never has a body", () => {
  for (const status of [204, 304]) {
    const reader = read(`HTTP/1.1 ${status} x\r\nContent-Length: 9\r\n\r\n`);
    assert.deepEqual([reader.status, reader.text(), reader.reusable], [status, "", true]);
  }
});

test("a body that ends with its connection", () => {
  const reader = new ResponseReader();
  for (const piece of ["HTTP/1.0 200\r\n\r\nhel", "lo"]) assert.equal(reader.feed(Buffer.from(piece)), false);
  assert.equal(reader.end(), true);
  assert.deepEqual([reader.text(), reader.reusable], ["hello", false]);
});

test("whether a connection can be used again", () => {
  /** @type {[string, boolean][]} */
  const cases = [
    ["HTTP/1.1 200 OK", true],
    ["HTTP/1.1 200 OK\r\nConnection: close", false],
    ["HTTP/1.1 200 OK\r\nConnection: Keep-Alive, Close", false],
    ["HTTP/1.0 200 OK", false],
    ["HTTP/1.0 200 OK\r\nConnection: keep-alive", true],
  ];
  for (const [head, reusable] of cases) {
    assert.equal(read(`${head}\r\nContent-Length: 1\r\n\r\nx`).reusable, reusable, head);
  }
  for (const response of [LENGTH, CHUNKS, NO_TRAILERS]) {
    const reader = read(`${response}HTTP/1.1 200 OK\r\n`);
    assert.deepEqual([reader.text(), reader.reusable], ["hello", false], "more bytes than the response");
  }
  const both = read(CHUNKS.replace("\r\n\r\n", "\r\nContent-Length: 1\r\n\r\n"));
  assert.deepEqual([both.text(), both.reusable], ["hello", false], "a length beside chunks");
});

const CHUNKED = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

test("what is no response is refused", () => {
  const responses = [
    "SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "HTTP/2 200\r\n\r\n",
    "HTTP/1.1 0200 OK\r\n\r\n",
    "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    "HTTP/1.1 200 OK\r\nspace : x\r\n\r\n",
    "HTTP/1.1 200 OK\r\n folded\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    `HTTP/1.1 200 OK\r\nContent-Length: ${"9".repeat(5000)}\r\n\r\n`,
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    `${CHUNKED}-1\r\n`,
    `${CHUNKED}0x1\r\n`,
    `${CHUNKED}${"9".repeat(5000)}\r\n`,
    `${CHUNKED}1\r\nxy\r\n`,
    `HTTP/1.1 200 OK\r\nX: ${"x".repeat(HEAD_BYTES_MAX)}`,
    `${CHUNKED}1;${"x".repeat(HEAD_BYTES_MAX)}`,
  ];
  for (const response of responses) {
    assert.throws(() => new ResponseReader().feed(Buffer.from(response)), /^Error: (the|a)/, response.slice(0, 100));
  }
});

test("a response that ends early is refused", () => {
  for (const end of [5, 20, LENGTH.length - 1]) {
    const reader = new ResponseReader();
    reader.feed(Buffer.from(LENGTH.slice(0, end)));
    assert.throws(() => reader.end(), /before the end of the response/);
  }
  assert.throws(() => new ResponseReader().end(), /without a response/);
});

test("a response of more than 256 MiB is refused", () => {
  const megabytes = Buffer.alloc(64 << 20, "x");
  for (const head of ["HTTP/1.1 200 OK\r\nContent-Length: 268435457\r\n\r\n", `${CHUNKED}1\r\nx\r\n10000000\r\n`]) {
    assert.throws(() => new ResponseReader().feed(Buffer.from(head)), HttpError);
  }
  const endless = new ResponseReader();
  endless.feed(Buffer.from("HTTP/1.1 200 OK\r\n\r\n"));
  for (let n = 0; n < 4; n += 1) endless.feed(megabytes);
  assert.throws(() => endless.feed(megabytes), /more than 256 MiB; request less at once/);
});

test("a request", () => {
  const head = writeHead("POST", "/v1/jobs?x=1", "h:1", { a: "b", c: "d" }, 4);
  assert.equal(head, "POST /v1/jobs?x=1 HTTP/1.1\r\nhost: h:1\r\naccept-encoding: identity\r\na: b\r\nc: d\r\ncontent-length: 4\r\n\r\n");
  assert.equal(writeHead("GET", "/", "h", {}, undefined), "GET / HTTP/1.1\r\nhost: h\r\naccept-encoding: identity\r\n\r\n");
  for (const value of ["a\nb", "a\rb", "a\0b", "é", "\ud800"]) {
    assert.throws(() => writeHead("GET", "/", "h", { "idempotency-key": value }, undefined), HttpError);
  }
  for (const target of ["/a b", "/a\r\nx: y", "/é"]) assert.throws(() => writeHead("GET", target, "h", {}, undefined), HttpError);
});
