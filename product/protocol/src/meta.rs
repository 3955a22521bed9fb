//! Commands of the meta protocol: `mg ms md ma mn me`.
//!
//! A command's flags are parsed into typed fields. They are also kept as sent, because replies return
//! flags in the order of the request.

use crate::exptime::{Expiry, Exptime};
use crate::key::MetaKey;
use crate::store_verb::StoreVerb;
use crate::words::Words;

/// A command of the meta protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaCommand<'a> {
    /// `mg <key> <flags>*`: get, touch, and the recache protocol.
    Get(MetaRequest<'a>),
    /// `ms <key> <datalen> <flags>*`, with its data block.
    Set(MetaSet<'a>),
    /// `md <key> <flags>*`.
    Delete(MetaRequest<'a>),
    /// `ma <key> <flags>*`.
    Arithmetic(MetaRequest<'a>),
    /// `me <key> [b]`.
    Debug(MetaKey<'a>),
    /// `mn`: answer `MN`, and send all pending replies.
    Noop,
}

/// A key and all flags that a meta command can have. Flags without a meaning for the command are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetaRequest<'a> {
    /// The key.
    pub key: MetaKey<'a>,
    /// All flags, in the order sent.
    pub flags: MetaFlags<'a>,
    /// `v`: answer the value (but see [`MetaRequest::wants_value`]).
    pub value: bool,
    /// `q`: no answer to a miss of `mg`, nor to success of other commands.
    pub quiet: bool,
    /// `u`: this read does not count as an access.
    pub no_bump: bool,
    /// `I` of `md`: keep the item, mark it as stale with a new CAS unique, let the next reader win.
    /// `I` of `ms`, with [`StoreVerb::Cas`] only: a CAS unique lower than the item's stores too, but marks
    /// the item as stale.
    pub invalidate: bool,
    /// `x` of `md`: store an empty item in place of the item, with its CAS unique, the expiry `T` and the client flags
    /// `F`, each 0 unless sent. With `I` it is stale, with a new CAS unique.
    pub remove_value: bool,
    /// `M` of `ma`: whether it decrements.
    pub decrement: bool,
    /// `F`: the client's own number.
    pub client_flags: u32,
    /// `T`: the new expiry of the item that is stored, read, changed, or kept (with `I` or `x`). For an item that the
    /// request creates, see [`expiry_of_new`](MetaRequest::expiry_of_new).
    pub touch: Option<Exptime>,
    /// `N`: on a miss, create an item with this expiry: for `mg` an empty one, which `mg` wins; for `ma` its
    /// number; for `ms` its value, with [`StoreVerb::Append`] and [`StoreVerb::Prepend`] only.
    pub vivify: Option<Exptime>,
    /// `R`: win if less than this time remains.
    pub recache: Option<Exptime>,
    /// `C`: act only if the item has this CAS unique; `mg` leaves the value out if it has. `None` where it is
    /// no condition: with `add`, and for a 0 with `ma`, [`StoreVerb::Append`] and [`StoreVerb::Prepend`].
    pub compare_cas: Option<u64>,
    /// `E`: the CAS unique of the item that is created, changed, or kept (with `I` or `x`). `None` for a 0 with `ms`.
    pub new_cas: Option<u64>,
    /// `D`: the difference that `ma` adds or subtracts; 1 unless sent.
    pub delta: u64,
    /// `J`: the number that `ma` creates.
    pub initial: u64,
}

impl<'a> MetaRequest<'a> {
    /// Returns a request whose flags have not been parsed.
    pub(crate) fn new(key: MetaKey<'a>, flags: MetaFlags<'a>) -> Self {
        Self {
            key,
            flags,
            delta: 1,
            ..Self::default()
        }
    }

    /// Returns whether the reply to a hit carries the value: `v` was sent, and the client does not hold
    /// this version (`C`).
    pub fn wants_value(&self, cas_unique: u64) -> bool {
        self.value && self.compare_cas != Some(cas_unique)
    }

    /// Returns whether this client wins the right to recache an item (`W`). `expiry` is the item's, after
    /// `T` if the request has it before `R`, else before `T`. `created` says that this request made the item.
    /// The caller then marks the item as won, so that later clients get `Z`.
    pub fn wins(
        &self,
        expiry: Expiry,
        stale: bool,
        token_sent: bool,
        created: bool,
        now: u32,
    ) -> bool {
        if created {
            return true;
        }
        let recache = self.recache.map(|exptime| exptime.to_absolute(now));
        let due = recache.is_some_and(|by| expiry != Expiry::NEVER && expiry.0 < by.0);
        (stale || due) && !token_sent
    }

    /// Returns whether `T` comes before `R`, so that the recache test sees the new expiry.
    pub fn touches_before_recache(&self) -> bool {
        self.comes_first(b'T', b'R')
    }

    /// Returns the expiry of an item that `mg` or `ma` creates: the later one of `N` and `T` in the line holds. `None`
    /// without `N`: no item is created.
    pub fn expiry_of_new(&self) -> Option<Exptime> {
        let vivify = self.vivify?;
        let touch = self.touch.filter(|_| self.comes_first(b'N', b'T'));
        Some(touch.unwrap_or(vivify))
    }

    /// Returns whether the flag `one` comes before the flag `other`, or the line has no `other`.
    fn comes_first(&self, one: u8, other: u8) -> bool {
        let letter = |flag: MetaFlag<'_>| flag.letter;
        let mut letters = self.flags.map(letter);
        letters.find(|&letter| letter == one || letter == other) == Some(one)
    }
}

/// The item that `ms` stores, and the verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaSet<'a> {
    /// The key and the flags.
    pub request: MetaRequest<'a>,
    /// The mode `M`; a `set` or `replace` with `C` is [`StoreVerb::Cas`].
    pub verb: StoreVerb,
    /// The data block, without its terminator.
    pub value: &'a [u8],
}

/// Iterator over the flags of a meta command, in the order sent; copy it to start again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetaFlags<'a>(pub(crate) Words<'a>);

/// One flag of a meta command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaFlag<'a> {
    /// The letter of the flag.
    pub letter: u8,
    /// The bytes between the letter and the next space.
    pub token: &'a [u8],
}

impl<'a> Iterator for MetaFlags<'a> {
    type Item = MetaFlag<'a>;

    #[inline]
    fn next(&mut self) -> Option<MetaFlag<'a>> {
        let (&letter, token) = self.0.next()?.split_first()?;
        Some(MetaFlag { letter, token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 1_700_000_000;

    fn get(flags: &'static [u8], recache: Option<i64>) -> MetaRequest<'static> {
        let flags = MetaFlags(Words::new(flags));
        MetaRequest {
            value: true,
            recache: recache.map(Exptime),
            compare_cas: Some(7),
            ..MetaRequest::new(MetaKey::plain(b"user:1"), flags)
        }
    }

    #[test]
    fn a_client_wins_once_for_a_stale_or_nearly_expired_item() {
        let plain = get(b"", None);
        assert!(!plain.wins(Expiry(NOW + 5), false, false, false, NOW));
        assert!(plain.wins(Expiry(NOW + 5), true, false, false, NOW));
        assert!(!plain.wins(Expiry(NOW + 5), true, true, false, NOW));
        assert!(plain.wins(Expiry::NEVER, false, false, true, NOW));

        let recaching = get(b"R30", Some(30));
        assert!(recaching.wins(Expiry(NOW + 29), false, false, false, NOW));
        assert!(!recaching.wins(Expiry(NOW + 30), false, false, false, NOW));
        assert!(!recaching.wins(Expiry::NEVER, false, false, false, NOW));
        assert!(!recaching.wins(Expiry(NOW + 29), false, true, false, NOW));
        assert!(!get(b"R-1", Some(-1)).wins(Expiry(NOW + 5), false, false, false, NOW));
    }

    #[test]
    fn the_order_of_flags_decides_what_recache_sees() {
        assert!(get(b"v T60 R30", Some(30)).touches_before_recache());
        assert!(!get(b"v R30 T60", Some(30)).touches_before_recache());
        assert!(!get(b"v R30", Some(30)).touches_before_recache());
    }

    #[test]
    fn the_later_one_of_two_expiries_holds_for_a_new_item() {
        let new = |flags, touch| {
            let request = MetaRequest {
                vivify: Some(Exptime(30)),
                touch,
                ..get(flags, None)
            };
            request.expiry_of_new()
        };
        let long = Some(Exptime(300));
        assert_eq!(new(b"v N30", None), Some(Exptime(30)));
        assert_eq!(new(b"v N30 T300", long), long);
        assert_eq!(new(b"T300 v N30", long), Some(Exptime(30)));
        assert_eq!(get(b"T300", None).expiry_of_new(), None);
    }

    #[test]
    fn a_known_version_is_not_sent_again() {
        assert!(!get(b"", None).wants_value(7));
        assert!(get(b"", None).wants_value(8));
    }
}
