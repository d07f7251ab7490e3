// Every Node library under test, behind one small interface.
//
// A lock is one client of one lock: it has its own connections and its own token. It is made for a
// list of servers, each a host and a port; only a Redlock uses more than one. Its operations:
// - acquire(): whether it gets the lock at once;
// - wait(): waits for the lock, whether it got it;
// - extend(ms): holds the lock for this long from now, whether it held it;
// - release(): whether it held the lock; nothing happens to the lock of another client;
// - remove(): frees the lock, whoever holds it;
// - close().
// A library that lacks an operation has none, and the tests of that operation skip the library.

import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";

// The libraries are installed in a folder that is not above this file.
const require = createRequire(process.env.NODE_LIBRARIES + "/");

const PATIENCE_MS = 20_000;
const POLL_MS = 20;

/// Whether a call succeeds. Fails if it fails with an error of another name.
async function succeeds(call, ...names) {
  try {
    await call();
    return true;
  } catch (error) {
    if (names.includes(error.name)) return false;
    throw error;
  }
}

/// A driver reports that way that a node which was killed does not answer.
const ignored = () => {};

const drivers = {
  "ioredis 4": ioredis("ioredis-4"),
  "ioredis 5": ioredis("ioredis-5"),
  "ioredis 6": ioredis("ioredis"),
  "node-redis 3": (host, port) =>
    require("node-redis-3").createClient(port, host).on("error", ignored),
  "node-redis 4": nodeRedis("node-redis-4"),
  "node-redis 6": nodeRedis("redis"),
};

function ioredis(name) {
  return (host, port) => {
    const module = require(name);
    return new (module.default ?? module)(port, host).on("error", ignored);
  };
}

function nodeRedis(name) {
  return async (host, port) => {
    const client = require(name).createClient({ socket: { host, port } });
    return client.on("error", ignored).connect();
  };
}

const close = (client) => (client.disconnect ? client.disconnect() : client.end(true));

const redlock4 = (driver) => async (servers, name, ttl) => {
  const clients = await Promise.all(servers.map((server) => drivers[driver](...server)));
  const Redlock = require("redlock-4");
  const once = new Redlock(clients, { retryCount: 0 });
  const retryCount = PATIENCE_MS / POLL_MS;
  const patient = new Redlock(clients, { retryCount, retryDelay: POLL_MS, retryJitter: 0 });
  let lock = new Redlock.Lock(once, name, "never acquired", Infinity, 0, 0);
  const take = (from) => async () => {
    lock = await from.lock(name, ttl);
  };
  return {
    acquire: () => succeeds(take(once), "LockError"),
    wait: () => succeeds(take(patient), "LockError"),
    extend: async (ms) => {
      lock.expiration = Infinity;
      return succeeds(() => once.extend(lock, ms), "LockError");
    },
    release: () => succeeds(() => once.unlock(lock), "LockError"),
    close: () => clients.forEach(close),
  };
};

const redlock5 = (driver, module, constructor) => async (servers, name, ttl) => {
  const clients = await Promise.all(servers.map((server) => drivers[driver](...server)));
  const library = require(module);
  const Redlock = library[constructor];
  const once = new Redlock(clients, { retryCount: 0 });
  const retryCount = PATIENCE_MS / POLL_MS;
  const patient = new Redlock(clients, { retryCount, retryDelay: POLL_MS, retryJitter: 0 });
  const names = [name].flat();
  let lock = new library.Lock(once, names, "never acquired", [], Infinity);
  const take = (from) => async () => {
    lock = await from.acquire(names, ttl);
  };
  return {
    acquire: () => succeeds(take(once), "ExecutionError"),
    wait: () => succeeds(take(patient), "ExecutionError"),
    extend: (ms) =>
      succeeds(async () => {
        lock.expiration = Infinity;
        lock = await once.extend(lock, ms);
      }, "ExecutionError"),
    release: () => succeeds(() => once.release(lock), "ExecutionError"),
    close: () => clients.forEach(close),
  };
};

async function redisSemaphore([server], name, ttl) {
  const client = await drivers["ioredis 5"](...server);
  const { Mutex } = require("redis-semaphore");
  const { delIfEqualLua } = require("redis-semaphore/lib/mutex/release.js");
  const { refreshMutex } = require("redis-semaphore/lib/mutex/refresh.js");
  const identifier = randomUUID();
  // The tests decide when a lock is extended.
  const options = { identifier, lockTimeout: ttl, refreshInterval: 0, retryInterval: POLL_MS };
  const once = new Mutex(client, name, { ...options, acquireAttemptsLimit: 1 });
  const patient = new Mutex(client, name, { ...options, acquireTimeout: PATIENCE_MS });
  return {
    acquire: () => once.tryAcquire(),
    wait: () => patient.tryAcquire(),
    extend: (ms) => refreshMutex(client, `mutex:${name}`, identifier, ms),
    // Its release does not tell whether it released. The script is its own.
    release: async () => (await delIfEqualLua(client, [`mutex:${name}`, identifier])) === 1,
    close: () => close(client),
  };
}

async function redisLock([server], name, ttl) {
  const client = await drivers["node-redis 4"](...server);
  const lock = require("redis-lock")(client, POLL_MS);
  let done;
  return {
    wait: async () => {
      done = await lock(name, ttl);
      return true;
    },
    freed: () => done(),
    close: () => close(client),
  };
}

async function redlockUniversal([server], name, ttl) {
  const client = await drivers["node-redis 6"](...server);
  const { createLock, NodeRedisAdapter } = require("redlock-universal");
  const adapter = new NodeRedisAdapter(client);
  const lock = (retryAttempts) =>
    createLock({ adapter, key: name, ttl, retryAttempts, retryDelay: POLL_MS });
  const [once, patient] = [lock(0), lock(PATIENCE_MS / POLL_MS)];
  let handle = { key: name, value: "never acquired", ttl, acquiredAt: Date.now(), id: "none" };
  const take = (from) => async () => {
    handle = await from.acquire();
  };
  return {
    acquire: () => succeeds(take(once), "LockAcquisitionError"),
    wait: () => succeeds(take(patient), "LockAcquisitionError"),
    extend: (ms) => once.extend(handle, ms),
    release: () => once.release(handle),
    close: () => close(client),
  };
}

async function ioredisLock([server], name, ttl) {
  const client = await drivers["ioredis 5"](...server);
  const { createLock } = await import(require.resolve("@microfleet/ioredis-lock"));
  const once = createLock(client, { timeout: ttl, retries: 0 });
  const retries = PATIENCE_MS / POLL_MS;
  const patient = createLock(client, { timeout: ttl, retries, delay: POLL_MS, jitter: 1 });
  let lock = once;
  const take = (from) => async () => {
    lock = await from.acquire(name);
  };
  return {
    acquire: () => succeeds(take(once), "LockAcquisitionError"),
    wait: () => succeeds(take(patient), "LockAcquisitionError"),
    extend: (ms) => succeeds(() => lock.extend(ms), "LockExtendError"),
    release: () => succeeds(() => lock.release(), "LockReleaseError"),
    close: () => close(client),
  };
}

async function warlock([server], name, ttl) {
  const client = await drivers["ioredis 4"](...server);
  const library = require("node-redis-warlock")(client);
  const called = (method, ...args) =>
    new Promise((resolve, reject) =>
      method(...args, (error, ...values) => (error ? reject(error) : resolve(values))),
    );
  let token = "never acquired";
  return {
    acquire: async () => {
      const [unlock, its] = await called(library.lock, name, ttl);
      if (unlock) token = its;
      return Boolean(unlock);
    },
    extend: async (ms) => (await library.touch(name, token, ms)) === "OK",
    release: async () => (await called(library.unlock, name, token))[0] === 1,
    close: () => close(client),
  };
}

/// By name: how a lock is made, and its Redis key.
export const libraries = {
  "redlock 4, node-redis 3": [redlock4("node-redis 3")],
  "redlock 4, ioredis 6": [redlock4("ioredis 6")],
  "redlock 5, ioredis 5": [redlock5("ioredis 5", "redlock-5", "default")],
  "redlock 5, ioredis 6": [redlock5("ioredis 6", "redlock-5", "default")],
  "@sesamecare-oss/redlock": [redlock5("ioredis 5", "@sesamecare-oss/redlock", "Redlock")],
  "redis-semaphore": [redisSemaphore, (name) => `mutex:${name}`],
  "redlock-universal": [redlockUniversal],
  "@microfleet/ioredis-lock": [ioredisLock],
  "node-redis-warlock": [warlock, (name) => `${name}:lock`],
  "redis-lock": [redisLock, (name) => `lock.${name}`],
};

/// The connection of a test that looks at locks from outside.
export const observer = drivers["ioredis 6"];
