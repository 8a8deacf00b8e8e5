// Imported before a test file: replaces `fetch`, so that clients use it for every request.

const { fetch } = globalThis;
let requests = 0;
/** @type {typeof fetch} */
const counted = (...given) => {
  requests += 1;
  return fetch(...given);
};
globalThis.fetch = counted;
process.on("exit", () => {
  if (requests === 0) {
    process.exitCode = 1;
    console.error("no request went through fetch");
  }
});
