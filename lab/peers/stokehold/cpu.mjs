// CPU time of the JavaScript client for a submit, without a stack: the server is a process that responds at once.
//
//     make sdk/js/dist/.built && node lab/peers/stokehold/cpu.mjs
//
// Each round is a new process: 3,500 submits from its start, one by one, which `make bench` has, then 2,000 more.
// The medians of three rounds are printed. With CPU_PROFILE=1, a submit over the client's own connections is profiled
// into the current folder.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { fileURLToPath } from "node:url";

const COLD = 3_500;
const WARM = 2_000;
const ROUNDS = 3;
// What a real stack takes for a submit. Meanwhile the client sleeps, as it does there.
const PAUSE_MS = 1;
const PAYLOAD = { text: "x".repeat(183) };

const record = { id: "01a2146ffd6774a2b31de94ed1d85300", endpoint: "noop", state: "queued", input: PAYLOAD };
// The size of a record of the API.
const members = Object.fromEntries(Array.from({ length: 20 }, (_, number) => [`member_${number}`, null]));
const body = JSON.stringify({ ...record, metadata: members });
const response = [
  "HTTP/1.1 202 Accepted",
  "content-type: application/json",
  "stokehold-durability: strict",
  "access-control-expose-headers: x-request-id,retry-after,stokehold-durability",
  "access-control-allow-origin: *",
  "x-request-id: 01a2146ffd6674d7adce2fef6c26bcf5",
  "date: Wed, 25 Nov 2026 20:40:13 GMT",
  `content-length: ${body.length}\r\n\r\n${body}`,
].join("\r\n");

function serve() {
  const server = createServer({ noDelay: true }, (socket) => {
    let received = "";
    socket.on("error", () => undefined);
    socket.on("data", (data) => {
      received += data.latin1Slice();
      const end = received.indexOf("\r\n\r\n");
      const length = Number(/\r\ncontent-length: *(\d+)/i.exec(received)?.[1] ?? 0);
      if (end < 0 || received.length < end + 4 + length) return;
      received = "";
      setTimeout(() => socket.write(response), PAUSE_MS);
    });
  });
  server.listen(0, "127.0.0.1", () => console.log(server.address().port));
}

/** A submit over a socket: a request is formatted, sent and received, and nothing is parsed. */
function bare(port) {
  const socket = connect({ host: "127.0.0.1", port, noDelay: true });
  let received;
  socket.on("data", () => received());
  return () =>
    new Promise((resolve) => {
      received = resolve;
      const body = JSON.stringify({ endpoint: "noop", input: PAYLOAD });
      const head = `POST /v1/jobs HTTP/1.1\r\nauthorization: Bearer sk_${"0".repeat(100)}\r\nidempotency-key: ${crypto.randomUUID()}`;
      socket.write(`${head}\r\ncontent-length: ${body.length}\r\n\r\n${body}`, "latin1");
    });
}

/** Prints the milliseconds of CPU time for each submit, from the start and later. */
async function submit(way, port) {
  const { Stokehold } = await import("../../../sdk/js/dist/esm/index.js");
  const { fetch } = globalThis;
  const more = way === "fetch" ? { fetch: (...given) => fetch(...given) } : {};
  const client = new Stokehold({ baseUrl: `http://127.0.0.1:${port}`, token: `sk_${"0".repeat(100)}`, ...more });
  const call = way === "socket" ? bare(port) : () => client.submit("noop", PAYLOAD);
  const measure = async (count, since = process.cpuUsage()) => {
    for (let n = 0; n < count; n += 1) await call();
    const { user, system } = process.cpuUsage(since);
    return (user + system) / 1_000 / count;
  };
  console.log([await measure(COLD), await measure(WARM)].join(" "));
  process.exit();
}

async function main() {
  const script = fileURLToPath(import.meta.url);
  const server = spawn(process.execPath, [script, "serve"], { stdio: ["ignore", "pipe", "inherit"] });
  const [port] = await once(server.stdout.setEncoding("utf8"), "data");
  for (const way of ["socket", "own", "fetch"]) {
    const rounds = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const profile = process.env.CPU_PROFILE && way === "own" && round === 0 ? ["--cpu-prof"] : [];
      const client = spawn(process.execPath, [...profile, script, way, port.trim()], { stdio: ["ignore", "pipe", "inherit"] });
      const [line] = await once(client.stdout.setEncoding("utf8"), "data");
      rounds.push(line.trim().split(" ").map(Number));
      await once(client, "exit");
    }
    const median = (at) => rounds.map((round) => round[at]).sort((one, other) => one - other)[ROUNDS >> 1].toFixed(3);
    console.log(`${way.padEnd(6)} ${median(0)} ms from the start, ${median(1)} ms later`);
  }
  server.kill();
}

const [way, port] = process.argv.slice(2);
if (way === undefined) await main();
else if (way === "serve") serve();
else await submit(way, Number(port));
