//! Classes of service, at the server of the router and at the lines of its ports.

use super::Router;
use super::forward::{Served, Waiting};
use super::header::{Contents, contents_on_line, dscp_on_line};
use crate::class_line::{ClassLine, Step};
use crate::classes::ClassCounters;
use crate::config::ConfigError;
use crate::pool::Slot;
use drophammer_model::Instant;
use drophammer_model::classes::{EgressClasses, by_port};

/// A frame in the queues of a line.
pub(super) struct OnLine {
    slot: Slot,
    /// True for a datagram, which no station answers.
    datagram: bool,
}

impl Router {
    /// Replaces the classes of service at the lines of the ports from now on; an empty list removes them and restores
    /// the configured lines. Frames that wait at a line with classes are dropped. Faults neither hold nor reorder
    /// frames on a line with classes.
    ///
    /// # Errors
    /// [`ConfigError::Classes`]; the classes are then unchanged.
    pub fn set_classes(&mut self, lists: &[EgressClasses]) -> Result<(), ConfigError> {
        let by_port = by_port(lists, self.ports.len()).map_err(ConfigError::Classes)?;
        let line = |(port, list): (usize, &EgressClasses)| Ok((port, ClassLine::new(list, self.faults.classes)?));
        let lines = by_port.into_iter().map(line).collect::<Result<Vec<_>, ConfigError>>()?;
        self.serve_lines(self.now);
        let old: Vec<_> = self.ports.iter_mut().filter_map(|port| port.classes.take()).collect();
        for frame in old.into_iter().flat_map(|line| line.into_frames()) {
            self.leave_line(frame, |d| &mut d.egress);
        }
        for (port, line) in lines {
            self.ports[port].classes = Some(Box::new(line));
        }
        self.classed = !lists.is_empty();
        Ok(())
    }

    /// Counters of each class of the server.
    pub fn class_counters(&self) -> &[ClassCounters] {
        self.classes.as_ref().map_or(&[], |c| &c.counters)
    }

    /// Port, name and counters of each class of each line.
    pub fn line_classes(&self) -> impl Iterator<Item = (usize, &str, ClassCounters)> {
        let lines = self.ports.iter().enumerate().filter_map(|(i, port)| Some((i, port.classes.as_ref()?)));
        lines.flat_map(|(port, line)| line.counters().map(move |(name, counters)| (port, name, counters)))
    }

    /// Moves the frames that the server has served until `now` to their next step.
    pub(super) fn serve_classes(&mut self, now: Instant) {
        while let Some((end, frame)) = self.classes.as_mut().and_then(|c| c.next(now)) {
            let Waiting { slot, arrived, ingress, port, contents } = frame;
            self.served(Served { slot, arrived, end, ingress, port, contents });
        }
    }

    /// Queues the frame in `slot`, ready at `ready`, at a line with classes.
    #[cold]
    pub(super) fn queue_on_line(&mut self, port: usize, ready: Instant, slot: Slot) {
        let frame = self.pool.get(slot);
        let datagram = contents_on_line(frame) == Contents::Datagram && frame[0] & 1 == 0;
        let (dscp, len) = (dscp_on_line(frame), frame.len() + 4);
        if let Some(line) = &mut self.ports[port].classes {
            self.answerable += usize::from(!datagram);
            line.offer(ready, dscp, len, OnLine { slot, datagram });
        }
    }

    /// Processes the events at lines with classes until `now`.
    pub(super) fn serve_lines(&mut self, now: Instant) {
        if !self.classed {
            return;
        }
        for port in 0..self.ports.len() {
            while let Some(step) = self.ports[port].classes.as_mut().and_then(|line| line.step(now)) {
                match step {
                    Step::Out(_, frame) if self.ports[port].down => self.leave_line(frame, |d| &mut d.link_down),
                    Step::Out(at, OnLine { slot, datagram: true }) => {
                        self.departures.schedule(at, port, slot, true);
                    }
                    Step::Out(at, OnLine { slot, datagram: false }) => {
                        self.answerable -= 1;
                        self.departures.schedule_other(at, port, slot, true);
                    }
                    Step::Full(frame) => {
                        self.ports[port].counters.out_discards += 1;
                        self.leave_line(frame, |d| &mut d.egress);
                    }
                    Step::Fault(frame) => self.leave_line(frame, |d| &mut d.fault_class),
                }
            }
        }
    }

    /// Drops a frame from the queues of a line.
    fn leave_line(&mut self, frame: OnLine, cause: impl FnOnce(&mut crate::Drops) -> &mut u64) {
        self.answerable -= usize::from(!frame.datagram);
        self.discard(frame.slot, cause);
    }

    /// The time of the next event at a line with classes.
    pub(super) fn next_on_lines(&self) -> Option<Instant> {
        if !self.classed {
            return None;
        }
        self.ports.iter().filter_map(|port| port.classes.as_ref()?.next_event()).min()
    }

    /// Like `next_on_lines`, but only if another station may answer a frame in the queues.
    pub(super) fn next_answerable_on_lines(&self) -> Option<Instant> {
        if self.answerable == 0 { None } else { self.next_on_lines() }
    }
}
