#!/usr/bin/env python3
"""A name server on 127.0.0.1, for a network namespace of its own: `node-1.test` is 127.0.0.1.

It prints a line when it answers, and runs until it is killed.
"""

import socket

NAME = b"\x06node-1\x04test\x00"
IPV4 = b"\x00\x01"
NO_SUCH_NAME = 3


def answer(query):
    end = query.index(b"\x00", 12) + 1
    question = query[12 : end + 4]
    is_ours = query[12:end].lower() == NAME
    found = is_ours and query[end : end + 2] == IPV4
    flags = (0x8180 | (0 if is_ours else NO_SUCH_NAME)).to_bytes(2, "big")
    head = query[:2] + flags + b"\x00\x01" + (b"\x00\x01" if found else b"\x00\x00") + bytes(4)
    # The name of the question, an address, valid for no time, of four bytes.
    record = b"\xc0\x0c" + IPV4 + b"\x00\x01" + bytes(4) + b"\x00\x04" + bytes([127, 0, 0, 1])
    return head + question + (record if found else b"")


server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
print("listening", flush=True)
while True:
    query, client = server.recvfrom(512)
    server.sendto(answer(query), client)
