"""The network options of the Python SDK, against a service whose internet is the tests'. Prints what became of it."""

import json

from e2b import ALL_TRAFFIC, Sandbox, Secret


def reached(sandbox, url):
    result = sandbox.commands.run(f"curl -sS -m 5 {url} || true")
    try:
        answer = json.loads(result.stdout)
        return [answer["at"], answer["headers"].get("x-key", "")]
    except ValueError:
        return None


Secret.create("python-key", "from-python")
sandbox = Sandbox.create(
    network={
        "allow_out": lambda ctx: [*ctx.rules.keys(), "198.51.100.30"],
        "deny_out": [ALL_TRAFFIC],
        "rules": {"ruled.test": [{"transform": {"headers": {"X-Key": Secret.fill("python-key")}}}]},
    }
)
first = [reached(sandbox, url) for url in ("https://ruled.test", "http://198.51.100.30", "http://198.51.100.20")]
sandbox.update_network({"deny_out": ["198.51.100.30"]})
second = [reached(sandbox, url) for url in ("http://ruled.test", "http://198.51.100.30", "http://198.51.100.20")]
shown = sandbox.get_info().network
closed = Sandbox.create(allow_internet_access=False)
third = [reached(closed, "http://198.51.100.20")]
Secret.destroy("python-key")
sandbox.kill()
closed.kill()
print(json.dumps({"first": first, "second": second, "third": third, "shown": shown}, default=str))
