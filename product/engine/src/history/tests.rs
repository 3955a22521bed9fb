//! Answers that a history allows, and answers that it rejects.

use super::*;

fn value(tag: u64) -> Effect {
    Effect::Value { tag, expiry: 0 }
}

fn value_seen(tag: u64) -> Seen {
    Seen {
        tag,
        expiry: Some(0),
        unique: None,
        now: 5,
    }
}

fn seen(tag: u64) -> Found {
    Ok(Some(value_seen(tag)))
}

/// Writes value `tag` to key 1, with its answer at `nanos`.
fn write(history: &mut History, tag: u64, nanos: u64) -> Asked {
    let asked = history.ask(1, value(tag));
    history.answer(asked, Some(value(tag)), nanos);
    asked
}

fn crash(settled: u64, remembered: u32, restart: u32) -> Crash {
    Crash {
        settled,
        remembered,
        restart,
        is_settled: true,
    }
}

fn flush_at(history: &mut History, deadline: u32, nanos: u64) {
    history.ask_flush_at(deadline);
    history.flush_at(deadline, nanos);
}

#[test]
fn what_was_overwritten_before_the_read_is_wrong() {
    let mut history = History::default();
    write(&mut history, 10, 0);
    let second = history.ask(1, value(11));
    let during = history.tick();
    assert_eq!(history.check(1, during, seen(10)), Ok(()));
    assert_eq!(history.check(1, during, seen(11)), Ok(()));
    history.answer(second, Some(value(11)), 0);
    assert_eq!(history.check(1, during, seen(10)), Ok(()), "it overlaps");
    let after = history.tick();
    let mut read = |key, tag| history.check(key, after, seen(tag));
    assert!(matches!(
        read(1, 10),
        Err(Wrong(Mistake::Resurrected { .. }))
    ));
    assert_eq!(read(1, 11), Ok(()));
    assert!(matches!(read(1, 12), Err(Wrong(Mistake::Invented { .. }))));
    assert!(matches!(read(2, 11), Err(Wrong(Mistake::Invented { .. }))));
    assert_eq!(history.check(1, after, Ok(None)), Ok(()));
    let damaged = history.check(1, after, Err(11));
    assert_eq!(damaged, Err(Mistake::Invented { key: 1, tag: 11 }.into()));
}

#[test]
fn a_miss_is_wrong_only_while_the_key_had_a_value_all_the_time() {
    let history = &mut History::default();
    let asked = history.tick();
    write(history, 7, 10);
    assert_eq!(history.check_miss(1, asked), Ok(()));
    let asked = history.tick();
    let missing = Err(Mistake::Missing { key: 1, asked }.into());
    assert_eq!(history.check_miss(1, asked), missing);
    let gone = history.ask(1, Effect::Gone);
    assert_eq!(history.check_miss(1, asked), Ok(()));
    history.answer(gone, Some(Effect::Gone), 20);
    write(history, 8, 30);
    assert_eq!(history.check_miss(1, asked), Ok(()));
    let asked = history.tick();
    let missing = Err(Mistake::Missing { key: 1, asked }.into());
    assert_eq!(history.check_miss(1, asked), missing);
}

#[test]
fn a_flush_hides_what_was_answered_before_it_was_asked_for() {
    let mut history = History::default();
    write(&mut history, 10, 0);
    let flush = history.ask_flush();
    write(&mut history, 11, 0);
    history.answer(flush, Some(Effect::Gone), 0);
    let now = history.tick();
    assert!(history.check(1, now, seen(10)).is_err());
    assert_eq!(history.check(1, now, seen(11)), Ok(()), "they overlap");
}

#[test]
fn a_crash_leaves_what_was_under_way_open_to_both() {
    let mut history = History::default();
    write(&mut history, 10, 0);
    let _second = history.ask(1, value(11));
    history.end();
    let now = history.tick();
    assert_eq!(history.check(1, now, seen(10)), Ok(()));
    assert_eq!(history.check(1, now, seen(11)), Ok(()));
    write(&mut history, 12, 0);
    let now = history.tick();
    assert!(history.check(1, now, seen(10)).is_err());
    assert!(history.check(1, now, seen(11)).is_err());
}

#[test]
fn a_power_cut_may_undo_what_was_not_settled() {
    let mut history = History::default();
    for (tag, nanos) in [(10, 100), (11, 200), (12, 300)] {
        write(&mut history, tag, nanos);
    }
    history.crash(&crash(250, 0, 0));
    let at = |tag| history.look(1, value_seen(tag));
    assert!(at(10).is_err(), "11 had settled");
    assert_eq!((at(11), at(12)), (Ok(Some(1)), Ok(Some(2))));
    assert!(history.follows(1, 1, 2).is_ok());
    assert!(history.follows(1, 2, 1).is_err(), "12 had been seen");
    let now = history.tick();
    assert_eq!(history.check(1, now, seen(12)), Ok(()));
    let now = history.tick();
    assert!(history.check(1, now, seen(11)).is_err(), "12 had been seen");
}

#[test]
fn an_expiry_is_kept_and_comes() {
    let mut history = History::default();
    let effect = Effect::Value {
        tag: 10,
        expiry: 50,
    };
    let asked = history.ask(1, effect);
    history.answer(asked, Some(effect), 0);
    let at = |expiry, now| Seen {
        tag: 10,
        expiry: Some(expiry),
        unique: None,
        now,
    };
    assert!(history.look(1, at(50, 49)).is_ok());
    assert!(history.look(1, at(50, 50)).is_err());
    assert!(history.look(1, at(0, 49)).is_err());
    history.crash(&crash(u64::MAX, 51, 20));
    assert!(history.look(1, at(50, 20)).is_err(), "it had expired");
}

#[test]
fn a_flush_comes_when_its_second_does() {
    let mut history = History::default();
    write(&mut history, 10, 0);
    flush_at(&mut history, 100, 0);
    history.end();
    history.pass(99);
    assert!(history.look(1, value_seen(10)).is_ok());
    history.pass(100);
    assert!(history.look(1, value_seen(10)).is_err());
    let mut forgotten = history.clone();
    forgotten.crash(&crash(u64::MAX, 0, 99));
    assert!(forgotten.look(1, value_seen(10)).is_ok());
}

#[test]
fn a_flush_is_in_doubt_until_a_start_after_it_has_settled() {
    let mut history = History::default();
    let flush = history.ask_flush();
    history.answer(flush, Some(Effect::Gone), 300);
    let mut unsettled = history.clone();
    history.crash(&crash(400, 5, 5));
    assert!(!history.is_flush_in_doubt(), "it had settled");
    unsettled.crash(&crash(250, 5, 5));
    assert!(unsettled.is_flush_in_doubt());
    let early = Crash {
        is_settled: false,
        ..crash(0, 5, 5)
    };
    unsettled.crash(&early);
    assert!(unsettled.is_flush_in_doubt());
    unsettled.crash(&crash(u64::MAX, 5, 5));
    assert!(!unsettled.is_flush_in_doubt());
}

#[test]
fn what_may_be_pending_is_so_until_its_second_has_passed() {
    let mut history = History::default();
    flush_at(&mut history, 100, 300);
    history.crash(&crash(250, 5, 5));
    write(&mut history, 10, 500);
    assert_eq!(history.certain(1), None);
    history.pass(101);
    assert_eq!(history.certain(1), None, "it may have been flushed");
    write(&mut history, 11, 600);
    assert!(history.certain(1).is_some());
}

#[test]
fn a_flush_to_come_that_was_under_way_at_a_crash_may_be_pending() {
    let mut history = History::default();
    flush_at(&mut history, 50, 300);
    history.ask_flush_at(100);
    history.crash(&crash(u64::MAX, 5, 5));
    write(&mut history, 10, 500);
    history.pass(50);
    assert!(history.look(1, value_seen(10)).is_ok(), "it was replaced");
    assert_eq!(history.certain(1), None, "it was not replaced");
    write(&mut history, 11, 600);
    history.pass(101);
    assert!(history.look(1, value_seen(11)).is_ok());
    assert_eq!(history.certain(1), None, "both may have come");
}

#[test]
fn a_flush_answered_after_one_to_come_takes_its_place() {
    let mut history = History::default();
    let flush = history.ask_flush();
    flush_at(&mut history, 100, 300);
    history.answer(flush, Some(Effect::Gone), 400);
    write(&mut history, 10, 500);
    history.pass(100);
    assert!(history.look(1, value_seen(10)).is_ok());
}

#[test]
fn a_cas_unique_belongs_to_one_value() {
    let mut history = History::default();
    let mut told = |tag, unique| {
        let asked = write(&mut history, tag, 0);
        history.told(asked, unique)
    };
    assert_eq!(told(10, 5), Ok(()));
    assert_eq!(told(11, 6), Ok(()));
    assert!(matches!(told(12, 5), Err(Wrong(Mistake::Unique { .. }))));
}

#[test]
fn what_is_certain_is_the_last_value_that_nothing_overlaps() {
    let mut history = History::default();
    let first = history.ask(1, value(10));
    assert_eq!(history.certain(1), None);
    history.answer(first, Some(value(10)), 0);
    let certain = history.certain(1).unwrap();
    assert_eq!((certain.tag, certain.expiry), (10, 0));
    let second = history.ask(1, value(11));
    assert_eq!(history.certain(1), None);
    history.answer(second, None, 0);
    let still = history.certain(1).unwrap();
    assert_eq!((still.tag, still.asked), (certain.tag, certain.asked));
    assert!(certain.is_untouched && !still.is_untouched);
    let flush = history.ask_flush();
    history.answer(flush, Some(Effect::Gone), 0);
    assert_eq!(history.certain(1), None);
}

#[test]
fn what_is_pruned_makes_no_difference() {
    let mut history = History::default();
    for tag in 10..20 {
        write(&mut history, tag, 0);
    }
    let doubtful = history.ask_flush();
    history.leave_in_doubt(doubtful);
    assert_eq!(history.certain(1), None, "it may be gone");
    history.prune();
    assert_eq!(history.keys[&1].len(), 1);
    assert!(history.look(1, value_seen(19)).is_ok());
    assert!(history.look(1, value_seen(18)).is_err());
    assert_eq!(history.certain(1), None);
    history.settle(1, value_seen(19));
    assert_eq!(history.certain(1).unwrap().tag, 19);
    history.prune();
    assert!(history.flushes.is_empty());
    let flush = history.ask_flush();
    history.answer(flush, Some(Effect::Gone), 0);
    history.prune();
    assert!(history.keys.is_empty());
    assert!(history.look(1, value_seen(19)).is_err());
}

#[test]
fn what_keeps_a_value_keeps_it_when_pruned() {
    let mut history = History::default();
    write(&mut history, 10, 0);
    write(&mut history, 11, 0);
    let kept = Effect::Kept { expiry: 50 };
    let touched = history.ask(1, kept);
    history.answer(touched, Some(kept), 0);
    history.prune();
    let seen = Seen {
        expiry: Some(50),
        ..value_seen(11)
    };
    assert!(history.look(1, seen).is_ok());
    assert!(history.look(1, value_seen(10)).is_err());
    history.settle(1, seen);
    assert_eq!(history.certain(1).unwrap().expiry, 50);
}

#[test]
fn a_value_goes_by_the_clock_that_it_was_stored_by() {
    let mut history = History::default();
    let day = Effect::Value {
        tag: 10,
        expiry: 100_000 + 86_400,
    };
    let asked = history.ask(1, day);
    history.answer(asked, Some(day), 0);
    history.pass(100_000);
    history.crash(&crash(u64::MAX, 100_000, 100_000));
    let read = |expiry, now| {
        let seen = Seen {
            tag: 10,
            expiry: Some(expiry),
            unique: None,
            now,
        };
        Ok(Some(seen))
    };
    for restart in [50_000, 900_000_000] {
        let mut history = history.clone();
        history.step_clock(100_000, 100_000, restart);
        let asked = history.tick();
        let expiry = restart + 86_400;
        let mut check = |expiry, now| history.check(1, asked, read(expiry, now));
        assert_eq!(check(expiry, expiry - 100), Ok(()));
        assert_eq!(check(expiry - 60, expiry - 100), Ok(()), "a little early");
        assert!(check(expiry + 100, expiry - 100).is_err(), "another expiry");
        assert!(check(expiry, expiry + 100).is_err(), "it has expired");
    }
}
