"""plane_kit and the kits of this folder."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "native"), str(HERE.parent)]
