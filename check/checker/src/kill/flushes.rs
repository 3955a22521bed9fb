//! Delayed flushes under the clock of this machine, which the server shares.
//!
//! A server applies a delayed flush at some moment after its second has begun. For the history that is a
//! flush requested when the second may have begun for the server, and answered when it has certainly begun.
//! The flush certainly happens only if no other flush was under way at the same time: the later one replaces
//! the earlier.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::history::{Asked, Effect, History, Moment};

/// Largest difference between the two clocks, including the time for which the server may use a second that
/// has passed.
const SLACK: Duration = Duration::from_millis(1500);

/// Returns the time since the start of 1970.
pub(super) fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// A flush command that has been requested.
pub(super) struct FlushAsked {
    number: u64,
    /// Whether no other flush was under way.
    is_alone: bool,
    /// Its request in the history, if the flush has no delay.
    asked: Option<Asked>,
    delay: u32,
    at: Moment,
}

impl FlushAsked {
    pub(super) fn is_delayed(&self) -> bool {
        self.delay > 0
    }
}

struct Delayed {
    number: u64,
    /// Earliest and latest time of the flush.
    from: Duration,
    until: Option<Duration>,
    answered: Option<Moment>,
    /// Whether the flush was answered and no other flush can have replaced it.
    is_sure: bool,
    /// Its request in the history, from the earliest time on.
    coming: Option<Asked>,
}

/// The flush commands of all clients.
#[derive(Default)]
pub(super) struct Flushes {
    delayed: Vec<Delayed>,
    asked: u64,
    under_way: u32,
}

impl Flushes {
    /// Moves the flushes to time `now`.
    pub(super) fn pass(&mut self, history: &mut History, now: Duration) {
        for flush in &mut self.delayed {
            if flush.coming.is_none() && now >= flush.from {
                flush.coming = Some(history.ask_flush());
            }
            let has_come = flush.until.is_some_and(|until| now >= until);
            if let Some(asked) = flush.coming.filter(|_| has_come) {
                if flush.is_sure {
                    history.answer(asked, Some(Effect::Gone), 0);
                } else {
                    history.leave_in_doubt(asked);
                }
            }
        }
        self.delayed
            .retain(|flush| flush.until.is_none_or(|until| now < until));
    }

    /// Requests a flush, at once or in `delay` seconds.
    pub(super) fn ask(&mut self, history: &mut History, delay: u32) -> FlushAsked {
        for flush in &mut self.delayed {
            flush.is_sure = false;
        }
        self.asked += 1;
        let is_alone = self.under_way == 0;
        self.under_way += 1;
        let at = history.tick();
        if delay > 0 {
            self.delayed.push(Delayed {
                number: self.asked,
                from: (now() + Duration::from_secs(delay.into())).saturating_sub(SLACK),
                until: None,
                answered: None,
                is_sure: false,
                coming: None,
            });
        }
        FlushAsked {
            number: self.asked,
            is_alone,
            asked: (delay == 0).then(|| history.ask_flush()),
            delay,
            at,
        }
    }

    /// Records an answer. Delayed flushes answered before this one was requested will not happen.
    pub(super) fn answer(&mut self, history: &mut History, asked: &FlushAsked) {
        self.under_way -= 1;
        let is_replaced = |flush: &Delayed| {
            flush.coming.is_none() && flush.answered.is_some_and(|answered| answered < asked.at)
        };
        self.delayed.retain(|flush| !is_replaced(flush));
        match asked.asked {
            Some(at_once) => history.answer(at_once, Some(Effect::Gone), 0),
            None => {
                let answered = history.tick();
                let is_sure = asked.is_alone && self.asked == asked.number;
                let number = asked.number;
                let flush = self.delayed.iter_mut().find(|flush| flush.number == number);
                if let Some(flush) = flush {
                    flush.until = Some(now() + Duration::from_secs(asked.delay.into()) + SLACK);
                    flush.answered = Some(answered);
                    flush.is_sure = is_sure;
                }
            }
        }
    }

    /// Records that the server has been killed: flushes without an answer may have happened.
    pub(super) fn end(&mut self, history: &mut History) {
        self.under_way = 0;
        history.end();
        for flush in &mut self.delayed {
            let late = flush.from + 2 * SLACK;
            flush.until.get_or_insert(late.max(now() + SLACK));
            flush.go_on(history);
        }
    }

    /// Forgets changes that can make no difference. No operation may be under way.
    pub(super) fn prune(&mut self, history: &mut History) {
        for flush in &mut self.delayed {
            flush
                .coming
                .into_iter()
                .for_each(|asked| history.leave_in_doubt(asked));
        }
        history.prune();
        for flush in &mut self.delayed {
            flush.go_on(history);
        }
    }
}

impl Delayed {
    /// Continues a flush that the history took for ended but that is still under way.
    fn go_on(&mut self, history: &mut History) {
        let coming = self.coming;
        self.coming = coming.map(|asked| history.ask_flush_since(asked.at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::history::Seen;

    const LATER: Duration = Duration::from_secs(1000);

    fn write(history: &mut History, tag: u64) {
        let effect = Effect::Value { tag, expiry: 0 };
        let asked = history.ask(1, effect);
        history.answer(asked, Some(effect), 0);
    }

    fn can_be_there(history: &History, tag: u64) -> bool {
        let seen = Seen {
            tag,
            expiry: None,
            unique: None,
            now: 0,
        };
        history.look(1, seen).is_ok()
    }

    #[test]
    fn a_delayed_flush_takes_what_was_there_when_it_came() {
        let (mut flushes, mut history) = (Flushes::default(), History::default());
        write(&mut history, 1);
        let asked = flushes.ask(&mut history, 100);
        flushes.answer(&mut history, &asked);
        flushes.pass(&mut history, now());
        assert!(history.certain(1).is_some(), "it has not come");
        flushes.pass(&mut history, now() + Duration::from_secs(100));
        assert!(history.certain(1).is_none(), "it may have come");
        assert!(can_be_there(&history, 1));
        write(&mut history, 2);
        flushes.end(&mut history);
        flushes.prune(&mut history);
        flushes.pass(&mut history, now() + LATER);
        assert!(!can_be_there(&history, 1));
        write(&mut history, 3);
        assert_eq!(history.certain(1).unwrap().tag, 3);
        assert!(flushes.delayed.is_empty());
    }

    #[test]
    fn what_is_written_once_a_flush_may_have_come_may_stay() {
        let (mut flushes, mut history) = (Flushes::default(), History::default());
        let asked = flushes.ask(&mut history, 100);
        flushes.answer(&mut history, &asked);
        flushes.pass(&mut history, now() + Duration::from_secs(100));
        write(&mut history, 1);
        flushes.end(&mut history);
        let seen = Seen {
            tag: 1,
            expiry: None,
            unique: None,
            now: 0,
        };
        history.settle(1, seen);
        flushes.prune(&mut history);
        flushes.pass(&mut history, now() + LATER);
        assert!(can_be_there(&history, 1), "the server was the first");
    }

    #[test]
    fn a_flush_takes_the_place_of_one_that_has_not_come() {
        let (mut flushes, mut history) = (Flushes::default(), History::default());
        let first = flushes.ask(&mut history, 100);
        flushes.answer(&mut history, &first);
        let second = flushes.ask(&mut history, 0);
        flushes.answer(&mut history, &second);
        write(&mut history, 1);
        flushes.pass(&mut history, now() + LATER);
        assert_eq!(history.certain(1).unwrap().tag, 1);
    }

    #[test]
    fn of_two_flushes_under_way_at_once_either_may_be_the_later_one() {
        let (mut flushes, mut history) = (Flushes::default(), History::default());
        let delayed = flushes.ask(&mut history, 100);
        let at_once = flushes.ask(&mut history, 0);
        flushes.answer(&mut history, &at_once);
        flushes.answer(&mut history, &delayed);
        write(&mut history, 1);
        flushes.pass(&mut history, now() + LATER);
        flushes.pass(&mut history, now() + LATER);
        assert!(can_be_there(&history, 1));
        assert!(history.certain(1).is_none(), "and it may be gone");
    }

    #[test]
    fn a_flush_that_was_never_answered_may_come() {
        let (mut flushes, mut history) = (Flushes::default(), History::default());
        write(&mut history, 1);
        let _asked = flushes.ask(&mut history, 100);
        flushes.end(&mut history);
        flushes.pass(&mut history, now() + LATER);
        assert!(can_be_there(&history, 1));
        assert!(history.certain(1).is_none());
    }
}
