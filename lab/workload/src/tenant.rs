//! One application's share of a workload: its keys, its operations, and the sizes of its values.

use crate::key_id::KeyId;
use crate::keys::KeySize;
use crate::mix::{Mix, Op};
use crate::popularity::{Picker, Popularity};
use crate::request::Request;
use crate::settings::Settings;
use crate::sizes::ValueSize;
use crate::stream::{Stream, mix_pair, word_of};
use crate::turnover::Turnover;
use crate::weighted::Weighted;

/// Shares of the operations that go to keys other than those in use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Churn {
    /// Share of the sets that go to a key that no request asks for again.
    pub(crate) unread_sets: f64,
    /// Share of the gets that go to a key requested once.
    pub(crate) once_gets: f64,
    /// Share of the sets that replace the oldest key by a new one; no request asks for the oldest key again.
    /// The remaining sets are updates: they go to keys in use, by their popularity.
    pub(crate) renewing_sets: f64,
}

/// The workload of a name, before settings override parts of it.
pub(crate) struct Preset {
    pub(crate) shares: Vec<Share>,
    pub(crate) key_size: KeySize,
    pub(crate) set_on_miss: bool,
}

/// One application's part of a preset.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// Number of the application; 0 if there is only one.
    pub(crate) application: u16,
    /// Its share of the requests, relative to the weights of the other applications.
    pub(crate) weight: f64,
    pub(crate) keys: u64,
    pub(crate) mix: Mix,
    pub(crate) popularity: Popularity,
    pub(crate) value_size: ValueSize,
    pub(crate) ttls: Option<Weighted<u32>>,
    pub(crate) churn: Churn,
}

impl Share {
    /// Returns the only share of a workload that only reads.
    pub(crate) fn reading(keys: u64, popularity: Popularity, value_size: ValueSize) -> Self {
        Self {
            application: 0,
            weight: 1.0,
            keys,
            mix: Mix::READS,
            popularity,
            value_size,
            ttls: None,
            churn: Churn::default(),
        }
    }
}

/// The behaviour of one application. Immutable; its clients keep their own [`TenantClient`].
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    pub(crate) share: Share,
    picker: Picker,
    turnover: Turnover,
}

impl Tenant {
    /// Returns a share of a preset as changed by `settings`.
    pub(crate) fn new(mut share: Share, settings: &Settings) -> Self {
        share.churn.unread_sets = settings.unread.unwrap_or(share.churn.unread_sets);
        share.churn.renewing_sets = settings.renewing.unwrap_or(share.churn.renewing_sets);
        share.mix = settings.mix.unwrap_or(share.mix);
        share.value_size = settings.value_size.clone().unwrap_or(share.value_size);
        Self {
            picker: Picker::new(&share.popularity, share.keys, settings.clients),
            turnover: Turnover::new(share.keys, settings.clients),
            share,
        }
    }

    #[inline]
    pub(crate) fn key(&self, number: u64) -> KeyId {
        KeyId::of_application(self.share.application, number)
    }

    pub(crate) fn client(&self, client: u64) -> TenantClient {
        let churn = self.share.churn;
        TenantClient {
            mix: self.share.mix,
            churn: churn != Churn::default(),
            picker: self.picker.for_client(client),
            turnover: self.turnover.for_client(client),
            passing_gets_below: word_of(churn.once_gets),
            passing_sets_below: word_of(churn.unread_sets),
            new_sets_below: word_of(churn.unread_sets + churn.renewing_sets),
        }
    }

    #[inline]
    pub(crate) fn request(&self, op: Op, key: KeyId, seed: u64) -> Request {
        Request {
            op,
            key,
            key_len: None,
            value_len: self.share.value_size.of(seed, key),
            ttl_s: ttl_of(self.share.ttls.as_ref(), seed, key),
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

    /// Returns the number of the key of the next request, which performs `op`.
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

/// Keeps the time to live of a key independent of its sizes.
const TTL_SALT: u64 = 0x7474_6C00;

/// Returns the time to live of the values of `id`, in seconds; 0 if they never expire. It never changes for a
/// key.
#[inline]
pub(crate) fn ttl_of(ttls: Option<&Weighted<u32>>, seed: u64, id: KeyId) -> u32 {
    ttls.map_or(0, |ttls| *ttls.choose(mix_pair(TTL_SALT, seed, id.0)))
}
