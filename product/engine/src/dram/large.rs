//! [`LargeValues`]: the memory of large values, shared by the tiers of all partitions, and their CLOCK queue.
//!
//! Bytes are claimed before a value enters a tier, and given back when it leaves. The queue's lock is taken below a
//! partition's lock, for one operation on the queue.

use std::collections::BTreeMap;

use crate::key::KeyHash;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Large values of all partitions.
#[derive(Default)]
pub(crate) struct LargeValues {
    /// Bytes of large values in memory, and of claims.
    bytes: AtomicUsize,
    queue: Mutex<Queue>,
}

/// Large values in the order of the CLOCK hand.
#[derive(Default)]
struct Queue {
    values: BTreeMap<Ticket, Owner>,
    last: u64,
}

#[derive(Clone, Copy)]
struct Owner {
    partition: usize,
    hash: KeyHash,
}

/// Place of a large value in the queue. No two values ever have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// The value at the front of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Front {
    /// Place in the queue.
    pub(crate) ticket: Ticket,
    /// Number of the partition that has the value.
    pub(crate) partition: usize,
    /// Hash of the value's key.
    pub(crate) hash: KeyHash,
}

impl LargeValues {
    /// Returns the bytes of all large values and claims.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of large values.
    pub(crate) fn len(&self) -> usize {
        self.queue.lock().values.len()
    }

    /// Returns the value at the front of the queue.
    pub(crate) fn front(&self) -> Option<Front> {
        let queue = self.queue.lock();
        let (&ticket, &Owner { partition, hash }) = queue.values.first_key_value()?;
        Some(Front {
            ticket,
            partition,
            hash,
        })
    }

    /// Puts a value, whose bytes have been claimed, at the back of the queue.
    pub(super) fn enter(&self, partition: usize, hash: KeyHash) -> Ticket {
        self.queue.lock().push(Owner { partition, hash })
    }

    /// Removes a value of `bytes` that leaves memory.
    pub(super) fn leave(&self, ticket: Ticket, bytes: usize) {
        self.queue.lock().values.remove(&ticket);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Moves a value to the back of the queue. Returns its new place.
    pub(super) fn requeue(&self, ticket: Ticket) -> Ticket {
        let mut queue = self.queue.lock();
        match queue.values.remove(&ticket) {
            Some(owner) => queue.push(owner),
            None => ticket,
        }
    }
}

impl Queue {
    fn push(&mut self, owner: Owner) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        self.values.insert(ticket, owner);
        ticket
    }
}

/// Claim of a request on memory for a large value. The bytes that no value has taken are given back on drop.
pub(crate) struct LargeClaim<'v> {
    values: &'v LargeValues,
    bytes: usize,
    is_refused: bool,
}

impl<'v> LargeClaim<'v> {
    /// Creates a claim on no bytes.
    #[inline]
    pub(crate) fn new(values: &'v LargeValues) -> Self {
        Self {
            values,
            bytes: 0,
            is_refused: false,
        }
    }

    /// Claims `bytes` more, if all large values and claims together then take at most `most_bytes`.
    pub(crate) fn extend(&mut self, bytes: usize, most_bytes: usize) -> bool {
        let taken = self
            .values
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                taken.checked_add(bytes).filter(|sum| *sum <= most_bytes)
            });
        self.bytes += if taken.is_ok() { bytes } else { 0 };
        taken.is_ok()
    }

    /// Gives all bytes back, and notes that there is no memory for the value.
    pub(crate) fn refuse(&mut self) {
        self.reset();
        self.is_refused = true;
    }

    /// Gives all bytes back.
    pub(crate) fn reset(&mut self) {
        self.values.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = 0;
        self.is_refused = false;
    }

    /// Returns the claimed bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether there was no memory for the value.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Claims `bytes` of a value that is about to leave memory.
    pub(super) fn inherit(&mut self, bytes: usize) {
        self.values.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }

    /// Passes `bytes` on to a value that enters memory.
    pub(super) fn pass_on(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.bytes, "the bytes were claimed before");
        self.bytes -= bytes.min(self.bytes);
    }
}

impl Drop for LargeClaim<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.reset();
        }
    }
}
