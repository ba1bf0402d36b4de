"""The client of a run. Code whose client has left is interrupted: nobody would ever see what it says."""

import contextlib
import socket
import threading

LOOK_SECONDS = 0.5
# Code can miss an interrupt, or catch it.
AGAIN_SECONDS = 5


class ClientGone(Exception):
    pass


class Client:
    def __init__(self, connection):
        self.connection = connection

    def has_left(self):
        try:
            return self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    @contextlib.contextmanager
    def watched(self, interrupt):
        """Interrupts what is done within when the client leaves; never afterwards, when it would hit the run of another."""
        if self.has_left():
            raise ClientGone
        ended = threading.Event()
        watcher = threading.Thread(target=self.watch, args=(ended, interrupt), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def watch(self, ended, interrupt):
        while not ended.wait(LOOK_SECONDS):
            if not self.has_left():
                continue
            interrupt()
            while not ended.wait(AGAIN_SECONDS):
                interrupt()
            return
