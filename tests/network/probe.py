"""Tries things on the network from inside a sandbox. Argument: a JSON list of tries; prints a JSON list of what became of each."""

import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import time

TIMEOUT = 1.5
# Of what mostly gets no answer at all.
SHORT = 0.5


def http(address, port=80, host=None, path="/"):
    """The answer's body as JSON, of a plain request with a host of our choice."""
    with socket.create_connection((address, port), TIMEOUT) as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {host or address}\r\nConnection: close\r\n\r\n".encode())
        return body(read_all(sock))


def https(address, port=443, name=None, pieces=0, host=None):
    """The same over TLS with a server name of our choice; `pieces` cuts the hello into records of so many bytes."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with socket.create_connection((address, port), TIMEOUT) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        first = True
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                data = outgoing.read()
                if first and pieces:
                    hello, data = data[5:], b""
                    for at in range(0, len(hello), pieces):
                        part = hello[at : at + pieces]
                        sock.sendall(b"\x16\x03\x01" + struct.pack(">H", len(part)) + part)
                        time.sleep(0.002)
                first = False
                if data:
                    sock.sendall(data)
                received = sock.recv(65536)
                if not received:
                    raise ConnectionError("closed during the handshake")
                incoming.write(received)
        sock.sendall(outgoing.read())
        tls.write(f"GET / HTTP/1.1\r\nHost: {host or name or address}\r\nConnection: close\r\n\r\n".encode())
        sock.sendall(outgoing.read())
        answer = b""
        while True:
            try:
                piece = tls.read(65536)
                if not piece:
                    break
                answer += piece
            except ssl.SSLWantReadError:
                received = sock.recv(65536)
                if not received:
                    break
                incoming.write(received)
            except ssl.SSLError:
                break
        return body(answer)


def tcp(address, port=7):
    """Bytes there and back."""
    with socket.create_connection((address, port), TIMEOUT) as sock:
        sock.sendall(b"ping")
        if sock.recv(4) != b"ping":
            raise ConnectionError("closed")
        return "open"


def connect(address, port):
    """Whether anything accepts."""
    socket.create_connection((address, port), TIMEOUT).close()
    return "open"


def connect6(address, port):
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
        sock.settimeout(TIMEOUT)
        sock.connect((address, port))
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return sock.recv(100).decode()


def udp(address, port=7, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(SHORT)
        sock.connect((address, port))
        sock.send(b"ping")
        sock.recv(100)
        return "open"


def ping(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as sock:
        sock.settimeout(SHORT)
        sock.sendto(struct.pack(">BBHHH", 8, 0, checksum(b"\x08\0\0\0\0\0\0\1"), 0, 1), (address, 0))
        sock.recv(100)
        return "open"


def lookup(name):
    return sorted({found[4][0] for found in socket.getaddrinfo(name, 80, socket.AF_INET, socket.SOCK_STREAM)})


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def packet(source, destination, protocol, payload):
    head = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 1, 0, 64, protocol, 0, socket.inet_aton(source), socket.inet_aton(destination)
    )
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + payload


def raw_syn(destination, port, source=None):
    """A TCP SYN by a raw socket, from an address that may not be ours; waits for any answer."""
    source = source or own_address()
    segment = struct.pack(">HHIIBBHHH", 40000, port, 1, 0, 5 << 4, 2, 1024, 0, 0)
    pseudo = socket.inet_aton(source) + socket.inet_aton(destination) + struct.pack(">BBH", 0, 6, len(segment))
    segment = segment[:16] + struct.pack(">H", checksum(pseudo + segment)) + segment[18:]
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as out, socket.socket(
        socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP
    ) as back:
        back.settimeout(SHORT)
        out.setsockopt(socket.IPPROTO_IP, socket.IP_HDRINCL, 1)
        out.sendto(packet(source, destination, 6, segment), (destination, 0))
        giveup = time.time() + SHORT
        while time.time() < giveup:
            answer = back.recv(2000)
            if socket.inet_ntoa(answer[12:16]) == destination:
                flags = answer[20 + 13]
                return "open" if flags & 0x12 == 0x12 else f"flags {flags}"
        raise TimeoutError("no answer")


def raw_udp(destination, port, source, data="spoofed"):
    """A UDP packet by a raw socket, from any address."""
    payload = data.encode()
    datagram = struct.pack(">HHHH", 40001, port, 8 + len(payload), 0) + payload
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as out:
        out.setsockopt(socket.IPPROTO_IP, socket.IP_HDRINCL, 1)
        out.sendto(packet(source, destination, 17, datagram), (destination, 0))
        return "sent"


def frame(hex_bytes):
    """An Ethernet frame of our own making, on the one interface."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as out:
        out.bind(("eth0", 0))
        out.send(bytes.fromhex(hex_bytes))
        return "sent"


def arp(target, sender=None, gratuitous=False):
    """Asks who has an address (or claims to); the answers, if any."""
    mine = bytes.fromhex(own_mac())
    sender = sender or own_address()
    ask = b"\xff" * 6 + mine + b"\x08\x06" + struct.pack(">HHBBH", 1, 0x0800, 6, 4, 2 if gratuitous else 1)
    ask += mine + socket.inet_aton(sender) + b"\0" * 6 + socket.inet_aton(target)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806)) as sock:
        sock.bind(("eth0", 0x0806))
        sock.settimeout(SHORT)
        sock.send(ask)
        giveup = time.time() + SHORT
        while time.time() < giveup:
            answer = sock.recv(2000)
            if answer[20:22] == b"\0\2" and socket.inet_ntoa(answer[28:32]) == target:
                return "answered"
        raise TimeoutError("no answer")


def own_mac():
    shown = subprocess.run(["ip", "-o", "link", "show", "eth0"], capture_output=True, text=True).stdout
    return shown.split("link/ether ")[1].split()[0].replace(":", "")


def own_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("198.51.100.10", 9))
        return sock.getsockname()[0]


def scan(address, ports):
    """Which ports of a list accept a connection."""
    found = []
    for port in ports:
        try:
            with socket.create_connection((address, port), 0.5):
                found.append(port)
        except OSError:
            pass
    return found


def read_all(sock):
    data = b""
    while True:
        piece = sock.recv(65536)
        if not piece:
            return data
        data += piece


def body(answer):
    if not answer:
        raise ConnectionError("closed without an answer")
    head, _, rest = answer.partition(b"\r\n\r\n")
    if b"chunked" in head.lower():
        rest = b"".join(rest.split(b"\r\n")[1::2])
    try:
        return json.loads(rest)
    except ValueError:
        return head.decode("latin1")


def run(attempt):
    kind, *arguments = attempt
    try:
        return globals()[kind](*arguments)
    except socket.timeout:
        return "timeout"
    except socket.gaierror as error:
        return f"no name: {error.args[0]}"
    except OSError as error:
        return f"failed: {os.strerror(error.errno) if error.errno else error}"


if __name__ == "__main__":
    print(json.dumps([run(attempt) for attempt in json.loads(sys.argv[1])]))
