//! [`Turns`]: the choice of the waiting command that gets a LUN's next row.
//!
//! Reads of one row come first, in order of arrival. Reads of several rows come next and take turns, one row each. Programs and
//! erases come last, one after the other.
//!
//! Invariant: no command starves. At most [`READS_IN_A_ROW`] reads of one row pass other waiting commands. At most as many rows
//! of longer reads pass a waiting program or erase, and only one row while reads of one row use all their turns.

use std::collections::VecDeque;

/// Number of a command on its channel.
pub(super) type CommandId = u32;

/// Largest number of consecutive rows of reads that pass other waiting commands.
pub(super) const READS_IN_A_ROW: u32 = 8;

/// Class of a waiting command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A read of one row.
    ShortRead,
    /// A read of several rows, until it ends.
    LongRead,
    /// A program or an erase.
    Change,
}

/// The commands waiting for a LUN.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    short_reads: VecDeque<CommandId>,
    long_reads: VecDeque<CommandId>,
    changes: VecDeque<CommandId>,
    /// Short reads that have passed other commands since another command had a row.
    short_in_a_row: u32,
    /// Rows of long reads that have passed a change since a change had a row.
    long_in_a_row: u32,
}

impl Turns {
    /// Adds a new command.
    pub(super) fn add(&mut self, id: CommandId, class: Class) {
        match class {
            Class::ShortRead => self.short_reads.push_back(id),
            Class::LongRead => self.long_reads.push_back(id),
            Class::Change => self.changes.push_back(id),
        }
    }

    /// Puts back a command that has had a row and has not ended: a long read behind its class, a change in front.
    pub(super) fn put_back(&mut self, id: CommandId, class: Class) {
        match class {
            Class::ShortRead | Class::LongRead => self.add(id, class),
            Class::Change => self.changes.push_front(id),
        }
    }

    /// Returns whether a read waits.
    pub(super) fn has_reads(&self) -> bool {
        !self.short_reads.is_empty() || !self.long_reads.is_empty()
    }

    /// Returns the waiting commands of a class, in order.
    pub(super) fn waiting(&self, class: Class) -> &VecDeque<CommandId> {
        match class {
            Class::ShortRead => &self.short_reads,
            Class::LongRead => &self.long_reads,
            Class::Change => &self.changes,
        }
    }

    /// Removes the command that gets the next row.
    pub(super) fn take(&mut self) -> Option<CommandId> {
        if self.long_reads.is_empty() && self.changes.is_empty() {
            self.short_in_a_row = 0;
            return self.short_reads.pop_front();
        }
        if self.short_in_a_row < READS_IN_A_ROW
            && let Some(id) = self.short_reads.pop_front()
        {
            self.short_in_a_row += 1;
            return Some(id);
        }
        self.short_in_a_row = 0;
        if self.changes.is_empty() {
            self.long_in_a_row = 0;
            return self.long_reads.pop_front();
        }
        let most = if self.short_reads.is_empty() {
            READS_IN_A_ROW
        } else {
            1
        };
        if self.long_in_a_row < most
            && let Some(id) = self.long_reads.pop_front()
        {
            self.long_in_a_row += 1;
            return Some(id);
        }
        self.long_in_a_row = 0;
        self.changes.pop_front()
    }

    /// Removes all commands.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = CommandId> {
        let reads = self.short_reads.drain(..).chain(self.long_reads.drain(..));
        reads.chain(self.changes.drain(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: CommandId = 0;
    const CHANGE: CommandId = 100;

    /// Returns the commands of the next rows, where every command wants another row after its row.
    fn rows(mut turns: Turns, count: usize) -> Vec<CommandId> {
        let class = |id| match id {
            SHORT => Class::ShortRead,
            CHANGE => Class::Change,
            _ => Class::LongRead,
        };
        let next = |_| {
            let id = turns.take().unwrap();
            turns.put_back(id, class(id));
            id
        };
        (0..count).map(next).collect()
    }

    fn turns(short: bool, long: &[CommandId], change: bool) -> Turns {
        let mut turns = Turns::default();
        for &id in long {
            turns.add(id, Class::LongRead);
        }
        if change {
            turns.add(CHANGE, Class::Change);
        }
        if short {
            turns.add(SHORT, Class::ShortRead);
        }
        turns
    }

    #[test]
    fn short_reads_pass_what_came_before_them_and_long_ones_go_in_turn() {
        assert_eq!(
            rows(turns(false, &[1, 2, 3], false), 7),
            [1, 2, 3, 1, 2, 3, 1]
        );
        let mut all = turns(true, &[1, 2], true);
        let order: Vec<_> = std::iter::from_fn(|| all.take()).collect();
        assert_eq!(order, [SHORT, 1, 2, CHANGE]);
    }

    #[test]
    fn whoever_waits_has_a_row_after_eight_of_those_before_it() {
        let eight = READS_IN_A_ROW as usize;
        for (turns, last) in [
            (turns(true, &[1], false), 1),
            (turns(true, &[], true), CHANGE),
            (turns(false, &[1], true), CHANGE),
        ] {
            let rows = rows(turns, 3 * (eight + 1));
            let is_last = |at: usize| at % (eight + 1) == eight;
            for (at, &id) in rows.iter().enumerate() {
                assert_eq!(id == last, is_last(at), "{rows:?}");
            }
        }
    }

    #[test]
    fn long_reads_and_changes_share_what_short_reads_leave() {
        let eight = READS_IN_A_ROW as usize;
        let rows = rows(turns(true, &[1], true), 40 * (eight + 1));
        let of = |id| rows.iter().filter(|&&row| row == id).count();
        assert_eq!((of(SHORT), of(1), of(CHANGE)), (40 * eight, 20, 20));
    }

    #[test]
    fn reads_that_pass_nobody_do_not_count() {
        let mut turns = turns(false, &[], false);
        for _ in 0..3 * READS_IN_A_ROW {
            turns.add(SHORT, Class::ShortRead);
            assert_eq!(turns.take(), Some(SHORT));
        }
        turns.add(1, Class::LongRead);
        turns.add(SHORT, Class::ShortRead);
        assert_eq!(turns.take(), Some(SHORT));
    }
}
