"""Runs code for the code-interpreter clients: HTTP on port 49999, answers as lines of JSON while the code runs."""

import json
import sys
import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import results
from client import Client, ClientGone
from contexts import Contexts, UnknownContext, UnknownDirectory, UnknownLanguage

PORT = 49999
MOST_BODY_BYTES = 64 * 1024 * 1024
KEEPALIVE_SECONDS = 20


class Refused(Exception):
    def __init__(self, status, text):
        super().__init__(text)
        self.status = status
        self.text = text


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    contexts: Contexts

    def do_GET(self):
        self.answer({"/health": lambda: "OK", "/contexts": self.contexts.list})

    def do_POST(self):
        path = self.path.split("?")[0]
        if path == "/execute":
            return self.guarded(self.execute)
        if path.endswith("/restart"):
            context_id = path.removeprefix("/contexts/").removesuffix("/restart")
            return self.answer({path: lambda: self.contexts.restart(context_id)})
        self.answer({"/contexts": self.create_context})

    def do_DELETE(self):
        path = self.path.split("?")[0]
        self.answer({path: lambda: self.contexts.remove(path.removeprefix("/contexts/"))})

    def create_context(self):
        wanted = self.body()
        return self.contexts.create(wanted.get("language"), wanted.get("cwd"))

    def execute(self):
        wanted = self.body()
        code, context_id, language = wanted.get("code"), wanted.get("context_id"), wanted.get("language")
        if not isinstance(code, str):
            raise Refused(400, "code is missing")
        if context_id and language:
            raise Refused(400, "Only one of context_id or language can be provided")
        context = self.contexts.get(context_id) if context_id else self.contexts.default(language)
        lines = LineStream(self)
        try:
            context.run(code, wanted.get("env_vars") or {}, Client(self.connection), lines.send)
        except ClientGone:
            pass
        except Exception as error:
            lines.send(results.error(type(error).__name__, str(error), traceback.format_exc()))
        finally:
            lines.end()

    def body(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > MOST_BODY_BYTES:
            raise Refused(413, "the request is too large")
        raw = self.rfile.read(length) if length else self.chunks()
        try:
            parsed = json.loads(raw or b"{}")
        except ValueError:
            raise Refused(400, "the body is not JSON")
        if not isinstance(parsed, dict):
            raise Refused(400, "the body is not an object")
        return parsed

    def chunks(self):
        if "chunked" not in (self.headers.get("Transfer-Encoding") or ""):
            return b""
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def answer(self, routes):
        work = routes.get(self.path.split("?")[0])
        if work is None:
            return self.reply(404, "Not found", "text/plain")
        self.guarded(lambda: self.reply(200, json.dumps(work()), "application/json"))

    def guarded(self, work):
        try:
            work()
        except UnknownContext as error:
            self.reply(404, f"Context {error} not found", "text/plain")
        except UnknownLanguage as error:
            self.reply(400, f"Language {error} is not supported", "text/plain")
        except UnknownDirectory as error:
            self.reply(400, f"{error} is not a directory", "text/plain")
        except Refused as error:
            self.reply(error.status, error.text, "text/plain")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        except Exception as error:
            traceback.print_exc()
            self.reply(500, f"{type(error).__name__}: {error}", "text/plain")

    def reply(self, status, text, content_type):
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format, *args):
        pass


class LineStream:
    """The answer to /execute: begun with its first line, kept alive while nothing is said."""

    def __init__(self, handler):
        self.handler = handler
        self.lock = threading.Lock()
        self.begun = False
        self.broken = False
        self.ended = threading.Event()
        threading.Thread(target=self.keep_alive, daemon=True).start()

    def send(self, line):
        data = json.dumps(line).encode() + b"\n"
        with self.lock:
            if self.broken:
                return
            try:
                self.begin()
                self.handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.handler.wfile.flush()
            except OSError:
                self.broken = True

    def begin(self):
        if self.begun:
            return
        self.begun = True
        self.handler.send_response(200)
        self.handler.send_header("Content-Type", "application/x-ndjson")
        self.handler.send_header("Transfer-Encoding", "chunked")
        self.handler.end_headers()

    def keep_alive(self):
        while not self.ended.wait(KEEPALIVE_SECONDS):
            self.send({"type": "keepalive"})

    def end(self):
        self.send({"type": "end_of_execution"})
        self.ended.set()
        with self.lock:
            try:
                if not self.broken:
                    self.handler.wfile.write(b"0\r\n\r\n")
                    self.handler.wfile.flush()
            except OSError:
                self.broken = True
        self.handler.close_connection = self.broken


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def main():
    Handler.contexts = Contexts()
    Handler.contexts.default("python")
    Server(("0.0.0.0", PORT), Handler).serve_forever()


if __name__ == "__main__":
    main()
