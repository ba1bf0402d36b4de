"""Run in every Python kernel before any code: figures are shown as images, and figures and tables also as data."""


def _sandbar_startup():
    import os
    import sys

    from IPython import get_ipython
    from IPython.core.formatters import BaseFormatter, catch_format_error
    from sandbar_charts import chart_of
    from traitlets import ObjectName, Unicode

    shell = get_ipython()
    # Figures of plotly as its own data, and as a page of HTML for who does not know that.
    os.environ.setdefault("PLOTLY_RENDERER", "plotly_mimetype+colab")

    class DataFormatter(BaseFormatter):
        format_type = Unicode("e2b/data")
        print_method = ObjectName("_repr_e2b_data_")
        _return_type = (dict, list)

    class ChartFormatter(BaseFormatter):
        format_type = Unicode("e2b/chart")
        print_method = ObjectName("_repr_e2b_chart_")
        _return_type = dict

        # Not by a printer for the type: matplotlib removes those of all formatters when it sets its own.
        @catch_format_error
        def __call__(self, shown):
            figures = sys.modules.get("matplotlib.figure")
            return chart_of(shown) if figures and isinstance(shown, figures.Figure) else None

    def table(frame):
        import json

        return {
            str(name): json.loads(column.to_json(orient="values", date_format="iso", default_handler=str))
            for name, column in frame.items()
        }

    formatters = shell.display_formatter.formatters
    formatters["e2b/data"] = DataFormatter(parent=shell.display_formatter)
    formatters["e2b/data"].for_type_by_name("pandas.core.frame", "DataFrame", table)
    # The name under which newer releases of pandas have it.
    formatters["e2b/data"].for_type_by_name("pandas", "DataFrame", table)
    formatters["e2b/chart"] = ChartFormatter(parent=shell.display_formatter)
    shell.run_line_magic("matplotlib", "inline")


import sys as _sys

_sys.path.append("/opt/code-interpreter")
try:
    _sandbar_startup()
finally:
    _sys.path.remove("/opt/code-interpreter")
    del _sandbar_startup, _sys
