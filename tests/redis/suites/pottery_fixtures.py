"""The fixtures of pottery's tests, which its source distribution lacks."""

import pytest
import redis as redis_py
import redis.asyncio

URL = "redis://localhost:6379/{}"


@pytest.fixture(scope="session")
def redis_db():
    return 6


@pytest.fixture
def redis(redis_db):
    client = redis_py.Redis.from_url(URL.format(redis_db))
    client.flushdb()
    yield client
    client.flushdb()


@pytest.fixture
async def aioredis(redis_db):
    client = redis_py.asyncio.Redis.from_url(URL.format(redis_db))
    await client.flushdb()
    yield client
    await client.flushdb()
    await client.aclose()
