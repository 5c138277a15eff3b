"""plane_kit and kit_plane of tests/native for the tests of services."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "native"), str(HERE.parent)]
