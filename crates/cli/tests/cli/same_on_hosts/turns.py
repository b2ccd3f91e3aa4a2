"""Lets the threads of all agents take short turns on few processors: `turns.py PID`.

The thread of an agent's ports never sleeps in a trial. With more agents than processors, each is away for a whole tick of the scheduler
(4 ms) again and again, and sends late. Processes that PID starts from now on have slices of 100 us, and a process that wakes on each
processor more than a thousand times a second makes the scheduler end a slice in time.
"""

import ctypes
import os
import platform
import struct
import sys
import time

SCHED_SETATTR = {"x86_64": 314}.get(platform.machine(), 274)
NICE = -10
libc = ctypes.CDLL(None, use_errno=True)
# struct sched_attr: size, policy, flags, nice, priority, runtime in ns, deadline, period.
attributes = struct.pack("=IIQiIQQQ", 48, 0, 0, NICE, 0, 100_000, 0, 0)
for pid in [0, int(sys.argv[1])]:
    if libc.syscall(SCHED_SETATTR, pid, attributes, 0):
        sys.exit(f"sched_setattr: {os.strerror(ctypes.get_errno())}")
for processor in os.sched_getaffinity(0):
    if os.fork() == 0:
        os.sched_setaffinity(0, [processor])
        os.nice(NICE)
        while True:
            time.sleep(0.0003)
