"""BIRD in the namespace `router`, as the commands of a suite with kind `external`.

`start INTERFACE...` gives the router's ends of the suite's ports their addresses and starts BIRD with a session for each port;
`stop` ends it, and takes the addresses away again, because the next ports have the same ones.
"""

import os
import subprocess
import sys
import time

IN_ROUTER = ["ip", "netns", "exec", "router"]


def start(interfaces):
    own = os.environ["DUT_AS"]
    text = ["router id 198.18.0.1;", "protocol device {}"]
    text += ["protocol kernel { merge paths off; ipv4 { import none; export all; }; }", "protocol static { ipv4;"]
    for i in range(len(interfaces)):
        text.append(f"  route {os.environ[f'PORT_{i}_IPV4_BEHIND']} via {os.environ[f'PORT_{i}_IPV4_HOST']};")
    text.append("}")
    for i, interface in enumerate(interfaces):
        network = os.environ[f"PORT_{i}_IPV4_DUT"]
        address, neighbour = network.split("/")[0], os.environ[f"PORT_{i}_IPV4_HOST"]
        subprocess.run(["ip", "-n", "router", "address", "replace", network, "dev", interface], check=True)
        text.append(
            f"protocol bgp p{i} {{ local {address} as {own}; neighbor {neighbour} as {os.environ[f'PORT_{i}_AS']};"
            f" hold time {os.environ['DUT_HOLD_TIME']}; connect delay time 1; connect retry time 1; error wait time 1, 2; direct;"
            " ipv4 { import all; export where source = RTS_BGP; next hop self; }; }"
        )
    with open("bird.conf", "w") as file:
        file.write("\n".join(text) + "\n")
    subprocess.run(IN_ROUTER + ["bird", "-c", "bird.conf", "-s", "bird.socket", "-P", "bird.pid"], check=True)


def stop():
    pid = int(open("bird.pid").read())
    subprocess.run(["birdc", "-s", "bird.socket", "down"], stdout=subprocess.DEVNULL, check=True)
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.02)
    subprocess.run(["ip", "-n", "router", "address", "flush", "to", "198.18.0.0/15"], check=True)


{"start": lambda: start(sys.argv[2:]), "stop": stop}[sys.argv[1]]()
