//! One erase block: what may be done to it next, and what has been done so far.

use super::fate::Fate;
use crate::{DeviceError, Operation};

/// What a block can do. The numbers are those of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It takes programs and erases.
    Good = 0,
    /// An erase is under way, or was cut short: it takes an erase only, and cannot be read.
    Torn = 1,
    /// It takes neither; what it holds can be read.
    Bad = 2,
}

/// What the owner of a page writes beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tag {
    /// Logical page that is stored here.
    pub(crate) logical: u32,
    /// Which write of it.
    pub(crate) version: u64,
    /// Rises with every page programmed.
    pub(crate) stamp: u64,
}

/// One erase block.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Its number on the device.
    pub(super) number: u32,
    pub(super) state: State,
    /// Erases so far.
    pub(super) erases: u32,
    /// Pages whose program was asked for since the last erase; the next page to program.
    pub(super) issued: u32,
    /// Pages whose program has ended since then. Those between are being programmed.
    pub(super) programmed: u32,
    /// Which command of the channel asked for the last erase: what was queued before it does not
    /// touch what came after.
    pub(super) erased_by: u64,
    /// Pages that were being programmed when the power failed.
    torn: Vec<u32>,
    dies_at: Option<(u32, u32)>,
    pub(super) tags: Option<Box<[Tag]>>,
}

impl Block {
    pub(super) fn new(number: u32, fate: Fate) -> Self {
        Self {
            number,
            state: if fate.factory_bad {
                State::Bad
            } else {
                State::Good
            },
            erases: 0,
            issued: 0,
            programmed: 0,
            erased_by: 0,
            torn: Vec::new(),
            dies_at: fate.grown_bad,
            tags: None,
        }
    }

    /// Whether `page` can be read; one that is erased can.
    pub(super) fn check_read(&self, page: u32) -> Result<(), DeviceError> {
        let is_being_programmed = (self.programmed..self.issued).contains(&page);
        if self.state == State::Torn || is_being_programmed || self.torn.contains(&page) {
            let block = self.number;
            return Err(DeviceError::Unreadable { block, page });
        }
        Ok(())
    }

    /// Whether the pages from `page` on can be programmed.
    pub(super) fn check_program(&self, page: u32) -> Result<(), DeviceError> {
        let (block, expected) = (self.number, self.issued);
        match self.state {
            State::Bad => Err(self.bad(Operation::Write)),
            State::Good if page > expected => Err(DeviceError::ProgramOrder {
                block,
                page,
                expected,
            }),
            State::Good if page == expected => Ok(()),
            State::Good | State::Torn => Err(DeviceError::NotErased { block, page }),
        }
    }

    /// Whether the block can be erased.
    pub(super) fn check_erase(&self) -> Result<(), DeviceError> {
        if self.state == State::Bad {
            return Err(self.bad(Operation::Erase));
        }
        Ok(())
    }

    /// The refusal of what a bad block does not take.
    pub(super) fn bad(&self, operation: Operation) -> DeviceError {
        let block = self.number;
        DeviceError::BadBlock { operation, block }
    }

    /// An erase was asked for: what it held is gone.
    pub(super) fn begin_erase(&mut self, command: u64) {
        self.state = State::Torn;
        self.issued = 0;
        self.programmed = 0;
        self.erased_by = command;
        self.torn.clear();
    }

    /// An erase has ended; false when it was one too many.
    pub(super) fn end_erase(&mut self, cycles: u32) -> bool {
        self.erases += 1;
        let is_good = self.erases <= cycles;
        self.state = if is_good { State::Good } else { State::Bad };
        is_good
    }

    /// The program of the next page has ended; false when it failed, and the block with it.
    pub(super) fn end_program(&mut self) -> bool {
        let page = self.programmed;
        if self.dies_at == Some((self.erases, page)) {
            self.state = State::Bad;
            self.tear();
            self.issued = self.programmed;
            return false;
        }
        self.programmed += 1;
        true
    }

    /// The page being programmed is lost, and counts as programmed.
    pub(super) fn tear(&mut self) {
        self.torn.push(self.programmed);
        self.programmed += 1;
    }

    /// The pages whose program was asked for and has not ended are lost.
    pub(super) fn tear_issued(&mut self) {
        while self.programmed < self.issued {
            self.tear();
        }
    }

    /// The block as a device that starts again finds it, which numbers its commands anew.
    pub(super) fn restarted(self) -> Self {
        Self {
            issued: self.programmed,
            erased_by: 0,
            ..self
        }
    }

    /// What was found in a file: `pages` of them programmed, some of those `torn`. A block that is
    /// bad from the factory stays so.
    pub(super) fn restore(&mut self, state: State, erases: u32, pages: u32, torn: Vec<u32>) {
        if self.state != State::Bad {
            self.state = state;
        }
        self.erases = erases;
        self.issued = pages;
        self.programmed = pages;
        self.torn = torn;
    }

    /// The tag of a page that can be read; pages programmed without one have none.
    pub(super) fn tag(&self, page: u32) -> Option<Tag> {
        let is_whole = page < self.programmed && !self.torn.contains(&page);
        let tags = self.tags.as_ref()?;
        (is_whole && self.state != State::Torn).then(|| tags[page as usize])
    }
}
