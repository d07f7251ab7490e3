// ioredis against a cell: ready check, pipelines, errors, waiting on a connection of its own.
//
// A fence has 63 bits, a number of this language 53, so a fence is a string.

const assert = require("node:assert");
const Redis = require("ioredis");

const ports = process.env.PORTS.split(" ").map(Number);
const connect = (node) => new Redis({ port: ports[node] });

// A map of RESP2 is a list of keys and values in turn.
const field = (map, key) => map[map.indexOf(key) + 1];

async function waitsForAHolder(node, name) {
  const client = connect(node);
  const wanted = field(await client.call("CELL.STATUS"), "waiting");
  client.disconnect();
  return wanted.some((one) => field(one, "name") === name && field(one, "fence") !== null);
}

async function main() {
  const first = connect(0);
  const second = connect(1);
  assert.strictEqual(await first.ping(), "PONG");

  const [fence, ttl] = await first.call("LEASE.ACQUIRE", "js/a", 60000, "HOLDER", "me");
  assert.strictEqual(ttl, 60000);
  assert.strictEqual(typeof fence, "string");
  assert(BigInt(fence) > 0n);
  assert.strictEqual(await second.call("LEASE.ACQUIRE", "js/a", 60000), null);
  const seen = await second.call("LEASE.GET", "js/a");
  assert.deepStrictEqual(seen.slice(0, 4), ["holder", "me", "fence", fence]);
  assert.strictEqual(await second.call("LEASE.RENEW", "js/a", fence, 45000), 45000);

  const waiter = connect(2);
  const waiting = waiter.call("LEASE.ACQUIRE", "js/a", 60000, "WAIT", 60000);
  while (!(await waitsForAHolder(2, "js/a")));
  assert.strictEqual(await second.call("LEASE.RELEASE", "js/a", fence), 1);
  assert(BigInt((await waiting)[0]) > BigInt(fence));
  await assert.rejects(first.call("LEASE.RENEW", "js/a", fence, 45000), /^ReplyError: NOTHELD /);
  await assert.rejects(first.call("LEASE.ACQUIRE", "js/a", 1), /^ReplyError: TTL /);

  // Leases are channels.
  const told = connect(2);
  const message = new Promise((resolve) => {
    told.on("pmessage", (_, channel, text) => resolve([channel, JSON.parse(text)]));
  });
  await told.psubscribe("lease:js/told/*");
  const [seenFence] = await first.call("LEASE.ACQUIRE", "js/told/1", 60000, "HOLDER", "me");
  const [channel, event] = await message;
  assert.strictEqual(channel, "lease:js/told/1");
  assert.deepStrictEqual([event.event, event.holder, event.fence], ["held", "me", seenFence]);
  told.disconnect();

  // A transaction is refused as a whole.
  await assert.rejects(first.multi().set("js/multi", "v", "PX", 20000, "NX").exec(), /EXECABORT/);
  assert.strictEqual(await first.get("js/multi"), null);

  const pipeline = first.pipeline();
  for (let number = 0; number < 200; number += 1) {
    pipeline.call("LEASE.ACQUIRE", `js/many/${number}`, 60000);
    pipeline.echo(String(number));
  }
  const replies = await pipeline.exec();
  replies.forEach(([error, reply], place) => {
    assert.strictEqual(error, null);
    if (place % 2 === 1) assert.strictEqual(reply, String((place - 1) / 2));
    else assert.strictEqual(reply.length, 3);
  });
  await Promise.all([first, second, waiter].map((client) => client.quit()));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
