//! Real routers as devices under test: namespaces, links, daemons, probes.
