"""Every Python library under test, behind one small interface.

A `Lock` is one client of one lock: it has its own connection and its own token. A library that
lacks an operation leaves the method of `Lock` as it is, and the tests of that operation skip it.
"""

import asyncio
import threading

import aioredlock
import celery_once.backends.redis
import celery_once.tasks
import celery_singleton.backends.redis
import dogpile.cache
import django_redis.cache
import pottery
import redis
import redis.asyncio
import redis_lock
import redlock
import sherlock
import walrus
from cashews.wrapper import Cache
from django.conf import settings

PATIENCE = 20
"""How long a client waits for a lock, in seconds."""

settings.configure()


class Lock:
    """`ttl` is in seconds."""

    key = "{}"
    """The Redis key of the lock with that name."""
    endless = False
    """Whether a lock can have no ttl."""

    def __init__(self, endpoint, name, ttl):
        self.host, port = endpoint.split(":")
        self.port = int(port)
        self.name = name
        self.ttl = ttl
        self.open()

    def open(self):
        raise NotImplementedError

    def acquire(self):
        """Whether it gets the lock at once."""
        raise NotImplementedError

    wait = None
    """Waits for the lock; whether it got it."""

    extend = None
    """Holds the lock for `seconds` from now; whether it held it."""

    release = None
    """Releases the lock; whether it held it. Nothing happens to the lock of another client."""

    remove = None
    """Frees the lock, whoever holds it."""

    def close(self):
        pass


def succeeds(call, *errors):
    try:
        call()
    except errors:
        return False
    return True


class RedisPy(Lock):
    endless = True

    def open(self):
        self.client = redis.Redis(self.host, self.port)
        self.lock = self.client.lock(self.name, timeout=self.ttl, sleep=0.01, thread_local=False)

    def acquire(self):
        return self.lock.acquire(blocking=False)

    def wait(self):
        return self.lock.acquire(blocking_timeout=PATIENCE)

    def extend(self, seconds):
        extended = lambda: self.lock.extend(seconds, replace_ttl=True)
        return succeeds(extended, redis.exceptions.LockError)

    def release(self):
        # The lock forgets its token even if it was not released.
        token = self.lock.local.token or b"never acquired"
        self.lock.local.token = token
        return succeeds(self.lock.release, redis.exceptions.LockError)

    def close(self):
        self.client.close()


class RedisPyResp2(RedisPy):
    def open(self):
        self.client = redis.Redis(self.host, self.port, protocol=2)
        self.lock = self.client.lock(self.name, timeout=self.ttl, sleep=0.01, thread_local=False)


class Async(Lock):
    """A client whose calls are coroutines, in an event loop of its own."""

    def open(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.run(self.start())

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    async def start(self):
        raise NotImplementedError

    async def stop(self):
        raise NotImplementedError

    def close(self):
        self.run(self.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class RedisPyAsyncio(Async):
    endless = True

    async def start(self):
        self.client = redis.asyncio.Redis(host=self.host, port=self.port)
        self.lock = self.client.lock(self.name, timeout=self.ttl, sleep=0.01, thread_local=False)

    def acquire(self):
        return self.run(self.lock.acquire(blocking=False))

    def wait(self):
        return self.run(self.lock.acquire(blocking_timeout=PATIENCE))

    def extend(self, seconds):
        extended = lambda: self.run(self.lock.extend(seconds, replace_ttl=True))
        return succeeds(extended, redis.exceptions.LockError)

    def release(self):
        token = self.lock.local.token or b"never acquired"
        self.lock.local.token = token
        return succeeds(lambda: self.run(self.lock.release()), redis.exceptions.LockError)

    async def stop(self):
        await self.client.aclose()


class RedlockPy(Lock):
    def open(self):
        # It retries without end by itself, if it may.
        server = [{"host": self.host, "port": self.port}]
        self.once = redlock.Redlock(server, retry_count=1)
        self.patient = redlock.Redlock(server, retry_count=PATIENCE * 50, retry_delay=0.02)
        self.lock = redlock.Lock(0, self.name, b"never acquired")

    def acquire(self):
        return self.took(self.once.lock(self.name, self.ttl * 1000))

    def wait(self):
        return self.took(self.patient.lock(self.name, self.ttl * 1000))

    def took(self, lock):
        self.lock = lock or self.lock
        return bool(lock)

    def release(self):
        # `unlock` does not tell. The script is its own.
        server = self.once.servers[0]
        return server.eval(self.once.unlock_script, 1, self.name, self.lock.key) == 1

    def close(self):
        for server in self.once.servers + self.patient.servers:
            server.close()


class PythonRedisLock(Lock):
    key = "lock:{}"
    endless = True

    def open(self):
        # BLPOP blocks for longer than the 5 seconds that redis-py waits for a reply by default.
        self.client = redis.StrictRedis(self.host, self.port, socket_timeout=None)
        self.lock = redis_lock.Lock(self.client, self.name, expire=self.ttl)

    def acquire(self):
        return self.lock.acquire(blocking=False)

    def wait(self):
        # A wait may not be longer than the ttl.
        return self.lock.acquire(timeout=min(PATIENCE, self.ttl or PATIENCE))

    def extend(self, seconds):
        return succeeds(lambda: self.lock.extend(seconds), redis_lock.NotAcquired)

    def release(self):
        return succeeds(self.lock.release, redis_lock.NotAcquired)

    def remove(self):
        self.lock.reset()

    def close(self):
        self.client.close()


class Pottery(Lock):
    key = "redlock:{}"

    def open(self):
        self.client = redis.Redis(self.host, self.port)
        self.lock = pottery.Redlock(
            key=self.name, masters={self.client}, auto_release_time=self.ttl
        )

    def acquire(self):
        return self.lock.acquire(blocking=False)

    def wait(self):
        return self.lock.acquire(timeout=PATIENCE)

    def extend(self, seconds):
        self.lock.auto_release_time = seconds
        return succeeds(self.lock.extend, pottery.ExtendUnlockedLock)

    def release(self):
        return succeeds(self.lock.release, pottery.ReleaseUnlockedLock)

    def close(self):
        self.client.close()


class PotteryAsyncio(Async):
    key = "redlock:{}"

    async def start(self):
        self.client = redis.asyncio.Redis(host=self.host, port=self.port)
        self.lock = pottery.AIORedlock(
            key=self.name, masters={self.client}, auto_release_time=self.ttl
        )

    def acquire(self):
        return self.run(self.lock.acquire(blocking=False))

    def wait(self):
        return self.run(self.lock.acquire(timeout=PATIENCE))

    def extend(self, seconds):
        self.lock.auto_release_time = seconds
        return succeeds(lambda: self.run(self.lock.extend()), pottery.ExtendUnlockedLock)

    def release(self):
        return succeeds(lambda: self.run(self.lock.release()), pottery.ReleaseUnlockedLock)

    async def stop(self):
        await self.client.aclose()


class Aioredlock(Async):
    async def start(self):
        server = [{"host": self.host, "port": self.port}]
        self.once = aioredlock.Aioredlock(server, retry_count=1)
        self.patient = aioredlock.Aioredlock(
            server, retry_count=PATIENCE * 20, retry_delay_min=0.02, retry_delay_max=0.05
        )
        self.lock = aioredlock.Lock(self.once, self.name, "never acquired", valid=True)

    def acquire(self):
        return self.take(self.once)

    def wait(self):
        return self.take(self.patient)

    def take(self, manager):
        def take():
            self.lock = self.run(manager.lock(self.name, lock_timeout=self.ttl))

        return succeeds(take, aioredlock.LockError)

    def extend(self, seconds):
        extend = lambda: self.run(self.once.extend(self.lock, seconds))
        return succeeds(extend, aioredlock.LockError)

    def release(self):
        # To release a lock that has expired is not an error.
        held = self.run(self.once.is_locked(self.name))
        unlock = lambda: self.run(self.once.redis.unset_lock(self.name, self.lock.id))
        return succeeds(unlock, aioredlock.LockError) and held

    async def stop(self):
        # `destroy` would release the lock as well.
        for manager in (self.once, self.patient):
            await manager.redis.clear_connections()


class Walrus(Lock):
    key = "lock:{}"
    endless = True

    def open(self):
        self.client = walrus.Database(self.host, self.port, socket_timeout=None)
        self.lock = self.client.lock(self.name, ttl=self.ttl and self.ttl * 1000)

    def acquire(self):
        return self.lock.acquire(block=False)

    def wait(self):
        return self.lock.acquire()

    def release(self):
        return self.lock.release()

    def remove(self):
        self.lock.clear()

    def close(self):
        self.client.close()


class DjangoRedis(Lock):
    key = ":1:{}"
    endless = True

    def open(self):
        self.cache = django_redis.cache.RedisCache(f"redis://{self.host}:{self.port}/0", {})
        self.lock = self.cache.lock(
            self.name, timeout=self.ttl, sleep=0.01, thread_local=False
        )

    acquire, wait, extend, release = RedisPy.acquire, RedisPy.wait, RedisPy.extend, RedisPy.release

    def close(self):
        self.cache.close()


class Sherlock(Lock):
    def open(self):
        self.client = redis.Redis(self.host, self.port)
        self.lock = sherlock.RedisLock(
            self.name, client=self.client, expire=self.ttl, timeout=PATIENCE, retry_interval=0.01
        )

    def acquire(self):
        return self.lock.acquire(blocking=False)

    def wait(self):
        return self.lock.acquire()

    def release(self):
        self.lock._owner = self.lock._owner or "never acquired"
        return succeeds(self.lock.release, sherlock.LockException)

    def close(self):
        self.client.close()


class Cashews(Async):
    async def start(self):
        self.cache = Cache()
        self.cache.setup(f"redis://{self.host}:{self.port}")
        self.token = f"token of {id(self)}"

    def acquire(self):
        return self.run(self.cache.set_lock(self.name, self.token, self.ttl))

    def release(self):
        return bool(self.run(self.cache.unlock(self.name, self.token)))

    async def stop(self):
        await self.cache.close()


class Dogpile(Lock):
    key = "_lock{}"
    endless = True

    def open(self):
        options = {"host": self.host, "port": self.port, "thread_local_lock": False}
        options |= {"distributed_lock": True, "lock_timeout": self.ttl, "lock_sleep": 0.01}
        self.region = dogpile.cache.make_region()
        self.region.configure("dogpile.cache.redis", arguments=options)
        self.lock = self.region.backend.get_mutex(self.name)

    def acquire(self):
        return self.lock.acquire(False)

    def wait(self):
        return self.lock.acquire(True)

    def release(self):
        return succeeds(self.lock.release, redis.exceptions.LockError)

    def close(self):
        self.region.backend.writer_client.close()


class CeleryOnce(Lock):
    def open(self):
        # The module has one client for the whole process, unless it is reset.
        celery_once.backends.redis.redis = None
        url = f"redis://{self.host}:{self.port}/0"
        self.backend = celery_once.backends.redis.Redis({"url": url})

    def acquire(self):
        lock = lambda: self.backend.raise_or_lock(self.name, self.ttl)
        return succeeds(lock, celery_once.tasks.AlreadyQueued)

    def remove(self):
        self.backend.clear_lock(self.name)

    def close(self):
        self.backend.redis.close()


class CelerySingleton(Lock):
    endless = True

    def open(self):
        url = f"redis://{self.host}:{self.port}/0"
        self.backend = celery_singleton.backends.redis.RedisBackend(url)

    def acquire(self):
        return self.backend.lock(self.name, f"task {id(self)}", self.ttl)

    def remove(self):
        self.backend.unlock(self.name)

    def close(self):
        self.backend.redis.close()


LIBRARIES = {
    "redis-py": RedisPy,
    "redis-py, RESP2": RedisPyResp2,
    "redis-py, asyncio": RedisPyAsyncio,
    "redlock-py": RedlockPy,
    "python-redis-lock": PythonRedisLock,
    "pottery": Pottery,
    "pottery, asyncio": PotteryAsyncio,
    "aioredlock": Aioredlock,
    "walrus": Walrus,
    "django-redis": DjangoRedis,
    "sherlock": Sherlock,
    "cashews": Cashews,
    "dogpile.cache": Dogpile,
    "celery-once": CeleryOnce,
    "celery-singleton": CelerySingleton,
}
