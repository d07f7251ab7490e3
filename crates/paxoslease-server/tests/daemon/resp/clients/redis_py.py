"""redis-py against a cell: both versions of the protocol, pipelines, errors, waiting, watching."""

import json
import os
import threading

import redis

PORTS = [int(port) for port in os.environ["PORTS"].split()]


def connect(node, protocol=2, **options):
    return redis.Redis(port=PORTS[node], protocol=protocol, decode_responses=True, **options)


def takes_leases(protocol):
    first, second = connect(0, protocol), connect(1, protocol, client_name="second")
    assert first.ping()
    name = f"py/{protocol}"
    fence, ttl_ms, waited_ms = first.execute_command("LEASE.ACQUIRE", name, 60000, "HOLDER", "me")
    assert int(fence) > 0 and ttl_ms == 60000 and waited_ms >= 0
    assert second.execute_command("LEASE.ACQUIRE", name, 60000) is None

    seen = second.execute_command("LEASE.GET", name)
    if protocol == 2:
        seen = dict(zip(seen[::2], seen[1::2]))
    assert seen["holder"] == "me" and seen["fence"] == fence, seen

    assert second.execute_command("LEASE.RENEW", name, fence, 45000) == 45000
    assert second.execute_command("LEASE.RELEASE", name, fence) == 1
    assert second.execute_command("LEASE.RELEASE", name, fence) == 0
    try:
        first.execute_command("LEASE.RENEW", name, fence, 45000)
        raise AssertionError("renewed what is over")
    except redis.ResponseError as error:
        assert str(error).startswith("NOTHELD "), error
    assert second.execute_command("CLIENT", "GETNAME") == "second"
    assert first.info()["server"] == "paxoslease"
    assert "lease.acquire" in [command.lower() for command in first.command_list()]


def pipelines(protocol):
    client = connect(2, protocol)
    pipeline = client.pipeline(transaction=False)
    for number in range(200):
        pipeline.execute_command("LEASE.ACQUIRE", f"py/many/{protocol}/{number}", 60000)
        pipeline.execute_command("ECHO", number)
    replies = pipeline.execute()
    assert [int(text) for text in replies[1::2]] == list(range(200))
    assert all(len(granted) == 3 for granted in replies[::2])


def transactions(protocol):
    """They are refused as a whole: the default of pipeline() takes no lock."""
    client = connect(0, protocol)
    pipeline = client.pipeline()
    pipeline.set(f"py/multi/{protocol}", "v", nx=True, px=20000)
    try:
        pipeline.execute()
        raise AssertionError("carried out")
    except redis.ResponseError as error:
        assert "there are no transactions" in str(error), error
    assert client.get(f"py/multi/{protocol}") is None
    assert client.set(f"py/multi/{protocol}", "v", nx=True, px=20000)


def waits():
    holder, waiter = connect(0), connect(1)
    fence = holder.execute_command("LEASE.ACQUIRE", "py/wait", 60000)[0]
    granted = []
    acquire = ("LEASE.ACQUIRE", "py/wait", 60000, "WAIT", 60000)
    thread = threading.Thread(target=lambda: granted.append(waiter.execute_command(*acquire)))
    thread.start()
    while waiter_count() == 0:
        pass
    assert holder.execute_command("LEASE.RELEASE", "py/wait", fence) == 1
    thread.join()
    assert granted[0][0] > fence


def waiter_count():
    """How many wait and know for whom: fields of CELL.STATUS are a map in RESP3."""
    status = connect(1, 3).execute_command("CELL.STATUS")
    return sum(wanted["waiters"] for wanted in status["waiting"] if wanted["fence"] is not None)


def is_told_of_a_grant():
    """A push of the second version of the protocol."""
    holder, waiter = connect(0), connect(1, 3)
    fence = holder.execute_command("LEASE.ACQUIRE", "py/pushed", 60000)[0]
    connection = waiter.connection_pool.get_connection()
    connection.send_command("LEASE.ACQUIRE", "py/pushed", 60000, "WAIT", 60000, "NOTIFY", "mine")
    assert connection.read_response() == "QUEUED"
    assert holder.execute_command("LEASE.RELEASE", "py/pushed", fence) == 1
    kind, number, later = connection.read_response(push_request=True)[:3]
    assert (kind, number) == ("lease.granted", "mine") and later > fence


def watches():
    watcher = connect(2)
    connection = watcher.connection_pool.get_connection()
    connection.send_command("LEASE.WATCH", "py/watched/*")
    assert connection.read_response() == "OK"
    fence = connect(0).execute_command("LEASE.ACQUIRE", "py/watched/1", 60000, "HOLDER", "me")[0]
    while True:
        message = connection.read_response()
        if message[0] == "lease.held" and message[3] == fence:
            break
    assert message[1:3] == ["py/watched/1", "me"], message


def subscribes(protocol):
    """Leases are channels, for clients that know only SUBSCRIBE."""
    watching = connect(2, protocol).pubsub()
    watching.psubscribe(f"lease:py/told/{protocol}/*")
    # A lease that is acquired before the node has confirmed is not told.
    confirmed = None
    while confirmed is None:
        confirmed = watching.get_message(timeout=60)
    assert confirmed["type"] == "psubscribe", confirmed
    name = f"py/told/{protocol}/1"
    fence = connect(0).execute_command("LEASE.ACQUIRE", name, 60000, "HOLDER", "me")[0]
    message = None
    while message is None:
        message = watching.get_message(timeout=60)
    assert message["channel"] == f"lease:{name}", message
    told = json.loads(message["data"])
    assert (told["event"], told["holder"], told["fence"]) == ("held", "me", fence), told


for version in (2, 3):
    takes_leases(version)
    pipelines(version)
    transactions(version)
    subscribes(version)
waits()
is_told_of_a_grant()
watches()
