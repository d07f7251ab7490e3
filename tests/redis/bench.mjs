// A load of acquire and release with redlock 5 over ioredis: CLIENTS locks at a time, each with a
// connection and a name of its own, in one process, for SECONDS after a warm-up. Prints the
// latencies in microseconds as a list in JSON.

import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";

const require = createRequire(process.env.NODE_LIBRARIES + "/");
const { Redis } = require("ioredis");
const Redlock = require("redlock-5").default;

const WARMUP_MS = 300;
const [host, port] = process.env.ENDPOINT.split(":");
const begin = performance.now() + WARMUP_MS;
const end = begin + Number(process.env.SECONDS) * 1000;
const latencies = [];

async function load() {
  const client = new Redis(Number(port), host);
  const redlock = new Redlock([client], { retryCount: 0 });
  const name = [`bench-${randomUUID()}`];
  for (;;) {
    const started = performance.now();
    if (started >= end) break;
    await (await redlock.acquire(name, 10_000)).release();
    const ended = performance.now();
    if (started >= begin && ended <= end) latencies.push(Math.round((ended - started) * 1000));
  }
  client.disconnect();
}

await Promise.all(Array.from({ length: Number(process.env.CLIENTS) }, load));
console.log(JSON.stringify(latencies));
