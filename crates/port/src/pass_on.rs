//! Ports around other ports.

/// Within `impl Port`: passes the listed methods on to the port in a field, as in `pass_on!(inner: info, slots, counters);`.
#[macro_export]
macro_rules! pass_on {
    ($inner:tt: $($method:ident),+) => {
        $($crate::pass_on!(@$method $inner);)+
    };
    (@info $inner:tt) => {
        fn info(&self) -> &$crate::PortInfo {
            self.$inner.info()
        }
    };
    (@slots $inner:tt) => {
        fn slots(&mut self) -> &mut $crate::Batch {
            self.$inner.slots()
        }
    };
    (@send $inner:tt) => {
        fn send(&mut self, frames: usize) -> Result<$crate::Sent, $crate::PortError> {
            self.$inner.send(frames)
        }
    };
    (@receive $inner:tt) => {
        fn receive(&mut self) -> Result<$crate::Received<'_>, $crate::PortError> {
            self.$inner.receive()
        }
    };
    (@counters $inner:tt) => {
        fn counters(&mut self) -> Result<$crate::PortCounters, $crate::PortError> {
            self.$inner.counters()
        }
    };
}
