"""The reference device in the namespace `router`, as the commands of a suite with kind `external`.

`start INTERFACE...` starts it on the router's ends of the suite's ports; `stop` ends it. `counters` prints what it did. Its faults then
number the frames of each port from 1: they begin anew with each trial, because the tester asks for the counters before one.
"""

import json
import os
import socket
import subprocess
import sys
import time

# Each n is above the number of learning frames that a port sends, of which none may be lost.
FAULTS = {
    "by_port": True,
    "drop_every": 401,
    "duplicate_every": 409,
    "corrupt": {"every": 419, "offset": 10, "fix_checksum": False},
    "reorder": {"every": 421, "positions": 3},
    "wrong_next_hop": {"every": 431, "mac": "02:ff:ff:ff:ff:fe"},
}
# Frames that waited this long for the device's processor may arrive after the tester has stopped waiting for them.
LONG_NS = 100_000_000
# What it counts of them.
COUNTED = ["test_frames", "duplicated", "corrupted", "wrong_next_hop", "receive_overflow", "transmit_refused"]


def ask(request):
    with socket.socket(socket.AF_UNIX) as to:
        to.connect("router.socket")
        to.sendall(request.encode() + b"\n")
        answer = json.loads(to.makefile().readline())
    if isinstance(answer, dict) and "error" in answer:
        sys.exit(answer["error"])
    return answer


def start(interfaces):
    def network(name):
        address, length = os.environ[name].split("/")
        return [address, int(length)]

    ports, routes = [], []
    for i in range(len(interfaces)):
        addresses = {family.lower(): network(f"PORT_{i}_{family}_DUT") for family in ["IPV4", "IPV6"]}
        ports.append({"mac": f"02:00:00:00:99:{i:02x}", "mtu": 1500, "egress_buffer": 1024, **addresses})
        for family in ["IPV4", "IPV6"]:
            prefix, length = network(f"PORT_{i}_{family}_BEHIND")
            next_hop = os.environ[f"PORT_{i}_{family}_HOST"]
            routes.append({"prefix": prefix, "prefix_len": length, "port": i, "next_hop": next_hop})
    device = {"ports": ports, "routes": routes, "neighbour_lifetime": None, "faults": FAULTS}
    with open("router.json", "w") as file:
        json.dump({"links": "veth", "device": device}, file)
    command = ["ip", "netns", "exec", "router", os.environ["D"], "reference-device", "router.json", "router.socket"]
    with open("router.log", "w") as log:
        router = subprocess.Popen(command + interfaces, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    with open("router.pid", "w") as file:
        file.write(str(router.pid))
    while not os.path.exists("router.socket"):
        if router.poll() is not None:
            sys.exit(open("router.log").read())
        time.sleep(0.02)


def stop():
    os.kill(int(open("router.pid").read()), 9)
    os.remove("router.socket")


def counters():
    truth = ask("counters")["truth"]
    for name in COUNTED:
        print(name, truth[name])
    print("dropped", sum(truth["dropped"].values()))
    with open("held_up", "a+") as file:
        if ask("wait") > LONG_NS:
            file.write(".")
        print("held_up", file.tell())
    ask("begin")


if sys.argv[1] == "start":
    start(sys.argv[2:])
else:
    {"stop": stop, "counters": counters}[sys.argv[1]]()
