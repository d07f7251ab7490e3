// A load of acquire and release in one process of Node.js: CLIENTS at a time, each with a name of
// its own, for SECONDS after a warm-up. By ioredis, with one connection for all as is usual there,
// or by HTTP with connections that stay open (PROTOCOL=http). Prints the latencies of pairs and the
// processor time in microseconds as JSON.

import { randomUUID } from "node:crypto";
import http from "node:http";
import { createRequire } from "node:module";

const { ENDPOINT, CLIENTS, SECONDS, PROTOCOL, NODE_LIBRARIES } = process.env;
const WARMUP = 0.3;
const TTL_MS = 15_000;
const RELEASE = `if redis.call("get", KEYS[1]) == ARGV[1] then
  return redis.call("del", KEYS[1])
else
  return 0
end`;

// Each returns a function that acquires and releases a name, and one that ends the connections.
function byRedis() {
  const require = createRequire(NODE_LIBRARIES + "/");
  const { Redis } = require("ioredis");
  const [host, port] = ENDPOINT.split(":");
  const client = new Redis(Number(port), host);
  client.defineCommand("unlock", { numberOfKeys: 1, lua: RELEASE });
  const pair = async (name) => {
    const token = randomUUID();
    if ((await client.set(name, token, "PX", TTL_MS, "NX")) !== "OK") throw new Error("held");
    if ((await client.unlock(name, token)) !== 1) throw new Error("lost");
  };
  const version = `ioredis ${require("ioredis/package.json").version}, Node.js ${process.version}`;
  return { pair, close: () => client.disconnect(), version };
}

function byHttp() {
  const agent = new http.Agent({ keepAlive: true });
  const post = (path, body) =>
    new Promise((resolve, reject) => {
      const headers = { "content-type": "application/json" };
      const url = `http://${ENDPOINT}/v1/leases/${path}`;
      const request = http.request(url, { agent, method: "POST", headers }, (response) => {
        const parts = [];
        response.on("data", (part) => parts.push(part));
        response.on("end", () => {
          const text = Buffer.concat(parts).toString();
          if (response.statusCode >= 300) reject(new Error(`${response.statusCode} ${text}`));
          else resolve(text);
        });
      });
      request.on("error", reject);
      request.end(JSON.stringify(body));
    });
  const pair = async (name) => {
    const path = encodeURIComponent(name);
    const { fence } = JSON.parse(await post(`${path}/acquire`, { ttl: `${TTL_MS}ms` }));
    await post(`${path}/release`, { fence });
  };
  return { pair, close: () => agent.destroy(), version: `HTTP, Node.js ${process.version}` };
}

const { pair, close, version } = PROTOCOL === "http" ? byHttp() : byRedis();

async function load(seconds) {
  const latencies = [];
  const end = performance.now() + seconds * 1000;
  const one = async (_, number) => {
    for (let started; (started = performance.now()) < end; ) {
      await pair(`bench/${number}`);
      latencies.push(Math.round((performance.now() - started) * 1000));
    }
  };
  await Promise.all(Array.from({ length: Number(CLIENTS) }, one));
  return latencies;
}

await load(WARMUP);
const before = process.cpuUsage();
const latencies = await load(Number(SECONDS));
const { user, system } = process.cpuUsage(before);
close();
console.log(JSON.stringify({ version, latencies_us: latencies, cpu_us: user + system }));
