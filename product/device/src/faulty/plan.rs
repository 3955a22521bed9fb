//! Which access meets which fault: scripted ones first, then seeded ones by rate.

use std::ops::Range;
use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;

use crate::Operation;

/// What goes wrong with one access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The access fails with an I/O error. A failed write leaves a random part of it behind; after
    /// a failed sync, a random part of what it should have made durable never will be.
    Error,
    /// A write fails because the device has no room.
    Full,
    /// One random bit is wrong: in what is stored for a write, in what is returned for a read.
    FlippedBit,
    /// A random part of the pages of a write, from its start, is stored; the write succeeds.
    Torn,
    /// A write stores zeros and succeeds.
    Zeroed,
    /// A write stores nothing and succeeds. A sync makes nothing durable and succeeds.
    Lost,
    /// A write is stored at a random other place and succeeds.
    Misdirected,
    /// The access takes this much longer.
    Slow(Duration),
}

impl Fault {
    /// Whether this fault makes sense for an access of that kind.
    fn applies_to(&self, operation: Operation) -> bool {
        match self {
            Self::Error | Self::Slow(_) => true,
            Self::FlippedBit => matches!(operation, Operation::Read | Operation::Write),
            Self::Lost => matches!(operation, Operation::Write | Operation::Sync),
            Self::Full | Self::Torn | Self::Zeroed | Self::Misdirected => {
                operation == Operation::Write
            }
        }
    }
}

/// Which accesses a scripted fault meets.
#[derive(Clone, Debug)]
pub struct When {
    /// The kind of access.
    pub operation: Operation,
    /// Only accesses that touch a byte of this range; all when `None`. Syncs have no place.
    pub within: Option<Range<u64>>,
    /// Let this many accesses pass first.
    pub after: u64,
    /// Meet this many accesses; `u64::MAX` for all that follow.
    pub times: u64,
}

impl When {
    /// The next access of a kind.
    pub fn next(operation: Operation) -> Self {
        Self {
            operation,
            within: None,
            after: 0,
            times: 1,
        }
    }

    /// Every access of a kind from now on.
    pub fn every(operation: Operation) -> Self {
        Self {
            times: u64::MAX,
            ..Self::next(operation)
        }
    }

    /// The same, but only where it touches `within`.
    pub fn within(self, within: Range<u64>) -> Self {
        Self {
            within: Some(within),
            ..self
        }
    }

    /// The same, but after `after` of them have passed.
    pub fn after(self, after: u64) -> Self {
        Self { after, ..self }
    }
}

/// The faults to come.
#[derive(Debug, Default)]
pub(super) struct Plan {
    scripts: Vec<(When, Fault)>,
    /// How likely each fault is for each access of a kind, from 0 to 1.
    rates: Vec<(Operation, Fault, f64)>,
}

impl Plan {
    pub(super) fn add(&mut self, when: When, fault: Fault) {
        check(when.operation, &fault);
        self.scripts.push((when, fault));
    }

    pub(super) fn set_rates(&mut self, rates: Vec<(Operation, Fault, f64)>) {
        for (operation, fault, _) in &rates {
            check(*operation, fault);
        }
        self.rates = rates;
    }

    /// The faults that this access meets, at most one of each origin.
    pub(super) fn pick(
        &mut self,
        random: &mut SmallRng,
        operation: Operation,
        range: &Range<u64>,
    ) -> Vec<Fault> {
        let mut picked: Vec<Fault> = self.scripted(operation, range).into_iter().collect();
        for (met, fault, rate) in &self.rates {
            if *met == operation && *rate > 0.0 && random.random_bool(rate.clamp(0.0, 1.0)) {
                picked.push(fault.clone());
            }
        }
        picked
    }

    fn scripted(&mut self, operation: Operation, range: &Range<u64>) -> Option<Fault> {
        let mut met = None;
        for (index, (when, fault)) in self.scripts.iter_mut().enumerate() {
            let is_there = when
                .within
                .as_ref()
                .is_none_or(|within| within.start < range.end && range.start < within.end);
            if when.operation != operation || !is_there {
                continue;
            }
            if when.after > 0 {
                when.after -= 1;
            } else if when.times > 0 && met.is_none() {
                if when.times != u64::MAX {
                    when.times -= 1;
                }
                met = Some((index, fault.clone()));
            }
        }
        let (index, fault) = met?;
        if self.scripts[index].0.times == 0 {
            self.scripts.remove(index);
        }
        Some(fault)
    }
}

fn check(operation: Operation, fault: &Fault) {
    assert!(
        fault.applies_to(operation),
        "{fault:?} cannot happen to a {operation}"
    );
}
