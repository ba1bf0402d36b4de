"""JavaScript, TypeScript and bash: a process each that keeps its state, told what to run by a pipe."""

import json
import os
import secrets
import shlex
import signal
import subprocess
import threading

import results

HERE = os.path.dirname(os.path.abspath(__file__))
INTERRUPT_SECONDS = 1


class ProcessKernel:
    """A child process. Its standard output and error are output of the code; on a pipe of its own it says what it makes of it."""

    def __init__(self, language, cwd):
        self.language = language
        self.cwd = cwd
        self.executions = 0
        self.process = None
        self.send = None
        self.finished = threading.Event()
        # Held while a process is exchanged, and while one is asked.
        self.lock = threading.RLock()
        self.start()

    def start(self):
        said, saying = os.pipe()
        asked, asking = os.pipe()
        self.process = subprocess.Popen(
            [word.format(saying=saying, asked=asked) for word in self.command()],
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(saying, asked),
            start_new_session=True,
        )
        os.close(saying)
        os.close(asked)
        self.asking = os.fdopen(asking, "wb", buffering=0)
        process = self.process
        for stream, name in ((process.stdout, "stdout"), (process.stderr, "stderr")):
            threading.Thread(target=self.read_output, args=(process, stream, name), daemon=True).start()
        threading.Thread(target=self.read_sayings, args=(process, os.fdopen(said, "rb")), daemon=True).start()

    def read_output(self, process, stream, name):
        while data := stream.read1(65536):
            if process is self.process:
                self.hear_output(name, data)
        if process is self.process:
            self.ended(process)

    def read_sayings(self, process, said):
        for line in said:
            if process is self.process:
                self.hear(json.loads(line))

    def ended(self, process):
        process.wait()
        if not self.finished.is_set() and self.send:
            self.send(results.error("KernelDied", f"the kernel ended with status {process.returncode}", ""))
            self.finished.set()

    def run(self, code, lasting, env, send):
        try:
            with self.lock:
                if self.process.poll() is not None:
                    self.start()
                self.executions += 1
                self.finished.clear()
                self.send = send
                send(results.count(self.executions))
                self.ask(code, lasting, env)
            self.finished.wait()
        finally:
            self.send = None

    def emit(self, line):
        send = self.send
        if send:
            send(line)

    def interrupt(self):
        with self.lock:
            if self.process:
                self.stop_code()
        if not self.finished.wait(INTERRUPT_SECONDS):
            self.restart()

    def restart(self):
        with self.lock:
            self.close()
            self.executions = 0
            self.start()

    def close(self):
        process, self.process = self.process, None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        self.asking.close()
        if not self.finished.is_set():
            self.emit(results.error("KernelRestarted", "the kernel was ended while it ran the code", ""))
            self.finished.set()


class NodeKernel(ProcessKernel):
    def command(self):
        script = os.path.join(HERE, "node_kernel.mjs")
        return ["node", "--disable-warning=ExperimentalWarning", script, "{asked}", "{saying}"]

    def stop_code(self):
        self.process.send_signal(signal.SIGINT)

    def ask(self, code, lasting, env):
        wanted = {"code": code, "lasting": lasting, "env": env, "typescript": self.language == "typescript"}
        self.asking.write(json.dumps(wanted).encode() + b"\n")

    def hear_output(self, name, data):
        # Of programs that the code has started; what the code prints comes with the sayings, in its order.
        self.emit(results.output(name, data.decode(errors="replace")))

    def hear(self, saying):
        kind = saying["type"]
        if kind == "output":
            self.emit(results.output(saying["stream"], saying["text"]))
        elif kind == "result":
            self.emit(results.result(saying["data"], saying["main"]))
        elif kind == "error":
            self.emit(results.error(saying["name"], saying["value"], saying["traceback"]))
        elif kind == "end":
            self.finished.set()


class BashKernel(ProcessKernel):
    """A shell that reads what to run from its pipe. It prints a mark on both outputs when it is done, so that nothing comes late."""

    LOOP = r"""
trap : INT
while IFS= read -r -d '' __mark <&{asked} && IFS= read -r -d '' __code <&{asked}; do
  eval "$__code"
  __status=$?
  printf '%s%d\n' "$__mark" "$__status"
  printf '%s\n' "$__mark" >&2
done
"""

    def command(self):
        return ["bash", "-c", self.LOOP, "bash"]

    def ask(self, code, lasting, env):
        self.mark = f"\x01{secrets.token_hex(16)} "
        self.rest = {"stdout": b"", "stderr": b""}
        self.done = set()
        before, after = [], []
        for name, value in lasting.items():
            before.append(f"export {name}={shlex.quote(value)}")
        for name, value in env.items():
            before.append(f'__had_{name}=${{{name}+x}} __old_{name}="${{{name}-}}"; export {name}={shlex.quote(value)}')
            after.append(f'if [ -n "$__had_{name}" ]; then export {name}="$__old_{name}"; else unset {name}; fi')
        restore = "".join(f"\n{line}" for line in after)
        whole = "\n".join([*before, code]) + (f"\n__result=$?{restore}\n(exit $__result)" if after else "")
        self.asking.write(self.mark.encode() + b"\0" + whole.replace("\0", "").encode() + b"\0")

    def hear_output(self, name, data):
        if name in getattr(self, "done", ()) or not hasattr(self, "mark"):
            return
        data = self.rest[name] + data
        mark = self.mark.encode()
        at = data.find(mark)
        if at == -1:
            # What could be the beginning of a mark waits for the rest of it.
            keep = next((size for size in range(min(len(mark) - 1, len(data)), 0, -1) if mark.startswith(data[-size:])), 0)
            text, self.rest[name] = data[: len(data) - keep], data[len(data) - keep :]
            if text:
                self.emit(results.output(name, text.decode(errors="replace")))
            return
        if b"\n" not in data[at:]:
            self.rest[name] = data[at:]
            if at:
                self.emit(results.output(name, data[:at].decode(errors="replace")))
            return
        if at:
            self.emit(results.output(name, data[:at].decode(errors="replace")))
        if name == "stdout":
            self.status = int(data[at + len(mark) :].split(b"\n")[0] or 0)
        self.done.add(name)
        if len(self.done) == 2:
            if self.status:
                self.emit(results.error("ExitStatus", str(self.status), f"the last command ended with status {self.status}"))
            self.finished.set()

    def hear(self, saying):
        pass

    def stop_code(self):
        # The shell itself stays; what it runs goes.
        subprocess.run(["pkill", "-INT", "-P", str(self.process.pid)], check=False)
