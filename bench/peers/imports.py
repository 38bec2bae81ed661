"""What every worker needs, imported once by the process that they are forked from. A module that can't be imported is
absent in the worker too, with its reason."""

import contextlib
import importlib
import os
import warnings

from . import catalog

# Of processes that the modules start while they are imported.
warnings.filterwarnings("ignore", message="forkserver: waitpid returned")

with open(os.devnull, "w") as null, contextlib.redirect_stderr(null):
    for module in ("numpy", *catalog.MODULES):
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
