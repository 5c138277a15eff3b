"""The role tests' plane (tests/native/plane_kit.py) is used here, too."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.with_name("native"))]
