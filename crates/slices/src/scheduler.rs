//! Which read goes next (section 5.2).
//!
//! A drive takes `queue_depth` reads at once and `channel_depth` of one channel. What comes meanwhile waits here, not in the
//! drive, where a read of a busy channel would hold up those behind it. The next read is of the channel that has the fewest
//! under way; the paper's passes, each of which deepens a channel by one at most, choose the same. Among equal channels the one
//! whose first read has waited longest goes first, so none starves.
//!
//! A piece of a flush has the drive to itself. It waits until the reads under way are done, and reads wait for it; those that
//! have waited go before the next piece.

use std::collections::VecDeque;

use parking_lot::Mutex;
use runtime::sync::{Sender, oneshot};
use std::sync::Arc;

/// How reads are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// Reads in the drive at once.
    pub queue_depth: u32,
    /// Reads of one channel in the drive at once.
    pub channel_depth: u32,
    /// Whether reads are chosen by channel; else they go in the order in which they come.
    pub is_channel_aware: bool,
}

impl Default for Scheduling {
    /// A command queue of 32, one read a channel.
    fn default() -> Self {
        Self {
            queue_depth: 32,
            channel_depth: 1,
            is_channel_aware: true,
        }
    }
}

/// The reads and writes of one drive. Clones are the same.
#[derive(Clone)]
pub(crate) struct Scheduler(Arc<Mutex<State>>);

struct State {
    scheduling: Scheduling,
    channels: Vec<Channel>,
    /// Reads that are in the drive now.
    reads: u32,
    /// Counts the reads that had to wait.
    arrivals: u64,
    waiting: usize,
    is_writing: bool,
    writers: VecDeque<Sender<WriteTurn>>,
    /// Reads that waited when the last piece was done and go before the next.
    owed: usize,
}

#[derive(Default)]
struct Channel {
    under_way: u32,
    waiting: VecDeque<(u64, Sender<ReadTurn>)>,
}

/// The right to read from a channel, until dropped.
pub(crate) struct ReadTurn {
    scheduler: Scheduler,
    channel: usize,
}

/// The right to have the drive alone, until dropped.
pub(crate) struct WriteTurn(Scheduler);

/// Whose turn it is.
enum Granted {
    Read(Sender<ReadTurn>, ReadTurn),
    Write(Sender<WriteTurn>, WriteTurn),
}

impl Scheduler {
    pub(crate) fn new(scheduling: Scheduling, channels: u32) -> Self {
        let queues = if scheduling.is_channel_aware {
            channels
        } else {
            1
        };
        let channel_depth = match scheduling.is_channel_aware {
            true => scheduling.channel_depth,
            false => u32::MAX,
        };
        Self(Arc::new(Mutex::new(State {
            scheduling: Scheduling {
                channel_depth,
                ..scheduling
            },
            channels: (0..queues).map(|_| Channel::default()).collect(),
            reads: 0,
            arrivals: 0,
            waiting: 0,
            is_writing: false,
            writers: VecDeque::new(),
            owed: 0,
        })))
    }

    /// Waits for the turn of a read of `channel`. A future that is dropped gives its place up.
    pub(crate) async fn read(&self, channel: u32) -> ReadTurn {
        let place = {
            let mut state = self.0.lock();
            let channel = channel as usize % state.channels.len();
            if state.waiting == 0 && state.may_read() && state.has_place(channel) {
                state.begin_read(channel);
                return self.read_turn(channel);
            }
            let (turn, place) = oneshot();
            let arrival = state.arrivals;
            state.arrivals += 1;
            state.waiting += 1;
            state.channels[channel].waiting.push_back((arrival, turn));
            place
        };
        self.grant();
        place.await.expect("the scheduler grants every turn")
    }

    /// Waits until the drive is free of reads.
    pub(crate) async fn write(&self) -> WriteTurn {
        let place = {
            let (turn, place) = oneshot();
            self.0.lock().writers.push_back(turn);
            place
        };
        self.grant();
        place.await.expect("the scheduler grants every turn")
    }

    fn read_turn(&self, channel: usize) -> ReadTurn {
        ReadTurn {
            scheduler: self.clone(),
            channel,
        }
    }

    /// Lets all go on whose turn it is. A turn whose waiter is gone comes back by being dropped.
    fn grant(&self) {
        loop {
            let granted = {
                let mut state = self.0.lock();
                if let Some((channel, turn)) = state.next_read() {
                    Granted::Read(turn, self.read_turn(channel))
                } else if let Some(turn) = state.next_write() {
                    Granted::Write(turn, WriteTurn(self.clone()))
                } else {
                    return;
                }
            };
            match granted {
                Granted::Read(place, turn) => place.send(turn),
                Granted::Write(place, turn) => place.send(turn),
            }
        }
    }
}

impl State {
    fn may_read(&self) -> bool {
        !self.is_writing
            && (self.writers.is_empty() || self.owed > 0)
            && self.reads < self.scheduling.queue_depth
    }

    fn has_place(&self, channel: usize) -> bool {
        self.channels[channel].under_way < self.scheduling.channel_depth
    }

    fn begin_read(&mut self, channel: usize) {
        self.channels[channel].under_way += 1;
        self.reads += 1;
    }

    fn next_read(&mut self) -> Option<(usize, Sender<ReadTurn>)> {
        if !self.may_read() || self.waiting == 0 {
            return None;
        }
        self.forget_abandoned();
        let first = |channel: usize| self.channels[channel].waiting.front().map(|place| place.0);
        let (_, _, channel) = (0..self.channels.len())
            .filter(|&channel| self.has_place(channel))
            .filter_map(|channel| {
                Some((self.channels[channel].under_way, first(channel)?, channel))
            })
            .min()?;
        let (_, turn) = self.channels[channel].waiting.pop_front()?;
        self.waiting -= 1;
        self.owed = self.owed.saturating_sub(1);
        self.begin_read(channel);
        Some((channel, turn))
    }

    /// Takes those that have gone away from the heads of the queues: each would give its turn back inside that of another.
    fn forget_abandoned(&mut self) {
        for channel in &mut self.channels {
            let is_gone = |(_, turn): &(u64, Sender<ReadTurn>)| turn.is_abandoned();
            while channel.waiting.front().is_some_and(is_gone) {
                channel.waiting.pop_front();
                self.waiting -= 1;
                self.owed = self.owed.saturating_sub(1);
            }
        }
    }

    fn next_write(&mut self) -> Option<Sender<WriteTurn>> {
        if self.is_writing || self.reads > 0 || self.owed > 0 {
            return None;
        }
        loop {
            let turn = self.writers.pop_front()?;
            if !turn.is_abandoned() {
                self.is_writing = true;
                return Some(turn);
            }
        }
    }
}

impl Drop for ReadTurn {
    fn drop(&mut self) {
        {
            let mut state = self.scheduler.0.lock();
            state.channels[self.channel].under_way -= 1;
            state.reads -= 1;
        }
        self.scheduler.grant();
    }
}

impl Drop for WriteTurn {
    fn drop(&mut self) {
        {
            let mut state = self.0.0.lock();
            state.is_writing = false;
            state.owed = state.waiting;
        }
        self.0.grant();
    }
}

#[cfg(test)]
mod tests;
