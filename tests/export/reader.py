"""A server that never sleeps: looks for versions all the time and loads each at the moment it appears.

    python reader.py served/demo LIBRARIES

LIBRARIES are those of c_api.py. It ends with its input and writes {version: an error, or ""}.
"""

import json
import os
import select
import sys

from c_api import Session, start


def main(to, *libraries):
    library, found = start(libraries), {}
    print("ready", flush=True)
    is_last = False
    while not is_last:
        is_last = bool(select.select([sys.stdin], [], [], 0)[0])
        for name in os.listdir(to):
            if name.isdecimal() and name not in found:
                found[name] = error_of(library, os.path.join(to, name))
    json.dump(found, sys.stdout)


def error_of(library, path):
    try:
        Session(library, path).close()
    except RuntimeError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
