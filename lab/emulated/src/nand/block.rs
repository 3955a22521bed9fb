//! One erase block: its state, and the operations that it takes next.

use super::fate::Fate;
use device::{DeviceError, Operation};

/// State of a block. The numbers are stored in the file of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The block takes programs and erases.
    Good = 0,
    /// An erase is in progress or was cut short. The block takes an erase only and cannot be read.
    Torn = 1,
    /// The block takes neither programs nor erases. Its contents can be read.
    Bad = 2,
}

/// Tag that the owner of a page writes with the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tag {
    /// Logical page that is stored here.
    pub(crate) logical: u32,
    /// Version of the logical page.
    pub(crate) version: u64,
    /// Sequence number that rises with every page programmed.
    pub(crate) stamp: u64,
}

/// One erase block.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Number of the block on the device.
    pub(super) number: u32,
    pub(super) state: State,
    /// Erases so far.
    pub(super) erases: u32,
    /// Pages whose program was requested since the last erase; also the next page to program.
    pub(super) issued: u32,
    /// Pages whose program has ended since the last erase. Pages from here up to `issued` are being programmed.
    pub(super) programmed: u32,
    /// Channel command that requested the last erase. Commands queued before it do not affect the block afterwards.
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

    /// Returns an error unless `page` can be read. An erased page can be read.
    pub(super) fn check_read(&self, page: u32) -> Result<(), DeviceError> {
        let is_being_programmed = (self.programmed..self.issued).contains(&page);
        if self.state == State::Torn || is_being_programmed || self.torn.contains(&page) {
            let block = self.number;
            return Err(DeviceError::Unreadable { block, page });
        }
        Ok(())
    }

    /// Returns an error unless the pages from `page` on can be programmed.
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

    /// Returns an error unless the block can be erased.
    pub(super) fn check_erase(&self) -> Result<(), DeviceError> {
        if self.state == State::Bad {
            return Err(self.bad(Operation::Erase));
        }
        Ok(())
    }

    /// Returns the error with which a bad block refuses an operation.
    pub(super) fn bad(&self, operation: Operation) -> DeviceError {
        let block = self.number;
        DeviceError::BadBlock { operation, block }
    }

    /// Begins an erase: the contents are gone.
    pub(super) fn begin_erase(&mut self, command: u64) {
        self.state = State::Torn;
        self.issued = 0;
        self.programmed = 0;
        self.erased_by = command;
        self.torn.clear();
    }

    /// Ends an erase. Returns false if it exceeded the block's `cycles`; the block is then bad.
    pub(super) fn end_erase(&mut self, cycles: u32) -> bool {
        self.erases += 1;
        let is_good = self.erases <= cycles;
        self.state = if is_good { State::Good } else { State::Bad };
        is_good
    }

    /// Ends the program of the next page. Returns false if it failed; the block is then bad.
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

    /// Loses the page being programmed, which counts as programmed.
    pub(super) fn tear(&mut self) {
        self.torn.push(self.programmed);
        self.programmed += 1;
    }

    /// Loses every page whose program was requested and has not ended.
    pub(super) fn tear_issued(&mut self) {
        while self.programmed < self.issued {
            self.tear();
        }
    }

    /// Returns the block as a restarted device finds it. A restarted device numbers its commands from the start.
    pub(super) fn restarted(self) -> Self {
        Self {
            issued: self.programmed,
            erased_by: 0,
            ..self
        }
    }

    /// Restores the state found in a file: `pages` pages programmed, some of which are `torn`. A factory-bad block stays bad.
    pub(super) fn restore(&mut self, state: State, erases: u32, pages: u32, torn: Vec<u32>) {
        if self.state != State::Bad {
            self.state = state;
        }
        self.erases = erases;
        self.issued = pages;
        self.programmed = pages;
        self.torn = torn;
    }

    /// Returns the tag of a page that can be read; `None` for a page programmed without a tag.
    pub(super) fn tag(&self, page: u32) -> Option<Tag> {
        let is_whole = page < self.programmed && !self.torn.contains(&page);
        let tags = self.tags.as_ref()?;
        (is_whole && self.state != State::Torn).then(|| tags[page as usize])
    }
}
