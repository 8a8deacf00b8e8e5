const assert = require("node:assert/strict");
const { test } = require("node:test");

test("the CommonJS build gives the same names", async () => {
  const required = require("stokehold");
  const imported = await import("stokehold");
  assert.deepEqual(Object.keys(required).sort(), Object.keys(imported).sort());
  const { once } = require("node:events");
  const server = require("node:http").createServer((_, response) => response.end('{"endpoints": []}'));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert.ok(address !== null && typeof address === "object");
  const client = new required.Stokehold({ baseUrl: `http://127.0.0.1:${address.port}` });
  assert.deepEqual(await client.endpoints(), []);
  server.close();
  server.closeAllConnections();
});
