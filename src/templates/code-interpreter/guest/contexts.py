"""Contexts: each is a language, a directory and a kernel that keeps its variables from one run to the next."""

import threading
import uuid

from environment import sandbox_environment
from process_kernels import BashKernel, NodeKernel
from python_kernel import PythonKernel

HOME = "/home/user"
KERNELS = {
    "python": PythonKernel,
    "javascript": NodeKernel,
    "typescript": NodeKernel,
    "bash": BashKernel,
}
ALIASES = {"py": "python", "python3": "python", "js": "javascript", "ts": "typescript", "sh": "bash", "shell": "bash"}


class UnknownContext(Exception):
    pass


class UnknownLanguage(Exception):
    pass


class Context:
    def __init__(self, language, cwd):
        self.id = str(uuid.uuid4())
        self.language = language
        self.cwd = cwd
        # Runs of one context wait for each other.
        self.lock = threading.Lock()
        self.kernel = KERNELS[language](language, cwd)

    def describe(self):
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    def run(self, code, env_vars, send):
        with self.lock:
            env = {str(name): str(value) for name, value in env_vars.items()}
            self.kernel.run(code, sandbox_environment(), env, send)

    def interrupt(self):
        self.kernel.interrupt()

    def restart(self):
        # Not under the lock: a run that never ends is what a restart is for.
        self.kernel.restart()


class Contexts:
    def __init__(self):
        self.lock = threading.Lock()
        self.all = {}
        self.defaults = {}

    def create(self, language, cwd):
        context = Context(self.named(language), cwd or HOME)
        with self.lock:
            self.all[context.id] = context
        return context.describe()

    def default(self, language):
        """The context that runs what names no context."""
        name = self.named(language)
        with self.lock:
            if name not in self.defaults:
                context = Context(name, HOME)
                self.all[context.id] = context
                self.defaults[name] = context.id
            return self.all[self.defaults[name]]

    def get(self, context_id):
        context = self.all.get(context_id)
        if context is None:
            raise UnknownContext(context_id)
        return context

    def list(self):
        return [context.describe() for context in list(self.all.values())]

    def remove(self, context_id):
        context = self.get(context_id)
        with self.lock:
            self.all.pop(context_id, None)
            self.defaults = {name: each for name, each in self.defaults.items() if each != context_id}
        context.kernel.close()

    def restart(self, context_id):
        self.get(context_id).restart()

    def named(self, language):
        name = (language or "python").lower()
        name = ALIASES.get(name, name)
        if name not in KERNELS:
            raise UnknownLanguage(language)
        return name
