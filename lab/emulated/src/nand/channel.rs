//! One channel: its LUNs, its bus, its blocks, and the order of their operations.
//!
//! A channel is a simulation of its own and does nothing by itself. A caller first brings it up to the clock
//! ([`Channel::advance`]). A waiter asks for the earliest time at which its command can end ([`Channel::earliest_end`]), sleeps
//! until then and asks again.
//!
//! Invariants: a LUN has one operation in progress, and the bus one transfer. Events at the same nanosecond happen in the order
//! of LUN numbers. The commands and their arrival times determine everything.
//!
//! After each row a LUN chooses its next command anew ([`Turns`]). An erase has no rows: waiting reads suspend it, and it resumes
//! where it stopped once they have had their turns.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use super::block::{Block, State};
use super::config::{NandConfig, NandTiming};
use super::counts::Counts;
use super::kind::Kind;
use super::rows::Rows;
use super::turns::{Class, CommandId, Turns};
use device::{BlockId, DeviceError};

/// Time in nanoseconds that a LUN takes to suspend an erase and to resume it. Data sheets say some tens of microseconds.
const ERASE_SUSPEND_NS: u64 = 30_000;

/// An erase runs for at least its time divided by this number before it is suspended again. It is thus suspended fewer than this
/// many times, and a read waits less than for a row of a program.
const STRETCHES_OF_AN_ERASE: u64 = 16;

/// Minimum run of an erase between suspensions, in units of the time to suspend it, so that a short erase is not mostly
/// suspended.
const SUSPENDS_OF_A_STRETCH: u64 = 4;

/// End of a phase whose end is unknown.
const NEVER: u64 = u64::MAX;

/// Command of a LUN without a command.
const NO_COMMAND: CommandId = CommandId::MAX;

/// Outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Pending,
    Done,
    /// A block failed; it is bad now.
    WornOut {
        block: BlockId,
    },
    /// The block had gone bad before its turn came.
    BadBlock {
        block: BlockId,
    },
    PowerLost,
}

#[derive(Clone, Copy, Debug)]
struct Command {
    kind: Kind,
    class: Class,
    lun: u32,
    /// Rows still to do, including the row in progress.
    left: Rows,
    /// Remaining time of an erase when it resumes; not updated while it runs.
    erase_left_ns: u64,
    /// Sequence number of the command on its channel.
    order: u64,
    outcome: Outcome,
    /// Whether its waiter has gone.
    is_abandoned: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Cells,
    WaitsForBus,
    Transfer,
    /// An erase runs until it may be suspended, and is then suspended.
    Suspending,
}

#[derive(Clone, Debug)]
struct Lun {
    phase: Phase,
    /// End of the phase; [`NEVER`] while unknown.
    ends_at: u64,
    current: CommandId,
    turns: Turns,
    /// Start of the row in progress, or the time at which the erase began or resumed.
    busy_since: u64,
    counts: Counts,
}

/// Returns the minimum run of an erase before it is suspended.
fn erase_stretch_ns(timing: &NandTiming) -> u64 {
    let part = timing.erase_ns.div_ceil(STRETCHES_OF_AN_ERASE);
    part.max(SUSPENDS_OF_A_STRETCH * ERASE_SUSPEND_NS)
}

impl Command {
    /// Returns the class of a new command. A long read keeps its class when a single row is left, because it has waited in turn.
    fn class(kind: Kind, rows: &Rows) -> Class {
        match kind {
            Kind::Read if rows.rest().count == 0 => Class::ShortRead,
            Kind::Read => Class::LongRead,
            Kind::Program | Kind::Erase => Class::Change,
        }
    }

    /// Returns the remaining time of a waiting command on an idle channel.
    fn alone(&self, timing: &NandTiming) -> u64 {
        match self.kind {
            Kind::Erase => self.erase_left_ns,
            Kind::Read | Kind::Program => self.kind.alone(timing, &self.left),
        }
    }
}

/// A change of a block that a file has to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The program of a page has ended.
    Programmed { block: BlockId, page: u32 },
    /// The state of a block or its number of erases has changed.
    Block { block: BlockId },
}

/// The blocks of a channel, indexed by their numbers on the device.
#[derive(Clone, Debug)]
pub(super) struct Blocks(pub(super) Box<[Block]>);

impl Blocks {
    fn position(&self, BlockId(number): BlockId) -> usize {
        (number - self.0[0].number) as usize
    }
}

impl Index<BlockId> for Blocks {
    type Output = Block;

    fn index(&self, block: BlockId) -> &Block {
        &self.0[self.position(block)]
    }
}

impl IndexMut<BlockId> for Blocks {
    fn index_mut(&mut self, block: BlockId) -> &mut Block {
        let at = self.position(block);
        &mut self.0[at]
    }
}

/// One channel.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    timing: NandTiming,
    cycles: u32,
    luns: Box<[Lun]>,
    pub(super) blocks: Blocks,
    blocks_per_lun: usize,
    commands: Vec<Command>,
    free_commands: Vec<CommandId>,
    bus_user: Option<usize>,
    bus_queue: VecDeque<usize>,
    /// Earliest end of a phase of any LUN.
    next: u64,
    /// Number of commands taken so far.
    orders: u64,
    /// Changes not yet recorded; `None` for a device in memory.
    pub(super) changes: Option<Vec<Change>>,
}

impl Channel {
    /// Creates a channel of a device with this configuration.
    pub(super) fn new(config: &NandConfig, blocks: Box<[Block]>) -> Self {
        let lun = |_| Lun {
            phase: Phase::Idle,
            ends_at: NEVER,
            current: NO_COMMAND,
            turns: Turns::default(),
            busy_since: 0,
            counts: Counts::default(),
        };
        Self {
            timing: config.timing.clone(),
            cycles: config.endurance.cycles,
            luns: (0..config.geometry.luns_per_channel).map(lun).collect(),
            blocks: Blocks(blocks),
            blocks_per_lun: config.geometry.blocks_per_lun as usize,
            commands: Vec::new(),
            free_commands: Vec::new(),
            bus_user: None,
            bus_queue: VecDeque::new(),
            next: NEVER,
            orders: 0,
            changes: None,
        }
    }

    /// Returns the counts of the channel.
    pub(super) fn counts(&self) -> Counts {
        self.luns.iter().map(|lun| lun.counts).sum()
    }

    /// Executes every event up to `now`.
    pub(super) fn advance(&mut self, now: u64) {
        while self.next <= now {
            let at = self.next;
            let lun = self
                .luns
                .iter()
                .position(|lun| lun.ends_at == at)
                .expect("the next end is that of some LUN");
            self.phase_ended(lun, at);
            self.next = self
                .luns
                .iter()
                .map(|lun| lun.ends_at)
                .min()
                .unwrap_or(NEVER);
        }
    }

    /// Takes a command that the rules allow. The caller then asks for its [`outcome`](Channel::outcome).
    pub(super) fn submit(&mut self, now: u64, kind: Kind, rows: Rows) -> CommandId {
        self.advance(now);
        self.orders += 1;
        self.begin(kind, &rows);
        let lun = self.blocks.position(rows.first_block) / self.blocks_per_lun;
        let command = Command {
            kind,
            class: Command::class(kind, &rows),
            lun: lun as u32,
            left: rows,
            erase_left_ns: self.timing.erase_ns,
            order: self.orders,
            outcome: Outcome::Pending,
            is_abandoned: false,
        };
        let id = self.free_commands.pop().unwrap_or_else(|| {
            self.commands.push(command);
            self.commands.len() as CommandId - 1
        });
        self.commands[id as usize] = command;
        let waits = &mut self.luns[lun];
        waits.turns.add(id, command.class);
        if waits.phase == Phase::Idle {
            self.choose(lun, now);
        } else {
            self.suspend_erase(lun, now);
        }
        self.next = self.next.min(self.luns[lun].ends_at);
        self.advance(now);
        id
    }

    /// Updates the blocks at the moment a command is taken.
    fn begin(&mut self, kind: Kind, rows: &Rows) {
        match kind {
            Kind::Read => {}
            Kind::Program => {
                for (block, page) in rows.pages() {
                    self.blocks[block].issued = page + 1;
                }
            }
            Kind::Erase => {
                for block in rows.blocks() {
                    self.blocks[block].begin_erase(self.orders);
                }
            }
        }
    }

    /// Returns the outcome of a command and forgets the command; `None` while it runs.
    pub(super) fn outcome(&mut self, id: CommandId) -> Option<Result<(), DeviceError>> {
        let command = self.commands[id as usize];
        let operation = command.kind.operation();
        let outcome = match command.outcome {
            Outcome::Pending => return None,
            Outcome::Done => Ok(()),
            Outcome::WornOut { block } => Err(DeviceError::WornOut {
                operation,
                block: block.0,
                erases: self.blocks[block].erases,
            }),
            Outcome::BadBlock { block } => Err(self.blocks[block].bad(operation)),
            Outcome::PowerLost => Err(DeviceError::PowerLost {
                operation,
                block: command.left.first_block.0,
            }),
        };
        self.free_commands.push(id);
        Some(outcome)
    }

    /// Gives up the outcome of a command. The command goes on.
    pub(super) fn abandon(&mut self, id: CommandId) {
        let command = &mut self.commands[id as usize];
        command.is_abandoned = true;
        if command.outcome != Outcome::Pending {
            self.free_commands.push(id);
        }
    }

    /// Returns a time, later than the present time of the channel, before which the command cannot end. The time is exact once no
    /// other command can delay it.
    pub(super) fn earliest_end(&self, id: CommandId) -> u64 {
        let command = &self.commands[id as usize];
        let index = command.lun as usize;
        let lun = &self.luns[index];
        let row_end = self.row_end(index);
        let rest = self.after_row(index);
        if lun.current == id {
            return row_end + rest;
        }
        let ahead = lun.turns.waiting(command.class);
        let ahead = ahead.iter().take_while(|&&ahead| ahead != id);
        let ahead = ahead.map(|&ahead| &self.commands[ahead as usize]);
        let before: u64 = match command.class {
            // In turn: each command ahead has as many rows as this one first, or all its rows if it has fewer.
            Class::LongRead => {
                let rows = command.left.rows();
                let first = ahead.map(|ahead| ahead.left.first_rows(rows));
                first
                    .map(|first| Kind::Read.alone(&self.timing, &first))
                    .sum()
            }
            Class::ShortRead | Class::Change => ahead.map(|ahead| ahead.alone(&self.timing)).sum(),
        };
        let current = &self.commands[lun.current as usize];
        let both_change = command.class == Class::Change && current.class == Class::Change;
        let rest = if both_change { rest } else { 0 };
        row_end + rest + before + command.alone(&self.timing)
    }

    /// Returns the time that the current command of a busy LUN needs after its row, or after its suspension.
    fn after_row(&self, index: usize) -> u64 {
        let lun = &self.luns[index];
        let command = &self.commands[lun.current as usize];
        match (command.kind, lun.phase) {
            (Kind::Erase, Phase::Suspending) => command.erase_left_ns,
            (Kind::Erase, _) => 0,
            _ => command.kind.alone(&self.timing, &command.left.rest()),
        }
    }

    /// Returns the earliest end of the row in progress on a busy LUN.
    fn row_end(&self, index: usize) -> u64 {
        let lun = &self.luns[index];
        let command = &self.commands[lun.current as usize];
        let row = command.left.row();
        match (command.kind, lun.phase) {
            (Kind::Read, Phase::Cells) => lun.ends_at + Kind::Read.transfers(&self.timing, row),
            (Kind::Program, Phase::Transfer) => {
                lun.ends_at + Kind::Program.cells(&self.timing, &command.left)
            }
            (Kind::Read, Phase::WaitsForBus) => self.transfer_end(index),
            (_, Phase::WaitsForBus) => {
                self.transfer_end(index) + Kind::Program.cells(&self.timing, &command.left)
            }
            _ => lun.ends_at,
        }
    }

    /// Returns the end of the transfer that a LUN waits for.
    fn transfer_end(&self, index: usize) -> u64 {
        let mut end = self.bus_user.map_or(0, |user| self.luns[user].ends_at);
        for &waiting in &self.bus_queue {
            end += self.transfer_ns(waiting);
            if waiting == index {
                break;
            }
        }
        end
    }

    fn transfer_ns(&self, lun: usize) -> u64 {
        let command = &self.commands[self.luns[lun].current as usize];
        command.kind.transfers(&self.timing, command.left.row())
    }

    fn phase_ended(&mut self, lun: usize, at: u64) {
        let command = self.commands[self.luns[lun].current as usize];
        match (command.kind, self.luns[lun].phase) {
            (Kind::Read, Phase::Cells) => self.ask_for_bus(lun, at),
            (Kind::Read, _) => {
                self.release_bus(at);
                self.end_row(lun, at);
            }
            (Kind::Program, Phase::Transfer) => {
                self.release_bus(at);
                self.luns[lun].phase = Phase::Cells;
                self.luns[lun].ends_at = at + Kind::Program.cells(&self.timing, &command.left);
            }
            (Kind::Erase, Phase::Suspending) => self.erase_suspended(lun, at),
            (Kind::Program | Kind::Erase, _) => self.end_row(lun, at),
        }
    }

    fn ask_for_bus(&mut self, lun: usize, at: u64) {
        if self.bus_user.is_none() {
            self.start_transfer(lun, at);
        } else {
            self.luns[lun].phase = Phase::WaitsForBus;
            self.luns[lun].ends_at = NEVER;
            self.bus_queue.push_back(lun);
        }
    }

    fn start_transfer(&mut self, lun: usize, at: u64) {
        let transfer_ns = self.transfer_ns(lun);
        self.bus_user = Some(lun);
        self.luns[lun].phase = Phase::Transfer;
        self.luns[lun].ends_at = at + transfer_ns;
    }

    fn release_bus(&mut self, at: u64) {
        self.bus_user = None;
        if let Some(next) = self.bus_queue.pop_front() {
            self.start_transfer(next, at);
        }
    }

    /// Ends the row in progress: updates its pages, then starts the LUN's next row.
    fn end_row(&mut self, lun: usize, at: u64) {
        let id = self.luns[lun].current;
        let command = self.commands[id as usize];
        let failed = self.end_pages(lun, &command);
        let left = command.left.rest();
        self.commands[id as usize].left = left;
        self.leave(lun, at);
        if let Some(block) = failed {
            self.luns[lun].counts.failures += 1;
            self.finish(id, Outcome::WornOut { block });
        } else if left.count == 0 {
            self.finish(id, Outcome::Done);
        } else {
            self.luns[lun].turns.put_back(id, command.class);
        }
        self.choose(lun, at);
    }

    /// Clears the LUN's current command.
    fn leave(&mut self, lun: usize, at: u64) {
        let lun = &mut self.luns[lun];
        lun.counts.busy_ns += at - lun.busy_since;
        lun.current = NO_COMMAND;
    }

    /// Suspends the erase of a LUN with waiting reads as soon as allowed, unless the erase ends before a suspension would.
    fn suspend_erase(&mut self, index: usize, now: u64) {
        let lun = &mut self.luns[index];
        if lun.phase != Phase::Cells || !lun.turns.has_reads() {
            return;
        }
        let command = &mut self.commands[lun.current as usize];
        if command.kind != Kind::Erase {
            return;
        }
        let at = now.max(lun.busy_since + erase_stretch_ns(&self.timing));
        if lun.ends_at > at + ERASE_SUSPEND_NS {
            command.erase_left_ns = lun.ends_at - at;
            lun.phase = Phase::Suspending;
            lun.ends_at = at + ERASE_SUSPEND_NS;
        }
    }

    /// Puts a suspended erase back to wait for its next turn.
    fn erase_suspended(&mut self, lun: usize, at: u64) {
        let id = self.luns[lun].current;
        self.leave(lun, at);
        self.luns[lun].turns.put_back(id, Class::Change);
        self.choose(lun, at);
    }

    /// Applies the row to the blocks; returns the block that failed, if any.
    fn end_pages(&mut self, lun: usize, command: &Command) -> Option<BlockId> {
        let counts = &mut self.luns[lun].counts;
        let mut failed = None;
        for (number, page) in command.left.row_pages() {
            let block = &mut self.blocks[number];
            match command.kind {
                Kind::Read => counts.reads += 1,
                Kind::Program => {
                    counts.programs += 1;
                    if block.erased_by > command.order {
                        continue;
                    }
                    let change = if block.end_program() {
                        Change::Programmed {
                            block: number,
                            page,
                        }
                    } else {
                        failed = Some(number);
                        Change::Block { block: number }
                    };
                    note(&mut self.changes, change);
                }
                Kind::Erase => {
                    counts.erases += 1;
                    if !block.end_erase(self.cycles) {
                        failed = Some(number);
                    }
                    note(&mut self.changes, Change::Block { block: number });
                }
            }
        }
        failed
    }

    fn finish(&mut self, id: CommandId, outcome: Outcome) {
        let command = &mut self.commands[id as usize];
        command.outcome = outcome;
        if command.is_abandoned {
            self.free_commands.push(id);
        }
    }

    /// Starts the next row of an idle LUN.
    fn choose(&mut self, index: usize, at: u64) {
        loop {
            let lun = &mut self.luns[index];
            let Some(id) = lun.turns.take() else {
                lun.phase = Phase::Idle;
                lun.ends_at = NEVER;
                return;
            };
            let command = self.commands[id as usize];
            if command.kind == Kind::Program
                && let Some((block, _)) = command
                    .left
                    .row_pages()
                    .find(|(block, _)| self.blocks[*block].state == State::Bad)
            {
                self.finish(id, Outcome::BadBlock { block });
                continue;
            }
            lun.current = id;
            lun.busy_since = at;
            lun.phase = Phase::Cells;
            match command.kind {
                Kind::Program => self.ask_for_bus(index, at),
                Kind::Read => lun.ends_at = at + Kind::Read.cells(&self.timing, &command.left),
                Kind::Erase => {
                    lun.ends_at = at + command.erase_left_ns;
                    self.suspend_erase(index, at);
                }
            }
            return;
        }
    }

    /// Executes all commands.
    pub(super) fn finish_all(&mut self) {
        self.advance(NEVER - 1);
    }

    /// Cuts the power now: operations in progress end where they stand.
    pub(super) fn cut_power(&mut self, now: u64) {
        self.advance(now);
        for index in 0..self.luns.len() {
            let lun = &mut self.luns[index];
            let current = std::mem::replace(&mut lun.current, NO_COMMAND);
            let waiting: Vec<CommandId> = lun.turns.drain().collect();
            if current != NO_COMMAND {
                let command = self.commands[current as usize];
                if command.kind == Kind::Program && lun.phase == Phase::Cells {
                    for (block, _) in command.left.row_pages() {
                        let block = &mut self.blocks[block];
                        if block.erased_by < command.order && block.state == State::Good {
                            block.tear();
                        }
                    }
                }
                self.finish(current, Outcome::PowerLost);
            }
            for id in waiting {
                self.finish(id, Outcome::PowerLost);
            }
            let lun = &mut self.luns[index];
            lun.phase = Phase::Idle;
            lun.ends_at = NEVER;
        }
        self.bus_user = None;
        self.bus_queue.clear();
        self.next = NEVER;
        for block in &mut self.blocks.0 {
            block.issued = block.programmed;
        }
    }
}

fn note(changes: &mut Option<Vec<Change>>, change: Change) {
    if let Some(changes) = changes {
        changes.push(change);
    }
}
