"""The code interpreter with the newest Python package."""

import json

from e2b_code_interpreter import Sandbox

sandbox = Sandbox.create(envs={"FROM_SANDBOX": "outer"})
try:
    sandbox.run_code("x = 41")
    execution = sandbox.run_code("x + 1")
    assert execution.text == "42", execution
    out = []
    printed = sandbox.run_code("for i in range(3): print(i)", on_stdout=lambda message: out.append(message.line))
    assert "".join(printed.logs.stdout) == "0\n1\n2\n" == "".join(out), printed
    failed = sandbox.run_code("1/0")
    assert failed.error.name == "ZeroDivisionError" and "division by zero" in failed.error.traceback, failed
    figure = sandbox.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()")
    assert figure.results[0].png, figure
    assert figure.results[0].chart.type.value == "line", figure.results[0].chart
    table = sandbox.run_code("import pandas as pd\npd.DataFrame({'a': [1, 2]})")
    assert table.results[0].data == {"a": [1, 2]} and "<table" in table.results[0].html, table
    assert sandbox.run_code("import os; os.getenv('FROM_SANDBOX')").text == "outer"
    assert sandbox.run_code("os.getenv('ONCE')", envs={"ONCE": "inner"}).text == "inner"
    assert sandbox.run_code("os.getenv('ONCE') is None").text == "True"
    context = sandbox.create_code_context(cwd="/tmp")
    assert sandbox.run_code("import os; os.getcwd()", context=context).text == "/tmp"
    assert sandbox.run_code("'x' in globals()", context=context).text == "False"
    assert sandbox.run_code("let y = 20; y + 1", language="javascript").text == "21"
    assert "".join(sandbox.run_code("z=5; echo $z", language="bash").logs.stdout) == "5\n"
    sandbox.remove_code_context(context)
finally:
    sandbox.kill()
print(json.dumps({"ok": True}))
