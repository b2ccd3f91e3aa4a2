//! Ports that this host lends to a rig on another host.
//!
//! One thread owns [`Lent`]. Between trials it passes frames between the ports and the devices of the rig; in a trial it
//! runs the lanes of these ports, and does the same on the side. Other threads hand it frames of the devices through a
//! [`Relay`], and report there that the rig is alive: when they have been silent for too long, traffic stops.

use crate::bell::{Bell, Ear, bell};
use crate::far::Job;
use crate::ports::Ports;
use crate::rig::RigError;
use crate::shared_routes;
use drophammer_model::Instant;
use drophammer_model::trial::PortIndex;
use drophammer_port::{Arrival, BURST, PortError};
use drophammer_traffic::{
    Agreed, Control, FlowSelect, LaneCounts, LaneReport, Live, Plan, Refusals, SendFrame, Traffic, Wish,
};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Maximum number of frames of devices that wait for a port.
const WAITING: usize = 4096;
/// How often a lane checks for frames of devices, and whether the rig is still there.
const GLANCE: Duration = Duration::from_micros(100);
/// The same between trials, unless something happens before.
const REST: Duration = Duration::from_secs(1);

/// Frames of devices that are to leave from one port.
#[derive(Default)]
struct Outbox {
    any: AtomicBool,
    frames: Mutex<VecDeque<Vec<u8>>>,
}

impl Outbox {
    fn take(&self) -> VecDeque<Vec<u8>> {
        if !self.any.swap(false, Ordering::Acquire) {
            return VecDeque::new();
        }
        std::mem::take(&mut *self.frames.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn give_back(&self, mut left: VecDeque<Vec<u8>>) {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        left.append(&mut frames);
        *frames = left;
        drop(frames);
        self.any.store(true, Ordering::Release);
    }
}

/// Passes a frame that arrived at a port of the trial to its devices.
pub type Up = Box<dyn Fn(PortIndex, Instant, &[u8]) + Send + Sync>;

/// The way between lent ports and the rig.
pub struct Relay {
    places: Vec<PortIndex>,
    outboxes: Vec<Outbox>,
    up: Up,
    /// Wakes the thread of the ports.
    bell: Bell,
    /// When the rig was last known to be there, on the clock of the ports.
    heard: AtomicU64,
    silence_ns: u64,
}

impl Relay {
    /// Queues a frame of a device for a port of the trial. Returns false if there is no room, or no such port here.
    pub fn down(&self, port: PortIndex, frame: &[u8]) -> bool {
        let Ok(own) = self.places.binary_search(&port) else { return false };
        let outbox = &self.outboxes[own];
        let mut frames = outbox.frames.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = frames.len() < WAITING;
        if fits {
            frames.push_back(frame.to_vec());
        }
        drop(frames);
        if !outbox.any.swap(true, Ordering::Release) {
            self.bell.ring();
        }
        fits
    }

    /// Ends a rest of the thread of the ports ([`Lent::pass`]), which then looks for what its owner wants.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Records that the rig was there at `at`.
    pub fn heard(&self, at: Instant) {
        self.heard.fetch_max(at.0, Ordering::Relaxed);
    }

    /// True if the rig has been silent for too long.
    pub fn is_silent(&self, now: Instant) -> bool {
        now.0.saturating_sub(self.heard.load(Ordering::Relaxed)) > self.silence_ns
    }
}

/// The relay in the loop of a lane.
struct LaneRelay<'a> {
    relay: &'a Relay,
    /// Ports of the trial whose first queue belongs to the lane.
    own: Vec<PortIndex>,
    silent: Cell<bool>,
    ends: &'a AtomicBool,
}

impl Control for LaneRelay<'_> {
    fn receive(&mut self, port: PortIndex, arrival: Arrival<'_>) -> Result<(), PortError> {
        (self.relay.up)(port, arrival.at, arrival.frame);
        Ok(())
    }

    fn poll(&mut self, now: Instant, send: &mut SendFrame<'_>) -> Result<Instant, PortError> {
        self.silent.set(self.relay.is_silent(now));
        for port in &self.own {
            let Ok(own) = self.relay.places.binary_search(port) else { continue };
            let outbox = &self.relay.outboxes[own];
            let mut frames = outbox.take();
            while let Some(frame) = frames.pop_front() {
                if !send(*port, &frame)? {
                    frames.push_front(frame);
                    outbox.give_back(frames);
                    break;
                }
            }
        }
        Ok(now + GLANCE)
    }

    fn stop(&self) -> bool {
        self.silent.get() || self.ends.load(Ordering::Relaxed)
    }
}

/// Why lent ports have no result of a trial.
#[derive(Debug, thiserror::Error)]
pub enum LentError {
    /// The trial cannot be planned or driven here.
    #[error(transparent)]
    Rig(#[from] RigError),
    /// There is no trial to start.
    #[error("no trial is planned")]
    NotPlanned,
    /// The job does not belong to these ports.
    #[error("the trial has {trial} ports, but the lease is for {lease}")]
    Ports {
        /// Ports of the trial.
        trial: usize,
        /// Ports for which the lease was made.
        lease: usize,
    },
    /// The thread of the ports could not be woken.
    #[error("no descriptors for the thread of the ports: {0}")]
    Bell(std::io::Error),
    /// The lanes were not ready in time, so frames of other hosts may have arrived before they could be counted.
    #[error("its lanes were ready {0:?} later than agreed")]
    Late(Duration),
    /// The rig was silent for too long.
    #[error("the controller was not heard for {0:?}, so traffic was stopped")]
    Silence(Duration),
}

/// Ports that this host lends.
pub struct Lent {
    ports: Ports,
    /// Number of ports of the trial.
    all: usize,
    relay: Arc<Relay>,
    ear: Ear,
    planned: Option<(Plan, Vec<Wish>)>,
    traffic: Option<Traffic>,
    /// True if the rig wants the last counts of the traffic.
    counts: bool,
    ends: AtomicBool,
}

impl Lent {
    /// Lends `ports`: port i is port `places[i]` of a rig with `all` ports. Traffic stops if the rig is silent for
    /// `silence`. `up` takes frames that are not test frames.
    ///
    /// # Errors
    /// [`LentError::Ports`] if the places are not ascending places among `all` ports, one for each port;
    /// [`LentError::Bell`].
    pub fn new(
        ports: Ports,
        places: &[PortIndex],
        all: usize,
        silence: Duration,
        up: Up,
    ) -> Result<(Lent, Arc<Relay>), LentError> {
        let fits = places.len() == ports.len()
            && places.is_sorted_by(|a, b| a < b)
            && places.last().is_some_and(|last| *last < all);
        if !fits {
            return Err(LentError::Ports { trial: all, lease: ports.len() });
        }
        let heard = AtomicU64::new(ports.clock().now().0);
        let (bell, ear) = bell().map_err(LentError::Bell)?;
        let relay = Arc::new(Relay {
            places: places.to_vec(),
            outboxes: places.iter().map(|_| Outbox::default()).collect(),
            up,
            bell,
            heard,
            silence_ns: silence.as_nanos() as u64,
        });
        let lent = Lent {
            ports,
            all,
            relay: relay.clone(),
            ear,
            planned: None,
            traffic: None,
            counts: false,
            ends: AtomicBool::new(false),
        };
        Ok((lent, relay))
    }

    /// Returns the time on the clock of the ports.
    pub fn now(&self) -> Instant {
        self.ports.clock().now()
    }

    /// Passes waiting frames on. If there are none, rests until there are some or [`Relay::ring`] is called, for up to a
    /// second.
    ///
    /// # Errors
    /// Errors of the port.
    pub fn pass(&mut self) -> Result<(), PortError> {
        let mut any = false;
        let mut port = 0;
        for queue in 0..self.ports.queues() {
            if queue > 0 && self.ports.queue(queue).info().queue.index == 0 {
                port += 1;
            }
            let place = self.relay.places[port];
            loop {
                let frames = self.ports.queue(queue).receive()?;
                frames.iter().for_each(|arrival| (self.relay.up)(place, arrival.at, arrival.frame));
                any |= !frames.is_empty();
                if frames.len() < BURST {
                    break;
                }
            }
        }
        for (own, outbox) in self.relay.outboxes.iter().enumerate() {
            let mut frames = outbox.take();
            any |= !frames.is_empty();
            while let Some(frame) = frames.pop_front() {
                let port = self.ports.get(own);
                port.slots().put(0, &frame);
                if port.send(1)?.refused > 0 {
                    frames.push_front(frame);
                    outbox.give_back(frames);
                    break;
                }
            }
        }
        if !any {
            self.ports.rest(self.now() + REST, Some(&self.ear));
            // The caller looks for orders after this, so none of them is missed.
            self.ear.forget();
        }
        Ok(())
    }

    /// Plans the part of these ports in a trial.
    ///
    /// # Errors
    /// [`LentError`].
    pub fn plan(&mut self, job: &Job) -> Result<(), LentError> {
        (self.planned, self.traffic) = (None, None);
        job.check().map_err(RigError::Config)?;
        if job.neighbours.len() != self.all {
            return Err(LentError::Ports { trial: job.neighbours.len(), lease: self.all });
        }
        let spec = shared_routes::filled(&job.spec, &job.routes).map_err(RigError::Config)?;
        let layout = self.ports.layout().on_host(&self.relay.places, self.all).for_flows(&spec.flows);
        let plan = Plan::on_lanes(&spec, &job.neighbours, &job.timing(), layout).map_err(RigError::from)?;
        (self.planned, self.counts) = (Some((plan, job.orders.clone())), job.counts);
        Ok(())
    }

    /// Prepares the planned traffic to start as `agreed` on all hosts. See [`Live::tell`].
    ///
    /// # Errors
    /// [`LentError::NotPlanned`]; [`LentError::Rig`] if a flow cannot be started or stopped.
    pub fn start(&mut self, agreed: Agreed) -> Result<Live, LentError> {
        let (plan, orders) = self.planned.take().ok_or(LentError::NotPlanned)?;
        let traffic = Traffic::on_host(plan, agreed);
        let live = traffic.live();
        for order in &orders {
            if let Wish::Transmit { flows, action, at } = order {
                live.transmit(FlowSelect::Flows(flows), *action, *at).map_err(RigError::from)?;
            }
        }
        self.traffic = Some(traffic);
        Ok(live)
    }

    /// Drives the traffic to its end. Returns the frames that the rings of these ports refused.
    ///
    /// # Errors
    /// [`LentError`]. The traffic has ended, and nothing more is sent.
    pub fn run(&mut self) -> Result<Refusals, LentError> {
        let Lent { ports, relay, traffic, ends, .. } = self;
        let running = traffic.as_mut().ok_or(LentError::NotPlanned)?;
        let layout = running.layout().clone();
        let lane = |number: usize| {
            let own = relay.places.iter().copied().filter(|port| layout.lane_of(*port) == number);
            LaneRelay { relay, own: own.collect(), silent: Cell::new(false), ends }
        };
        let mut first = lane(0);
        let mut others: Vec<_> = (1..layout.lanes()).map(lane).collect();
        let driven = ports.drive_with(running, &mut first, &mut others, Instant(u64::MAX));
        // The lane that notices the silence ends all of them.
        let silent = first.silent.get() || others.iter().any(|lane| lane.silent.get());
        let (refusals, late_ns) = (running.refusals(), running.late_ns());
        if silent || late_ns > 0 || driven.is_err() {
            self.traffic = None;
        }
        driven.map_err(RigError::from)?;
        if silent {
            return Err(LentError::Silence(Duration::from_nanos(relay.silence_ns)));
        }
        if late_ns > 0 {
            return Err(LentError::Late(Duration::from_nanos(late_ns)));
        }
        Ok(refusals)
    }

    /// Returns the reports of the traffic that has ended; `elsewhere` are the refusals on other hosts. Empty without
    /// traffic.
    pub fn reports(&mut self, elsewhere: &Refusals) -> Vec<LaneReport> {
        self.traffic.as_mut().map_or(Vec::new(), |traffic| traffic.reports_with(elsewhere))
    }

    /// Returns the counts of the lanes of traffic that has ended, if the rig wants them.
    pub fn last_counts(&mut self) -> Vec<LaneCounts> {
        let now = self.now();
        let traffic = self.traffic.as_mut().filter(|_| self.counts);
        traffic.map_or(Vec::new(), |traffic| traffic.last_counts(now))
    }

    /// Returns the time in ns that a hypervisor took from the processor of each thread since boot; `None` if unknown.
    pub fn stolen(&self) -> Option<Vec<u64>> {
        crate::processors::stolen(&self.ports)
    }

    /// Takes the link of own port `index` down or up.
    ///
    /// # Errors
    /// [`PortError::Link`].
    pub fn set_link(&mut self, port: PortIndex, up: bool) -> Result<(), PortError> {
        match self.relay.places.binary_search(&port) {
            Ok(own) => drophammer_port::set_link(self.ports.get(own), up),
            Err(_) => Ok(()),
        }
    }
}
