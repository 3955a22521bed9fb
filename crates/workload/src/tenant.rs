//! One application's share of a workload: its keys, its operations, and the sizes of its values.

use crate::key_id::KeyId;
use crate::mix::{Mix, Op};
use crate::popularity::Picker;
use crate::request::Request;
use crate::sizes::ValueSize;
use crate::stream::Stream;
use crate::ttl::Ttl;
use crate::turnover::Turnover;

/// Shares of the operations that go to other keys than those in use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Churn {
    /// Share of the sets that go to a key nobody ever asks for again.
    pub(crate) unread_sets: f64,
    /// Share of the gets that go to such a key.
    pub(crate) once_gets: f64,
    /// Share of the sets that bring a new key in the place of the oldest, which is never asked for
    /// again. The sets that remain are updates: they go to keys in use, by their popularity.
    pub(crate) renewing_sets: f64,
}

/// What one application does. Immutable; its clients keep their own [`TenantClient`].
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    /// Number of the application; 0 if there is only one.
    pub(crate) application: u16,
    pub(crate) keys: u64,
    pub(crate) mix: Mix,
    pub(crate) churn: Churn,
    pub(crate) picker: Picker,
    pub(crate) turnover: Turnover,
    pub(crate) value_size: ValueSize,
    pub(crate) ttl: Option<Ttl>,
}

impl Tenant {
    #[inline]
    pub(crate) fn key(&self, number: u64) -> KeyId {
        KeyId::of_application(self.application, number)
    }

    pub(crate) fn client(&self, client: u64) -> TenantClient {
        TenantClient {
            mix: self.mix,
            churn: self.churn != Churn::default(),
            picker: self.picker.for_client(client),
            turnover: self.turnover.for_client(client),
            passing_gets_below: threshold(self.churn.once_gets),
            passing_sets_below: threshold(self.churn.unread_sets),
            new_sets_below: threshold(self.churn.unread_sets + self.churn.renewing_sets),
        }
    }

    #[inline]
    pub(crate) fn request(&self, op: Op, key: KeyId, seed: u64) -> Request {
        Request {
            op,
            key,
            key_len: None,
            value_len: self.value_size.of(seed, key),
            ttl_s: self.ttl.as_ref().map_or(0, |ttl| ttl.of(seed, key)),
        }
    }
}

/// One client's draws of one application's keys. Not shared between threads.
#[derive(Clone, Debug)]
pub(crate) struct TenantClient {
    mix: Mix,
    churn: bool,
    picker: Picker,
    turnover: Turnover,
    passing_gets_below: u64,
    passing_sets_below: u64,
    new_sets_below: u64,
}

impl TenantClient {
    #[inline]
    pub(crate) fn op(&self, stream: &mut Stream) -> Op {
        self.mix.pick(stream)
    }

    /// The number of the key of the next request, which performs `op`.
    #[inline]
    pub(crate) fn number(&mut self, op: Op, stream: &mut Stream) -> u64 {
        if !self.churn {
            return self.picker.pick(op, stream);
        }
        let word = stream.next_u64();
        match op {
            Op::Get if word < self.passing_gets_below => self.turnover.passing(),
            Op::Set if word < self.passing_sets_below => self.turnover.passing(),
            Op::Set if word < self.new_sets_below => self.turnover.renew(),
            _ => self.turnover.occupant(self.picker.pick(op, stream)),
        }
    }
}

/// A share as a part of 2^64; 1 becomes the largest word.
fn threshold(share: f64) -> u64 {
    (share * 2f64.powi(64)) as u64
}
