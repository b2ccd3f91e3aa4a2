//! The facade that tests speak to: topology, ports, flows, emulated hosts and DUT.
