//! Choice of the faults of an access: scripted faults first, then seeded faults by rate.

use std::ops::Range;
use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;

use crate::Operation;

/// Fault of one access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The access fails with an I/O error. A failed write stores a random part of its bytes. After a failed sync, a random part
    /// of the writes that it covered never becomes durable.
    Error,
    /// A write fails because the device is full.
    Full,
    /// One random bit is wrong: in the stored bytes of a write, or in the returned bytes of a read.
    FlippedBit,
    /// A write stores a random number of its first pages and succeeds.
    Torn,
    /// A write stores zeros and succeeds.
    Zeroed,
    /// A write stores nothing and succeeds. A sync makes nothing durable and succeeds.
    Lost,
    /// A write is stored at a random other offset and succeeds.
    Misdirected,
    /// The access takes this much longer.
    Slow(Duration),
}

impl Fault {
    /// Returns whether this fault can happen to an access of that kind.
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

/// The accesses that a scripted fault meets.
#[derive(Clone, Debug)]
pub struct When {
    /// The kind of access.
    pub operation: Operation,
    /// Only accesses that touch a byte of this range; all when `None`. A sync touches no bytes.
    pub within: Option<Range<u64>>,
    /// Number of accesses that pass before the fault.
    pub after: u64,
    /// Number of accesses that meet the fault; `u64::MAX` for all that follow.
    pub times: u64,
}

impl When {
    /// Creates a rule for the next access of a kind.
    pub fn next(operation: Operation) -> Self {
        Self {
            operation,
            within: None,
            after: 0,
            times: 1,
        }
    }

    /// Creates a rule for every access of a kind from now on.
    pub fn every(operation: Operation) -> Self {
        Self {
            times: u64::MAX,
            ..Self::next(operation)
        }
    }

    /// Restricts the rule to accesses that touch `within`.
    pub fn within(self, within: Range<u64>) -> Self {
        Self {
            within: Some(within),
            ..self
        }
    }

    /// Lets `after` matching accesses pass first.
    pub fn after(self, after: u64) -> Self {
        Self { after, ..self }
    }
}

/// Faults still to come.
#[derive(Debug, Default)]
pub(super) struct Plan {
    scripts: Vec<(When, Fault)>,
    /// Probability of each fault for an access of a kind, from 0 to 1.
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

    /// Returns the faults of this access: at most one script's, and at most one of each rate.
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
