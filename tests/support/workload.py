"""Runs inside a sandbox: changes files in every way there is and keeps in memory what they must hold.

GET /step   one more round of changes; answers with the number of rounds so far
GET /check  compares every file with memory; answers with the rounds, the process id and what differs
"""

import hashlib
import json
import os
import random
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOME = "/home/user/load"
TMPFS = "/dev/shm/work"
SPARSE_BYTES = 64 * 1024 * 1024

os.makedirs(HOME, exist_ok=True)
os.makedirs(TMPFS, exist_ok=True)

rounds = 0
log = b""
scattered = bytearray(256 * 1024)
truncated = b""
sparse = {}
shared = b""
hidden = b""
# Big enough to be spread over the memory image.
ballast = bytearray(random.Random(1).randbytes(4 * 1024 * 1024))
flips = []

log_file = open(f"{HOME}/log", "ab", buffering=0)
with open(f"{HOME}/scattered", "wb") as created:
    created.write(scattered)
with open(f"{HOME}/sparse", "wb") as created:
    created.truncate(SPARSE_BYTES)
hidden_file = open(f"{HOME}/hidden", "w+b", buffering=0)
os.unlink(f"{HOME}/hidden")


def step():
    global rounds, log, truncated, shared, hidden
    rounds += 1
    chance = random.Random(rounds)
    line = f"round {rounds} {chance.random()}\n".encode()
    log += line
    log_file.write(line)
    with open(f"{HOME}/scattered", "r+b") as file:
        for _ in range(16):
            at = chance.randrange(len(scattered) - 512)
            piece = chance.randbytes(512)
            scattered[at : at + 512] = piece
            file.seek(at)
            file.write(piece)
    truncated = chance.randbytes(chance.randrange(100_000))
    with open(f"{HOME}/truncated", "wb") as file:
        file.write(b"x" * 120_000)
        file.truncate(0)
        file.seek(0)
        file.write(truncated)
    with open(f"{HOME}/sparse", "r+b") as file:
        at = chance.randrange(SPARSE_BYTES // 4096) * 4096
        sparse[at] = chance.randbytes(64)
        file.seek(at)
        file.write(sparse[at])
    shared = chance.randbytes(50_000)
    with open(f"{TMPFS}/shared", "wb") as file:
        file.write(shared)
    piece = chance.randbytes(1000)
    hidden += piece
    hidden_file.seek(0, os.SEEK_END)
    hidden_file.write(piece)
    at = chance.randrange(len(ballast))
    flips.append(at)
    ballast[at] ^= 0xFF


def read(path):
    with open(path, "rb") as file:
        return file.read()


def differing():
    wrong = []
    if rounds and read(f"{HOME}/log") != log:
        wrong.append("log")
    if read(f"{HOME}/scattered") != bytes(scattered):
        wrong.append("scattered")
    if rounds and read(f"{HOME}/truncated") != truncated:
        wrong.append("truncated")
    if os.path.getsize(f"{HOME}/sparse") != SPARSE_BYTES:
        wrong.append("sparse size")
    with open(f"{HOME}/sparse", "rb") as file:
        for at, piece in sparse.items():
            file.seek(at)
            if file.read(64) != piece:
                wrong.append(f"sparse at {at}")
    if rounds and read(f"{TMPFS}/shared") != shared:
        wrong.append("tmpfs")
    hidden_file.seek(0)
    if hidden_file.read() != hidden:
        wrong.append("unlinked")
    expected = bytearray(random.Random(1).randbytes(len(ballast)))
    for at in flips:
        expected[at] ^= 0xFF
    if hashlib.sha256(expected).digest() != hashlib.sha256(ballast).digest():
        wrong.append("memory")
    return wrong


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/step":
            step()
        answer = {"rounds": rounds, "pid": os.getpid()}
        if self.path == "/check":
            answer["wrong"] = differing()
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
