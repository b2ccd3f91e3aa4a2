//! Ports that generate frames in the kernel.

use super::*;
use drophammer_port::kernel_generator::{Stream, StreamProgress, StreamReport};
use drophammer_port::{KernelGenerator, pass_on};

/// A port that claims to generate frames in the kernel.
struct InKernel {
    inner: Box<dyn Port>,
    prepared: Rc<RefCell<u32>>,
}

impl Port for InKernel {
    pass_on!(inner: info, slots, send, receive, counters);

    fn kernel_generator(&mut self) -> Option<&mut dyn KernelGenerator> {
        Some(self)
    }
}

impl KernelGenerator for InKernel {
    fn place(&mut self, _: Option<usize>, _: f64) {}
    fn slowest_pps(&self) -> f64 {
        0.0
    }
    fn longest(&self) -> usize {
        1_514
    }
    fn most_flows(&self) -> usize {
        8
    }
    fn prepare(&mut self, _: &Stream) -> Result<bool, PortError> {
        *self.prepared.borrow_mut() += 1;
        Ok(true)
    }
    fn start(&mut self, _: Instant) {}
    fn progress(&self) -> Result<StreamProgress, PortError> {
        Ok(StreamProgress::default())
    }
    fn give_way(&mut self) {}
    fn stop(&mut self) -> Result<StreamReport, PortError> {
        let (skips, lateness, bins) = (vec![], [0; 40], vec![]);
        Ok(StreamReport { sent: 0, index: 0, skips, lateness, last_departure_ns: 0, bins })
    }
}

#[test]
fn the_kernel_makes_all_frames_of_a_port_or_none() {
    for told_before in [false, true] {
        let (mut bench, _) = joined(1, u64::MAX);
        let prepared: Rc<RefCell<u32>> = Rc::default();
        let in_kernel = |inner| Box::new(InKernel { inner, prepared: prepared.clone() }) as Box<dyn Port>;
        bench.ports = bench.ports.into_iter().map(in_kernel).collect();
        let mut traffic = on_queues(&two(true), 1);
        if told_before {
            traffic.live().transmit(FlowSelect::Groups(&["b"]), Stop, Some(ms(2))).unwrap();
        }
        drive(&mut bench, &mut traffic, LEAD + MS);
        assert_eq!(*prepared.borrow(), u32::from(!told_before));
        let told = traffic.live().transmit(FlowSelect::Groups(&["a"]), Pause, None);
        if told_before {
            // Then the kernel does not generate the frames, and flows can be stopped at any time.
            assert_eq!(told, Ok(()));
            drive(&mut bench, &mut traffic, u64::MAX);
            let result = merge(&traffic.reports());
            whole(&result, 0, 100);
            whole(&result, 1, 100);
            assert_eq!(result.health.kernel_generators, 0);
        } else {
            assert_eq!(told, Err(TransmitError::InKernel { flow: 0, group: "a".into() }));
            assert!(told.unwrap_err().to_string().contains("before the traffic starts"));
        }
    }
}
