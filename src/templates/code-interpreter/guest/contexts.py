"""Contexts: each is a language, a directory and a kernel that keeps its variables from one run to the next."""

import os
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


class UnknownDirectory(Exception):
    pass


class Context:
    def __init__(self, language, cwd):
        self.id = str(uuid.uuid4())
        self.language = language
        self.cwd = cwd
        self.removed = False
        # Runs of one context wait for each other.
        self.lock = threading.Lock()
        self.kernel = KERNELS[language](language, cwd)

    def describe(self):
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    def run(self, code, env_vars, client, send):
        with self.lock, client.watched(self.kernel.interrupt):
            if self.removed:
                raise UnknownContext(self.id)
            env = {str(name): str(value) for name, value in env_vars.items()}
            self.kernel.run(code, sandbox_environment(), env, send)

    # Not under the lock: a run that never ends is what these two are for.
    def restart(self):
        self.kernel.restart()

    def remove(self):
        self.removed = True
        self.kernel.close()


class Contexts:
    def __init__(self):
        self.lock = threading.Lock()
        self.all = {}
        self.defaults = {}

    def create(self, language, cwd):
        cwd = cwd or HOME
        if not os.path.isdir(cwd):
            raise UnknownDirectory(cwd)
        context = Context(self.named(language), cwd)
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
        context.remove()

    def restart(self, context_id):
        self.get(context_id).restart()

    def named(self, language):
        name = (language or "python").lower()
        name = ALIASES.get(name, name)
        if name not in KERNELS:
            raise UnknownLanguage(language)
        return name
