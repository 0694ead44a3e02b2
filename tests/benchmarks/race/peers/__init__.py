"""Each module sets up one library as its documentation says.

``send`` makes one call for each number, ``send_many`` all of them at once, where the library can, and ``send_slow``
calls that take a second; they may be coroutine functions. ``prepare`` makes tables. BENCH_CONNECTION is the address.
"""

import os

TEXT = "some text"
URL = os.environ.get("BENCH_CONNECTION", "")
