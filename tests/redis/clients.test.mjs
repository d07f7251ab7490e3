// What a lock must do, for every library. Each client of a lock is connected to another node.
//
// REDIS_ENDPOINTS is a list of `host:port`, separated by commas: the nodes of a cell, or one Redis.
// PAXOSLEASE_BINARY is the program whose nodes may be killed. A run against Redis has none.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { libraries, observer } from "./clients.mjs";

const given = process.env.REDIS_ENDPOINTS.split(",");
const endpoints = [...given, ...given, ...given].slice(0, 3);
const binary = process.env.PAXOSLEASE_BINARY;

/// Polls until it is true. Fails after 30 seconds.
async function until(condition) {
  const deadline = Date.now() + 30_000;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`not within 30 s: ${condition}`);
    await pause(10);
  }
}

/// All clients. An open one would keep the process alive.
const clients = [];
after(async () => {
  await Promise.allSettled(clients.map(async (client) => client.close()));
  outside.disconnect();
});

/// A client of these endpoints, which are separated by commas.
async function connect(make, endpoints, name, ttl) {
  clients.push(await make(servers(endpoints), name, ttl));
  return clients.at(-1);
}

const servers = (endpoints) =>
  endpoints.split(",").map((endpoint) => {
    const [host, port] = endpoint.split(":");
    return [host, Number(port)];
  });

/// A test with clients of one lock that no other test uses.
function lockTest(title, [make, key = (name) => name], run) {
  test(title, { timeout: 60_000 }, async () => {
    const name = `lock-${randomUUID()}`;
    let node = 0;
    const client = (ttl = 30_000) => connect(make, endpoints[node++ % 3], name, ttl);
    await run(client, () => outside.pttl(key(name)));
  });
}

const outside = observer(...servers(endpoints[0])[0]);

const ABSENT = -2;

/// The operations of each library.
const operations = {};
for (const [name, [make]] of Object.entries(libraries)) {
  const lock = await connect(make, endpoints[0], "operations", 1000);
  operations[name] = Object.keys(lock);
}

for (const [library, how] of Object.entries(libraries)) {
  const has = (...names) => names.every((name) => operations[library].includes(name));
  const free = (lock) => (lock.release ?? lock.freed)();
  const take = (lock) => (lock.acquire ?? lock.wait)();

  describe(library, { concurrency: true }, () => {
    if (has("acquire")) {
      lockTest("a held lock refuses other clients", how, async (client, remaining) => {
        const [holder, second, third] = [await client(), await client(), await client()];
        assert(await holder.acquire());
        assert(!(await second.acquire()));
        assert(!(await third.acquire()));
        const rest = await remaining();
        assert(rest > 0 && rest <= 30_000, `${rest} ms`);
      });

      lockTest("a lock that is not released expires", how, async (client) => {
        const [holder, other] = [await client(1000), await client()];
        assert(await holder.acquire());
        assert(!(await other.acquire()));
        await until(() => other.acquire());
        if (holder.release) assert(!(await holder.release()));
        if (holder.freed) await holder.freed();
        assert(!(await holder.acquire()));
      });
    }

    if (has("acquire", "release")) {
      lockTest("only the holder can release", how, async (client, remaining) => {
        const [holder, other, third] = [await client(), await client(), await client()];
        assert(await holder.acquire());
        assert(!(await other.release()));
        assert(!(await third.acquire()));
        assert(await holder.release());
        assert.equal(await remaining(), ABSENT);
        assert(await third.acquire());
        assert(!(await holder.release()));
        assert(!(await other.acquire()));
      });
    }

    if (has("extend")) {
      lockTest("an extended lock is held for longer", how, async (client, remaining) => {
        const [holder, other] = [await client(10_000), await client()];
        assert(await holder.acquire());
        assert((await remaining()) <= 10_000);
        assert(await holder.extend(50_000));
        const rest = await remaining();
        assert(rest > 40_000 && rest <= 50_000, `${rest} ms`);
        assert(!(await other.acquire()));
      });

      lockTest("a lock of another client cannot be extended", how, async (client, remaining) => {
        const [holder, other] = [await client(1000), await client()];
        assert(await holder.acquire());
        await until(() => other.acquire());
        assert(!(await holder.extend(50_000)));
        assert((await remaining()) <= 30_000);
      });
    }

    if (has("wait")) {
      lockTest("a waiting client gets the lock after a release", how, async (client) => {
        const [holder, other] = [await client(), await client()];
        assert(await take(holder));
        let waits = true;
        const waiting = other.wait().finally(() => (waits = false));
        await pause(300);
        assert(waits, "the lock is held");
        await free(holder);
        assert(await waiting);
      });

      lockTest("contenders hold the lock one at a time", how, async (client) => {
        let inside = 0;
        let turns = 0;
        const contend = async (contender) => {
          for (let turn = 0; turn < 4; turn++) {
            assert(await contender.wait());
            inside += 1;
            assert.equal(inside, 1, "two clients hold the lock");
            await pause(1);
            inside -= 1;
            turns += 1;
            await free(contender);
          }
        };
        const contenders = [await client(), await client(), await client()];
        await Promise.all(contenders.map(contend));
        assert.equal(turns, 12);
      });
    }
  });
}

for (const name of ["redlock 4, ioredis 6", "redlock 5, ioredis 6"]) {
  test(`${name}: several names are held all or none`, async () => {
    const [make] = libraries[name];
    const names = [`a-${randomUUID()}`, `b-${randomUUID()}`, `c-${randomUUID()}`];
    const single = await connect(make, endpoints[1], names[1], 30_000);
    const all = await connect(make, endpoints[0], names, 30_000);
    const first = await connect(make, endpoints[2], names[0], 30_000);
    assert(await single.acquire());
    assert(!(await all.acquire()));
    assert(await first.acquire(), "the attempt for all of them leaves none behind");
    assert((await first.release()) && (await single.release()));
    assert(await all.acquire());
    assert(!(await single.acquire()));
    assert(await all.release());
    assert(await single.acquire());
  });
}

// With several nodes of a cell as its servers it gets no majority, and leaves nothing behind.
for (const [library, [make]] of Object.entries(libraries)) {
  if (!library.includes("redlock ")) continue;
  const skip = !binary && "one Redis refuses the second request for a lock";
  test(`${library}: one cell is one server`, { skip }, async () => {
    const name = `lock-${randomUUID()}`;
    const everywhere = await connect(make, endpoints.join(","), name, 30_000);
    assert(!(await everywhere.acquire()));
    const single = await connect(make, endpoints[0], name, 30_000);
    assert(await single.acquire());
  });
}

describe("a lock outlives the node that granted it", { skip: !binary && "no nodes" }, () => {
  let cell;
  let nodes;
  const held = {};

  before(async () => {
    const port = 10_000 + (process.pid % 90) * 100;
    const options = ["dev", "--processes", "--json", "--port", String(port)];
    cell = spawn(binary, options, { stdio: ["ignore", "pipe", "inherit"] });
    const { value } = await createInterface({ input: cell.stdout })[Symbol.asyncIterator]().next();
    nodes = JSON.parse(value).nodes;
    for (const [library, [make]] of Object.entries(libraries)) {
      const lock = (what, node, ttl) =>
        connect(make, nodes[node].listen.clients, `${library}: ${what}`, ttl);
      held[library] = {
        ofKilled: await lock("of the killed node", 0, 30_000),
        expiring: await lock("expiring", 0, 3000),
        ofOther: await lock("of another node", 1, 30_000),
      };
      for (const each of Object.values(held[library])) {
        each.isHeld = await (each.acquire ?? each.wait)().catch(() => false);
      }
    }
    process.kill(nodes[0].pid, "SIGKILL");
  });

  after(async () => {
    const ended = new Promise((resolve) => cell.once("exit", resolve));
    cell.kill("SIGTERM");
    await ended;
  });

  for (const [library, [make]] of Object.entries(libraries)) {
    if (!operations[library].includes("acquire")) continue;
    test(library, { timeout: 60_000 }, async () => {
      assert(Object.values(held[library]).every((lock) => lock.isHeld));
      const client = (what, node) =>
        connect(make, nodes[node].listen.clients, `${library}: ${what}`, 30_000);
      for (const node of [1, 2]) {
        assert(!(await (await client("of the killed node", node)).acquire()));
        assert(!(await (await client("of another node", node)).acquire()));
      }
      const next = await client("expiring", 2);
      await until(() => next.acquire());
      const { ofOther } = held[library];
      assert.notEqual(await (ofOther.release ?? ofOther.freed)(), false);
      assert(await (await client("of another node", 2)).acquire());
    });
  }
});
