"""plane_kit for the tests of services."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "native"), str(Path(__file__).parents[1])]
