"""Results of a kernel as the clients name their forms."""

import time

NAMES = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}


def result(data, is_main_result):
    line = {"type": "result", "is_main_result": is_main_result}
    extra = {}
    for mime, value in data.items():
        name = NAMES.get(mime)
        if name is None:
            extra[mime] = value
        elif isinstance(value, list) and name not in ("data", "json"):
            line[name] = "".join(value)
        else:
            line[name] = unquoted(value) if name == "text" else value
    if extra:
        line["extra"] = extra
    return line


def unquoted(text):
    """A string is shown as it is, not as it is written in the language."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"" and text[0] not in text[1:-1]:
        return text[1:-1]
    return text


def output(stream, text):
    return {"type": stream, "text": text, "timestamp": time.time_ns()}


def error(name, value, traceback):
    return {"type": "error", "name": name, "value": value, "traceback": traceback}


def count(executions):
    return {"type": "number_of_executions", "execution_count": executions}
