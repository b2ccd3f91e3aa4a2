"""Two BGP routers around a router under test, and traffic to the routes of one of them: `python3 otg_bgp.py`, beside `drophammer serve`."""

import os
import time

import snappi

ROUTES = 100
PACKETS = 1_000


def wait(what, seconds, done):
    end = time.time() + seconds
    while not done():
        assert time.time() < end, f"{what}: not within {seconds} s"
        time.sleep(0.1)


api = snappi.api(location=os.environ.get("OTG", "https://127.0.0.1:8443"))
config = api.config()
for n in (1, 2):
    port = config.ports.port(name=f"p{n}", location=f"eth{n}")[-1]
    device = config.devices.device(name=f"d{n}")[-1]
    ethernet = device.ethernets.ethernet(name=f"e{n}", mac=f"02:00:00:00:00:0{n}")[-1]
    ethernet.connection.port_name = port.name
    ip = ethernet.ipv4_addresses.ipv4(name=f"a{n}", address=f"10.0.{n}.2", gateway=f"10.0.{n}.1", prefix=24)[-1]
    device.bgp.router_id = ip.address
    session = device.bgp.ipv4_interfaces.v4interface(ipv4_name=ip.name)[-1]
    peer = session.peers.v4peer(name=f"b{n}", peer_address=ip.gateway, as_type="ebgp", as_number=65_000 + n)[-1]
    peer.learned_information_filter.unicast_ipv4_prefix = True
routes = peer.v4_routes.v4routerange(name="routes")[-1]
routes.addresses.v4routeaddress(address="20.0.0.0", prefix=24, count=ROUTES)

flow = config.flows.flow(name="f")[-1]
flow.tx_rx.device.tx_names, flow.tx_rx.device.rx_names = ["a1"], ["routes"]
flow.packet.ethernet().ipv4().udp()
flow.size.fixed, flow.rate.pps, flow.duration.fixed_packets.packets = 128, 500, PACKETS
flow.metrics.enable = True
api.set_config(config)

# Protocols start with the configuration. The first device learns the routes of the second one through the router.
learned = api.states_request()
learned.bgp_prefixes.bgp_peer_names = ["b1"]
wait("routes", 60, lambda: len(api.get_states(learned).bgp_prefixes[0].ipv4_unicast_prefixes) == ROUTES)

start = api.control_state()
start.traffic.flow_transmit.state = start.traffic.flow_transmit.START
api.set_control_state(start)
request = api.metrics_request()
request.flow.flow_names = ["f"]
wait("traffic", 60, lambda: api.get_metrics(request).flow_metrics[0].transmit == "stopped")
stop = api.control_state()
stop.traffic.flow_transmit.state = stop.traffic.flow_transmit.STOP
api.set_control_state(stop)

metric = api.get_metrics(request).flow_metrics[0]
print(f"{ROUTES} routes; {metric.frames_tx} frames sent, {metric.frames_rx} received")
assert (metric.frames_tx, metric.frames_rx) == (PACKETS, PACKETS)
