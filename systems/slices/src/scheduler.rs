//! The order of reads of a drive (section 5.2).
//!
//! A drive gets at most `queue_depth` reads at once, and at most `channel_depth` reads of one channel. Further reads wait here,
//! not in the drive, where a read of a busy channel would hold up the reads behind it. The next read belongs to the channel with
//! the fewest reads under way. The paper's passes, each of which deepens a channel by at most one, choose the same. Among equal
//! channels the one whose first read has waited longest goes first, so no read starves.
//!
//! A read that ends starts the next one itself, if the same thread has asked for it. A read of another thread starts when that
//! thread runs its task.
//!
//! A piece of a flush has the drive to itself ([`Scheduling::writes_alone`]). It waits until the reads under way are done, and
//! reads wait for it. Reads that have waited for a piece go before the next piece. On a drive that others write to as well, this
//! would only let reads wait for the others: pieces and reads then go side by side.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use parking_lot::Mutex;
use runtime::sync::{Sender, oneshot};

/// Limits on the reads of a drive, and the order of waiting reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// Maximum reads in the drive at once.
    pub queue_depth: u32,
    /// Maximum reads of one channel in the drive at once.
    pub channel_depth: u32,
    /// Whether reads are chosen by channel. Otherwise they go in order of arrival.
    pub is_channel_aware: bool,
    /// Whether a piece of a flush has the drive to itself. Otherwise neither reads nor pieces wait for the other.
    pub writes_alone: bool,
}

impl Default for Scheduling {
    /// Returns a queue depth of 32, and a channel depth of 1.
    fn default() -> Self {
        Self {
            queue_depth: 32,
            channel_depth: 1,
            is_channel_aware: true,
            writes_alone: true,
        }
    }
}

/// A read that has been asked for.
pub(crate) trait Asked {
    /// Returns whether the reader has stopped waiting.
    fn is_given_up(&self) -> bool;
}

/// The reads and writes of one drive. Clones share their state.
pub(crate) struct Scheduler<R: Asked>(Arc<Mutex<State<R>>>);

struct State<R: Asked> {
    scheduling: Scheduling,
    channels: Vec<Channel<R>>,
    /// Reads in the drive now.
    reads: u32,
    /// Number of reads that had to wait.
    arrivals: u64,
    waiting: usize,
    is_writing: bool,
    writers: VecDeque<Sender<WriteTurn<R>>>,
    /// Reads that waited when the last piece was done. They go before the next piece.
    owed: usize,
}

struct Channel<R: Asked> {
    under_way: u32,
    waiting: VecDeque<Waiting<R>>,
}

struct Waiting<R: Asked> {
    arrival: u64,
    thread: ThreadId,
    asked: R,
    turn: Sender<(ReadTurn<R>, R)>,
}

/// The right to read from a channel, until dropped.
pub(crate) struct ReadTurn<R: Asked> {
    scheduler: Scheduler<R>,
    channel: usize,
}

/// The right to have the drive alone, until dropped.
pub(crate) struct WriteTurn<R: Asked>(Scheduler<R>);

/// A turn that is granted: of a read, or of a piece of a flush.
enum Granted<R: Asked> {
    Read(Waiting<R>, ReadTurn<R>),
    Write(Sender<WriteTurn<R>>, WriteTurn<R>),
}

impl<R: Asked> Clone for Scheduler<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: Asked> Scheduler<R> {
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
            channels: (0..queues).map(|_| Channel::new()).collect(),
            reads: 0,
            arrivals: 0,
            waiting: 0,
            is_writing: false,
            writers: VecDeque::new(),
            owed: 0,
        })))
    }

    /// Waits for the turn of a read of `channel`, and returns it with the read. Returns `None` if another read of this thread has
    /// [passed](ReadTurn::pass_on) its turn on to this read, or if the read has been given up. A dropped future gives up its
    /// place.
    pub(crate) async fn read(&self, channel: u32, asked: R) -> Option<(ReadTurn<R>, R)> {
        let place = {
            let mut state = self.0.lock();
            let channel = channel as usize % state.channels.len();
            if state.waiting == 0 && state.may_read() && state.has_place(channel) {
                if asked.is_given_up() {
                    return None;
                }
                state.begin_read(channel);
                return Some((self.read_turn(channel), asked));
            }
            let (turn, place) = oneshot();
            let arrival = state.arrivals;
            state.arrivals += 1;
            state.waiting += 1;
            state.channels[channel].waiting.push_back(Waiting {
                arrival,
                thread: thread::current().id(),
                asked,
                turn,
            });
            place
        };
        self.grant();
        place.await
    }

    /// Waits for the turn of a write: until no other write is in the drive, and no read unless both go side by side.
    pub(crate) async fn write(&self) -> WriteTurn<R> {
        let place = {
            let (turn, place) = oneshot();
            self.0.lock().writers.push_back(turn);
            place
        };
        self.grant();
        place.await.expect("the scheduler grants every turn")
    }

    fn read_turn(&self, channel: usize) -> ReadTurn<R> {
        ReadTurn {
            scheduler: self.clone(),
            channel,
        }
    }

    /// Grants every turn that is due. A turn whose waiter is gone is dropped, which returns it.
    fn grant(&self) {
        loop {
            let granted = {
                let mut state = self.0.lock();
                if let Some((channel, waiting)) = state.next_read(|_| true) {
                    Granted::Read(waiting, self.read_turn(channel))
                } else if let Some(turn) = state.next_write() {
                    Granted::Write(turn, WriteTurn(self.clone()))
                } else {
                    return;
                }
            };
            match granted {
                Granted::Read(waiting, turn) => waiting.turn.send((turn, waiting.asked)),
                Granted::Write(place, turn) => place.send(turn),
            }
        }
    }
}

impl<R: Asked> Channel<R> {
    fn new() -> Self {
        Self {
            under_way: 0,
            waiting: VecDeque::new(),
        }
    }
}

impl<R: Asked> State<R> {
    fn may_read(&self) -> bool {
        let is_writes_turn = self.is_writing || !self.writers.is_empty() && self.owed == 0;
        let must_wait = is_writes_turn && self.scheduling.writes_alone;
        !must_wait && self.reads < self.scheduling.queue_depth
    }

    fn has_place(&self, channel: usize) -> bool {
        self.channels[channel].under_way < self.scheduling.channel_depth
    }

    fn begin_read(&mut self, channel: usize) {
        self.channels[channel].under_way += 1;
        self.reads += 1;
    }

    fn end_read(&mut self, channel: usize) {
        self.channels[channel].under_way -= 1;
        self.reads -= 1;
    }

    /// Starts the next read, if there is one and `is_wanted` accepts it.
    fn next_read(
        &mut self,
        is_wanted: impl FnOnce(&Waiting<R>) -> bool,
    ) -> Option<(usize, Waiting<R>)> {
        if !self.may_read() || self.waiting == 0 {
            return None;
        }
        self.forget_abandoned();
        let first = |channel: usize| Some(self.channels[channel].waiting.front()?.arrival);
        let (_, _, channel) = (0..self.channels.len())
            .filter(|&channel| self.has_place(channel))
            .filter_map(|channel| {
                Some((self.channels[channel].under_way, first(channel)?, channel))
            })
            .min()?;
        let next = self.channels[channel]
            .waiting
            .pop_front_if(|next| is_wanted(next))?;
        self.waiting -= 1;
        self.owed = self.owed.saturating_sub(1);
        self.begin_read(channel);
        Some((channel, next))
    }

    /// Removes abandoned reads from the heads of the queues. Granting a turn to each would nest the return of one turn in
    /// another's.
    fn forget_abandoned(&mut self) {
        for channel in &mut self.channels {
            let is_gone = |one: &Waiting<R>| one.turn.is_abandoned() || one.asked.is_given_up();
            while channel.waiting.front().is_some_and(is_gone) {
                channel.waiting.pop_front();
                self.waiting -= 1;
                self.owed = self.owed.saturating_sub(1);
            }
        }
    }

    fn next_write(&mut self) -> Option<Sender<WriteTurn<R>>> {
        let is_reads_turn = self.reads > 0 || self.owed > 0;
        if self.is_writing || is_reads_turn && self.scheduling.writes_alone {
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

impl<R: Asked> ReadTurn<R> {
    /// Passes the turn to the next read, if this thread has asked for it. The drive then gets the read before any task is woken.
    /// Returns `None` otherwise; the caller drops the turn then.
    pub(crate) fn pass_on(&mut self) -> Option<R> {
        let here = thread::current().id();
        let (channel, next) = {
            let mut state = self.scheduler.0.lock();
            state.end_read(self.channel);
            let next = state.next_read(|next| next.thread == here);
            if next.is_none() {
                state.begin_read(self.channel);
            }
            next?
        };
        self.channel = channel;
        Some(next.asked)
    }
}

impl<R: Asked> Drop for ReadTurn<R> {
    fn drop(&mut self) {
        self.scheduler.0.lock().end_read(self.channel);
        self.scheduler.grant();
    }
}

impl<R: Asked> Drop for WriteTurn<R> {
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
