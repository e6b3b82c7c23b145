"""Where the packages of the real pairs lie. Imported first by every pair: the folder goes to the END of the import
path, so that the environment's own packages win."""

import os
import sys
from pathlib import Path

SITE = Path(os.environ["AMBIDEX_REAL_SITE"])
if str(SITE) not in sys.path:
    sys.path.append(str(SITE))
