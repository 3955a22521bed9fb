//! The host side of the drive: the command queue, the link, and the way to the channels.

use std::time::Duration;

use runtime::sync::{Permit, Semaphore};

use super::config::LinkTiming;
use device::PAGE_BYTES;

/// The queue and the link.
#[derive(Debug)]
pub(super) struct Host {
    timing: LinkTiming,
    /// Slots of commands in the drive.
    pub(super) queue: Semaphore,
    /// Admits one command at a time to the link and the way to the channels.
    link: Semaphore,
    /// Slots for reads on each channel, if bounded.
    channels: Box<[Semaphore]>,
}

impl Host {
    pub(super) fn new(queue_depth: u32, timing: LinkTiming, channels: u32) -> Self {
        let places = |depth: u32| {
            (0..channels)
                .map(|_| Semaphore::new(depth as usize))
                .collect()
        };
        Self {
            timing,
            queue: Semaphore::new(queue_depth as usize),
            link: Semaphore::new(1),
            channels: timing.channel_depth.map_or(Box::default(), places),
        }
    }

    /// Takes a command with `len` bytes of data over the link. Other commands cannot follow while the caller holds the permit.
    pub(super) async fn cross(&self, len: usize) -> Option<Permit> {
        let pages = len.div_ceil(PAGE_BYTES) as u64;
        let crossing_ns = self.timing.page_ns * pages;
        if crossing_ns == 0 && self.channels.is_empty() {
            return None;
        }
        let link = self.link.acquire().await;
        if crossing_ns > 0 {
            runtime::sleep(Duration::from_nanos(crossing_ns)).await;
        }
        Some(link)
    }

    /// Waits for the pause between two attempts to hand a command to its channel.
    pub(super) async fn wait_to_retry(&self) {
        runtime::sleep(Duration::from_nanos(self.timing.retry_ns)).await;
    }

    /// Returns the slots of a channel, if bounded.
    pub(super) fn channel(&self, channel: u32) -> Option<&Semaphore> {
        self.channels.get(channel as usize)
    }
}
