"""Python, by ipykernel."""

import json
import os
import queue
import shutil
import signal
import tempfile
import threading

from jupyter_client.manager import KernelManager

import results

STARTUP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "startup.py")
READY_SECONDS = 60
POLL_SECONDS = 1

SET = """
import os as _os
_sandbar_before = {name: _os.environ.get(name) for name in %(env)s}
_os.environ.update(%(lasting)s); _os.environ.update(%(env)s)
"""
RESET = """
for _name, _value in _sandbar_before.items():
    _os.environ.pop(_name, None) if _value is None else _os.environ.__setitem__(_name, _value)
del _sandbar_before
"""


class PythonKernel:
    def __init__(self, language, cwd):
        self.cwd = cwd
        # Sockets of ZeroMQ are for one thread at a time.
        self.talking = threading.Lock()
        self.start()

    def start(self):
        # Unix sockets: connections over them are part of a snapshot. Server and kernel work in different directories, so the path is absolute.
        self.sockets = tempfile.mkdtemp(prefix="kernel-")
        self.manager = KernelManager(
            kernel_name="python3", transport="ipc", connection_file=os.path.join(self.sockets, "kernel.json")
        )
        arguments = [f"--IPKernelApp.exec_files={json.dumps([STARTUP])}", "--HistoryManager.enabled=False"]
        self.manager.start_kernel(cwd=self.cwd, extra_arguments=arguments)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=READY_SECONDS)
        self.known = {}

    def run(self, code, lasting, env, send):
        with self.talking:
            if not self.manager.is_alive():
                self.clear()
                self.start()
            lasting = {name: value for name, value in lasting.items() if self.known.get(name) != value}
            if lasting or env:
                self.silently(SET % {"lasting": repr(lasting), "env": repr(env)})
                self.known.update(lasting)
            try:
                self.execute(code, send)
            finally:
                if env and self.manager.is_alive():
                    self.silently(RESET)

    def execute(self, code, send):
        message_id = self.client.execute(code, store_history=True, allow_stdin=False)
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=POLL_SECONDS)
            except queue.Empty:
                if not self.manager.is_alive():
                    return send(results.error("KernelDied", "the kernel ended while it ran the code", ""))
                continue
            if message["parent_header"].get("msg_id") != message_id:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                send(results.output(content["name"], content["text"]))
            elif kind in ("display_data", "execute_result"):
                send(results.result(content["data"], kind == "execute_result"))
            elif kind == "error":
                send(results.error(content["ename"], content["evalue"], "\n".join(content["traceback"])))
            elif kind == "execute_input":
                send(results.count(content["execution_count"]))
            elif kind == "status" and content["execution_state"] == "idle":
                return

    def silently(self, code):
        self.client.execute(code, silent=True, store_history=False, allow_stdin=False, reply=True, timeout=30)

    def interrupt(self):
        self.manager.interrupt_kernel()

    def restart(self):
        self.kill()
        with self.talking:
            self.clear()
            self.start()

    def close(self):
        self.kill()
        with self.talking:
            self.clear()

    def kill(self):
        """A run under way notices it and lets go of the sockets."""
        if self.manager.is_alive():
            self.manager.signal_kernel(signal.SIGKILL)

    def clear(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        shutil.rmtree(self.sockets, ignore_errors=True)
