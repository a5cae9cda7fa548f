"""The environment of processes that tests start."""

import os


def environment(*paths, **variables):
    """This process's, with `paths` where Python looks for modules first."""
    places = [*map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places), **variables}
